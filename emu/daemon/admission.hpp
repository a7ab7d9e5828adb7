// Owns which users' processes may attach to a network.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "emu/daemon/event_log.hpp"
#include "srd/base/result.hpp"

namespace weft::daemon {

// Asks the kernel for the user at the other end of a connection, as weftd's user namespace sees
// him. Admitted are weftd's own user, root, and those that were named when the network was started.
// Every refusal counts; of each user's the 1st, 2nd, 4th, 8th ... are logged.
class Admission {
 public:
  Admission(std::vector<uid_t> others, EventLog& events);

  // Users that weftd's user namespace does not know all look alike there: they can be admitted only
  // together, and so never by that number.
  [[nodiscard]] static Result<void> check(const std::vector<uid_t>& others);

  // Why that connection may not stay; nothing if it may.
  [[nodiscard]] std::optional<std::string> refusal(int socket);
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  void count(uid_t user);

  std::vector<uid_t> others_;
  EventLog& events_;
  std::uint64_t refused_ = 0;
  std::map<uid_t, std::uint64_t> refused_of_;
};

}  // namespace weft::daemon
