// Owns what a dead, restarted, silent or hostile peer does to a connection, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "srd/base/rng.hpp"
#include "tests/unit/integration/nccl/line_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Buffer;
using nccl::Outcome;
using nccl::Request;

NcclLabConfig patient() {
  NcclLabConfig config = nccl_lab_config();
  // Far above all else that takes time here: a peer is declared dead by this alone.
  config.engine.peer_timeout = 10s;
  return config;
}

// A connection each way, because a dead peer has to be noticed by the end that waits for its
// messages as well as by the end that sends.
struct Ends {
  NcclLab::Connection forth;
  NcclLab::Connection back;
  std::vector<std::byte> memory = std::vector<std::byte>(4096);

  explicit Ends(NcclLab& lab) : forth(lab.connect(0, 1)), back(lab.connect(1, 0)) {}

  Request* receive(NcclLab& lab) {
    nccl::CommRegion* const region =
        *lab.core(0).register_memory(*back.receiver, memory.data(), memory.size());
    const Buffer buffer{memory.data(), memory.size(), 0, region};
    Request* request = nullptr;
    EXPECT_EQ(lab.core(0).receive(*back.receiver, {&buffer, 1}, false, request), Outcome::ok);
    return request;
  }
  Request* send(NcclLab& lab) {
    nccl::CommRegion* const region =
        *lab.core(0).register_memory(*forth.sender, memory.data(), memory.size());
    Request* request = nullptr;
    EXPECT_EQ(lab.core(0).send(*forth.sender, memory.data(), memory.size(), 0, region, request),
              Outcome::ok);
    return request;
  }
};

Outcome outcome_of(NcclLab& lab, Request* request, Duration limit) {
  std::optional<Outcome> end;
  EXPECT_TRUE(lab.run_until([&] { return (end = ended(request)).has_value(); }, limit));
  return end.value_or(Outcome::ok);
}

// What waits for a peer has to end when the peer dies, within its time-out: NCCL has none of its
// own and would hang for ever.
TEST(NcclFaults, DeadPeerEndsWhatWaitsForIt) {
  for (const bool receives : {true, false}) {
    SCOPED_TRACE(receives ? "a receive" : "a send");
    NcclLab lab(2, patient());
    Ends ends(lab);
    Request* const request = receives ? ends.receive(lab) : ends.send(lab);
    lab.run_for(1ms);  // the announcement has been acknowledged
    lab.crash(1);
    const TimePoint begin = lab.world().now();
    EXPECT_EQ(outcome_of(lab, request, 20s), Outcome::remote_error);
    // The time-out of the engine, and not much beside it.
    EXPECT_LT(lab.world().now() - begin, 12s);
    Request* later = nullptr;
    EXPECT_EQ(lab.core(0).send(*ends.forth.sender, ends.memory.data(), 0, 0, nullptr, later),
              Outcome::ok);
    EXPECT_EQ(ended(later), Outcome::remote_error);
  }
}

// The new life knows nothing of the old connections. Its answers must not keep them waiting.
TEST(NcclFaults, RestartedPeerEndsWhatWaitsForItsFormerLife) {
  for (const bool receives : {true, false}) {
    SCOPED_TRACE(receives ? "a receive" : "a send");
    NcclLab lab(2, patient());
    Ends ends(lab);
    Request* const request = receives ? ends.receive(lab) : ends.send(lab);
    lab.run_for(1ms);
    lab.restart(1);
    EXPECT_EQ(outcome_of(lab, request, 20s), Outcome::remote_error);
  }
}

// NIC 0 has spoken to a former life of NIC 1, and does not know that it is over.
TEST(NcclFaults, FirstConnectionToARestartedProcessIsMade) {
  for (const std::uint32_t from : {0U, 1U}) {
    SCOPED_TRACE(from);
    NcclLab lab(2, patient());
    Ends ends(lab);
    lab.run_for(1ms);
    lab.restart(1);
    const auto again = lab.connect(from, 1 - from);
    ASSERT_NE(again.sender, nullptr);
    ASSERT_NE(again.receiver, nullptr);
    Request* received = nullptr;
    Request* sent = nullptr;
    const Buffer nothing;
    EXPECT_EQ(lab.core(1 - from).receive(*again.receiver, {&nothing, 1}, false, received),
              Outcome::ok);
    EXPECT_EQ(lab.core(from).send(*again.sender, nullptr, 0, 0, nullptr, sent), Outcome::ok);
    EXPECT_EQ(outcome_of(lab, received, 20s), Outcome::ok);
    Request* later = nullptr;
    EXPECT_EQ(lab.core(0).send(*ends.forth.sender, nullptr, 0, 0, nullptr, later), Outcome::ok);
    EXPECT_EQ(ended(later), Outcome::remote_error) << "a connection to the former life";
  }
}

