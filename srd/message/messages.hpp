// Owns what a user of the messenger hands in (messages, receives, reads, writes) and gets back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "srd/engine/requests.hpp"

namespace weft::srd {

// Names a messenger of a peer. The `peer` of a receive's completion can be sent to.
struct MessageAddress {
  PeerId peer{};
  Qpn endpoint{};
  std::uint32_t qkey = 0;
};

// Memory is lent from post to completion. `cookie` comes back in the completion.
struct MessageSend {
  MessageAddress to{};
  std::span<const std::byte> data{};  // at most kMaxTransfer bytes
  std::uint64_t tag = 0;
  std::optional<std::uint32_t> immediate{};
  std::uint64_t cookie = 0;
};

// Takes the first message whose tag equals `tag` in all bits that `ignore` does not name.
struct MessageReceive {
  std::span<std::byte> data{};
  std::uint64_t tag = 0;
  std::uint64_t ignore = 0;
  std::optional<MessageAddress> from{};  // nothing: from any. Its qkey is ignored
  std::uint64_t cookie = 0;
};

// `offset` counts from the beginning of what the peer shared under `key`.
struct MessageWrite {
  MessageAddress to{};
  std::span<const std::byte> data{};
  RegionKey key{};
  std::uint64_t offset = 0;
  std::optional<std::uint32_t> immediate{};
  std::uint64_t cookie = 0;
};

struct MessageRead {
  MessageAddress from{};
  std::span<std::byte> data{};
  RegionKey key{};
  std::uint64_t offset = 0;
  std::uint64_t cookie = 0;
};

// One for each accepted post while the messenger lives, and one for each write of a peer's that
// brings immediate data.
struct MessageCompletion {
  enum class Kind : std::uint8_t {
    send,
    receive,
    write,
    read,
    written,  // a peer's write with immediate data has arrived; it used up no receive
  };
  std::uint64_t cookie = 0;
  Kind kind = Kind::send;
  // length_error: the message was longer than the receive, whose memory holds its beginning
  Status status = Status::ok;
  bool has_immediate = false;
  std::uint32_t immediate = 0;
  std::uint64_t tag = 0;     // of the message
  std::uint32_t length = 0;  // of the message, even if the receive is shorter
  MessageAddress peer;       // the other end
};

enum class MessageOrder : std::uint8_t {
  ordered,  // messages of one messenger to another meet its receives in the order they were posted
  unordered,  // in any order; no message waits for an earlier one
};

struct MessengerConfig {
  Qpn endpoint;                                // this number and the next two
  std::uint32_t qkey = 0;                      // what a sender must know
  std::uint32_t domain = 0;                    // protection domain of the memory that is shared
  MessageOrder order = MessageOrder::ordered;  // of what is sent
  // Each holds one packet: a small message that has arrived, until a receive takes it. There is no
  // other memory for unexpected messages.
  std::uint32_t receive_buffers = 512;
  std::uint32_t control_buffers = 512;    // of 48 bytes each
  std::uint32_t max_sends = 65536;        // sends, reads and writes under way
  std::uint32_t max_receives = 65536;     // receives posted or under way
  std::uint32_t max_partners = 4096;      // other messengers, over all time
  std::uint32_t max_completions = 65536;  // not taken by poll() yet; if so many, posts are refused
};

}  // namespace weft::srd
