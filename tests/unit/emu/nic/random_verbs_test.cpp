// Tests of two NICs under random verbs, right and wrong, over a network that loses, doubles and
// reorders. A seed decides everything. The rules: each accepted request completes once, unless its
// queue pair was reset or destroyed; something that happened explains its status; bytes are exact;
// none changes outside of what is lent; in the end nothing is left.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "srd/base/rng.hpp"
#include "tests/unit/emu/nic/random_party.hpp"

namespace weft::nic {
namespace {

class World {
 public:
  explicit World(std::uint64_t seed) : rng_(seed), loss_(rng_.below(3) * 0.04) {
    for (Party& party : parties_) {
      party.ah = *party.nic.create_ah(party.pd, other(party).address);
      for (const QpType type : {QpType::srd, QpType::srd, QpType::ud}) {
        party.add_pair(type, rnr_retry());
      }
    }
  }

  void play(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      Party& party = parties_[rng_.below(2)];
      act(party);
      silent_ = rng_.chance(0.5);  // completions wait, and what they are of changes meanwhile
      advance(std::chrono::microseconds{rng_.below(12)});
    }
  }

  // All that is open must end, and nothing may be left.
  void finish() {
    silent_ = false;
    advance(std::chrono::milliseconds{5});
    for (Party& party : parties_) {
      for (auto& pair : party.pairs) {
        if (pair->alive) {
          fail(party, *pair);
        }
      }
    }
    advance(std::chrono::milliseconds{20});
    for (Party& party : parties_) {
      for (const auto& [wr_id, request] : party.requests) {
        EXPECT_EQ(request.completions, request.forgotten ? request.completions : 1) << wr_id;
        EXPECT_LE(request.completions, 1) << wr_id;
        const bool certain = request.operation == Operation::send && !request.peer_changed &&
                             !request.forgotten && request.status == WorkStatus::ok &&
                             request.pair->qp->type() == QpType::srd;
        EXPECT_LE(request.delivered, 1) << wr_id;
        if (certain && !request.wrong) {
          EXPECT_EQ(request.delivered, 1) << wr_id;
        }
      }
      EXPECT_EQ(party.engine.outstanding(), 0U);
    }
    check_memory();
    exchange_once_more();
    for (Party& party : parties_) {
      for (auto& pair : party.pairs) {
        if (pair->alive) {
          party.nic.destroy_qp(*pair->qp);
        }
      }
      for (auto& memory : party.memories) {
        if (memory->alive) {
          EXPECT_TRUE(party.nic.deregister(memory->key));
        }
      }
      EXPECT_TRUE(party.nic.destroy_ah(party.pd, party.ah));
      advance(std::chrono::microseconds{1});
      for (int i = 0; i < 256; ++i) {  // no number is held by work that never ended
        ASSERT_TRUE(party.nic.create_qp({.pd = party.pd})) << i;
      }
    }
  }

 private:
  Party& other(const Party& party) { return parties_[&party == &parties_[0] ? 1 : 0]; }
  std::uint8_t rnr_retry() { return std::array<std::uint8_t, 3>{0, 2, 7}[rng_.below(3)]; }
  Pair& any_pair(Party& party) {
    for (;;) {
      Pair& pair = *party.pairs[rng_.below(static_cast<std::uint32_t>(party.pairs.size()))];
      if (pair.alive) {
        return pair;
      }
    }
  }
  Pair& failed_or_any_pair(Party& party) {
    for (auto& pair : party.pairs) {
      if (pair->alive && !pair->ready) {
        return *pair;
      }
    }
    return any_pair(party);
  }
  // Of live memory; nowhere if all is lent.
  Place borrow(Party& party) {
    for (int tries = 0; tries < 50; ++tries) {
      Memory& memory =
          *party.memories[rng_.below(static_cast<std::uint32_t>(party.memories.size()))];
      const std::size_t slot = rng_.below(kSlots);
      if (memory.alive && !memory.lent[slot]) {
        memory.lent[slot] = true;
        const Place place{&memory, slot};
        std::fill_n(place.data(), kSlot, kUntouched);
        return place;
      }
    }
    return {};
  }

