// Owns the stories of one connection: sizes, order, zero bytes, early completion, closing.
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "tests/unit/integration/nccl/line_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Buffer;
using nccl::CommRegion;
using nccl::Outcome;
using nccl::Request;

class Sizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Sizes, ArriveWithEveryByteAndWithTheirSize) {
  const std::size_t size = GetParam();
  // A send that comes before its receive waits for the announcement; one that comes after finds it.
  // Both have to end the same way.
  for (const bool send_first : {false, true}) {
    SCOPED_TRACE(send_first);
    Line line(size + 64);
    fill_bytes(line.out, 5);
    Request* sent = send_first ? line.send(0, size) : nullptr;
    line.lab.run_for(1ms);
    Request* const received = line.receive(0, size + 64);
    sent = send_first ? sent : line.send(0, size);
    EXPECT_EQ(line.outcome(received), Outcome::ok);
    EXPECT_EQ(received->sizes[0], size);
    EXPECT_EQ(line.outcome(sent), Outcome::ok);
    EXPECT_EQ(sent->sizes[0], size);
    EXPECT_TRUE(has_bytes(std::span{line.in}.first(size), 5));
    for (std::size_t i = size; i < line.in.size(); ++i) {
      ASSERT_EQ(line.in[i], std::byte{0xA5}) << "behind the message, at " << i;
    }
  }
}
// Around a packet (1024 bytes here), a page, and a megabyte.
INSTANTIATE_TEST_SUITE_P(Borders, Sizes,
                         ::testing::Values(0, 1, 7, 1023, 1024, 1025, 4096, 65536, 1048575,
                                           1048576));

// Gloo's tags have 64 bits.
TEST(NcclCore, TagsAreToldApartByTheirUpperBits) {
  Line line(64);
  const std::int64_t tags[] = {1, std::int64_t{1} << 32 | 1, -1, std::int64_t{1} << 63 | 1};
  Request* receives[4];
  Request* sends[4];
  for (std::size_t i = 0; i < 4; ++i) {
    receives[i] = line.receive(i * 16, 16, tags[i]);
  }
  for (std::size_t i = 4; i-- > 0;) {
    fill_bytes(std::span{line.out}.subspan(i * 16, 16), i);
    sends[i] = line.send(i * 16, 16, tags[i]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(line.outcome(receives[i]), Outcome::ok);
    EXPECT_EQ(line.outcome(sends[i]), Outcome::ok);
    EXPECT_TRUE(has_bytes(std::span{line.in}.subspan(i * 16, 16), i));
  }
}

// The network reorders, and more messages are posted than there are slots. NCCL matches by order
// alone where all tags are the same.
TEST(NcclCore, ReceivesTakeMessagesInTheOrderOfPosting) {
  NcclLabConfig config = nccl_lab_config();
  config.link.reorder = 0.3;
  Line line(std::size_t{200} * 64, config);
  std::deque<Request*> sends;
  std::deque<Request*> receives;
  std::size_t sent = 0;
  std::size_t posted = 0;
  std::size_t seen = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    fill_bytes(std::span{line.out}.subspan(i * 64, 64), i);
  }
  EXPECT_TRUE(line.lab.run_until([&] {
    while (posted < 200) {
      Request* const request = line.receive(posted * 64, 64);
      if (request == nullptr) {
        break;
      }
      receives.push_back(request);
      ++posted;
    }
    while (sent < 200) {
      Request* const request = line.send(sent * 64, sent % 65);
      if (request == nullptr) {
        break;
      }
      sends.push_back(request);
      ++sent;
    }
    while (!receives.empty() && receives.front()->state.load() != Request::State::pending) {
      EXPECT_EQ(receives.front()->sizes[0], seen % 65);
      EXPECT_EQ(ended(receives.front()), Outcome::ok);
      EXPECT_TRUE(has_bytes(std::span{line.in}.subspan(seen * 64, seen % 65), seen));
      receives.pop_front();
      ++seen;
    }
    while (!sends.empty() && sends.front()->state.load() != Request::State::pending) {
      EXPECT_EQ(ended(sends.front()), Outcome::ok);
      sends.pop_front();
    }
    return seen == 200 && sends.empty();
  }));
}

