// Owns the tests of what becomes of real frames in the modelled network. Time is an argument, so
// nothing here waits.
#include "emu/daemon/live_fabric.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "emu/daemon/loans.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/srd_codec.hpp"
#include "srd/wire/srd_header.hpp"
#include "tests/unit/emu/daemon/roce_frame.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;
namespace wire = srd::wire;
using std::chrono::microseconds;
using std::chrono::seconds;

srd::Address host(unsigned number) { return srd::Address::v4(127, 77, number, 1); }

constexpr fabric::LinkProperties kFast{.rate = Rate::gbps(100),
                                       .delay = microseconds{5},
                                       .buffer = 1 << 20,
                                       .ecn_low = 0,
                                       .ecn_high = 0,
                                       .trimming = false};

// Frames go in at h1 and come out in `arrived_`, when the test moves the time on.
class LiveFabricTest : public testing::Test {
 protected:
  // Two hosts on one switch.
  void build(const fabric::LinkProperties& link, double dilation = 1) {
    fabric::Topology topology;
    const fabric::NodeId middle = topology.add_switch("sw");
    for (const char* name : {"h1", "h2"}) {
      topology.connect(topology.add_host(name), middle, link);
    }
    ASSERT_TRUE(topology.validate());
    live_ = std::make_unique<LiveFabric>(
        LiveFabric::Options{
            .topology = topology, .seed = 7, .dilation = dilation, .max_frame = 9000},
        TimePoint{}, [this](const FrameDelivery& arrival) {
          arrived_.emplace_back(arrival.frame.begin(), arrival.frame.end());
          records_.push_back(arrival.record);
        });
  }
  // h2's link is slow, and has room for three frames of 1000 bytes; it trims what finds none.
  void build_slow_link() {
    fabric::Topology topology;
    const fabric::NodeId middle = topology.add_switch("sw");
    topology.connect(topology.add_host("h1"), middle, kFast);
    topology.connect(topology.add_host("h2"), middle,
                     {.rate = Rate::gbps(1),
                      .delay = microseconds{1},
                      .buffer = 4000,
                      .ecn_low = 0,
                      .ecn_high = 0,
                      .trimming = true});
    arrived_.clear();
    live_ = std::make_unique<LiveFabric>(
        LiveFabric::Options{.topology = topology, .seed = 7, .dilation = 1, .max_frame = 9000},
        TimePoint{}, [this](const FrameDelivery& arrival) {
          arrived_.emplace_back(arrival.frame.begin(), arrival.frame.end());
        });
  }
  // Thirty of them, one each microsecond: eight times as fast as the slow link.
  void send_fast(const std::vector<std::byte>& bytes) {
    for (int i = 0; i < 30; ++i) {
      ASSERT_TRUE(submit(TimePoint{} + microseconds{i}, bytes));
    }
    live_->advance(TimePoint{} + seconds{1});
  }
  // From h1 to h2. With `checksummed` the packet says that it carries a checksum.
  static std::vector<std::byte> frame(std::size_t packet_size, bool checksummed = true,
                                      std::uint16_t path = 0) {
    const auto writer = net::EnvelopeWriter::make(host(1), srd::wire::SrdCodec::kPorts);
    std::vector<std::byte> bytes(writer->size() + packet_size, std::byte{0x11});
    EXPECT_TRUE(writer->write(bytes.data(), host(2), srd::PathId{path}, srd::Ecn::capable_0,
                              srd::wire::kDscpData, packet_size));
    bytes[writer->size() + 2] = checksummed ? std::byte{srd::wire::kChecksummed} : std::byte{0};
    return bytes;
  }
  bool submit(TimePoint now, const std::vector<std::byte>& bytes) {
    return live_->submit(
        now, 0, {.port = 1, .block = 3, .record = {}, .management = false, .frame = {}}, bytes);
  }
  // Sends `count` frames far enough apart to never queue.
  void send_apart(int count, std::size_t size, bool checksummed = true) {
    TimePoint now = live_time_;
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(submit(now, frame(size, checksummed, static_cast<std::uint16_t>(i % 256))));
      now += microseconds{20};
      live_->advance(now);
    }
    live_->advance(now + seconds{1});
    live_time_ = now + seconds{1};
  }
  void trouble(double fabric::Impairment::*what, double probability) {
    fabric::Fault fault;
    fault.where = "h1->sw";
    fault.impairment.*what = probability;
    ASSERT_TRUE(live_->apply(live_time_, fault));
  }

  std::unique_ptr<LiveFabric> live_;
  std::vector<std::vector<std::byte>> arrived_;
  std::vector<srd::RecordInfo> records_;
  TimePoint live_time_{};
};

