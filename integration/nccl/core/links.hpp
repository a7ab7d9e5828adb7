// Owns what both ends of connections use of the engine: the three endpoints, writing, and control
// messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "integration/nccl/core/comm.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/engine/engine.hpp"

namespace weft::nccl {

// The protection domain of the data endpoint and of registered memory, for connections. The other
// endpoints are outside of it: no write reaches memory through them.
inline constexpr std::uint32_t kDomain = 1;
inline constexpr std::uint32_t kEndpoints = 3;

// What a request to the engine was for.
enum class Lane : std::uint8_t { control_receive, control_send, eager, write, watch, remote };
struct Cookie {
  Lane lane{};
  std::uint16_t number = 0;  // write, eager: of the sending end
  std::uint32_t index = 0;   // write, remote: of its request; eager: eager_index(); the others: of
                             // a buffer or a peer

  [[nodiscard]] constexpr std::uint64_t pack() const {
    return std::uint64_t{static_cast<std::uint8_t>(lane)} << 48 | std::uint64_t{number} << 32 |
           index;
  }
  [[nodiscard]] static constexpr Cookie unpack(std::uint64_t word) {
    return {static_cast<Lane>(word >> 48), static_cast<std::uint16_t>(word >> 32),
            static_cast<std::uint32_t>(word)};
  }
};

// Of an eager message: the place of its number in the window, and its buffer.
[[nodiscard]] constexpr std::uint32_t eager_index(std::uint32_t number, std::uint32_t buffer) {
  return number % kEagerWindow << 16 | buffer;
}

// Used by one Core or one Rma, each with its own three endpoints, under that one's lock. Control
// messages to one partner leave in order as long as they go through send(), but may arrive in any.
class Links {
 public:
  static constexpr std::uint32_t kSendBuffers = 512;  // of control messages

  // No message is longer than `largest`.
  Links(srd::Engine& engine, srd::Qpn first, std::uint32_t qkey, std::uint32_t domain = kDomain,
        std::size_t largest = kMaxControl)
      : engine_(engine), first_(first), qkey_(qkey), domain_(domain), largest_(largest) {}
  // Opens the endpoints. To be called once.
  [[nodiscard]] Result<void> open();
  void close();

  [[nodiscard]] srd::Engine& engine() { return engine_; }
  [[nodiscard]] srd::Qpn control() const { return first_; }
  [[nodiscard]] srd::Qpn data() const { return srd::Qpn{first_.value() + 1}; }
  [[nodiscard]] srd::Qpn watch() const { return srd::Qpn{first_.value() + 2}; }
  [[nodiscard]] std::uint32_t qkey() const { return qkey_; }
  // Of a buffer without bytes.
  [[nodiscard]] srd::RegionKey empty_key() const { return empty_key_; }
  [[nodiscard]] CoreCounters& counters() { return counters_; }
  // A receive of this device has been told early.
  [[nodiscard]] bool tells_early() const { return counters_.early != 0; }
  // The numbers of sending ends for whose writes the engine had no room.
  [[nodiscard]] RingQueue<std::uint16_t>& stalled() { return stalled_; }

  // --- Control messages. Gives the buffer that holds it until on_sent(); nothing: no room at
  // present, nothing was sent.
  [[nodiscard]] std::optional<std::uint32_t> try_send(const RemoteEnd& to,
                                                      std::span<const std::byte> message);
  // The same for an eager message of the sending end of that number, whose end on_eager_sent() is
  // told. False: no room, or a packet cannot hold it. Eager messages get half of the buffers, and
  // those to one peer a quarter of that half: a peer that does not answer holds up neither
  // messages to others nor announcements.
  [[nodiscard]] bool try_send_eager(const RemoteEnd& to, const EagerHeader& header,
                                    std::span<const std::byte> bytes, std::uint16_t end);
  // Sent as soon as there is room. If it does not arrive, no request fails unless `matters`.
  void send(const RemoteEnd& to, ControlHeader header, bool matters = true);
  void retry();
  [[nodiscard]] bool has_backlog() const { return !backlog_.empty(); }
  // A message has been delivered or has failed. Whose fault it is if it failed and that matters.
  [[nodiscard]] std::optional<RemoteEnd> on_sent(std::uint32_t buffer);
  [[nodiscard]] std::optional<RemoteEnd> on_eager_sent(std::uint32_t buffer);
  [[nodiscard]] std::span<const std::byte> received(std::uint32_t buffer,
                                                    std::size_t length) const {
    return std::span{receive_buffers_}.subspan(buffer * largest_, length);
  }
  void post_receive(std::uint32_t buffer);

 private:
  static constexpr std::uint32_t kReceiveBuffers = 1024;
  static constexpr std::uint32_t kMaxEagerBuffers = kSendBuffers / 2;
  static constexpr std::uint32_t kMaxEagerOfPeer = kMaxEagerBuffers / 4;

  // A message of the backlog. Announcements are never in it: NCCL repeats a receive that finds no
  // room.
  struct Late {
    RemoteEnd to;
    ControlHeader header;
    bool matters = true;
  };

  [[nodiscard]] std::optional<std::uint32_t> post(const RemoteEnd& to,
                                                  std::span<const std::byte> head,
                                                  std::span<const std::byte> body, Cookie cookie,
                                                  bool matters);
  [[nodiscard]] std::optional<std::uint32_t> post(const RemoteEnd& to,
                                                  std::span<const std::byte> message,
                                                  bool matters) {
    return post(to, message, {}, Cookie{Lane::control_send}, matters);
  }

  srd::Engine& engine_;
  srd::Qpn first_;
  std::uint32_t qkey_;
  std::uint32_t domain_;
  std::size_t largest_;
  srd::RegionKey empty_key_;
  std::byte empty_{};
  CoreCounters counters_;
  std::vector<std::byte> send_buffers_;
  std::vector<std::optional<RemoteEnd>> receivers_;  // of the messages that matter, by buffer
  std::vector<std::uint32_t> free_buffers_;
  std::uint32_t eager_ = 0;                   // buffers that eager messages have ...
  std::vector<std::uint32_t> eager_of_peer_;  // ... and by peer
  std::vector<std::byte> receive_buffers_;
  RingQueue<Late> backlog_;
  RingQueue<std::uint16_t> stalled_;
};

}  // namespace weft::nccl
