// Owns what follows from an engine's configuration.
#include "srd/engine/engine_parts.hpp"

#include <algorithm>

#include "srd/base/check.hpp"

namespace weft::srd {
namespace {

constexpr std::uint32_t kMaxToldOnce = 4 * PsnBitmap::kSpan;  // four whole windows
constexpr std::uint32_t kMaxProbes = 16 * wire::kMaxPaths;    // of all paths of 16 peers

// 4 packets in flight on an idle network are lost within this many round trips.
constexpr int kMinRtoInBaseRtts = 3;

// A configuration that did not pass validate() is a bug of the caller's.
template <class T>
T must(Result<T> result) {
  WEFT_CHECK(result.has_value());
  return *result;
}

// How fast payload can arrive.
Rate payload_rate(const EngineConfig& config) {
  const std::uint64_t payload = config.mtu_payload;
  return Rate::bits_per_second(std::max<std::uint64_t>(
      config.line_rate.bits_per_second() / (payload + sizeof(wire::DataHeader)) * payload, 1));
}

// After so long the first grant is there: request and answer wait for frames that are on the wire.
Duration first_grant_of(const EngineConfig& config) {
  return config.base_rtt + config.base_rtt / 20;
}

Bytes mtu_wire(const EngineConfig& config) { return config.mtu_payload + sizeof(wire::DataHeader); }

CcTuning cc_tuning_of(const EngineConfig& config) {
  CcTuning tuning;
  tuning.line_rate = config.line_rate;
  tuning.base_rtt = config.base_rtt;
  tuning.mtu_wire = mtu_wire(config);
  tuning.header = sizeof(wire::DataHeader);
  tuning.trimming = config.trimming;
  tuning.credits = config.receiver_credits;
  return tuning;
}

// A network whose round trips are longer than the longest time-out that was asked for is waited for
// nevertheless.
RetransmissionTuning patience_of(const EngineConfig& config) {
  const Duration min_rto =
      config.min_rto > Duration::zero() ? config.min_rto : kMinRtoInBaseRtts * config.base_rtt;
  return {.base_rtt = config.base_rtt,
          .ack_delay = config.ack_delay,
          .min_rto = min_rto,
          .max_rto = std::max(config.max_rto, min_rto),
          .peer_timeout = config.peer_timeout,
          .losses_are_reported = config.trimming};
}

}  // namespace

EngineParts::EngineParts(const EngineConfig& configuration, Counters* given_counters,
                         MemoryTable* given_memory)
    : config(configuration),
      selector_kind(must(parse_path_selector(config.path_selector))),
      path_tuning{.base_rtt = config.base_rtt},
      cc_kind(must(parse_congestion_control(config.congestion_control))),
      asks_distance(!config.receiver_credits && cc_kind == CongestionControlKind::srd),
      cc_tuning(cc_tuning_of(config)),
      patience(patience_of(config)),
      window_span(std::min(config.window_packets, PsnBitmap::kSpan)),
      tight_window(Bytes{2} * config.ack_every * cc_tuning.mtu_wire),
      first_grant(first_grant_of(config)),
      credit_window(config.credit_window != 0 ? config.credit_window
                                              : config.line_rate.bytes_in(first_grant)),
      rng(config.seed),
      counters(given_counters != nullptr ? *given_counters : own_counters),
      memory(given_memory != nullptr ? *given_memory : own_memory.emplace(memory_salt(config))),
      completions(config.max_completions),
      peers(config.max_peers),
      schedule(peers),
      works(config.max_work_requests, {peers, endpoints, completions, counters}),
      grants(CreditTuning{.line_rate = payload_rate(config), .max_peers = config.max_peers}),
      told_once(kMaxToldOnce),
      probe_echoes(kMaxProbes) {}

[[gnu::hot]] wire::CommonHeader EngineParts::common_header(const Peer& peer,
                                                           wire::PacketType type) const {
  wire::CommonHeader header{};
  header.version = wire::kVersion;
  header.type = static_cast<std::uint8_t>(type);
  header.destination_attachment = peer.key.attachment.value();
  header.source_attachment = config.attachment.value();
  header.source_life = config.life.value();
  header.destination_life = peer.life.addressed().value();
  return header;
}

}  // namespace weft::srd