// NCCL takes a null request for "ask again", so a full ring is no error.
TEST(NcclCore, FullRingsSayNotNow) {
  Line line(4096);
  std::vector<Request*> receives;
  for (Request* one = line.receive(0, 64); one != nullptr; one = line.receive(0, 64)) {
    receives.push_back(one);
    ASSERT_LE(receives.size(), 64U);
  }
  EXPECT_EQ(receives.size(), 64U) << "at least the 32 that NCCL has under way";
  std::vector<Request*> sends;
  for (Request* one = line.send(0, 0, 1); one != nullptr; one = line.send(0, 0, 1)) {
    sends.push_back(one);
    ASSERT_LE(sends.size(), 256U);
  }
  EXPECT_EQ(sends.size(), 256U);
}

// NCCL asks for it with the LL protocols, which find their data by flags in it: the receive is
// reported as done when it is posted.
TEST(NcclCore, EarlyCompletionIsToldAtOnceAndTheBytesStillArrive) {
  Line line(4096);
  fill_bytes(line.out, 3);
  for (int round = 0; round < 100; ++round) {  // more than there are slots
    std::ranges::fill(line.in, std::byte{0});
    Request* const received = line.receive(0, 4096, 0, true);
    ASSERT_NE(received, nullptr);
    EXPECT_EQ(ended(received), Outcome::ok);
    EXPECT_EQ(line.outcome(line.send(0, 4096)), Outcome::ok);
    ASSERT_TRUE(line.lab.run_until([&] { return has_bytes(line.in, 3); }));
  }
}

// One byte too many: nothing may be written behind the buffer, and neither end may wait for ever.
TEST(NcclCore, MessageLongerThanItsBufferFailsBothEnds) {
  Line line(4096);
  Request* const received = line.receive(0, 64);
  line.lab.run_for(1ms);
  Request* const sent = line.send(0, 65);
  EXPECT_EQ(line.outcome(sent), Outcome::invalid_usage);
  EXPECT_EQ(line.outcome(received), Outcome::invalid_usage);
  EXPECT_EQ(line.in[64], std::byte{0xA5});
}

// One byte too far at the end, a region of the other side, and one byte before the begin.
TEST(NcclCore, MemoryOutsideOfItsRegionIsRefused) {
  Line line(4096);
  Request* request = nullptr;
  auto& core = line.lab.core(0);
  EXPECT_EQ(core.send(*line.ends.sender, line.out.data() + 1, 4096, 0, line.out_region, request),
            Outcome::invalid_argument);
  EXPECT_EQ(core.send(*line.ends.sender, line.out.data(), 1, 0, line.in_region, request),
            Outcome::invalid_argument);
  const Buffer buffer{line.in.data() - 1, 2, 0, line.in_region};
  EXPECT_EQ(line.lab.core(1).receive(*line.ends.receiver, {&buffer, 1}, false, request),
            Outcome::invalid_argument);
}

// Only buffers of receives are open to the peer's writes; a key of a send buffer must be good for
// nothing.
TEST(NcclCore, WhatIsSentCannotBeWrittenFromOutside) {
  Line line(4096);
  const auto address = reinterpret_cast<std::uintptr_t>(line.out.data());
  const auto found = line.lab.engine(0).memory().resolve(line.out_region->key, address, 1,
                                                         srd::Access::remote_write, nccl::kDomain);
  EXPECT_NE(found.status, srd::Status::ok);
  const auto target = line.lab.engine(1).memory().resolve(
      line.in_region->key, reinterpret_cast<std::uintptr_t>(line.in.data()), 1,
      srd::Access::remote_write, nccl::kDomain);
  EXPECT_EQ(target.status, srd::Status::ok);
  EXPECT_EQ(target.placement, srd::Placement::lines) << "NCCL looks for flags in it";
}

// NCCL may register the same memory twice. It stays registered until it was deregistered as often.
TEST(NcclCore, RegistrationsAreCounted) {
  Line line(4096);
  auto& core = line.lab.core(1);
  auto& receiver = *line.ends.receiver;
  EXPECT_EQ(*core.register_memory(receiver, line.in.data(), 4096), line.in_region);
  EXPECT_TRUE(core.deregister(receiver, line.in_region));
  fill_bytes(line.out, 9);
  Request* const received = line.receive(0, 4096);
  EXPECT_EQ(line.outcome(line.send(0, 4096)), Outcome::ok);
  EXPECT_EQ(line.outcome(received), Outcome::ok);
  EXPECT_TRUE(core.deregister(receiver, line.in_region));
  EXPECT_FALSE(core.deregister(receiver, line.in_region));
}

