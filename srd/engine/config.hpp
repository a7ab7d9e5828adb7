// Owns every tunable of the transport, with its default and the reason for it.
#pragma once

#include <cstdint>
#include <string>

#include "srd/base/result.hpp"
#include "srd/base/time.hpp"
#include "srd/base/units.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

struct EngineConfig {
  // Our name and our incarnation.
  AttachmentId attachment;
  Life life{1};
  std::uint64_t seed = 1;
  Psn first_psn{0};  // of every context; tests start it close to the wrap

  // Limits: everything that a peer can make us hold is bounded by one of these.
  std::uint32_t max_peers = 65536;
  std::uint32_t max_work_requests = 65536;
  // Not taken by poll(): so many of requests, and as many of receives. Receives that are flushed
  // come on top.
  std::uint32_t max_completions = 65536;
  std::uint32_t max_reads_per_peer = 64;  // outstanding reads we send, and serve, per peer
  std::uint32_t window_packets =
      2048;  // span of unacknowledged sequence numbers; at most kMaxWindow

  // The packet.
  std::uint32_t mtu_payload = 4096;  // payload bytes of one packet = largest send
  bool checksum = true;  // CRC32C over header and payload; off where memory carries the packet

  // Paths.
  std::uint16_t paths = 64;                   // entropies in use per peer, 1..256
  std::string path_selector = "reps";         // docs/paths-and-congestion.md lists them
  std::uint32_t path_run = 0;                 // bytes in a row on one path, if they leave at once
  std::uint8_t path_timeouts_to_abandon = 1;  // in a row on one path; 0: never, where all are one
  Duration path_probe_interval = std::chrono::milliseconds{10};
  std::uint8_t path_reorder_tolerance =
      0;  // later packets of a path that may overtake before a gap is loss

  // Congestion control. Rates and times of the network as known beforehand; measured values refine
  // them.
  std::string congestion_control = "srd";
  Rate line_rate = Rate::gbps(100);
  Duration base_rtt = std::chrono::microseconds{14};
  bool trimming = false;          // the network trims: what is lost is usually reported
  bool receiver_credits = false;  // receivers grant at line rate (incast)
  Bytes credit_window = 0;  // sent before anything is granted; zero: line_rate * base_rtt * 1.05
  // So much before its time a paced packet may leave: about as long as it takes until the carrier
  // asks again. Zero where it asks for each packet at its time.
  Duration pace_step = Duration::zero();

  // Acknowledgements.
  std::uint8_t ack_every = 4;                         // packets per acknowledgement
  Duration ack_delay = std::chrono::microseconds{2};  // longest wait for more
  // The last packet asks for an acknowledgement only if no earlier question is open: where a round
  // trip is shorter than ack_delay, single packets in a row would cause one each.
  bool ask_sparingly = false;

  // Loss and death.
  Duration min_rto = Duration::zero();  // zero: derived from base_rtt
  Duration max_rto = std::chrono::milliseconds{100};
  Duration peer_timeout =
      std::chrono::milliseconds{500};  // no answer for so long: the peer is dead
  // How long a packet waits that was refused or deferred for the first time. The wait doubles each
  // time, up to 64 times as long.
  Duration rnr_delay = std::chrono::microseconds{20};

  // Shows applications the reordering that the contract allows; 0 = off, else how many packets may
  // be held back at a time.
  std::uint16_t forced_reorder = 0;
};

// For the MemoryTable of such an engine: another one for each life.
[[nodiscard]] std::uint64_t memory_salt(const EngineConfig& config);

// The error says what is wrong and what is allowed. The names of policies are not checked here, but
// where the policies are made.
[[nodiscard]] Result<void> validate(const EngineConfig& config);

}  // namespace weft::srd
