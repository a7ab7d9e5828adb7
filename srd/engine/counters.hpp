// Owns the engine's counters. Names are EFA's where EFA has one.
#pragma once

#include <array>
#include <cstdint>

#include "srd/wire/drop_reason.hpp"

namespace weft::srd {

// X(name, what it counts)
#define WEFT_ENGINE_COUNTERS(X)                                                       \
  X(tx_pkts, "packets sent, of every kind")                                           \
  X(tx_bytes, "their bytes, without the network envelope")                            \
  X(rx_pkts, "packets that arrived, of every kind")                                   \
  X(rx_bytes, "their bytes, without the network envelope")                            \
  X(rx_drops, "packets that arrived and were dropped, for whatever reason")           \
  X(data_pkts, "data packets sent for the first time")                                \
  X(acks_sent, "acknowledgements sent")                                               \
  X(acks_received, "acknowledgements that arrived and were valid")                    \
  X(delivered_pkts, "data packets that arrived for the first time and were accepted") \
  X(reordered_pkts, "those that arrived after a later one of the same peer")          \
  X(delivered_msgs, "messages delivered: sends, and writes with immediate data")      \
  X(reordered_msgs, "those delivered after one that the peer posted later")           \
  X(send_wrs, "send requests completed well")                                         \
  X(send_bytes, "their bytes")                                                        \
  X(recv_wrs, "messages delivered into posted receives")                              \
  X(recv_bytes, "their bytes")                                                        \
  X(rdma_write_wrs, "write requests completed well")                                  \
  X(rdma_write_bytes, "their bytes")                                                  \
  X(rdma_write_wr_err, "write requests completed in error")                           \
  X(rdma_write_recv_bytes, "bytes that peers wrote into local regions")               \
  X(rdma_read_wrs, "read requests completed well")                                    \
  X(rdma_read_bytes, "their bytes")                                                   \
  X(rdma_read_wr_err, "read requests completed in error")                             \
  X(rdma_read_resp_bytes, "bytes sent in answer to peers' reads")                     \
  X(retrans_pkts, "data packets sent again")                                          \
  X(retrans_bytes, "their bytes")                                                     \
  X(retrans_timeout_events, "timeouts that also changed the network path")            \
  X(spurious_retrans_pkts, "packets sent again although the first copy had arrived")  \
  X(lost_by_gap, "losses found by a gap within a path")                               \
  X(lost_by_time, "losses found because much later packets had arrived")              \
  X(lost_by_timeout, "losses found by a timer")                                       \
  X(lost_by_trim, "losses reported by a trimmed header")                              \
  X(tail_probes, "probes sent because a tail of packets stayed unanswered")           \
  X(path_probes, "probes sent to see whether an abandoned path is back")              \
  X(paths_abandoned, "paths taken out of use")                                        \
  X(paths_recovered, "paths taken back into use")                                     \
  X(congested_pkts, "packets that arrived with a congestion mark")                    \
  X(trimmed_pkts, "packets that arrived without their payload")                       \
  X(duplicate_pkts, "data packets that had arrived before")                           \
  X(rnr_sent, "packets refused because no receive was posted")                        \
  X(rnr_retries, "requests tried again after such a refusal")                         \
  X(deferred_pkts, "packets put off because a table was full")                        \
  X(unresponsive_remote_events, "peers that answered once and then no more")          \
  X(unreachable_remote_events, "peers that never answered")                           \
  X(impaired_remote_conn_events, "timeouts in a row with one peer")                   \
  X(peer_restarts, "peers seen to have come back as a new life")                      \
  X(credit_requests, "credit requests sent")                                          \
  X(flushed_wrs, "requests cancelled by their owner")

struct Counters {
#define WEFT_COUNTER_FIELD(name, text) std::uint64_t name = 0;
  WEFT_ENGINE_COUNTERS(WEFT_COUNTER_FIELD)
#undef WEFT_COUNTER_FIELD
  std::array<std::uint64_t, kDropReasons> drops{};
  // One bit per path (modulo their number) along which accepted data packets came.
  std::array<std::uint64_t, 4> paths_seen{};

  void drop(DropReason reason) {
    ++rx_drops;
    ++drops[static_cast<std::size_t>(reason)];
  }
  void see_path(std::uint16_t path) {
    paths_seen[path / 64U % paths_seen.size()] |= std::uint64_t{1} << path % 64U;
  }
  // Calls visit(name, value) for each counter, the drop reasons as "rx_drop_<reason>" excepted.
  template <class Visit>
  void for_each(const Visit& visit) const {
#define WEFT_COUNTER_VISIT(name, text) visit(#name, name);
    WEFT_ENGINE_COUNTERS(WEFT_COUNTER_VISIT)
#undef WEFT_COUNTER_VISIT
  }
};

}  // namespace weft::srd