// More are asked for at once than messages may be under way, so many have not left when the peer's
// new life becomes known.
TEST(NcclFaults, ConnectionsToARestartedProcessAreMadeOnce) {
  constexpr std::size_t kAsked = 600;
  NcclLab lab(2, patient());
  const Ends ends(lab);
  lab.run_for(1ms);
  lab.restart(1);
  nccl::ListenHandle handle;
  const std::uint32_t listener = lab.core(1).listen(handle);
  std::vector<nccl::ListenHandle> handles(kAsked, handle);
  std::vector<nccl::SendComm*> made(kAsked, nullptr);
  std::size_t accepted = 0;
  const auto step = [&] {
    for (std::size_t i = 0; i < kAsked; ++i) {
      if (made[i] == nullptr) {
        EXPECT_EQ(lab.core(0).connect(handles[i], made[i]), Outcome::ok);
      }
    }
    nccl::ReceiveComm* receiver = nullptr;
    EXPECT_EQ(lab.core(1).accept(listener, receiver), Outcome::ok);
    accepted += receiver != nullptr ? 1 : 0;
    return false;
  };
  (void)lab.run_until(step, 100ms);
  EXPECT_EQ(std::count(made.begin(), made.end(), nullptr), 0);
  EXPECT_EQ(accepted, kAsked);
}

// The new process may have a listener of the same number: the handle must not fit it.
TEST(NcclFaults, ListenerOfAFormerLifeIsRefused) {
  NcclLab lab(2, patient());
  const Ends ends(lab);
  nccl::ListenHandle handle;
  (void)lab.core(1).listen(handle);
  lab.restart(1);
  nccl::SendComm* sender = nullptr;
  Outcome outcome = Outcome::ok;
  EXPECT_TRUE(lab.run_until([&] {
    outcome = lab.core(0).connect(handle, sender);
    return outcome != Outcome::ok || sender != nullptr;
  }));
  EXPECT_EQ(outcome, Outcome::remote_error);
}

// A wrong handle is the mistake of one connect(); the connections to the same process must not
// suffer for it.
TEST(NcclFaults, WrongQkeyOrEndpointFailsOnlyWhatWasAskedWithIt) {
  for (const bool qkey : {true, false}) {
    SCOPED_TRACE(qkey);
    NcclLab lab(2, patient());
    Ends ends(lab);
    Request* const received = ends.receive(lab);
    nccl::ListenHandle handle;
    (void)lab.core(1).listen(handle);
    handle.qkey = handle.qkey.value() + (qkey ? 1 : 0);
    handle.control = handle.control.value() + (qkey ? 0 : 100);
    nccl::SendComm* sender = nullptr;
    Outcome outcome = Outcome::ok;
    EXPECT_TRUE(lab.run_until([&] {
      outcome = lab.core(0).connect(handle, sender);
      return outcome != Outcome::ok;
    }));
    EXPECT_EQ(outcome, Outcome::remote_error);
    lab.run_for(1s);
    Request* sent = nullptr;
    EXPECT_EQ(lab.core(1).send(*ends.back.sender, nullptr, 0, 0, nullptr, sent), Outcome::ok);
    EXPECT_EQ(outcome_of(lab, received, 20s), Outcome::ok);
    EXPECT_NE(ends.send(lab), nullptr) << "the other direction is usable, too";
  }
}

