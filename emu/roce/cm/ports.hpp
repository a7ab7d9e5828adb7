// Owns which ports of a port space ids of this process are bound to, by the rules of Linux.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "emu/roce/cm/types.hpp"
#include "srd/base/rng.hpp"

namespace weft::roce::cm {

// Decides which process of a host may have a port. The owner implements it, for all NICs of the
// host: while a process has a service, requests for it come to that process. A process may claim a
// service only once, and Ports does not do it twice.
class ServiceClaims {
 public:
  // False: another process has it, or this one has too many.
  [[nodiscard]] virtual bool claim(std::uint64_t service) = 0;
  virtual void release(std::uint64_t service) = 0;

 protected:
  ~ServiceClaims() = default;
};

struct Binding {
  PortSpace space = PortSpace::tcp;
  SocketAddress address;
  bool reuse = false;       // RDMA_OPTION_ID_REUSEADDR
  bool own_family = false;  // RDMA_OPTION_ID_AFONLY
  bool outgoing = false;    // no request is sent to it: other processes may have it, too
};

// Within the process several ids may have a port, at different addresses, or all with `reuse`. An
// owner is the id's slot; the binding that is passed must be the one that was bound.
class Ports {
 public:
  Ports(ServiceClaims& claims, std::uint64_t seed) : claims_(claims), rng_(seed) {}
  ~Ports();
  Ports(const Ports&) = delete;
  Ports& operator=(const Ports&) = delete;

  // Port 0: finds one, and writes it into `binding`. 0, or an errno: EADDRINUSE, and EADDRNOTAVAIL
  // where one of the two addresses that meet is that of any interface.
  [[nodiscard]] int bind(std::uint32_t owner, Binding& binding);
  // Before it listens: `reuse` does not count here.
  [[nodiscard]] int check_listen(std::uint32_t owner, const Binding& binding) const;
  // Of an outgoing binding that is there: requests are to come here after all. 0, or EADDRINUSE.
  [[nodiscard]] int claim(const Binding& binding);
  void release(std::uint32_t owner, const Binding& binding);
  // The options of a binding that is there have changed.
  void change(std::uint32_t owner, const Binding& binding);

 private:
  struct Entry {
    std::uint32_t owner;
    Binding binding;
  };
  // One service: those who are bound to it here, and whether this process has claimed it.
  struct Service {
    std::vector<Entry> entries;
    bool claimed = false;
  };
  static constexpr std::uint16_t kFirstEphemeral = 32768;
  static constexpr std::uint32_t kEphemerals = 60999 - kFirstEphemeral + 1;
  static constexpr int kMaxTries = 256;  // each may ask another process

  [[nodiscard]] int conflict(std::uint32_t owner, const Binding& binding, bool reuse) const;
  [[nodiscard]] int find_port(std::uint32_t owner, Binding& binding);

  ServiceClaims& claims_;
  Rng rng_;
  std::map<std::uint64_t, Service> services_;  // by id
};

}  // namespace weft::roce::cm
