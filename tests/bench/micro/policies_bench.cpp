// Owns the cost per packet of the transport's policies, for one peer and for very many.
//
// With one peer all state is in the cache; with a thousand nearly none is, as in a large incast.
// The second number shows what the size of a peer's state costs.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "srd/base/rng.hpp"
#include "srd/engine/cc/congestion_control.hpp"
#include "srd/engine/paths/peer_paths.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// Peers are visited in an order that no prefetcher guesses. range(0): peers, range(1): paths.
void pick_and_feedback(benchmark::State& state, PathSelectorKind kind) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  std::vector<PeerPaths> peers;
  for (std::uint32_t i = 0; i < count; ++i) {
    peers.emplace_back(
        PathSelector{kind, static_cast<std::uint16_t>(state.range(1)), i, PathTuning{}},
        PathHealthTuning{});
  }
  Rng rng{1};
  TimePoint now = time_at(1ms);
  std::uint32_t marks = 0;
  for (auto _ : state) {
    PeerPaths& peer = peers[rng.below(count)];
    now += 100ns;
    const PathId path = peer.pick(now);
    const PathEvent event = ++marks % 16 == 0 ? PathEvent::congested : PathEvent::good;
    benchmark::DoNotOptimize(peer.on_feedback(now, path, event, 14us));
  }
}

// range(0): peers.
// Round trips vary, and every 16th acknowledgement has a mark: otherwise controls would stay in
// their cheapest branch.
void acknowledge(benchmark::State& state, CongestionControlKind kind) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  std::vector<CongestionControl> peers(count, CongestionControl{kind, CcTuning{}});
  Rng rng{1};
  AckSample sample;
  sample.now = time_at(1ms);
  sample.acked = 4160;
  sample.in_flight = 100'000;
  sample.rtt_valid = true;
  std::uint16_t path = 0;
  for (auto _ : state) {
    CongestionControl& peer = peers[rng.below(count)];
    sample.now += 300ns;
    sample.path = PathId{static_cast<std::uint16_t>(++path % 64)};
    sample.rtt = 14us + Duration{(path * 37) % 9000};
    sample.congested = path % 16 == 0;
    peer.on_ack(sample);
    benchmark::DoNotOptimize(peer.window());
  }
}

const bool kRegistered = [] {
  for (const std::string_view name : path_selector_names()) {
    benchmark::RegisterBenchmark(("pick_and_feedback/" + std::string(name)).c_str(),
                                 pick_and_feedback, *parse_path_selector(name))
        ->Args({1, 1})
        ->Args({1, 256})
        ->Args({1024, 256});
  }
  for (const std::string_view name : congestion_control_names()) {
    benchmark::RegisterBenchmark(("acknowledge/" + std::string(name)).c_str(), acknowledge,
                                 *parse_congestion_control(name))
        ->Arg(1)
        ->Arg(1024);
  }
  return true;
}();

}  // namespace
}  // namespace weft::srd