TEST(NcclFaults, StoppedPeerIsNotADeadOne) {
  NcclLab lab(2, patient());
  Ends ends(lab);
  Request* const received = ends.receive(lab);
  lab.world().pause(1);
  // Less than the ten seconds after which it would be dead.
  lab.run_for(3s);
  EXPECT_EQ(received->state.load(), Request::State::pending);
  lab.world().resume(1);
  std::vector<std::byte> other(64);
  fill_bytes(other, 4);
  nccl::CommRegion* const region =
      *lab.core(1).register_memory(*ends.back.sender, other.data(), other.size());
  Request* sent = nullptr;
  EXPECT_EQ(lab.core(1).send(*ends.back.sender, other.data(), other.size(), 0, region, sent),
            Outcome::ok);
  EXPECT_EQ(outcome_of(lab, received, 20s), Outcome::ok);
  EXPECT_TRUE(has_bytes(std::span{ends.memory}.first(64), 4));
}

// Training computes for minutes between two messages. Silence without anything awaited is no sign
// of death.
TEST(NcclFaults, IdleConnectionsOutliveLongSilence) {
  NcclLab lab(2, patient());
  Ends ends(lab);
  lab.run_for(60s);
  Request* const received = ends.receive(lab);
  Request* sent = nullptr;
  EXPECT_EQ(lab.core(1).send(*ends.back.sender, nullptr, 0, 0, nullptr, sent), Outcome::ok);
  EXPECT_EQ(outcome_of(lab, received, 1s), Outcome::ok);
}

// The same where something is awaited, as long as the peer lives.
TEST(NcclFaults, ReceiveThatWaitsLongIsNoFault) {
  NcclLab lab(2, patient());
  Ends ends(lab);
  Request* const received = ends.receive(lab);
  lab.run_for(60s);
  EXPECT_EQ(received->state.load(), Request::State::pending);
  Request* sent = nullptr;
  EXPECT_EQ(lab.core(1).send(*ends.back.sender, nullptr, 0, 0, nullptr, sent), Outcome::ok);
  EXPECT_EQ(outcome_of(lab, received, 1s), Outcome::ok);
}

// A process that speaks to the plugin's endpoints, but is no plugin.
// A watch message stays under way as long as it is wanted; a process that ends would repeat it.
TEST(NcclFaults, NobodyIsWatchedWhenTheLastConnectionIsClosed) {
  Line line(4096);
  (void)line.receive(0, 4096);
  nccl::Core& core = line.lab.core(1);
  EXPECT_TRUE(core.has_connections());
  ASSERT_TRUE(line.lab.run_until([&] { return core.idle(); }));
  ASSERT_TRUE(line.lab.run_until([&] { return !core.idle(); })) << "watches";
  core.close(*line.ends.receiver);
  EXPECT_FALSE(core.has_connections());
  ASSERT_TRUE(line.lab.run_until([&] { return line.lab.engine(1).outstanding() == 1; }, 1ms));
  core.stop_watching();
  EXPECT_EQ(line.lab.engine(1).outstanding(), 0U);
}