// In the end next_event() is never: with nothing inside, weftd may sleep without a limit.
TEST_F(LiveFabricTest, AFrameArrivesUnchangedWhenItIsDueAndNotBefore) {
  build(kFast);
  const auto sent = frame(1000);
  ASSERT_TRUE(submit(TimePoint{}, sent));
  const TimePoint first = live_->next_event();
  EXPECT_GT(first, TimePoint{} + microseconds{4});
  live_->advance(TimePoint{} + microseconds{10});
  EXPECT_TRUE(arrived_.empty());  // two links of 5 us and two times on the wire
  EXPECT_EQ(live_->frames_inside(), 1U);
  live_->advance(TimePoint{} + microseconds{11});
  ASSERT_EQ(arrived_.size(), 1U);
  EXPECT_EQ(arrived_[0], sent);
  EXPECT_EQ(live_->frames_inside(), 0U);
  EXPECT_EQ(live_->next_event(), kNever);
}

// The model counts picoseconds in 64 bits, which come to an end after months. Seen from outside,
// nothing may change when they are counted from a new beginning.
TEST_F(LiveFabricTest, FramesArriveWhenTheyAreDueForYearsAndWithEveryDilation) {
  constexpr Duration kDay = std::chrono::hours{24};
  for (const double dilation : {0.001, 1.0, 1e6}) {
    build(kFast, dilation);
    for (Duration at{}; at < 3 * 365 * kDay; at += 37 * kDay) {
      const TimePoint sent{at};
      arrived_.clear();
      ASSERT_TRUE(submit(sent, frame(1000)));
      TimePoint due = sent;
      for (int turn = 0; turn < 10 && arrived_.empty(); ++turn) {
        due = live_->next_event();
        ASSERT_NE(due, kNever);
        live_->advance(due);
      }
      ASSERT_EQ(arrived_.size(), 1U) << dilation << ", day " << at / kDay;
      const double took = static_cast<double>(nanoseconds(due - sent)) / dilation;
      ASSERT_NEAR(took, 10'170, 20 + 2 / dilation) << "nanoseconds of the network's";
    }
  }
}

// The fault is planned far ahead, across such a new beginning of the count. One that would end
// after more days than 64 bits of picoseconds hold is refused at once.
TEST_F(LiveFabricTest, FaultsComeAndGoOnTheDayThatWasAskedFor) {
  constexpr Duration kDay = std::chrono::hours{24};
  build(kFast);
  fabric::Fault fault;
  fault.where = "h1->sw";
  fault.impairment.loss = 1;
  fault.at = 60 * kDay;
  fault.lasts = 39 * kDay;
  ASSERT_TRUE(live_->apply(TimePoint{}, fault));
  fault.at = 70 * kDay;
  EXPECT_FALSE(live_->apply(TimePoint{}, fault)) << "more than 64 bits count";
  for (int day = 1; day < 300; day += 2) {
    const TimePoint now{day * kDay};
    arrived_.clear();
    live_->advance(now);
    ASSERT_TRUE(submit(now, frame(1000)));
    live_->advance(now + microseconds{100});
    EXPECT_EQ(arrived_.size(), day > 60 && day < 99 ? 0U : 1U) << "day " << day;
  }
}

// A frame on loan is read from where it lies, as late as possible. The test changes the memory
// while all three are inside: the one that was called in, and so copied, arrives as it was sent,
// and the others as they lie there then.
TEST_F(LiveFabricTest, ALentFrameIsNotCopiedUntilItIsCalledInOrDelivered) {
  build(kFast);
  Loans loans;
  std::vector<std::vector<std::byte>> memory;
  for (std::uint64_t i = 0; i < 3; ++i) {
    memory.push_back(frame(1000));
  }
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(live_->submit(TimePoint{}, 0, {.port = 1, .record = {}, .frame = {}}, memory[i],
                              {.loans = &loans, .position = 100 * i, .now = TimePoint{}}));
  }
  EXPECT_FALSE(loans.empty());
  live_->call_in(loans);  // the first
  EXPECT_EQ(loans.position(), 100U);
  const auto sent = memory[0];
  for (auto& bytes : memory) {
    bytes.back() ^= std::byte{0xFF};
  }
  live_->advance(TimePoint{} + seconds{1});
  EXPECT_TRUE(loans.empty());
  ASSERT_EQ(arrived_.size(), 3U);
  EXPECT_EQ(arrived_[0], sent);
  EXPECT_EQ(arrived_[1], memory[1]);
  EXPECT_EQ(arrived_[2], memory[2]);
}

