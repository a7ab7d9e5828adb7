// Owns the tuning of engines in processes.
#include "srd/engine/process_config.hpp"

#include <algorithm>
#include <string>

#include "srd/base/rng.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {
namespace {

// What one core can copy, and how soon a process that has a core answers.
constexpr Rate kFastestMemory = Rate::gbps(100);
constexpr Duration kQuickestProcess = std::chrono::microseconds{14};
constexpr Duration kPollInterval = std::chrono::microseconds{1};  // of one that has work to do

}  // namespace

EngineConfig process_config(const IoCapabilities& carrier, AttachmentId attachment, Life life) {
  EngineConfig config;
  config.attachment = attachment;
  config.life = life;
  config.seed = mix64(std::uint64_t{life.value()} << 16 | attachment.value());
  config.mtu_payload = static_cast<std::uint32_t>(carrier.mtu - sizeof(wire::DataHeader));
  config.checksum = !carrier.lossless_memory;
  config.pace_step = kPollInterval;
  config.min_rto = std::chrono::milliseconds{20};
  config.peer_timeout = std::chrono::seconds{10};  // a starved process is not a dead one
  if (carrier.network.round_trip > Duration::zero()) {
    // The carrier tells when packets came out of the modelled network, so waiting for a core is not
    // taken for congestion. A round trip still counts as kQuickestProcess at least: while a process
    // waits for its core, more must be under way than the modelled network holds.
    config.line_rate = std::min(carrier.network.rate, kFastestMemory);
    config.base_rtt = std::max(carrier.network.round_trip, kQuickestProcess);
    config.trimming = carrier.network.trims;
  } else if (carrier.lossless_memory) {
    // Back-pressure is exact and nothing is lost, so the window is constant and below the size of a
    // ring. All paths are the same ring: an answer that is missing means a peer that has no core,
    // not a bad path.
    config.path_timeouts_to_abandon = 0;
    config.congestion_control = "fixed";
    config.line_rate = kFastestMemory;
    config.base_rtt = kQuickestProcess;
    config.ack_every = 8;
    config.ack_delay = std::chrono::microseconds{1};
    config.ask_sparingly = true;
  } else {
    // System calls and the kernel's network take longer than a data centre's switches.
    config.line_rate = Rate::gbps(carrier.gigabits != 0 ? carrier.gigabits : 25);
    config.base_rtt = std::chrono::microseconds{100};
    config.paths = 16;
    config.path_run = carrier.path_run;
  }
  config.paths = std::min(config.paths, carrier.paths);
  return config;
}

Result<void> validate(const EngineConfig& config, const IoCapabilities& carrier) {
  if (config.paths > carrier.paths) {
    return fail(ErrorCode::invalid_argument,
                "engine: " + std::to_string(config.paths) + " paths over a carrier that has " +
                    std::to_string(carrier.paths) + ": ask for fewer, or open it with more");
  }
  return validate(config);
}

}  // namespace weft::srd