// The program may free it at once, though a transfer is in the middle. The sender is told, and
// stops.
TEST(NcclCore, AfterDeregisteringOrClosingNothingTouchesTheMemory) {
  for (const bool close : {false, true}) {
    SCOPED_TRACE(close);
    Line line(std::size_t{1} << 20);
    Request* const received = line.receive(0, line.in.size());
    fill_bytes(line.out, 1);
    Request* const sent = line.send(0, line.out.size());
    line.lab.run_for(30us);  // in the middle of it
    ASSERT_EQ(received->state.load(), Request::State::pending);
    if (close) {
      line.lab.core(1).close(*line.ends.receiver);
    } else {
      EXPECT_TRUE(line.lab.core(1).deregister(*line.ends.receiver, line.in_region));
    }
    std::ranges::fill(line.in, std::byte{0x77});
    EXPECT_EQ(line.outcome(sent), Outcome::remote_error);
    line.lab.run_for(10ms);
    EXPECT_TRUE(std::ranges::all_of(line.in, [](std::byte one) { return one == std::byte{0x77}; }));
  }
}

// The caller may free the memory at once, so the engine must have nothing of it in flight any more.
TEST(NcclCore, ClosedSenderGivesItsMemoryBackAndTheReceiverIsTold) {
  Line line(std::size_t{1} << 20);
  Request* const received = line.receive(0, line.in.size());
  (void)line.send(0, line.out.size());
  line.lab.run_for(30us);
  line.lab.core(0).close(*line.ends.sender);
  EXPECT_EQ(line.outcome(received), Outcome::remote_error);
  EXPECT_TRUE(line.lab.run_until([&] { return line.lab.engine(0).outstanding() == 0; }));
}

// As NCCL does when it aborts: an end whose memory is taken back under way fails at once, and yet
// says good-bye when it is closed. Nothing else would end what waits at the other end, whose peer
// lives.
TEST(NcclCore, EndThatFailedForItsMemoryTellsTheOtherOneWhenItIsClosed) {
  for (const bool receives : {false, true}) {
    for (const bool under_way : {false, true}) {
      SCOPED_TRACE(receives ? "receiver" : "sender");
      SCOPED_TRACE(under_way ? "with a message under way" : "with one that waits");
      Line line(std::size_t{1} << 20);
      Request* const received = line.receive(0, line.in.size(), 1);
      Request* const sent = line.send(0, line.out.size(), under_way ? 1 : 2);
      line.lab.run_for(30us);
      if (receives) {
        EXPECT_TRUE(line.lab.core(1).deregister(*line.ends.receiver, line.in_region));
        line.lab.core(1).close(*line.ends.receiver);
        EXPECT_EQ(line.outcome(sent), Outcome::remote_error);
      } else {
        EXPECT_TRUE(line.lab.core(0).deregister(*line.ends.sender, line.out_region));
        line.lab.run_for(1ms);  // the engine has given the memory back
        line.lab.core(0).close(*line.ends.sender);
        EXPECT_EQ(line.outcome(received), Outcome::remote_error);
      }
    }
  }
}

// NCCL asks how what it has posted ends, and a post that fails where the other end was closed a
// moment before would be another thing by chance. The memory is given back as usual.
TEST(NcclCore, WhatIsPostedAfterTheOtherEndHasClosedEndsWhenItIsTested) {
  for (const bool receives : {false, true}) {
    SCOPED_TRACE(receives ? "receives" : "sends");
    Line line(4096);
    if (receives) {
      line.lab.core(0).close(*line.ends.sender);
      (void)line.receive(0, 64);  // is what tells
    } else {
      line.lab.core(1).close(*line.ends.receiver);
    }
    line.lab.run_for(1ms);
    const std::size_t before = line.lab.engine(receives ? 1 : 0).outstanding();
    std::set<Request*> posted;
    Request* next = nullptr;
    do {
      next = receives ? line.receive(0, 4096) : line.send(0, 4096);
      EXPECT_TRUE(next == nullptr || posted.insert(next).second) << "one that is in use";
    } while (next != nullptr && posted.size() < 1000);
    EXPECT_EQ(posted.size(), receives ? 127U : 256U) << "until there is no free one";
    EXPECT_EQ(line.lab.engine(receives ? 1 : 0).outstanding(), before);
    for (Request* const request : posted) {
      EXPECT_EQ(ended(request), Outcome::remote_error);
    }
    next = receives ? line.receive(0, 0) : line.send(0, 0);
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(ended(next), Outcome::remote_error);
    if (receives) {
      EXPECT_TRUE(line.lab.core(1).deregister(*line.ends.receiver, line.in_region));
      line.lab.core(1).close(*line.ends.receiver);
    } else {
      EXPECT_TRUE(line.lab.core(0).deregister(*line.ends.sender, line.out_region));
      line.lab.core(0).close(*line.ends.sender);
    }
  }
}

