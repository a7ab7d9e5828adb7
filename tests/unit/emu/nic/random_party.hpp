// Owns one side of the random runs: a NIC whose memory is lent to requests piece by piece, and the
// books about them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "emu/nic/nic.hpp"

namespace weft::nic {

inline constexpr std::size_t kSlots = 16;
inline constexpr std::size_t kSlot = 2048;
inline constexpr std::size_t kMargin = 64;
inline constexpr std::uint32_t kMtu = 256;
inline constexpr std::byte kUntouched{0xCA};
inline constexpr std::uint32_t kQkey = 7;
inline constexpr auto kRights =
    srd::Access::local_write | srd::Access::remote_read | srd::Access::remote_write;

// Byte `at` of a message: two messages or two places of one are rarely alike.
inline std::byte pattern(std::uint64_t message, std::size_t at) {
  return static_cast<std::byte>(message * 31 + at * 7 + 1);
}

// Registered memory with margins, cut into slots that requests borrow. The margins are never
// registered: a byte that changes there was written out of bounds.
struct Memory {
  std::vector<std::byte> bytes = std::vector<std::byte>(2 * kMargin + kSlots * kSlot, kUntouched);
  std::vector<std::byte> as_it_was;  // when it was deregistered
  srd::RegionKey key;
  std::uint64_t address = 0;
  bool alive = true;
  std::array<bool, kSlots> lent{};
};
struct Place {
  Memory* memory = nullptr;
  std::size_t slot = 0;
  [[nodiscard]] std::byte* data() const { return memory->bytes.data() + kMargin + slot * kSlot; }
  [[nodiscard]] std::uint64_t address() const { return memory->address + slot * kSlot; }
};

struct Party;
struct Pair {  // of queues
  DatagramQp* qp = nullptr;
  bool ready = false;
  bool alive = true;
  std::uint8_t rnr_retry = 7;
};

// What the test knows of a posted request; with each change that it makes it notes here which
// requests that may end.
struct Request {
  Operation operation = Operation::send;
  Pair* pair = nullptr;
  Place local;
  Place remote;  // reads, writes
  std::vector<Sge> pieces;
  std::uint32_t length = 0;
  std::uint32_t destination = 0;
  // What may explain an end that is no success, beside the lengths of a message and the receives
  // that its peer has posted.
  bool wrong = false;       // it was posted so that it cannot succeed
  bool local_gone = false;  // memory was deregistered while it was open
  bool remote_gone = false;
  bool failed = false;        // its queue pair
  bool handle_gone = false;   // its address handle
  bool peer_changed = false;  // the queue pair it goes to was not always ready
  bool forgotten = false;     // its queue pair was reset or destroyed: no completion may come
  int completions = 0;
  WorkStatus status = WorkStatus::ok;
  int delivered = 0;
};

// Memory is lent in slots: a request has its own, which must not change before it begins or after
// it has ended.
struct Party {
  explicit Party(std::uint8_t number)
      : domains(16, number),
        engine(engine_config(number), nullptr, &domains.table()),
        nic(nic_config(number), domains, engine),
        pd(*nic.allocate_pd()) {
    address.bytes[15] = std::byte{number};
    for (int i = 0; i < 3; ++i) {
      add_memory();
    }
  }
  static srd::EngineConfig engine_config(std::uint8_t number) {
    srd::EngineConfig config;
    config.attachment = srd::AttachmentId{number};
    config.mtu_payload = kMtu;
    config.seed = number;
    return config;
  }
  static NicConfig nic_config(std::uint8_t number) {
    NicConfig config;
    config.address.bytes[15] = std::byte{number};
    config.first_qpn = 256U * number;
    return config;
  }
  void add_memory() {
    auto made = std::make_unique<Memory>();
    made->address = 0x100000 * (memories.size() + 1);
    made->key = *nic.register_memory({.data = made->bytes.data() + kMargin,
                                      .address = made->address,
                                      .length = kSlots * kSlot,
                                      .access = kRights,
                                      .domain = pd});
    memories.push_back(std::move(made));
  }
  void add_pair(QpType type, std::uint8_t rnr_retry) {
    auto made = std::make_unique<Pair>();
    made->qp = *nic.create_qp({.type = type, .pd = pd, .receive_depth = 16});
    made->rnr_retry = rnr_retry;
    pairs.push_back(std::move(made));
    make_ready(*pairs.back());
  }
  void make_ready(Pair& pair) {
    const auto step = [&](QpState to, std::uint32_t mask, QpAttributes attributes) {
      attributes.state = static_cast<std::uint8_t>(to);
      EXPECT_TRUE(nic.modify_qp(*pair.qp, kMaskState | mask, attributes));
    };
    const bool srd = pair.qp->type() == QpType::srd;
    step(QpState::init, kMaskPkeyIndex | kMaskPort | kMaskQkey, {.port = 1, .qkey = kQkey});
    step(QpState::rtr, 0, {});
    step(QpState::rts, kMaskSqPsn | (srd ? kMaskRnrRetry : 0U), {.rnr_retry = pair.rnr_retry});
    pair.ready = true;
  }

  srd::Address address;
  Domains domains;
  srd::Engine engine;
  Nic nic;
  std::uint32_t pd;
  std::uint16_t ah = kUnknownAh;
  std::vector<std::unique_ptr<Memory>> memories;
  std::vector<std::unique_ptr<Pair>> pairs;
  std::map<std::uint64_t, Request> requests;  // by wr_id
};

// On its way in the test's own network.
struct Packet {
  TimePoint when;
  Party* from = nullptr;
  Party* to = nullptr;
  srd::PathId path;
  std::vector<std::byte> bytes;
};

}  // namespace weft::nic
