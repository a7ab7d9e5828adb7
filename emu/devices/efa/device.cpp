// Owns the EFA device's data path and what it says about itself.
//
// Each call of the Machine does the same around the engine's: fetch what the program has put into
// its rings, let the engine work, write the completions that came out. Receives are fetched before
// packets are taken in, sends before packets are asked for.
#include "emu/devices/efa/device.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "emu/devices/efa/objects.hpp"

namespace weft::devices::efa {
namespace {

nic::NicConfig nic_config(const Abilities& abilities, const srd::Address& address,
                          const QpnBlock& qpns) {
  return nic::NicConfig{.address = address,
                        .first_qpn = qpns.first,
                        .qpn_count = qpns.count,
                        .max_qp = std::min(abilities.max_qp, qpns.count),
                        .max_ah = abilities.max_ah,
                        .max_rdma_size = abilities.max_rdma_size,
                        .rdma_read = abilities.rdma_read,
                        .rdma_write = abilities.rdma_write,
                        .rnr_retry = abilities.rnr_retry,
                        .rdma_needs_ah = abilities.rdma_needs_ah,
                        .loopback = abilities.loopback};
}

}  // namespace

srd::EngineConfig engine_config(const Abilities& abilities, srd::EngineConfig base) {
  base.mtu_payload = std::min(abilities.mtu, base.mtu_payload);
  base.forced_reorder = static_cast<std::uint16_t>(std::min(abilities.forced_reorder, 0xFFFFU));
  base.paths = static_cast<std::uint16_t>(std::min(abilities.paths, 0xFFFFU));
  // All send queues full at once, up to what the engine can number.
  constexpr std::uint64_t kMaxRequests = 1U << 19;
  const std::uint64_t requests =
      std::min(std::uint64_t{abilities.max_qp} * abilities.max_sq_wr, kMaxRequests);
  base.max_work_requests = std::max(base.max_work_requests, static_cast<std::uint32_t>(requests));
  // All posted receives, flushed at once.
  base.max_completions = std::max(base.max_completions, 1U << 20);
  return base;
}

EfaDevice::EfaDevice(const Abilities& abilities, const srd::Address& address, const QpnBlock& qpns,
                     const srd::EngineConfig& engine, kernel::Statistics* statistics)
    : abilities_(abilities),
      address_(address),
      gid_{.gid = gid_of(address).bytes, .index = 0, .port = 1, .type = 0, .interface = 0},
      statistics_(statistics != nullptr ? *statistics : own_statistics_),
      domains_(abilities.max_pd, srd::memory_salt(engine)),
      engine_(engine, &statistics_.own.make<srd::Counters>(), &domains_.table()),
      nic_(nic_config(abilities, address, qpns), domains_, engine_) {}

void EfaDevice::on_packet(TimePoint now, const srd::RxPacket& packet) {
  // A program posts receives without calling us: look for new ones before a message needs them.
  fetch_receives(now);
  engine_.on_packet(now, packet);
  publish();
}

void EfaDevice::on_packets(TimePoint now, std::span<const srd::RxPacket> packets) {
  fetch_receives(now);
  for (const srd::RxPacket& packet : packets) {
    engine_.on_packet(now, packet);
  }
  publish();
}

void EfaDevice::on_timeout(TimePoint now) {
  fetch_receives(now);
  engine_.on_timeout(now);
  publish();
}

bool EfaDevice::next_transmit(TimePoint now, srd::TxPacket& out) {
  prepare_transmit();
  return next_prepared(now, out);
}

bool EfaDevice::next_prepared(TimePoint now, srd::TxPacket& out) {
  const bool sending = engine_.next_transmit(now, out);
  if (!sending) {
    publish();
  }
  return sending;
}

// The application has written what cannot be: the queue pair goes into error, and an asynchronous
// event says so.
void EfaDevice::fail(QueuePair& qp) {
  if (qp.qp().state() == nic::QpState::error) {
    return;
  }
  const nic::QpAttributes to_error{.state = static_cast<std::uint8_t>(nic::QpState::error)};
  (void)nic_.modify_qp(qp.qp(), nic::kMaskState, to_error);
  static_cast<OwnedQp&>(qp).report(abi::AsyncEvent::qp_fatal);
}

void EfaDevice::fetch_receives(TimePoint now) {
  for (OwnedQp* const qp : qps_) {
    if (!qp->fetch_receives(now, late_receives_)) {
      fail(*qp);
    }
  }
}

void EfaDevice::fetch_sends() {
  for (OwnedQp* const qp : qps_) {
    if (!qp->fetch_sends()) {
      fail(*qp);
    }
  }
}

void EfaDevice::publish() {
  while (nic_.next_completion(done_)) {
    static_cast<QueuePair*>(done_.qp->owner())->publish(done_);
  }
  look_at_arms();
  flush_events();
}

void EfaDevice::look_at_arms() {
  for (OwnedCq* const cq : cqs_) {
    if (cq->channel != nullptr) {
      cq->look();
    }
  }
}

bool EfaDevice::awaits_events() const {
  return std::any_of(cqs_.begin(), cqs_.end(),
                     [](const OwnedCq* cq) { return cq->channel != nullptr && cq->armed(); });
}

std::uint32_t EfaDevice::capabilities() const {
  const Abilities& d = abilities_;
  return (d.rdma_read ? kRdmaRead : 0U) | (d.rnr_retry ? kRnrRetry : 0U) |
         (d.cq_notifications ? kCqNotifications : 0U) | (d.cq_with_sgid ? kCqWithSgid : 0U) |
         (d.rdma_write ? kRdmaWrite : 0U) | (d.unsolicited_write ? kUnsolicitedWrite : 0U) |
         (d.completion_counters ? kCompletionCounters : 0U) | (d.request_id_64 ? kRequestId64 : 0U);
}

void EfaDevice::query_device(abi::QueryDevice& to) const {
  const Abilities& d = abilities_;
  const srd::Address gid = gid_of(address_);
  // Shown as four numbers; the text that says EMULATED is board_id and fw_ver in sysfs.
  to.fw_ver = 0;
  std::memcpy(&to.node_guid, &gid.bytes[8], sizeof to.node_guid);
  to.sys_image_guid = to.node_guid;
  to.max_mr_size = std::uint64_t{1} << 40;
  to.page_size_cap = 0xFFFFF000;
  to.vendor_id = 0x1D0F;
  to.vendor_part_id = d.part_id;
  to.hw_ver = d.part_id;
  to.max_qp = d.max_qp;
  to.max_qp_wr = std::min(d.max_sq_wr, d.max_rq_wr);
  to.max_sge = std::min(d.max_sq_sge, d.max_rq_sge);
  to.max_sge_rd = 1;
  to.max_cq = d.max_cq;
  to.max_cqe = d.max_cqe;
  to.max_mr = d.max_mr;
  to.max_pd = d.max_pd;
  to.max_ah = d.max_ah;
  to.max_pkeys = 1;
  to.phys_port_cnt = 1;
}

nic::Outcome<void> EfaDevice::query_port(std::uint8_t port, abi::QueryPort& to) const {
  if (port != 1) {
    return nic::refuse(EINVAL);
  }
  to.max_msg_sz = static_cast<std::uint32_t>(engine_.max_send_size());
  to.gid_tbl_len = 1;
  to.pkey_tbl_len = 1;
  to.state = abi::port_state(port_up());
  to.phys_state = abi::port_physical_state(port_up());
  to.max_mtu = 5;  // 4096, the largest there is a number for
  to.active_mtu = 5;
  to.lmc = 1;
  to.max_vl_num = 1;
  to.active_width = 2;   // 4x
  to.active_speed = 32;  // EDR
  return {};
}

nic::Outcome<void> EfaDevice::get_context(kernel::Udata& udata) const {
  const Abilities& d = abilities_;
  ContextReply reply{};
  reply.commands_with_udata = kUdataQueryDevice | kUdataCreateAh;
  reply.sub_cqs_per_cq = 1;
  reply.inline_size = static_cast<std::uint16_t>(d.inline_size);
  reply.max_llq_size = d.max_sq_wr * static_cast<std::uint32_t>(kWqeSize);
  reply.inline_size_wide = static_cast<std::uint16_t>(d.inline_size_wide);
  udata.answer(reply);
  return {};
}

nic::Outcome<void> EfaDevice::query_device_extended(kernel::Udata& udata) const {
  const Abilities& d = abilities_;
  DeviceReply reply{};
  reply.max_sq_wr = d.max_sq_wr;
  reply.max_rq_wr = d.max_rq_wr;
  reply.max_sq_sge = static_cast<std::uint16_t>(d.max_sq_sge);
  reply.max_rq_sge = static_cast<std::uint16_t>(d.max_rq_sge);
  reply.max_rdma_size = d.rdma_read || d.rdma_write ? d.max_rdma_size : 0;
  reply.capabilities = capabilities();
  udata.answer(reply);
  return {};
}

}  // namespace weft::devices::efa
