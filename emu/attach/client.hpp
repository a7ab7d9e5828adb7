// Owns attaching to a weftd's network: getting a place there, and keeping it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/io/network_protocol.hpp"
#include "srd/io/posix.hpp"
#include "srd/io/ring_ports.hpp"
#include "srd/net/address.hpp"

namespace weft::attach {

// This code runs inside other people's programs: it starts no thread, prints nothing, and after
// attaching allocates only when weftd changes something. The functions below block; call them from
// any thread.
struct AttachOptions {
  std::string socket;  // empty: $WEFT_SOCKET
  std::string host;    // empty: $WEFT_HOST, or else the first host
  std::uint32_t nic = 0;
  const srd::NetworkProtocol* protocol = nullptr;  // null: SRD
  std::size_t ring_bytes = 0;                      // 0: weftd decides
  bool direct_rings = true;
  // Called when the NIC's link goes down or comes up again, on the thread that polls the rings at
  // that moment. The link counts as up at first.
  std::function<void(bool up)> on_link{};
};

// What a process may ask of weftd while it is attached. Only for the thread that holds the Host's
// lock, as all use of the rings. All but the releases wait for the answer.
class Services {
 public:
  // The services of connection management (ports of rdma_cm) for which this process answers on its
  // NIC.

  // False: another process of the NIC does, or there is no weftd to ask.
  // Claims are not counted: one release() is enough.
  [[nodiscard]] virtual bool claim(std::uint64_t service) = 0;
  virtual void release(std::uint64_t service) = 0;

  // From now on packets to that multicast group come to this process. False: it is in too many.
  [[nodiscard]] virtual bool join(const srd::Address& group) = 0;
  virtual void leave(const srd::Address& group) = 0;

  // False: nobody on the network has that address. True: somebody has, or it is not known.
  [[nodiscard]] virtual bool may_exist(const srd::Address& address) = 0;

 protected:
  ~Services() = default;
};

// A place on the network. It lasts as long as `io`, also while weftd is away: what is sent then is
// dropped, but for direct rings, and the place is asked for again. The numbers here never change.
struct Attachment {
  srd::Address address;  // the NIC's; also its GID
  srd::AttachmentId id;
  srd::Life life;
  std::uint32_t first_qpn = 0;  // this process's queue pair numbers
  std::uint32_t qpn_count = 0;
  std::size_t mtu = 0;                 // largest transport packet, header and payload
  std::unique_ptr<srd::RingPorts> io;  // detaches when it is destroyed
  Services* services = nullptr;        // lives as long as `io`
};

// Each step of attaching waits for a core. Where 70 programs that poll share two cores, a step
// takes 200 ms, and five seconds were too short.
inline constexpr int kHandshakeMilliseconds = 20'000;

// Connects, asks for a place, and maps the rings. The error says what to do when there is no weftd,
// or why weftd refuses.
[[nodiscard]] Result<Attachment> attach(AttachOptions options = {});

// The addresses of the NICs of options.host, in order. Takes no place.
[[nodiscard]] Result<std::vector<srd::Address>> describe_host(AttachOptions options = {});

// Makes a tap the kernel's end of the link of options.host. weftd has it until the connection,
// which is returned, ends.
[[nodiscard]] Result<srd::UniqueFd> give_tap(AttachOptions options, int tap);

}  // namespace weft::attach
