// Owns starting weftd programs, and where the named ones live.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "emu/launch/temporary_directory.hpp"
#include "srd/base/result.hpp"

namespace weft::launch {

// Each is an option of the weftd program; weftd checks them.
struct WeftdOptions {
  std::size_t hosts = 2;
  std::vector<std::string> host_names{};  // if given: of all hosts, and `hosts` does not count
  std::size_t nics = 1;
  std::size_t mtu = 0;  // payload bytes; 0: weftd's own choice
  bool direct_rings = true;
  std::string topology{};  // a file; then `hosts` and `nics` do not count
  std::uint64_t seed = 1;
  double dilation = 1;
  std::size_t first_host = 1;
  bool routable = false;             // addresses for kernels with a network of their own
  std::vector<std::string> ports{};  // to the outside: docs/weftd.md
  std::string join_key{};            // file of the key of its udp ports
  std::string events{};              // a file for weftd's event log
  std::uint16_t metrics_port = 0;    // of 127.0.0.1; 0: none
  bool share = false;                // make the folder that containers mount
  std::vector<uid_t> other_users{};  // who may attach, beside this user and root
};

// A file that was built with this program and lies beside it or in its build tree.
[[nodiscard]] std::string companion(const std::string& file, const std::string& folder_in_build);

// The longest times that a weftd may take to start, and to end.
inline constexpr std::chrono::seconds kPatienceWithStart{10};
inline constexpr std::chrono::seconds kPatienceWithEnd{5};

// Starts a weftd on that directory and returns its process id once it accepts programs. A bound one
// ends with this program (PR_SET_PDEATHSIG); another one goes on.
[[nodiscard]] Result<pid_t> start_weftd(const std::string& directory, const WeftdOptions& options,
                                        bool bound);

// Ends the weftd on that directory, and waits until it is gone. False: there was none.
[[nodiscard]] Result<bool> stop_weftd(const std::string& directory);

// The directory of the weftd of that name. It, and its parent, must belong to this user, have mode
// 0700, and be no links: otherwise another user could take the sockets' place.
[[nodiscard]] Result<std::string> named_directory(const std::string& name, bool create);

// The names of this user's networks, in order: all that have a directory, and those that are up.
[[nodiscard]] std::vector<std::string> networks_there();
[[nodiscard]] std::vector<std::string> networks_that_are_up();

// A weftd that belongs to this object: it ends, and its directory goes, with the object.
class PrivateWeftd {
 public:
  [[nodiscard]] static Result<PrivateWeftd> start(const WeftdOptions& options);

  PrivateWeftd(PrivateWeftd&& other) noexcept;
  PrivateWeftd& operator=(PrivateWeftd&& other) = delete;
  ~PrivateWeftd();

  [[nodiscard]] const std::string& directory() const { return directory_.path(); }
  [[nodiscard]] std::string socket() const { return directory() + "/attach.sock"; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  explicit PrivateWeftd(TemporaryDirectory directory) : directory_(std::move(directory)) {}
  TemporaryDirectory directory_;
  pid_t pid_ = -1;
};

}  // namespace weft::launch
