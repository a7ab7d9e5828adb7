// Owns a network namespace for one emulated host, whose only cable is a tap into weftd's network.
#pragma once

#include <cstddef>
#include <string>

#include "emu/attach/protocol.hpp"
#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {

// The namespace exists until this object and all programs in it are gone; its tap goes with this
// object. Needs user namespaces, or root; create() says what is missing.
class HostNetwork {
 public:
  static constexpr std::size_t kMax = attach::kMaxPorts;  // of one weftd

  // `address` is the IPv4 address of the host's first NIC; the kernel in there answers to it too.
  [[nodiscard]] static Result<HostNetwork> create(const std::string& weftd_directory,
                                                  const std::string& host,
                                                  const std::string& address);

  // Between fork and exec, in a process with one thread. False: errno says why.
  [[nodiscard]] bool enter() const;

 private:
  srd::UniqueFd donor_;  // the connection with which weftd was given the tap
  srd::UniqueFd user_;   // the user namespace; empty if it is our own
  srd::UniqueFd network_;
};

}  // namespace weft::launch
