// Owns the tests that impairments are what was asked for: counted on a capture of the links, in the
// network's own time. The seed is fixed, so what is drawn is the same in every run; the tolerance
// of a tenth is more than three standard deviations of what is counted.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "emu/daemon/capture.hpp"
#include "emu/daemon/live_fabric.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/srd_codec.hpp"
#include "srd/wire/srd_header.hpp"
#include "tests/support/pcapng_reader.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;
namespace wire = srd::wire;
using std::chrono::microseconds;
using std::chrono::nanoseconds;
using weft::testing::CaptureFile;

constexpr int kFrames = 20'000;
constexpr double kTolerance = 0.1;

srd::Address host(unsigned number) { return srd::Address::v4(127, 77, number, 1); }

// Two hosts on a switch. Frames carry a number; "h1->sw" is troubled, and what comes out of it is
// seen on "sw->h2".
class ImpairmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fabric::Topology topology;
    const fabric::NodeId middle = topology.add_switch("sw");
    const fabric::LinkProperties link{.rate = Rate::gbps(100),
                                      .delay = microseconds{5},
                                      .buffer = 16 << 20,
                                      .ecn_low = 0,
                                      .ecn_high = 0,
                                      .trimming = false};
    for (const char* name : {"h1", "h2"}) {
      topology.connect(topology.add_host(name), middle, link);
    }
    live_ = std::make_unique<LiveFabric>(
        LiveFabric::Options{.topology = topology, .seed = 11, .dilation = 1, .max_frame = 9000},
        now_, [this](const FrameDelivery& arrival) { arrived_ += arrival.frame.empty() ? 0 : 1; });
  }

  template <class Set>
  void trouble(const Set& set) {
    fabric::Fault fault;
    fault.where = "h1->sw";
    set(fault.impairment);
    ASSERT_TRUE(live_->apply(now_, fault));
  }

  // Sends numbered frames `apart`, and returns what the capture says. A frame that the NIC does not
  // take yet is sent again a little later, as a process does.
  CaptureFile send(std::size_t size = 300, Duration apart = microseconds{2}) {
    const std::string file = directory_ + "/capture.pcapng";
    auto capture = Capture::start(live_->topology(), {.file = file}, 11, live_->network_time(now_));
    EXPECT_TRUE(capture) << capture.error().message;
    live_->set_capture(capture->get());
    const auto writer = net::EnvelopeWriter::make(host(1), srd::wire::SrdCodec::kPorts);
    number_at_ = writer->size() + 16;
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      std::vector<std::byte> bytes(writer->size() + size, std::byte{0x22});
      EXPECT_TRUE(writer->write(bytes.data(), host(2),
                                srd::PathId{static_cast<std::uint16_t>(i % 64)},
                                srd::Ecn::capable_0, srd::wire::kDscpData, size));
      bytes[writer->size() + 2] = std::byte{srd::wire::kChecksummed};
      std::memcpy(bytes.data() + number_at_, &i, sizeof i);
      while (!live_->submit(now_, 0,
                            {.port = 1, .block = 3, .record = {}, .management = false, .frame = {}},
                            bytes)) {
        now_ += nanoseconds{100};
        live_->advance(now_);
      }
      now_ += apart;
      live_->advance(now_);
    }
    now_ += std::chrono::seconds{1};
    live_->advance(now_);
    EXPECT_EQ(live_->frames_inside(), 0U);
    live_->set_capture(nullptr);
    capture->reset();
    CaptureFile read = weft::testing::read_pcapng(file);
    EXPECT_TRUE(read.well_formed);
    return read;
  }

  // By number, in nanoseconds.
  using Times = std::map<std::uint32_t, std::vector<std::uint64_t>>;
  // When each number was seen on a link without being lost there.
  Times times(const CaptureFile& file, const std::string& link) const {
    Times times;
    for (const auto& frame : file.frames) {
      if (frame.interface == file.place_of(link) && !frame.comment.starts_with("dropped")) {
        times[number_of(frame)].push_back(frame.time);
      }
    }
    return times;
  }
  std::size_t lost_because(const CaptureFile& file, const std::string& reason) const {
    return static_cast<std::size_t>(
        std::count_if(file.frames.begin(), file.frames.end(), [&](const auto& frame) {
          return frame.interface == file.place_of("h1->sw") &&
                 frame.comment == "dropped: " + reason;
        }));
  }
  // Nanoseconds between the two links, in order of sending, of the frames that came out. Without
  // trouble 5030: 5 us of delay, and the bits of a frame on a wire of 100 Gb/s.
  std::vector<double> delays(const CaptureFile& file) const {
    const Times in = times(file, "h1->sw");
    const Times out = times(file, "sw->h2");
    std::vector<double> delays;
    for (const auto& [number, when] : in) {
      if (const auto it = out.find(number); it != out.end()) {
        delays.push_back(static_cast<double>(it->second.front() - when.front()));
      }
    }
    return delays;
  }
  std::uint32_t number_of(const weft::testing::CapturedFrame& frame) const {
    std::uint32_t number = 0;
    std::memcpy(&number, frame.bytes.data() + number_at_, sizeof number);
    return number;
  }
  static double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) {
      sum += value;
    }
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
  }

  testing::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
  std::unique_ptr<LiveFabric> live_;
  TimePoint now_{};
  std::size_t number_at_ = 0;
  std::size_t arrived_ = 0;
};

void expect_within(double measured, double asked) {
  EXPECT_NEAR(measured, asked, asked * kTolerance);
}

