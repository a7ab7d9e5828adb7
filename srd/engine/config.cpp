// Owns the limits within which a configuration makes sense. Where several values depend on each
// other, the limit of one is derived from the other (the table), and what remains is checked one by
// one, with the reason in the error.
#include "srd/engine/config.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "srd/base/rng.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr std::uint32_t kMaxPayload =
    static_cast<std::uint32_t>(net::kLargestPacket - sizeof(wire::DataHeader));
constexpr std::int64_t kMaxPeers = 1 << 24;
constexpr std::int64_t kMaxRequests = 1 << 24;

struct Range {
  std::string_view name;
  std::int64_t value;
  std::int64_t least;
  std::int64_t most;
  std::string_view unit;
};

std::string out_of_range(const Range& range) {
  std::string text = "EngineConfig.";
  text.append(range.name).append(" is ").append(std::to_string(range.value));
  text.append(", must be from ").append(std::to_string(range.least));
  text.append(" to ").append(std::to_string(range.most)).append(range.unit);
  return text;
}

Range timer(std::string_view name, Duration value, Duration least, Duration most) {
  return {name, value.count(), least.count(), most.count(), " nanoseconds"};
}

}  // namespace

Result<void> validate(const EngineConfig& config) {
  constexpr Duration kTick{1};
  const std::int64_t window = config.window_packets;
  const std::array ranges{
      Range{"max_peers", config.max_peers, 1, kMaxPeers, ""},
      Range{"max_work_requests", config.max_work_requests, 1, kMaxRequests, ""},
      Range{"max_completions", config.max_completions, 1, kMaxRequests, ""},
      Range{"max_reads_per_peer", config.max_reads_per_peer, 1, 65535, ""},
      Range{"window_packets", window, 1, wire::kMaxWindow, ""},
      Range{"mtu_payload", config.mtu_payload, 64, kMaxPayload, " bytes"},
      Range{"paths", config.paths, 1, wire::kMaxPaths, ""},
      Range{"path_run", config.path_run, 0, 1 << 20, " bytes"},
      Range{"path_timeouts_to_abandon", config.path_timeouts_to_abandon, 0, 255, ""},
      timer("path_probe_interval", config.path_probe_interval, kTick, hours{1}),
      timer("base_rtt", config.base_rtt, kTick, seconds{1}),
      timer("pace_step", config.pace_step, Duration::zero(), seconds{1}),
      Range{"ack_every", config.ack_every, 1, std::clamp<std::int64_t>(window, 1, 255),
            " (window_packets)"},
      timer("ack_delay", config.ack_delay, Duration::zero(), seconds{1}),
      // Echoed send times are 32 bits of nanoseconds [wire 4.4]: half of that is unambiguous.
      timer("max_rto", config.max_rto, kTick, seconds{2}),
      timer("min_rto", config.min_rto, Duration::zero(), config.max_rto),
      timer("peer_timeout", config.peer_timeout, std::max(config.min_rto, config.base_rtt) + kTick,
            hours{1}),
      timer("rnr_delay", config.rnr_delay, kTick, seconds{1}),
      Range{"forced_reorder", config.forced_reorder, 0, window, " (window_packets)"},
  };
  for (const Range& range : ranges) {
    if (range.value < range.least || range.value > range.most) {
      return fail(ErrorCode::invalid_argument, out_of_range(range));
    }
  }
  if (config.max_work_requests > config.max_completions) {
    return fail(ErrorCode::invalid_argument,
                "EngineConfig.max_work_requests is " + std::to_string(config.max_work_requests) +
                    ", more than max_completions, " + std::to_string(config.max_completions) +
                    ": each request needs room for its completion, so the others could never be "
                    "posted");
  }
  if (config.life == Life{0}) {
    return fail(ErrorCode::invalid_argument,
                "EngineConfig.life is 0, which means \"not known\" on the wire: start with 1");
  }
  if (config.line_rate.is_zero()) {
    return fail(ErrorCode::invalid_argument,
                "EngineConfig.line_rate is 0: give the speed of the network, for example 100 Gb/s");
  }
  if (config.min_rto != Duration::zero() && config.ack_delay >= config.min_rto) {
    return fail(
        ErrorCode::invalid_argument,
        "EngineConfig.ack_delay is not shorter than min_rto: every packet that waits for its "
        "acknowledgement would be sent twice");
  }
  if (config.path_selector.empty() || config.congestion_control.empty()) {
    return fail(ErrorCode::invalid_argument,
                "EngineConfig.path_selector and congestion_control must each be a name from "
                "docs/paths-and-congestion.md");
  }
  return {};
}

std::uint64_t memory_salt(const EngineConfig& config) {
  return mix64(config.seed) ^ mix64(config.life.value());
}

}  // namespace weft::srd