TEST(NcclFaults, AnyBytesToTheEndpointsAreCountedAndHarmNobody) {
  NcclLab lab(3);
  const auto ends = lab.connect(0, 1);
  srd::Engine& attacker = lab.engine(2);
  Rng rng(3);
  nccl::ListenHandle told;
  (void)lab.core(1).listen(told);  // the attacker knows the Q_Key
  const srd::PeerId victim =
      attacker.peer(world::address_of_host(1), lab.engine(1).config().attachment).value();
  std::vector<std::byte> bytes(nccl::kMaxControl);
  // The first bytes are right or nearly, so that messages get past the first checks.
  for (int i = 0; i < 3000; ++i) {
    for (std::byte& one : bytes) {
      one = static_cast<std::byte>(rng.next());
    }
    bytes[0] = std::byte{nccl::kControlVersion};
    bytes[1] = static_cast<std::byte>(rng.below(8));
    bytes[2] = static_cast<std::byte>(rng.below(2));
    bytes[3] = static_cast<std::byte>(rng.below(4));
    std::memset(bytes.data() + 4, 0, 4);  // numbers that exist
    srd::SendRequest request;
    request.peer = victim;
    request.source = srd::Qpn{8};
    // The control endpoint is the first (see NcclLab::boot()), that of data the one after it.
    request.destination = srd::Qpn{8};
    request.qkey = told.qkey.value();
    request.cookie = nccl::Cookie{nccl::Lane::watch, 0, 0xFFFF}.pack();
    request.segments[0] = {bytes.data(), 32 + 24 * static_cast<std::uint32_t>(bytes[3])};
    (void)attacker.post(request);
    srd::WriteRequest write;
    write.peer = victim;
    write.source = srd::Qpn{9};
    write.destination = srd::Qpn{9};
    write.qkey = told.qkey.value();
    write.cookie = request.cookie;
    write.remote_key = srd::RegionKey{static_cast<std::uint32_t>(rng.next()) & 0xFFFFFF};
    write.immediate = static_cast<std::uint32_t>(rng.next()) & 0xFFFF;
    (void)attacker.post(write);
    lab.run_for(20us);
  }
  std::vector<std::byte> memory(64);
  nccl::CommRegion* const region =
      *lab.core(1).register_memory(*ends.receiver, memory.data(), memory.size());
  const Buffer buffer{memory.data(), memory.size(), 0, region};
  Request* received = nullptr;
  Request* sent = nullptr;
  EXPECT_EQ(lab.core(1).receive(*ends.receiver, {&buffer, 1}, false, received), Outcome::ok);
  EXPECT_EQ(lab.core(0).send(*ends.sender, nullptr, 0, 0, nullptr, sent), Outcome::ok);
  EXPECT_EQ(outcome_of(lab, received, 5s), Outcome::ok);
  EXPECT_GT(lab.core(1).counters().stray_controls, 0U);
  EXPECT_GT(lab.core(1).counters().malformed_controls, 0U);
  EXPECT_GT(lab.core(1).counters().stray_immediates, 0U) << "writes without bytes need no key";
}

// For callers whose two sides must say the same size.
TEST(NcclFaults, ShorterMessageFailsBothEndsOfAnExactConnection) {
  NcclLab lab(2, patient());
  const NcclLab::Connection made = lab.connect(0, 1);
  made.sender->exact = true;
  std::vector<std::byte> memory(100);
  nccl::CommRegion* const from = *lab.core(0).register_memory(*made.sender, memory.data(), 100);
  nccl::CommRegion* const to = *lab.core(1).register_memory(*made.receiver, memory.data(), 100);
  const auto send = [&](std::size_t size) {
    Request* request = nullptr;
    EXPECT_EQ(lab.core(0).send(*made.sender, memory.data(), size, 0, from, request), Outcome::ok);
    return request;
  };
  const auto receive = [&](std::size_t size) {
    const Buffer buffer{memory.data(), size, 0, to};
    Request* request = nullptr;
    EXPECT_EQ(lab.core(1).receive(*made.receiver, {&buffer, 1}, false, request), Outcome::ok);
    return request;
  };
  for (const std::size_t size : {std::size_t{100}, std::size_t{0}}) {
    Request* const requests[] = {receive(size), send(size)};
    for (Request* const one : requests) {
      EXPECT_TRUE(lab.run_until([&] { return one->state.load() != Request::State::pending; }));
      EXPECT_EQ(ended(one), Outcome::ok);
    }
  }
  Request* const requests[] = {receive(100), send(99)};
  for (Request* const one : requests) {
    EXPECT_TRUE(lab.run_until([&] { return one->state.load() != Request::State::pending; }));
    EXPECT_EQ(ended(one), Outcome::invalid_usage);
  }
}

// The question crossed the listener's answer: the end that was made for it must not wait.
TEST(NcclFaults, ConnectThatIsCalledOffLeavesNobodyWaiting) {
  NcclLab lab(2, patient());
  nccl::ListenHandle handle;
  const std::uint32_t listener = lab.core(1).listen(handle);
  nccl::SendComm* sender = nullptr;
  ASSERT_EQ(lab.core(0).connect(handle, sender), Outcome::ok);
  lab.run_for(1ms);
  lab.core(0).call_off(handle);
  nccl::ReceiveComm* receiver = nullptr;
  ASSERT_EQ(lab.core(1).accept(listener, receiver), Outcome::ok);
  ASSERT_NE(receiver, nullptr);
  EXPECT_TRUE(lab.run_until([&] { return !receiver->usable(); }, 1s));
  EXPECT_EQ(lab.core(0).connect(handle, sender), Outcome::invalid_usage);
}

}  // namespace
}  // namespace weft::testing