// As whoever gives up at once does: the receiver closes what it has just accepted, and its good-bye
// overtakes its welcome. The connection was made, so connect() gives it, and what is posted tells.
TEST(NcclCore, ConnectionThatIsClosedBeforeItsWelcomeArrivesWasMade) {
  NcclLab lab(2);
  nccl::ListenHandle handle;
  const std::uint32_t listener = lab.core(1).listen(handle);
  nccl::SendComm* sender = nullptr;
  ASSERT_EQ(lab.core(0).connect(handle, sender), Outcome::ok);
  lab.run_for(1ms);
  lab.world().network().lose_next(world::Packet::send);
  nccl::ReceiveComm* receiver = nullptr;
  ASSERT_EQ(lab.core(1).accept(listener, receiver), Outcome::ok);
  ASSERT_NE(receiver, nullptr);
  lab.world().pump();  // the welcome is lost, and comes again later
  lab.core(1).close(*receiver);
  EXPECT_TRUE(lab.run_until([&] {
    EXPECT_EQ(lab.core(0).connect(handle, sender), Outcome::ok);
    return sender != nullptr || ::testing::Test::HasFailure();
  }));
  ASSERT_NE(sender, nullptr);
  EXPECT_EQ(sender->state, nccl::Comm::State::deserted) << "nothing was overtaken";
  Request* request = nullptr;
  EXPECT_EQ(lab.core(0).send(*sender, nullptr, 0, 0, nullptr, request), Outcome::ok);
  ASSERT_NE(request, nullptr);
  lab.run_for(10ms);  // the welcome changes nothing any more
  EXPECT_EQ(ended(request), Outcome::remote_error);
  EXPECT_EQ(lab.core(0).send(*sender, nullptr, 0, 0, nullptr, request), Outcome::ok);
  EXPECT_EQ(ended(request), Outcome::remote_error);
  lab.core(0).close(*sender);
  EXPECT_EQ(lab.core(0).counters().failed_connections, 0U);
}

// What is wrong is wrong there, too.
TEST(NcclCore, ArgumentsAreCheckedAlsoWhenTheOtherEndHasClosed) {
  Line line(4096);
  line.lab.core(1).close(*line.ends.receiver);
  line.lab.run_for(1ms);
  Request* request = nullptr;
  EXPECT_EQ(
      line.lab.core(0).send(*line.ends.sender, line.out.data(), 5000, 0, line.out_region, request),
      Outcome::invalid_argument);
  EXPECT_EQ(request, nullptr);
}

// The receiver has everything and closes; the sender hears of both in an unlucky order. It must not
// report a failure of a message that arrived.
TEST(NcclCore, GoodbyeDoesNotFailAMessageThatHasArrived) {
  Line line(4096);
  Request* const received = line.receive(0, 4096);
  line.lab.run_for(1ms);
  // The sender must not know of the arrival when the good-bye comes.
  line.lab.world().network().lose_next(world::Packet::ack, 3);
  Request* const sent = line.send(0, 4096);
  EXPECT_EQ(line.outcome(received), Outcome::ok);
  line.lab.core(1).close(*line.ends.receiver);
  EXPECT_EQ(line.outcome(sent), Outcome::ok);
}

// Control messages of closed connections still travel when the next ones open. None of them may be
// taken for one of a later connection.
TEST(NcclCore, ThousandConnectionsComeAndGo) {
  NcclLab lab(2);
  for (int i = 0; i < 1000; ++i) {
    const auto ends = lab.connect(i % 2 == 0 ? 0 : 1, i % 2 == 0 ? 1 : 0);
    ASSERT_NE(ends.sender, nullptr);
    lab.core(i % 2 == 0 ? 0 : 1).close(*ends.sender);
    lab.core(i % 2 == 0 ? 1 : 0).close(*ends.receiver);
  }
  lab.run_for(1ms);
  EXPECT_EQ(lab.core(0).counters().malformed_controls, 0U);
}

TEST(NcclCore, ListenerThatWasClosedRefuses) {
  NcclLab lab(2);
  nccl::ListenHandle handle;
  const std::uint32_t listener = lab.core(1).listen(handle);
  lab.core(1).close_listener(listener);
  nccl::SendComm* sender = nullptr;
  Outcome outcome = Outcome::ok;
  EXPECT_TRUE(lab.run_until([&] {
    outcome = lab.core(0).connect(handle, sender);
    return outcome != Outcome::ok;
  }));
  EXPECT_EQ(outcome, Outcome::remote_error);
}

