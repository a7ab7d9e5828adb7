// Owns programs in guests with Linux's own soft-RoCE, where others run on emulated devices: `weft
// run
// --device softroce`.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "emu/cli/programs.hpp"
#include "emu/launch/temporary_directory.hpp"
#include "srd/base/result.hpp"

namespace weft::cli {

inline constexpr const char* kSoftroceDevice = "softroce";

// A guest for each program: it hangs on the link of its host, and sees this machine's files.
class Guests {
 public:
  // Of that many hosts. An error, with the remedy, where this machine cannot run guests.
  [[nodiscard]] static Result<Guests> prepare(std::size_t hosts);

  // What the network must be started with.
  [[nodiscard]] std::vector<std::string> ports() const;
  // Once the network in that directory is up: learns the guests' addresses.
  [[nodiscard]] Result<void> meet(const std::string& directory);
  // The command line that runs `command` in the guest of that host. {h1.ip}, {h1.dev} and {h1.gid}
  // are the guests'.
  [[nodiscard]] Result<Words> around(const Words& command, const std::string& host) const;

 private:
  Guests(launch::TemporaryDirectory folder, std::size_t hosts)
      : folder_(std::move(folder)), hosts_(hosts) {}
  [[nodiscard]] std::string fill(const std::string& word) const;

  launch::TemporaryDirectory folder_;  // for the sockets between weftd and the guests
  std::size_t hosts_;
  std::string directory_{};
  std::map<std::string, std::string> placeholders_{};
};

}  // namespace weft::cli
