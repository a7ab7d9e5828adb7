// Owns the tests of the limits of a configuration.
//
// A wrong configuration is refused when an engine is made, by the name of the field; nothing is
// corrected in silence. Some limits follow from others: an acknowledgement must be due before the
// sender's time-out, a window holds at least what is acknowledged together.
#include "srd/engine/config.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace weft::srd {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What is said about the defaults with this change; empty: nothing.
std::string refusal(const std::function<void(EngineConfig&)>& change) {
  EngineConfig config;
  change(config);
  const auto result = validate(config);
  return result ? "" : result.error().message;
}

TEST(Config, DefaultsAreValid) {
  EXPECT_EQ(refusal([](auto&) {}), "");
}

// The last value that is allowed, on either side; the next one is in the table below.
TEST(Config, LimitsAreInclusive) {
  EXPECT_EQ(refusal([](auto& c) { c.paths = 1; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.paths = 256; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.window_packets = 2048; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.window_packets = c.ack_every = 1; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.mtu_payload = 8928; }), "") << "EFA's";
  EXPECT_EQ(refusal([](auto& c) { c.ack_delay = Duration::zero(); }), "");
  EXPECT_EQ(refusal([](auto& c) { c.min_rto = c.max_rto; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.life = Life{0xFFFFFFFF}; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.peer_timeout = c.base_rtt + Duration{1}; }), "")
      << "a test may want a quick death";
}

TEST(Config, RefusalNamesFieldValueAndRange) {
  EXPECT_EQ(refusal([](auto& c) { c.paths = 257; }),
            "EngineConfig.paths is 257, must be from 1 to 256");
  EXPECT_EQ(refusal([](auto& c) { c.window_packets = 4096; }),
            "EngineConfig.window_packets is 4096, must be from 1 to 2048");
  EXPECT_EQ(refusal([](auto& c) { c.max_rto = seconds{3}; }),
            "EngineConfig.max_rto is 3000000000, must be from 1 to 2000000000 nanoseconds");
}

struct Bad {
  std::string field;
  std::function<void(EngineConfig&)> change;
};

class ConfigBad : public testing::TestWithParam<Bad> {};

TEST_P(ConfigBad, IsRefusedByName) {
  const std::string message = refusal(GetParam().change);
  EXPECT_NE(message.find("EngineConfig." + GetParam().field), std::string::npos)
      << '"' << message << '"';
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ConfigBad,
    testing::Values(
        Bad{"life", [](auto& c) { c.life = Life{0}; }},
        Bad{"max_peers", [](auto& c) { c.max_peers = 0; }},
        Bad{"max_peers", [](auto& c) { c.max_peers = 0xFFFFFFFF; }},
        Bad{"max_work_requests", [](auto& c) { c.max_work_requests = 0; }},
        Bad{"max_completions", [](auto& c) { c.max_completions = 0; }},
        Bad{"max_work_requests", [](auto& c) { c.max_work_requests = c.max_completions + 1; }},
        Bad{"max_reads_per_peer", [](auto& c) { c.max_reads_per_peer = 0; }},
        Bad{"window_packets", [](auto& c) { c.window_packets = 0; }},
        Bad{"mtu_payload", [](auto& c) { c.mtu_payload = 0; }},
        Bad{"mtu_payload", [](auto& c) { c.mtu_payload = 65'500; }},
        Bad{"paths", [](auto& c) { c.paths = 0; }},
        Bad{"path_probe_interval", [](auto& c) { c.path_probe_interval = Duration::zero(); }},
        Bad{"path_selector", [](auto& c) { c.path_selector.clear(); }},
        Bad{"path_selector and congestion_control", [](auto& c) { c.congestion_control.clear(); }},
        Bad{"line_rate", [](auto& c) { c.line_rate = Rate{}; }},
        Bad{"base_rtt", [](auto& c) { c.base_rtt = Duration::zero(); }},
        Bad{"base_rtt", [](auto& c) { c.base_rtt = seconds{2}; }},
        Bad{"ack_every", [](auto& c) { c.ack_every = 0; }},
        Bad{"ack_every",
            [](auto& c) {
              c.window_packets = 8;
              c.ack_every = 9;
            }},
        Bad{"ack_delay", [](auto& c) { c.ack_delay = Duration{-1}; }},
        Bad{"pace_step", [](auto& c) { c.pace_step = Duration{-1}; }},
        Bad{"ack_delay",
            [](auto& c) {
              c.min_rto = microseconds{50};
              c.ack_delay = microseconds{50};
            }},
        Bad{"min_rto", [](auto& c) { c.min_rto = Duration{-1}; }},
        Bad{"min_rto", [](auto& c) { c.min_rto = c.max_rto + Duration{1}; }},
        Bad{"max_rto", [](auto& c) { c.max_rto = Duration::zero(); }},
        Bad{"peer_timeout", [](auto& c) { c.peer_timeout = c.base_rtt; }},
        Bad{"peer_timeout", [](auto& c) { c.peer_timeout = hours{2}; }},
        Bad{"rnr_delay", [](auto& c) { c.rnr_delay = Duration::zero(); }},
        Bad{"forced_reorder", [](auto& c) { c.forced_reorder = 2049; }}));

}  // namespace
}  // namespace weft::srd