// What the others are measured against.
TEST_F(ImpairmentTest, WithoutTroubleEveryFrameIsOnEveryLinkOnce) {
  const CaptureFile file = send();
  EXPECT_EQ(file.interfaces.size(), 5U);  // two cables, and weftd
  const Times out = times(file, "sw->h2");
  EXPECT_EQ(out.size(), static_cast<std::size_t>(kFrames));
  EXPECT_TRUE(
      std::all_of(out.begin(), out.end(), [](const auto& one) { return one.second.size() == 1; }));
  EXPECT_EQ(arrived_, static_cast<std::size_t>(kFrames));
  for (const double delay : delays(file)) {
    ASSERT_NEAR(delay, 5030, 10);
  }
}

TEST_F(ImpairmentTest, LossIsWhatWasAskedForAndSaysSo) {
  trouble([](fabric::Impairment& is) { is.loss = 0.05; });
  const CaptureFile file = send();
  expect_within(static_cast<double>(lost_because(file, "loss")) / kFrames, 0.05);
  EXPECT_EQ(times(file, "sw->h2").size() + lost_because(file, "loss"),
            static_cast<std::size_t>(kFrames));
  EXPECT_EQ(times(file, "sw->h2").size(), arrived_);
}

// Jitter adds between nothing and 40 us to the delay, evenly. Frames are so far apart that none has
// to wait for one before it.
TEST_F(ImpairmentTest, DelayAndJitterAreWhatWasAskedFor) {
  trouble([](fabric::Impairment& is) {
    is.extra_delay = microseconds{80};
    is.jitter = microseconds{40};
  });
  const CaptureFile file = send(300, microseconds{200});
  const std::vector<double> all = delays(file);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(kFrames));
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  expect_within(*least - 5030, 80'000);
  expect_within(*most - *least, 40'000);
  expect_within(mean(all) - 5030, 100'000);
  // A quarter of the frames in each quarter.
  for (int quarter = 0; quarter < 4; ++quarter) {
    const double from = 85'030 + 10'000 * quarter;
    expect_within(static_cast<double>(std::count_if(
                      all.begin(), all.end(),
                      [&](double delay) { return delay >= from && delay < from + 10'000; })) /
                      kFrames,
                  0.25);
  }
}

TEST_F(ImpairmentTest, ReorderingHoldsBackTheShareAskedFor) {
  trouble([](fabric::Impairment& is) {
    is.reordering = 0.1;
    is.reorder_delay = microseconds{100};
  });
  const CaptureFile file = send();
  const std::vector<double> all = delays(file);
  const auto held = static_cast<double>(
      std::count_if(all.begin(), all.end(), [](double delay) { return delay > 50'000; }));
  expect_within(held / kFrames, 0.1);
  expect_within(*std::max_element(all.begin(), all.end()) - 5030, 100'000);
}

TEST_F(ImpairmentTest, DuplicatesAreWhatWasAskedFor) {
  trouble([](fabric::Impairment& is) { is.duplication = 0.08; });
  const CaptureFile file = send();
  std::size_t twice = 0;
  for (const auto& [number, when] : times(file, "sw->h2")) {
    ASSERT_LE(when.size(), 2U);
    twice += when.size() == 2 ? 1 : 0;
  }
  expect_within(static_cast<double>(twice) / kFrames, 0.08);
  EXPECT_EQ(arrived_, kFrames + twice);
}

// A capture shows the frame as it was, and says by a comment that it was damaged.
TEST_F(ImpairmentTest, CorruptionIsWhatWasAskedFor) {
  trouble([](fabric::Impairment& is) { is.corruption = 0.07; });
  const CaptureFile file = send();
  std::size_t marked = 0;
  for (const auto& frame : file.frames) {
    marked += frame.interface == file.place_of("sw->h2") &&
                      frame.comment.find("corrupted") != std::string::npos
                  ? 1
                  : 0;
  }
  expect_within(static_cast<double>(marked) / kFrames, 0.07);
}

// Frames come far faster than the link is: they leave it back to back, at its rate.
TEST_F(ImpairmentTest, RateIsWhatWasAskedFor) {
  trouble([](fabric::Impairment& is) { is.rate_factor = 0.01; });  // 1 Gb/s
  const CaptureFile file = send(1400, nanoseconds{1});
  std::uint64_t first = UINT64_MAX;
  std::uint64_t last = 0;
  double bits = 0;
  for (const auto& frame : file.frames) {
    if (frame.interface == file.place_of("sw->h2")) {
      first = std::min(first, frame.time);
      last = std::max(last, frame.time);
      bits += 8.0 * frame.original_size;
    }
  }
  expect_within(bits / static_cast<double>(last - first), 1);  // bits per nanosecond
}

TEST_F(ImpairmentTest, ALinkThatIsDownLosesEverythingUntilItIsUp) {
  fabric::Fault fault;
  fault.where = "h1->sw";
  fault.impairment.down = true;
  fault.at = std::chrono::milliseconds{10};
  fault.lasts = std::chrono::milliseconds{10};
  ASSERT_TRUE(live_->apply(now_, fault));
  const CaptureFile file = send();  // 2 us apart: 40 ms
  expect_within(static_cast<double>(lost_because(file, "link_down")), kFrames / 4.0);
}

// Of two losses of 10 % the second finds 90 % left: 19 % in all. A delay beside them stays what it
// is.
TEST_F(ImpairmentTest, ImpairmentsAddUp) {
  trouble([](fabric::Impairment& is) { is.loss = 0.1; });
  trouble([](fabric::Impairment& is) {
    is.extra_delay = microseconds{20};
    is.loss = 0.1;
  });
  const CaptureFile file = send();
  expect_within(static_cast<double>(lost_because(file, "loss")) / kFrames, 0.19);
  expect_within(mean(delays(file)) - 5030, 20'000);
}

}  // namespace
}  // namespace weft::daemon