// A loan that is never given back would stop the sender's ring for good.
TEST_F(LiveFabricTest, LostFramesAreGivenBackToo) {
  build(kFast);
  trouble(&fabric::Impairment::loss, 1.0);
  Loans loans;
  const auto memory = frame(1000);
  ASSERT_TRUE(live_->submit(live_time_, 0, {.port = 1, .record = {}, .frame = {}}, memory,
                            {.loans = &loans, .position = 0, .now = live_time_}));
  live_->advance(live_time_ + seconds{1});
  EXPECT_TRUE(loans.empty());
  EXPECT_TRUE(arrived_.empty());
}

// A ring goes back in its own order, whatever order the network has. Here the oldest loan is given
// back last of all.
TEST(LoansTest, TheOldestThatIsOutHoldsUpAllLaterOnes) {
  Loans loans;
  std::vector<std::uint64_t> numbers;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    numbers.push_back(loans.lend(10 * i, i, TimePoint{}));
  }
  for (std::size_t i = 999; i >= 1; --i) {
    loans.give_back(numbers[i]);
    EXPECT_EQ(loans.position(), 0U);
    EXPECT_EQ(loans.handle(), 0U);
  }
  loans.give_back(numbers[0]);
  EXPECT_TRUE(loans.empty());
  (void)loans.lend(77, 5, TimePoint{});
  EXPECT_EQ(loans.position(), 77U);
  EXPECT_EQ(loans.handle(), 5U);
}

// What a frame waited for weftd, here 700 us, and for its own NIC, here behind nine others, is not
// what the network took: a sender that measured it would slow down for nothing.
TEST_F(LiveFabricTest, TellsWhenAFrameWouldHaveArrivedHadNobodyBeenLate) {
  build(kFast);
  const TimePoint left = TimePoint{} + microseconds{100};
  const TimePoint late = left + microseconds{700};
  for (int i = 0; i < 10; ++i) {
    const auto sent = frame(8000);
    ASSERT_TRUE(live_->submit(
        late, 0, {.port = 1, .record = {.flags = 0, .time = nanoseconds(left)}, .frame = {}},
        sent));
  }
  live_->advance(late + seconds{1});
  ASSERT_EQ(records_.size(), 10U);
  for (const srd::RecordInfo& record : records_) {
    EXPECT_EQ(record.flags, srd::kRecordArrival);
    const Duration way = Duration{record.time} - Duration{nanoseconds(left)};
    // Two links of 5 us, and 8 KB on each at 100 Gb/s.
    EXPECT_GT(way, microseconds{11});
    EXPECT_LT(way, microseconds{12});
  }
}

// Frames of ports to the outside have no time; a made-up one would be taken for a measurement.
TEST_F(LiveFabricTest, WhereNobodySaidWhenAFrameLeftNobodyIsToldWhenItArrived) {
  build(kFast);
  ASSERT_TRUE(submit(TimePoint{}, frame(100)));
  live_->advance(TimePoint{} + seconds{1});
  ASSERT_EQ(records_.size(), 1U);
  EXPECT_EQ(records_[0].flags, 0U);
  EXPECT_EQ(records_[0].time, 0);
}

// With a dilation of 100 the same network is a hundred times slower for processes, which live in
// real time.
TEST_F(LiveFabricTest, AProcessLearnsTheRateAndTheRoundTripInItsOwnTime) {
  build(kFast);
  const srd::NetworkModel network = live_->seen_from(0);
  EXPECT_EQ(network.rate, Rate::gbps(100));
  EXPECT_GT(network.round_trip, microseconds{20});
  EXPECT_LT(network.round_trip, microseconds{23});
  EXPECT_FALSE(network.trims);
  build(kFast, 100);
  const srd::NetworkModel slow = live_->seen_from(0);
  EXPECT_EQ(slow.rate, Rate::gbps(1));
  EXPECT_GT(slow.round_trip, microseconds{2000});
  EXPECT_LT(slow.round_trip, microseconds{2300});
}

