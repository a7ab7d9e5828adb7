// Owns what this machine can and cannot do for weft, found out without changing anything.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

// `limited` works with a loss, `absent` is an option that this machine lacks; only `broken` keeps
// weft from running.
enum class Health { good, limited, absent, broken };
[[nodiscard]] const char* to_string(Health health);

// One thing that was looked at. All texts are for people, except the topic.
struct Finding {
  std::string topic;  // a stable name, for scripts
  Health health = Health::good;
  std::string found;   // what is the case, in plain words
  std::string matter;  // what it means for weft
  std::string remedy;  // what to do; empty if nothing is needed
};

// In the order that people should read them. Needs no privilege and leaves nothing behind.
[[nodiscard]] std::vector<Finding> examine_machine();

// False if weft's own needs are not met: some finding is `broken`.
[[nodiscard]] bool can_run(const std::vector<Finding>& findings);

}  // namespace weft::cli
