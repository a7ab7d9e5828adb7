// Owns weftd's ports to the outside: other weftds, NICs, the kernel, virtual machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emu/attach/protocol.hpp"
#include "emu/daemon/plant.hpp"
#include "emu/daemon/whereabouts.hpp"
#include "srd/base/result.hpp"
#include "srd/io/frame_io.hpp"

namespace weft::daemon {

// "KIND:ARGUMENTS" or "KIND:ARGUMENTS@HOST": udp:LOCAL,REMOTE, dpdk:DEVARGS, tap:NAME,
// dgram:LOCAL,REMOTE. With a host, in a modelled network, the port is attached to the link of that
// host's first NIC. A third argument `insecure` of a udp port says that no key is needed.
struct OutsideSpec {
  std::string text;
  std::string kind;
  std::string arguments;
  std::string host;
  bool insecure = false;
};
[[nodiscard]] Result<OutsideSpec> parse_outside(const std::string& text);
// `join_key` is the file of the key that udp ports need, or empty.
[[nodiscard]] Result<std::unique_ptr<srd::FrameIo>> open_outside(const OutsideSpec& spec,
                                                                 std::size_t max_frame,
                                                                 const std::string& join_key);

// The ports, and which address lives behind which of them (Whereabouts). Frames that leave are
// staged: copied, since a FrameIo sends in bursts, and flushed at the end of a round or when a
// burst is full. All of it belongs to the forwarding thread.
class Outside {
 public:
  static constexpr std::size_t kMaxPorts = attach::kMaxPorts;
  static constexpr std::size_t kBurst = 32;

  struct Port {
    std::string name;
    std::uint32_t serial = 0;       // of all that were ever added
    const PlantNic* nic = nullptr;  // to whose link it is attached; null: to none
    bool proved = false;            // its frames come with a proof of their sender
    bool is_kernel = false;         // a tap: the kernel behind it may have the address of its host
    std::unique_ptr<srd::FrameIo> io;  // null: the port was removed, and the number is free
    std::uint64_t dropped = 0;         // frames from there, or to there, that were dropped
    // Frames on their way out in this round.
    std::vector<std::byte> staged;
    std::vector<std::size_t> ends;
  };

  explicit Outside(std::size_t max_frame) : max_frame_(max_frame) {}

  // The number of the port.
  [[nodiscard]] Result<std::size_t> add(std::string name, std::unique_ptr<srd::FrameIo> io,
                                        const PlantNic* nic);
  // Also forgets all addresses behind it.
  [[nodiscard]] std::unique_ptr<srd::FrameIo> remove(std::size_t port);
  [[nodiscard]] std::size_t max_frame() const { return max_frame_; }
  // All numbers are below this; some may be free.
  [[nodiscard]] std::size_t size() const { return ports_.size(); }
  [[nodiscard]] bool is_there(std::size_t port) const { return ports_[port]->io != nullptr; }
  // A tap on that NIC's link is the kernel of its host.
  [[nodiscard]] bool has_kernel(const PlantNic& nic) const;
  [[nodiscard]] Port& port(std::size_t index) { return *ports_[index]; }
  [[nodiscard]] const Port& port(std::size_t index) const { return *ports_[index]; }

  // Learns from a frame of that port where its sender lives, by Ethernet or network address. False:
  // that address lives behind another port. The caller has checked that it is none of our NICs'.
  [[nodiscard]] bool claim(TimePoint now, std::size_t port, std::span<const std::byte> frame);
  [[nodiscard]] bool claim(TimePoint now, std::size_t port, const srd::Address& address);
  // Behind which port an address lives. -1: not known.
  [[nodiscard]] int find(std::span<const std::byte> frame) const;  // by its destination on Ethernet
  [[nodiscard]] int find(const srd::Address& address) const;

  [[nodiscard]] bool has_room(std::size_t port);
  // Keeps a copy until flush(). With `seal` the packet's checksums are computed, which senders in
  // memory leave out.
  void stage(std::size_t port, std::span<const std::byte> frame, bool seal);
  void flush();

  // For a loop that is about to sleep. arm() is false if a frame is there. blind(): some port has
  // no descriptor to wait on.
  [[nodiscard]] bool arm();
  void disarm();
  [[nodiscard]] bool blind() const;

 private:
  void flush(Port& port);
  void disarm(std::size_t first_ports);

  std::size_t max_frame_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::uint32_t serials_ = 0;
  Whereabouts<std::uint64_t> by_mac_;
  Whereabouts<srd::Address> by_address_;
};

}  // namespace weft::daemon
