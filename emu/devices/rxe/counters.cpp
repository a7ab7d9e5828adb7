// Owns which counters the kernel's soft-RoCE driver shows, and where: the names are those of its
// hw_counters, so that scripts for the kernel's driver work here.
#include "emu/devices/rxe/counters.hpp"

#include "emu/roce/engine/counters.hpp"

namespace weft::devices::rxe {
namespace {

using Visit = kernel::CounterSet::Visit;

void visit_port(const roce::Counters& counted, std::uint64_t link_downed, const Visit& visit) {
  visit("sent_pkts", counted.sent_pkts);
  visit("rcvd_pkts", counted.rcvd_pkts);
  visit("duplicate_request", counted.duplicate_request);
  visit("out_of_seq_request", counted.out_of_seq_request);
  visit("rcvd_rnr_err", counted.rcvd_rnr_err);
  visit("send_rnr_err", counted.send_rnr_err);
  visit("rcvd_seq_err", counted.rcvd_seq_err);
  visit("ack_deferred", counted.ack_deferred);
  visit("retry_exceeded_err", counted.retry_exceeded_err);
  visit("retry_rnr_exceeded_err", counted.retry_rnr_exceeded_err);
  visit("completer_retry_err", counted.completer_retry_err);
  visit("send_err", counted.send_err);
  visit("link_downed", link_downed);
  visit("rdma_sends", counted.rdma_sends);
  visit("rdma_recvs", counted.rdma_recvs);
}

// Amounts of data are told in words of four bytes, as the InfiniBand specification has them.
void visit_standard(const roce::Counters& counted, std::uint64_t link_downed, const Visit& visit) {
  constexpr std::uint64_t kWord = 4;
  visit("port_xmit_data", counted.sent_bytes / kWord);
  visit("port_xmit_packets", counted.sent_pkts);
  visit("port_rcv_data", counted.rcvd_bytes / kWord);
  visit("port_rcv_packets", counted.rcvd_pkts);
  visit("port_rcv_errors", counted.malformed_pkts);
  visit("link_downed", link_downed);
}

}  // namespace

void RxeCounters::visit(Place place, const kernel::Statistics& statistics,
                        const Visit& visit) const {
  const auto counted = statistics.own.as<roce::Counters>();
  switch (place) {
    case Place::device:
      return;  // the driver has none
    case Place::port:
      visit_port(counted, statistics.link_downed, visit);
      return;
    case Place::port_standard:
      visit_standard(counted, statistics.link_downed, visit);
      return;
    case Place::all:
      counted.for_each(visit);
  }
}

kernel::Traffic RxeCounters::traffic(const kernel::Statistics& statistics) const {
  const auto counted = statistics.own.as<roce::Counters>();
  kernel::Traffic traffic;
  traffic.packets_out = counted.sent_pkts;
  traffic.packets_in = counted.rcvd_pkts;
  traffic.packets_sent_again = counted.retrans_pkts;
  traffic.messages_in = counted.rdma_recvs;
  traffic.packets_out_of_order = counted.out_of_seq_request;
  return traffic;
}

}  // namespace weft::devices::rxe