  void act(Party& party) {
    const std::uint32_t what = rng_.below(100);
    if (what < 35) {
      receive(party);
    } else if (what < 65) {
      send(party);
    } else if (what < 75) {
      access(party, Operation::rdma_write);
    } else if (what < 85) {
      access(party, Operation::rdma_read);
    } else if (what < 90) {
      take_memory(party);
    } else if (what < 92) {
      fail(party, any_pair(party));
    } else if (what < 96) {
      revive(party, failed_or_any_pair(party));
    } else if (what < 98) {
      replace(party, any_pair(party));
    } else {
      renew_handle(party);
    }
  }

  void receive(Party& party) {
    Pair& pair = any_pair(party);
    const Place place = borrow(party);
    if (place.memory == nullptr || pair.qp->state() == QpState::reset) {
      return;
    }
    Request request;
    request.operation = Operation::receive;
    request.pair = &pair;
    request.local = place;
    request.failed = !pair.ready;
    const bool ud = pair.qp->type() == QpType::ud;
    ReceiveWork work;
    work.wr_id = next_id_;
    work.sge_count = static_cast<std::uint8_t>(1 + rng_.below(3));
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < work.sge_count; ++i) {  // with gaps between the pieces
      const std::uint32_t length = (i == 0 && ud ? 20 : 1) + rng_.below(300);
      work.sges[i] = {place.address() + at, length, place.memory->key.value()};
      request.pieces.push_back(work.sges[i]);
      request.length += length;
      at += length + 8;
    }
    if (rng_.chance(0.05)) {
      work.sges[work.sge_count - 1].key ^= 0x10000;
      request.wrong = true;
    }
    if (party.nic.post_receive(*pair.qp, work)) {
      party.requests.emplace(next_id_++, request);
    } else {
      place.memory->lent[place.slot] = false;
    }
  }

  // A message says its number, and so which request it is of.
  void send(Party& party) {
    Pair& pair = any_pair(party);
    const Place place = borrow(party);
    if (place.memory == nullptr || pair.qp->state() == QpState::reset) {
      return;
    }
    Request request;
    request.pair = &pair;
    request.local = place;
    request.length = 8 + rng_.below(kMtu - 7);
    std::memcpy(place.data(), &next_id_, sizeof next_id_);
    for (std::size_t i = 8; i < request.length; ++i) {
      place.data()[i] = pattern(next_id_, i);
    }
    const std::uint32_t first = rng_.below(request.length + 1);
    SendWork work = work_to(party, request);
    const std::uint32_t key = place.memory->key.value();
    work.sges = {Sge{place.address(), first, key},
                 Sge{place.address() + first, request.length - first, key}};
    work.sge_count = 2;
    if (request.length <= kMaxInline && rng_.chance(0.3)) {
      work.inline_data = std::span(place.data(), request.length);
    }
    post(party, request, work);
  }

  void access(Party& party, Operation operation) {
    Pair& pair = any_pair(party);
    Request request;
    request.operation = operation;
    request.pair = &pair;
    if (pair.qp->type() == QpType::ud || pair.qp->state() == QpState::reset) {
      return;
    }
    request.local = borrow(party);
    request.remote = borrow(other(party));
    if (request.local.memory == nullptr || request.remote.memory == nullptr) {
      return;
    }
    request.length = 1 + rng_.below(static_cast<std::uint32_t>(kSlot));
    const Place& from = operation == Operation::rdma_read ? request.remote : request.local;
    for (std::size_t i = 0; i < request.length; ++i) {
      from.data()[i] = pattern(next_id_, i);
    }
    SendWork work = work_to(party, request);
    work.sges[0] = {request.local.address(), request.length, request.local.memory->key.value()};
    work.sge_count = 1;
    work.remote_address = request.remote.address();
    work.remote_key = request.remote.memory->key.value();
    post(party, request, work);
  }

  SendWork work_to(Party& party, Request& request) {
    std::vector<Pair*> same;
    for (auto& pair : other(party).pairs) {  // also those that are gone
      if (pair->qp->type() == request.pair->qp->type()) {
        same.push_back(pair.get());
      }
    }
    const Pair& to = *same[rng_.below(static_cast<std::uint32_t>(same.size()))];
    request.destination = to.qp->number();
    request.peer_changed = !to.ready;
    request.failed = !request.pair->ready;
    SendWork work;
    work.wr_id = next_id_;
    work.operation = request.operation;
    work.ah = party.ah;
    work.destination = request.destination;
    work.qkey = kQkey;
    return work;
  }

