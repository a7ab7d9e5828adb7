// Owns the RoCEv2 engine's counters. Names are those of Linux's driver where it has one.
#pragma once

#include <cstdint>

namespace weft::roce {

// X(name, what it counts)
#define WEFT_ROCE_COUNTERS(X)                                                           \
  X(sent_pkts, "packets sent, of every kind")                                           \
  X(sent_bytes, "their bytes, from the BTH to the ICRC")                                \
  X(rcvd_pkts, "packets that arrived, of every kind")                                   \
  X(rcvd_bytes, "their bytes, from the BTH to the ICRC")                                \
  X(malformed_pkts, "packets that arrived and were none of RoCEv2's")                   \
  X(stray_pkts, "packets for no queue pair, one of another kind, state, peer or P_Key") \
  X(bad_qkeys, "datagrams with another Q_Key than the queue pair's")                    \
  X(duplicate_request, "requests that had been executed before")                        \
  X(out_of_seq_request, "requests that came before one that was expected")              \
  X(send_rnr_err, "requests that found no receive posted, and were told so")            \
  X(dropped_for_receive, "the same where nobody is told: datagrams, and UC")            \
  X(rcvd_rnr_err, "answers that a peer had no receive posted")                          \
  X(rcvd_seq_err, "answers that a peer missed an earlier request")                      \
  X(ack_deferred, "acknowledgements that waited until a later one took them in")        \
  X(stale_responses, "answers to what is not outstanding")                              \
  X(refused_requests, "requests answered with an error, or dropped for one")            \
  X(completer_retry_err, "times that requests were begun again, no receive excepted")   \
  X(retrans_pkts, "request packets sent again")                                         \
  X(retry_exceeded_err, "requests given up: they were not answered")                    \
  X(retry_rnr_exceeded_err, "requests given up: the peer posted no receive")            \
  X(send_err, "requests that could not be sent")                                        \
  X(rdma_sends, "sends completed well")                                                 \
  X(rdma_recvs, "receives completed well")                                              \
  X(congestion_notifications, "notifications of congestion sent")                       \
  X(placed_bytes, "bytes that peers have put into local memory")

struct Counters {
#define WEFT_COUNTER_FIELD(name, text) std::uint64_t name = 0;
  WEFT_ROCE_COUNTERS(WEFT_COUNTER_FIELD)
#undef WEFT_COUNTER_FIELD

  // Calls visit(name, value) for each counter.
  template <class Visit>
  void for_each(const Visit& visit) const {
#define WEFT_COUNTER_VISIT(name, text) visit(#name, name);
    WEFT_ROCE_COUNTERS(WEFT_COUNTER_VISIT)
#undef WEFT_COUNTER_VISIT
  }
};

}  // namespace weft::roce