// A handle travels outside of the network, and whoever has it may connect. One that was guessed or
// changed has the wrong secret.
TEST(NcclCore, OneListenerServesSeveralAndAnOldHandleIsNoKey) {
  NcclLab lab(3);
  nccl::ListenHandle first;
  const std::uint32_t listener = lab.core(2).listen(first);
  nccl::ListenHandle second = first;
  nccl::ListenHandle forged = first;
  forged.secret = first.secret.value() + 1;
  nccl::SendComm* senders[2] = {};
  nccl::SendComm* stranger = nullptr;
  nccl::ReceiveComm* receivers[2] = {};
  Outcome refused = Outcome::ok;
  EXPECT_TRUE(lab.run_until([&] {
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (senders[i] == nullptr) {
        EXPECT_EQ(lab.core(i).connect(i == 0 ? first : second, senders[i]), Outcome::ok);
      }
      if (receivers[i] == nullptr) {
        EXPECT_EQ(lab.core(2).accept(listener, receivers[i]), Outcome::ok);
      }
    }
    if (refused == Outcome::ok) {
      refused = lab.core(0).connect(forged, stranger);
    }
    return senders[0] != nullptr && senders[1] != nullptr && receivers[0] != nullptr &&
           receivers[1] != nullptr && refused != Outcome::ok;
  }));
  EXPECT_EQ(refused, Outcome::remote_error);
  EXPECT_EQ(stranger, nullptr);
}

// A handle of zeros, which no listener made: known by its magic number.
TEST(NcclCore, BytesThatAreNoHandleAreRefused) {
  NcclLab lab(1);
  nccl::ListenHandle handle;
  nccl::SendComm* sender = nullptr;
  EXPECT_EQ(lab.core(0).connect(handle, sender), Outcome::invalid_argument);
}

// As a GPU does that waits for flags in the data: it takes a message as soon as its bytes are
// there, and makes room for the next one. What was put off may not come there again.
TEST(NcclCore, WhatWasReadEarlyIsNotWrittenAgain) {
  constexpr std::size_t kConnections = 4;
  constexpr std::size_t kMessages = 48;  // of each: together more than a receiver counts at a time
  constexpr std::byte kBlank{0x5A};
  std::uint64_t deferred = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    NcclLabConfig config = nccl_lab_config();
    config.seed = seed;
    config.link.loss = 0.3;
    config.link.reorder = 0.1;
    config.engine.peer_timeout = 20s;
    NcclLab lab(2, config);
    const std::size_t size = config.engine.mtu_payload * 4;
    struct Message {
      std::vector<std::byte> in;
      std::vector<std::byte> out;
      bool read = false;
    };
    std::vector<Message> messages(kConnections * kMessages);
    std::size_t next = 0;
    for (std::size_t i = 0; i < kConnections; ++i) {
      const NcclLab::Connection line = lab.connect(0, 1);
      for (std::size_t k = 0; k < kMessages; ++k, ++next) {
        Message& message = messages[next];
        message.in.assign(size, kBlank);
        message.out.resize(size);
        fill_bytes(message.out, next + 7);
        nccl::CommRegion* const to =
            *lab.core(1).register_memory(*line.receiver, message.in.data(), size);
        nccl::CommRegion* const from =
            *lab.core(0).register_memory(*line.sender, message.out.data(), size);
        const nccl::Buffer buffer{message.in.data(), size, 1, to};
        nccl::Request* request = nullptr;
        ASSERT_EQ(lab.core(1).receive(*line.receiver, {&buffer, 1}, true, request), Outcome::ok);
        (void)lab.core(0).send(*line.sender, message.out.data(), size, 1, from, request);
      }
    }
    (void)lab.run_until(
        [&] {
          for (std::size_t i = 0; i < messages.size(); ++i) {
            if (!messages[i].read && has_bytes(messages[i].in, i + 7)) {
              messages[i].read = true;
              std::fill(messages[i].in.begin(), messages[i].in.end(), kBlank);
            }
          }
          return false;
        },
        5s);
    for (const Message& message : messages) {
      EXPECT_TRUE(!message.read || std::count(message.in.begin(), message.in.end(), kBlank) ==
                                       static_cast<std::ptrdiff_t>(size))
          << "seed " << seed;
    }
    deferred += lab.engine(1).counters().deferred_pkts;
  }
  EXPECT_GT(deferred, 0U) << "nothing was put off";
}

}  // namespace
}  // namespace weft::testing