  void post(Party& party, Request& request, SendWork& work) {
    if (rng_.chance(0.08)) {
      request.wrong = true;
      switch (rng_.below(4)) {
        case 0:
          work.ah = 999;
          break;
        case 1:
          work.sges[0].key ^= 0x10000;
          break;
        case 2:
          work.remote_key ^= 0x10000;
          break;
        default:
          work.operation = Operation::invalid;
          request.operation = Operation::invalid;
          break;
      }
    }
    if (party.nic.post_send(*request.pair->qp, work)) {
      party.requests.emplace(next_id_++, request);
    } else {
      ADD_FAILURE() << "no room for a request";
    }
  }

  template <class Visit>
  static void each_open(Party& party, const Visit& visit) {
    for (auto& [wr_id, request] : party.requests) {
      if (request.completions == 0) {
        visit(request);
      }
    }
  }

  void take_memory(Party& party) {
    std::vector<Memory*> alive;
    for (auto& memory : party.memories) {
      if (memory->alive) {
        alive.push_back(memory.get());
      }
    }
    Memory& taken = *alive[rng_.below(static_cast<std::uint32_t>(alive.size()))];
    each_open(party, [&](Request& r) { r.local_gone |= r.local.memory == &taken; });
    each_open(other(party), [&](Request& r) { r.remote_gone |= r.remote.memory == &taken; });
    EXPECT_TRUE(party.nic.deregister(taken.key));
    taken.alive = false;
    taken.as_it_was = taken.bytes;
    party.add_memory();
  }

  void note_change(Party& party, const Pair& pair) {
    for (auto& [wr_id, request] : other(party).requests) {  // its arrival may not be known yet
      request.peer_changed |= request.delivered == 0 && request.destination == pair.qp->number();
    }
  }
  void fail(Party& party, Pair& pair) {
    if (pair.qp->state() == QpState::reset) {
      return;
    }
    note_change(party, pair);
    each_open(party, [&](Request& r) { r.failed |= r.pair == &pair; });
    pair.ready = false;
    EXPECT_TRUE(party.nic.modify_qp(*pair.qp, kMaskState, QpAttributes{.state = 6}));
  }
  void revive(Party& party, Pair& pair) {
    note_change(party, pair);
    each_open(party, [&](Request& r) { r.forgotten |= r.pair == &pair; });
    EXPECT_TRUE(party.nic.modify_qp(*pair.qp, kMaskState, QpAttributes{.state = 0}));
    pair.rnr_retry = rnr_retry();
    party.make_ready(pair);
  }
  void replace(Party& party, Pair& pair) {
    const QpType type = pair.qp->type();
    note_change(party, pair);
    each_open(party, [&](Request& r) { r.forgotten |= r.pair == &pair; });
    pair.alive = pair.ready = false;
    party.nic.destroy_qp(*pair.qp);
    party.add_pair(type, rnr_retry());
  }
  void renew_handle(Party& party) {
    each_open(party, [](Request& r) { r.handle_gone = true; });
    EXPECT_TRUE(party.nic.destroy_ah(party.pd, party.ah));
    party.ah = *party.nic.create_ah(party.pd, other(party).address);
  }

  // --- Completions.

  void poll(Party& party) {
    WorkCompletion done;
    while (party.nic.next_completion(done)) {
      const auto found = party.requests.find(done.wr_id);
      ASSERT_NE(found, party.requests.end());
      Request& request = found->second;
      EXPECT_EQ(++request.completions, 1) << done.wr_id;
      EXPECT_FALSE(request.forgotten) << done.wr_id;
      EXPECT_EQ(done.qp, request.pair->qp);
      EXPECT_EQ(done.operation, request.operation);
      EXPECT_TRUE(explained(request, done.status))
          << done.wr_id << " ended with " << static_cast<int>(done.status);
      request.status = done.status;
      if (done.status == WorkStatus::ok) {
        check_bytes(party, done, request);
      }
      // Late packets may still write to what a failed request was to write to.
      if (done.status == WorkStatus::ok || request.remote.memory == nullptr) {
        give_back(request.local);
        give_back(request.remote);
      }
    }
  }
  static void give_back(const Place& place) {
    if (place.memory != nullptr) {
      place.memory->lent[place.slot] = false;
    }
  }

