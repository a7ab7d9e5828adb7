// Owns weftd's ports to the outside: other weftds, NICs, the kernel, virtual machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "emu/daemon/plant.hpp"
#include "srd/base/result.hpp"
#include "srd/io/frame_io.hpp"

namespace weft::emu {

// "KIND:ARGUMENTS" or "KIND:ARGUMENTS@HOST": udp:LOCAL,REMOTE, dpdk:DEVARGS, tap:NAME,
// dgram:LOCAL,REMOTE. With a host the port hangs on the link of its first NIC, where there is a
// modelled network.
struct OutsideSpec {
  std::string text;
  std::string kind;
  std::string arguments;
  std::string host;
};
[[nodiscard]] Result<OutsideSpec> parse_outside(const std::string& text);
[[nodiscard]] Result<std::unique_ptr<srd::FrameIo>> open_outside(const OutsideSpec& spec,
                                                                 std::size_t max_frame);

class Outside {
 public:
  static constexpr std::size_t kMaxPorts = 64;
  static constexpr std::size_t kBurst = 32;

  struct Port {
    std::string name;
    const Nic* nic = nullptr;  // on whose link it hangs
    std::unique_ptr<srd::FrameIo> io;
    std::uint64_t dropped = 0;  // frames from there that were of no use
    // Frames on their way out in this round.
    std::vector<std::byte> staged;
    std::vector<std::size_t> ends;
  };

  explicit Outside(std::size_t max_frame) : max_frame_(max_frame) {}

  [[nodiscard]] Result<void> add(std::string name, std::unique_ptr<srd::FrameIo> io,
                                 const Nic* nic);
  [[nodiscard]] std::size_t max_frame() const { return max_frame_; }
  [[nodiscard]] bool empty() const { return ports_.empty(); }
  [[nodiscard]] std::size_t size() const { return ports_.size(); }
  [[nodiscard]] Port& port(std::size_t index) { return *ports_[index]; }
  [[nodiscard]] const Port& port(std::size_t index) const { return *ports_[index]; }

  // Who lives behind which port, as their frames tell. -1: nobody knows.
  void learn(std::size_t port, std::span<const std::byte> frame);
  void learn(std::size_t port, const srd::Address& address);
  [[nodiscard]] int find(std::span<const std::byte> frame) const;  // by its destination on Ethernet
  [[nodiscard]] int find(const srd::Address& address) const;

  [[nodiscard]] bool has_room(std::size_t port);
  // Keeps a copy until flush(). With `seal` the transport's checksum is computed: memory ends here.
  void stage(std::size_t port, std::span<const std::byte> frame, bool seal);
  void flush();

  // For a loop that wants to sleep. False: something is there. blind(): some port rings no bell.
  [[nodiscard]] bool arm();
  void disarm();
  [[nodiscard]] bool blind() const;

 private:
  static constexpr std::size_t kMaxLearned = 4096;

  void flush(Port& port);

  std::size_t max_frame_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::unordered_map<std::uint64_t, std::size_t> by_mac_;
  std::unordered_map<srd::Address, std::size_t> by_address_;
};

}  // namespace weft::emu
