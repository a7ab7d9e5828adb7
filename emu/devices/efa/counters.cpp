// Owns which counters the kernel's EFA driver shows, and where.
#include "emu/devices/efa/counters.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "srd/engine/counters.hpp"

namespace weft::devices::efa {
namespace {

// What Linux's driver shows of a port. srd::Counters counts more, under names of the same style:
// those are shown by weft only (Place::all), or a script would find files that real devices do not
// have.
constexpr std::string_view kOfPort[] = {"tx_bytes",
                                        "tx_pkts",
                                        "rx_bytes",
                                        "rx_pkts",
                                        "rx_drops",
                                        "send_bytes",
                                        "send_wrs",
                                        "recv_bytes",
                                        "recv_wrs",
                                        "rdma_read_wrs",
                                        "rdma_read_bytes",
                                        "rdma_read_wr_err",
                                        "rdma_read_resp_bytes",
                                        "rdma_write_wrs",
                                        "rdma_write_bytes",
                                        "rdma_write_wr_err",
                                        "rdma_write_recv_bytes",
                                        "retrans_bytes",
                                        "retrans_pkts",
                                        "retrans_timeout_events",
                                        "unresponsive_remote_events",
                                        "impaired_remote_conn_events"};

void visit_commands(const kernel::CommandCounters& commands,
                    const kernel::CounterSet::Visit& visit) {
  visit("submitted_cmds", commands.submitted);
  visit("completed_cmds", commands.completed);
  visit("cmds_err", commands.failed);
  visit("no_completion_cmds", 0);  // every command is answered
  visit("keep_alive_rcvd", 0);     // there is no firmware that would send them
  visit("alloc_pd_err", commands.failed_pds);
  visit("create_qp_err", commands.failed_qps);
  visit("create_cq_err", commands.failed_cqs);
  visit("reg_mr_err", commands.failed_mrs);
  visit("alloc_ucontext_err", commands.failed_contexts);
  visit("create_ah_err", commands.failed_ahs);
  visit("mmap_err", 0);  // the kernel maps, and does not say whether it could
}

}  // namespace

void EfaCounters::visit(Place place, const kernel::Statistics& statistics,
                        const Visit& visit) const {
  if (place == Place::device) {
    visit_commands(statistics.commands, visit);
    return;
  }
  if (place == Place::port_standard) {
    return;  // the driver has none
  }
  statistics.own.as<srd::Counters>().for_each([&](const char* name, std::uint64_t value) {
    if (place == Place::all || std::ranges::find(kOfPort, name) != std::end(kOfPort)) {
      visit(name, value);
    }
  });
}

void EfaCounters::add(kernel::OwnCounters& sum, const kernel::OwnCounters& more) const {
  auto paths = sum.as<srd::Counters>().paths_seen;
  const auto others = more.as<srd::Counters>().paths_seen;
  std::ranges::transform(paths, others, paths.begin(), std::bit_or<>{});
  sum.add(more);
  auto total = sum.as<srd::Counters>();
  total.paths_seen = paths;
  sum.set(total);
}

kernel::Traffic EfaCounters::traffic(const kernel::Statistics& statistics) const {
  const auto counted = statistics.own.as<srd::Counters>();
  kernel::Traffic traffic;
  traffic.packets_out = counted.data_pkts;
  traffic.packets_in = counted.delivered_pkts;
  traffic.packets_sent_again = counted.retrans_pkts;
  traffic.messages_in = counted.delivered_msgs;
  traffic.packets_out_of_order = counted.reordered_pkts;
  traffic.messages_out_of_order = counted.reordered_msgs;
  std::uint64_t paths = 0;
  for (const std::uint64_t word : counted.paths_seen) {
    paths += static_cast<std::uint64_t>(std::popcount(word));
  }
  traffic.paths = paths;
  return traffic;
}

}  // namespace weft::devices::efa