  static bool explained(const Request& r, WorkStatus status) {
    switch (status) {
      case WorkStatus::ok:
        return r.operation != Operation::invalid;
      case WorkStatus::flushed:
        return r.failed || r.handle_gone;
      case WorkStatus::bad_local_key:
        return r.wrong || r.local_gone;
      case WorkStatus::bad_ah:
      case WorkStatus::unsupported_operation:
        return r.wrong;
      case WorkStatus::remote_bad_key:
        return r.wrong || r.remote_gone;
      case WorkStatus::remote_bad_qpn:
        return r.peer_changed;
      case WorkStatus::remote_not_ready:
        return r.operation == Operation::send && r.pair->rnr_retry < 7;
      case WorkStatus::remote_length:
        return r.operation == Operation::send;
      case WorkStatus::local_length:  // a datagram's header does not fit
        return r.operation == Operation::receive && r.length < kGrhSize;
      default:
        return false;
    }
  }

  void check_bytes(Party& party, const WorkCompletion& done, Request& request) {
    if (request.operation == Operation::receive) {
      check_message(party, done, request);
      return;
    }
    if (request.remote.memory == nullptr || request.length == 0) {
      return;
    }
    const bool read = request.operation == Operation::rdma_read;
    const Place& to = read ? request.local : request.remote;
    // The owner may have taken the target back since: then it says nothing.
    const bool still = to.memory->alive || read;
    for (std::size_t i = 0; still && i < request.length; ++i) {
      ASSERT_EQ(to.data()[i], pattern(done.wr_id, i)) << done.wr_id << " at " << i;
    }
    for (std::size_t i = request.length; i < kSlot; ++i) {
      ASSERT_EQ(to.data()[i], kUntouched) << done.wr_id << " behind its end";
    }
  }

  void check_message(Party& party, const WorkCompletion& done, const Request& request) {
    std::vector<std::byte> bytes;
    const std::byte* gap = request.local.data();
    for (const Sge& piece : request.pieces) {
      const std::byte* const begin =
          request.local.data() + (piece.address - request.local.address());
      EXPECT_TRUE(std::all_of(gap, begin, [](std::byte b) { return b == kUntouched; }));
      bytes.insert(bytes.end(), begin, begin + piece.length);
      gap = begin + piece.length;
    }
    ASSERT_LE(done.length, bytes.size());
    const std::size_t head = request.pair->qp->type() == QpType::ud ? kGrhSize : 0;
    ASSERT_GE(done.length, head + 8);
    std::uint64_t message = 0;
    std::memcpy(&message, bytes.data() + head, sizeof message);
    const auto sent = other(party).requests.find(message);
    ASSERT_NE(sent, other(party).requests.end());
    EXPECT_EQ(sent->second.operation, Operation::send);
    EXPECT_EQ(sent->second.destination, done.qp->number());
    EXPECT_EQ(sent->second.pair->qp->number(), done.source_qpn);
    EXPECT_EQ(done.length, head + sent->second.length);
    EXPECT_EQ(++sent->second.delivered, 1) << "delivered twice: " << message;
    for (std::size_t i = 8; i < sent->second.length; ++i) {
      ASSERT_EQ(bytes[head + i], pattern(message, i)) << message << " at " << i;
    }
    EXPECT_TRUE(std::all_of(bytes.begin() + done.length, bytes.end(),
                            [](std::byte b) { return b == kUntouched; }));
  }

  void check_memory() {
    for (Party& party : parties_) {
      for (const auto& memory : party.memories) {
        const auto& bytes = memory->bytes;
        EXPECT_TRUE(memory->alive || bytes == memory->as_it_was) << "written after deregistration";
        for (std::size_t i = 0; i < kMargin; ++i) {
          EXPECT_EQ(bytes[i], kUntouched);
          EXPECT_EQ(bytes[bytes.size() - 1 - i], kUntouched);
        }
      }
    }
  }

