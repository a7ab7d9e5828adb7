// Owns Ethernet frames over a unix datagram socket, one frame a datagram: what QEMU's
// `-netdev dgram` speaks.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "srd/base/result.hpp"
#include "srd/io/frame_io.hpp"
#include "srd/io/held_frames.hpp"
#include "srd/io/posix.hpp"

namespace weft::srd {

// A datagram socket does not say beforehand whether its reader has room, and has little: ten frames
// by Linux's default, which a virtual machine without a core does not take. So frames that find no
// room wait in `held_`, as in the buffers of a switch, and only a full one makes senders wait.
// receive() and transmit() try them again first. One thread at a time.
class DgramIo final : public FrameIo {
 public:
  static constexpr std::size_t kBurst = 32;

  struct Config {
    std::string local;   // path of our socket; a socket that lies there is replaced
    std::string remote;  // path of the other side's, which may come and go
    std::size_t max_frame = 9216;
    std::size_t max_held = 1024;  // frames
    // Until held frames are dropped. A machine that another one emulates may wait long for a core.
    Duration patience = std::chrono::milliseconds{200};
  };
  [[nodiscard]] static Result<std::unique_ptr<DgramIo>> create(const Config& config);
  ~DgramIo() override;

  [[nodiscard]] FrameTraits traits() const override {
    return {.max_frame = config_.max_frame, .burst = kBurst};
  }
  [[nodiscard]] FrameCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const RxFrame> receive() override;
  void release() override {}
  [[nodiscard]] std::size_t transmit(std::span<const TxFrame> frames) override;
  [[nodiscard]] std::size_t transmit_room() override;
  [[nodiscard]] int wait_fd() const override { return socket_.get(); }
  [[nodiscard]] bool arm() override;
  void disarm() override {}

 private:
  explicit DgramIo(const Config& config);
  [[nodiscard]] bool send(std::span<const iovec> pieces, std::size_t size);
  void flush();

  Config config_;
  UniqueFd socket_;
  sockaddr_un remote_{};
  std::unique_ptr<std::byte[]> buffer_;
  std::array<mmsghdr, kBurst> messages_;
  std::array<iovec, kBurst> pieces_;
  std::array<RxFrame, kBurst> received_;
  HeldFrames held_;
  FrameCounters counters_;
};

}  // namespace weft::srd
