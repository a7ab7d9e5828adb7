// Owns Ethernet frames in UDP datagrams between two addresses: how networks of two machines are
// joined without privilege, and without trusting the network between them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/io/frame_io.hpp"
#include "srd/io/join_key.hpp"
#include "srd/io/posix.hpp"
#include "srd/io/tunnel_session.hpp"

namespace weft::srd {

// One frame per datagram; with a key, behind a header that proves its sender (TunnelSession). The
// network between is part of the path: frames of different paths leave from different ports, so
// that it spreads them, the datagram has the frame's traffic class, and a congestion mark that the
// datagram gets on the way is copied into the frame. One thread.
class TunnelIo final : public FrameIo {
 public:
  static constexpr std::size_t kBurst = 32;
  static constexpr std::uint16_t kDefaultPort = 0xEE00;
  static constexpr std::uint16_t kSenders = 8;  // from the ports that follow the local one

  struct Config {
    std::string local;   // "192.0.2.1", "192.0.2.1:7000", "2001:db8::1" or "[2001:db8::1]:7000"
    std::string remote;  // datagrams of others, and from other ports than its senders', are dropped
    std::optional<JoinKey> key{};  // none: any datagram from `remote` is accepted
    std::size_t max_frame = 9216;
    int socket_bytes = 4 << 20;
  };
  [[nodiscard]] static Result<std::unique_ptr<TunnelIo>> create(const Config& config);

  [[nodiscard]] FrameTraits traits() const override {
    return {.max_frame = config_.max_frame, .burst = kBurst};
  }
  [[nodiscard]] FrameCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const RxFrame> receive() override;
  void release() override {}
  [[nodiscard]] std::size_t transmit(std::span<const TxFrame> frames) override;
  [[nodiscard]] std::size_t transmit_room() override { return kBurst; }
  [[nodiscard]] int wait_fd() const override { return receiver_.get(); }
  [[nodiscard]] bool is_proved() const { return session_.has_value(); }
  // With a key: once the other end has shown that it has it, too.
  [[nodiscard]] bool is_up() const override { return !session_ || session_->established(); }
  [[nodiscard]] bool arm() override;
  void disarm() override {}

 private:
  static constexpr std::size_t kControlBytes = 64;

  explicit TunnelIo(const Config& config);
  [[nodiscard]] std::size_t overhead() const {
    return config_.key ? TunnelSession::kHeaderSize : 0;
  }
  [[nodiscard]] std::size_t stride() const { return overhead() + config_.max_frame + 1; }
  [[nodiscard]] bool is_sender(const sockaddr_storage& source) const;
  // The frame inside of datagram `index`; empty if there is none, or none that is accepted.
  [[nodiscard]] std::span<std::byte> accept(std::size_t index);
  // The frame behind a proof, or nothing: a message of the session, or something refused.
  [[nodiscard]] std::span<std::byte> proved(std::span<std::byte> datagram);
  // If a router marked the datagram, marks the frame, if its own header allows that.
  void carry_mark(msghdr& message, std::span<std::byte> frame);
  void send(const TxFrame& frame);
  [[nodiscard]] bool send(std::size_t sender, std::span<iovec> pieces, int ip_class);
  // Sends the messages of the session that are due.
  void greet();

  Config config_;
  bool ipv6_ = false;
  std::optional<TunnelSession> session_;
  sockaddr_storage remote_{};
  socklen_t remote_size_ = 0;
  UniqueFd receiver_;
  std::array<UniqueFd, kSenders> senders_;
  std::unique_ptr<std::byte[]> buffer_;
  std::array<std::array<char, kControlBytes>, kBurst> controls_;
  std::array<sockaddr_storage, kBurst> sources_;
  std::array<iovec, kBurst> pieces_;
  std::array<mmsghdr, kBurst> messages_;
  std::array<RxFrame, kBurst> received_;
  FrameCounters counters_;
};

}  // namespace weft::srd