  void exchange_once_more() {
    for (Party& party : parties_) {
      party.add_memory();
      party.add_pair(QpType::srd, 7);
    }
    for (Party& party : parties_) {
      Pair& from = *party.pairs.back();
      const Pair& to = *other(party).pairs.back();
      const Memory& memory = *other(party).memories.back();
      ASSERT_TRUE(other(party).nic.post_receive(
          *to.qp,
          {.wr_id = 1, .sges = {Sge{memory.address, 100, memory.key.value()}}, .sge_count = 1}));
      SendWork work;
      work.wr_id = 2;
      work.ah = party.ah;
      work.destination = to.qp->number();
      work.qkey = kQkey;
      const std::array<std::byte, 5> text{};
      work.inline_data = text;
      ASSERT_TRUE(party.nic.post_send(*from.qp, work));
      silent_ = true;
      advance(std::chrono::milliseconds{20});
      silent_ = false;
      WorkCompletion done;
      ASSERT_TRUE(party.nic.next_completion(done));
      EXPECT_EQ(done.wr_id, 2U);
      EXPECT_EQ(done.status, WorkStatus::ok);
      ASSERT_TRUE(other(party).nic.next_completion(done));
      EXPECT_EQ(done.wr_id, 1U);
      EXPECT_EQ(done.status, WorkStatus::ok);
    }
  }

  // --- The network.

  void transmit(Party& from) {
    srd::TxPacket packet;
    while (from.engine.next_transmit(now_, packet)) {
      Packet copy{now_, &from, &other(from), packet.path, {}};
      copy.bytes.assign(packet.header.begin(), packet.header.begin() + packet.header_size);
      for (const auto& piece : packet.payload) {
        copy.bytes.insert(copy.bytes.end(), piece.begin(), piece.end());
      }
      for (int copies = rng_.chance(loss_ / 4) ? 2 : 1; copies > 0; --copies) {
        copy.when = now_ + std::chrono::nanoseconds{1000 + rng_.below(9000)};
        if (!rng_.chance(loss_)) {
          flying_.push_back(copy);
        }
      }
    }
  }
  void advance(Duration time) {
    for (const TimePoint end = now_ + time;;) {
      TimePoint next = end;
      for (Party& party : parties_) {
        transmit(party);
        if (!silent_) {
          poll(party);
        }
        next = std::min(next, party.engine.next_timeout());
      }
      for (const Packet& packet : flying_) {
        next = std::min(next, packet.when);
      }
      if (next >= end) {
        now_ = end;
        return;
      }
      now_ = std::max(now_, next);
      deliver();
      for (Party& party : parties_) {
        if (party.engine.next_timeout() <= now_) {
          party.engine.on_timeout(now_);
        }
      }
    }
  }
  void deliver() {
    std::vector<Packet> due;
    std::erase_if(flying_, [&](Packet& packet) {
      const bool here = packet.when <= now_;
      if (here) {
        due.push_back(std::move(packet));
      }
      return here;
    });
    for (const Packet& packet : due) {
      packet.to->engine.on_packet(now_, srd::RxPacket{.from = packet.from->address,
                                                      .path = packet.path,
                                                      .ecn = srd::Ecn::capable_0,
                                                      .trimmed = false,
                                                      .bytes = packet.bytes,
                                                      .more = {}});
    }
  }

  Rng rng_;
  double loss_;
  std::array<Party, 2> parties_{Party{1}, Party{2}};
  std::vector<Packet> flying_;
  TimePoint now_ = time_at(std::chrono::seconds{1});
  std::uint64_t next_id_ = 1;
  bool silent_ = false;  // completions are not taken
};

TEST(RandomVerbs, KeepTheirRules) {
  const char* const wanted = std::getenv("WEFT_NIC_SEEDS");  // "FIRST" or "FIRST-LAST"
  std::uint64_t first = 1;
  std::uint64_t last = 300;
  if (wanted != nullptr) {
    char* rest = nullptr;
    first = last = std::strtoull(wanted, &rest, 10);
    last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : last;
  }
  for (std::uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.play(400);
    world.finish();
  }
}

}  // namespace
}  // namespace weft::nic