// A NIC's own queue never trims: no frame is lost there.
TEST_F(LiveFabricTest, AProcessLearnsThatTheNetworkTrimsIfAllItsSwitchesDo) {
  const auto seen_where = [](bool first, bool second) {
    fabric::LinkProperties nic = kFast;
    nic.buffer = 0;
    fabric::LinkProperties down[] = {kFast, kFast};
    down[0].trimming = first;
    down[1].trimming = second;
    fabric::Topology topology;
    const fabric::NodeId middle = topology.add_switch("sw");
    topology.connect(topology.add_host("h1"), middle, nic, down[0]);
    topology.connect(topology.add_host("h2"), middle, nic, down[1]);
    LiveFabric live({.topology = topology, .seed = 7, .dilation = 1, .max_frame = 9000},
                    TimePoint{}, [](const FrameDelivery&) {});
    return live.seen_from(0).trims;
  };
  EXPECT_TRUE(seen_where(true, true));
  EXPECT_FALSE(seen_where(true, false));
  EXPECT_FALSE(seen_where(false, true));
}

// Ten microseconds of the network are ten milliseconds here.
TEST_F(LiveFabricTest, DilationStretchesTime) {
  build(kFast, 1000);
  ASSERT_TRUE(submit(TimePoint{}, frame(1000)));
  live_->advance(TimePoint{} + microseconds{10'000});
  EXPECT_TRUE(arrived_.empty());
  live_->advance(TimePoint{} + microseconds{11'000});
  EXPECT_EQ(arrived_.size(), 1U);
}

// What it does not take stays in the sender's ring, which is how a process feels a slow link.
TEST_F(LiveFabricTest, ANicTakesNoMoreThanItCanSend) {
  build({.rate = Rate::gbps(1), .delay = microseconds{1}, .buffer = 1 << 20});
  int taken = 0;
  while (taken < 1000 && submit(TimePoint{}, frame(1000))) {
    ++taken;
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 10);  // 20 us at 1 Gb/s are 2.5 KB
  EXPECT_TRUE(submit(TimePoint{} + microseconds{100}, frame(1000)));
}

// Within 5 %: seven standard deviations of the loss, ten of the copies.
TEST_F(LiveFabricTest, LossAndDuplicationAreAsAskedFor) {
  build(kFast);
  trouble(&fabric::Impairment::loss, 0.2);
  send_apart(5000, 200);
  EXPECT_NEAR(static_cast<double>(arrived_.size()), 4000, 4000 * 0.1 / 2);
  arrived_.clear();
  build(kFast);
  trouble(&fabric::Impairment::duplication, 0.3);
  send_apart(5000, 200);
  EXPECT_NEAR(static_cast<double>(arrived_.size()), 6500, 6500 * 0.1 / 2);
  EXPECT_EQ(live_->frames_inside(), 0U);
}

// A damaged packet that carries a checksum goes on, and its receiver finds out. One without would
// be taken for good, so it is lost here.
TEST_F(LiveFabricTest, CorruptionIsSeenByTheChecksumOrTheFrameIsLost) {
  build(kFast);
  trouble(&fabric::Impairment::corruption, 1);
  send_apart(100, 200, true);
  ASSERT_EQ(arrived_.size(), 100U);
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    const auto original = frame(200, true, static_cast<std::uint16_t>(i % 256));
    EXPECT_NE(arrived_[i], original);
    EXPECT_TRUE(net::Envelope::parse(arrived_[i], srd::wire::SrdCodec::kPorts).ok());
  }
  arrived_.clear();
  send_apart(100, 200, false);
  ASSERT_EQ(arrived_.size(), 100U);
  for (const auto& bytes : arrived_) {
    EXPECT_TRUE(bytes.empty());
  }
}

// The packets come eight times as fast as the link to h2 sends. From 2000 bytes in its queue on
// every packet is marked: all but the first few.
TEST_F(LiveFabricTest, CongestionMarksAreInTheIpHeaderAndItsChecksumIsRight) {
  fabric::Topology topology;
  const fabric::NodeId middle = topology.add_switch("sw");
  topology.connect(topology.add_host("h1"), middle, kFast);
  topology.connect(topology.add_host("h2"), middle,
                   {.rate = Rate::gbps(1),
                    .delay = microseconds{1},
                    .buffer = 1 << 20,
                    .ecn_low = 1000,
                    .ecn_high = 2000});
  live_ = std::make_unique<LiveFabric>(
      LiveFabric::Options{.topology = topology, .seed = 7, .dilation = 1, .max_frame = 9000},
      TimePoint{}, [this](const FrameDelivery& arrival) {
        arrived_.emplace_back(arrival.frame.begin(), arrival.frame.end());
      });
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(submit(TimePoint{} + microseconds{i}, frame(1000)));
  }
  live_->advance(TimePoint{} + seconds{1});
  ASSERT_EQ(arrived_.size(), 50U);
  int marked = 0;
  for (const auto& bytes : arrived_) {
    const auto envelope = net::Envelope::parse(bytes, srd::wire::SrdCodec::kPorts);
    ASSERT_TRUE(envelope.ok()) << to_string(envelope.fault());
    marked += envelope.ecn() == srd::Ecn::congested ? 1 : 0;
  }
  EXPECT_GT(marked, 20);
  EXPECT_LT(marked, 50);
}

// All arrive: those that found no room as their headers, by which the receiver learns of the loss.
TEST_F(LiveFabricTest, AFullQueueTrimsWhereTheLinkTrims) {
  build_slow_link();
  send_fast(frame(1000));
  ASSERT_EQ(arrived_.size(), 30U);
  int trimmed = 0;
  for (const auto& bytes : arrived_) {
    const auto envelope = net::Envelope::parse(bytes, srd::wire::SrdCodec::kPorts);
    ASSERT_TRUE(envelope.ok());
    if (srd::wire::SrdCodec::is_trimmed(envelope.dscp())) {
      ++trimmed;
      EXPECT_EQ(envelope.packet().size(), sizeof(srd::wire::DataHeader));
    }
  }
  EXPECT_GT(trimmed, 5);
}

// A sender of frames that receivers would drop anyway does not get them past a full queue by that.
TEST_F(LiveFabricTest, AFullQueueLosesWhatOnlySeemsTrimmable) {
  constexpr std::size_t kIpChecksum = 24;
  auto broken = frame(1000);
  broken[kIpChecksum] ^= std::byte{1};
  build_slow_link();
  send_fast(broken);
  EXPECT_GT(live_->fabric().totals().trimmed, 5U);
  std::size_t whole = 0;
  for (const auto& bytes : arrived_) {
    EXPECT_TRUE(bytes.empty() || bytes.size() == broken.size());
    whole += bytes.empty() ? 0 : 1;
  }
  EXPECT_EQ(whole + live_->fabric().totals().trimmed, 30U);
}

// Frames of protocols that are not trimmed: of RoCE, and of a kernel's TCP.
TEST_F(LiveFabricTest, AFullQueueDropsWhatCannotBeTrimmed) {
  constexpr std::size_t kProtocol = 23;  // in the IPv4 header
  auto tcp = frame(1000);
  tcp[kProtocol] = std::byte{6};
  for (const auto& sent : {roce_frame(host(1), host(2), 2, 1042), tcp}) {
    build_slow_link();
    send_fast(sent);
    const fabric::FabricTotals& totals = live_->fabric().totals();
    EXPECT_EQ(totals.trimmed, 0U);
    EXPECT_GT(totals.dropped[static_cast<std::size_t>(fabric::LossReason::queue_full)], 5U);
    EXPECT_EQ(arrived_.size() + totals.dropped_all(), 30U);
    for (const auto& bytes : arrived_) {
      EXPECT_EQ(bytes.size(), sent.size());
    }
  }
}

TEST_F(LiveFabricTest, ALinkThatIsDownCarriesNothingUntilItIsUp) {
  build(kFast);
  fabric::Fault fault;
  fault.where = "h1->sw";
  fault.impairment.down = true;
  const auto applied = live_->apply(TimePoint{}, fault);
  ASSERT_TRUE(applied);
  send_apart(20, 200);
  EXPECT_EQ(arrived_.size(), 0U);
  live_->end(live_time_, *applied);
  send_apart(20, 200);
  EXPECT_EQ(arrived_.size(), 20U);
}

}  // namespace
}  // namespace weft::daemon
