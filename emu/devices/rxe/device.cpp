// Owns the soft-RoCE device's data path and what it says about itself.
//
// Unlike EFA's library, this one tells of sends by a command, so post_send() fetches them at once;
// receives are fetched when a packet needs one (refill()). The engine knows nothing of rings: what
// it completes goes through a Sink, and publish() writes that into the program's completion queues
// and gives places in the send ring back.
#include "emu/devices/rxe/device.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "emu/devices/rxe/objects.hpp"
#include "emu/roce/wire/addresses.hpp"
#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/headers.hpp"
#include "emu/roce/wire/opcode.hpp"

namespace weft::devices::rxe {
namespace {

constexpr std::uint32_t kRoceV2 = 2;
constexpr std::uint8_t kEthernet = 2;
constexpr std::uint32_t kConnectionManager = 1U << 16;

// What the driver of Linux 6.12 says it can.
constexpr std::uint32_t kCapabilityFlags = 0x01223C76;

// The largest MTU with which all headers of a packet fit into a frame, too.
std::uint8_t port_mtu(const Abilities& abilities, const srd::IoCapabilities& carrier) {
  constexpr std::size_t kHeaders = roce::wire::kLargestHeader + roce::wire::kIcrcSize;
  std::uint8_t mtu = mtu_number(abilities.mtu);
  while (mtu > 1 && (std::size_t{128} << mtu) + kHeaders > carrier.mtu) {
    --mtu;
  }
  return mtu;
}

// Takes the ICRC off the end, which may lie in `more`, in `bytes`, or across both. It is not looked
// at: within memory it is zero, and weftd has checked what came from outside. False: the packet is
// too short for one.
bool strip_icrc(srd::RxPacket& packet) {
  constexpr std::size_t kSize = roce::wire::kIcrcSize;
  const std::size_t behind = std::min(packet.more.size(), kSize);
  const std::size_t rest = kSize - behind;
  if (packet.bytes.size() < rest) {
    return false;
  }
  packet.more = packet.more.first(packet.more.size() - behind);
  packet.bytes = packet.bytes.first(packet.bytes.size() - rest);
  return true;
}

// Only a datagram's receiver is shown the headers around it.
bool is_datagram(const srd::RxPacket& packet) {
  return !packet.bytes.empty() &&
         roce::wire::transport_of(std::to_integer<std::uint8_t>(packet.bytes[0])) ==
             roce::wire::Transport::ud;
}

// For peers that get no core for longer than programs wait, such as a guest that QEMU translates:
// many programs do not let their timeouts be chosen. Zero: as they say.
Duration shortest_timeout_of_environment() {
  constexpr long kMaxMilliseconds = 60'000;
  const char* const text = std::getenv("WEFT_SHORTEST_TIMEOUT");
  return std::chrono::milliseconds{
      text == nullptr ? 0 : std::clamp(std::strtol(text, nullptr, 10), 0L, kMaxMilliseconds)};
}

}  // namespace

roce::EngineConfig engine_config(const Abilities& abilities, const srd::Address& address,
                                 const QpnBlock& qpns, const srd::IoCapabilities& carrier,
                                 std::uint64_t salt) {
  constexpr std::uint32_t kFirst = 2;  // 0 and 1 are for management
  const std::uint32_t first = std::max(qpns.first, kFirst);
  roce::EngineConfig config;
  config.addresses = roce::wire::addresses_of(address);
  config.first_qpn = first;
  config.max_qps = std::min(abilities.max_qp, qpns.first + qpns.count - first);
  config.max_path_mtu = port_mtu(abilities, carrier);
  config.congestion_control = abilities.congestion_control;
  config.line_rate =
      carrier.network.rate != Rate{} ? carrier.network.rate : Rate::gbps(abilities.gbps);
  config.salt = salt;
  config.min_timeout = std::max(config.min_timeout, shortest_timeout_of_environment());
  return config;
}

RxeDevice::RxeDevice(const Abilities& abilities, const roce::EngineConfig& engine,
                     kernel::Statistics* statistics)
    : abilities_(abilities),
      config_(engine),
      statistics_(statistics != nullptr ? *statistics : own_statistics_),
      engine_(engine, sink_, &statistics_.own.make<roce::Counters>()),
      gsi_(config_),
      qps_(engine.max_qps) {
  for (std::uint32_t i = 0; i < engine.addresses.size(); ++i) {
    gids_.push_back({engine.addresses[i].bytes, i, 1, kRoceV2, 0});
  }
  engine_.set_refill({refill, this});
  engine_.tell_moves();
}

RxeDevice::~RxeDevice() = default;

RxeDevice::OwnedQp* RxeDevice::find_qp(std::uint32_t qpn) const {
  const std::uint32_t index = qpn - config_.first_qpn;
  return index < qps_.size() ? qps_[index] : nullptr;
}

// Called by the engine, within on_packet().
void RxeDevice::refill(void* owner, bool is_srq, std::uint32_t id, roce::ReceiveQueue& queue) {
  auto& self = *static_cast<RxeDevice*>(owner);
  if (is_srq) {
    self.srqs_[id]->refill(queue, self.receive_work_, self.last_now_, self.late_receives_);
  } else if (OwnedQp* const qp = self.find_qp(id)) {
    qp->refill(queue, self.receive_work_, self.last_now_, self.late_receives_);
  }
}

// --- Machine

void RxeDevice::take(TimePoint now, const srd::RxPacket& packet) {
  srd::RxPacket stripped = packet;
  if (!strip_icrc(stripped)) {
    return;
  }
  roce::wire::DatagramHeader outer;
  // Datagrams to queue pair 1 belong to connection management, whatever else the program does.
  if (is_datagram(stripped) && roce::wire::read_envelope(packet.envelope(), outer)) {
    if (!gsi_.take(now, stripped, outer)) {
      engine_.on_packet(now, stripped, outer);
    }
  } else {
    engine_.on_packet(now, stripped);
  }
}

void RxeDevice::on_packet(TimePoint now, const srd::RxPacket& packet) {
  on_packets(now, {&packet, 1});
}

void RxeDevice::on_packets(TimePoint now, std::span<const srd::RxPacket> packets) {
  last_now_ = now;
  for (const srd::RxPacket& packet : packets) {
    take(now, packet);
  }
  publish();
}

void RxeDevice::on_timeout(TimePoint now) {
  last_now_ = now;
  engine_.on_timeout(now);
  gsi_.on_timeout(now);
  publish();
}

bool RxeDevice::next_transmit(TimePoint now, srd::TxPacket& out) {
  prepare_transmit();
  return next_prepared(now, out);
}

// What the engine completes here is told later: a datagram's memory is the application's again, but
// its packet has not left.
bool RxeDevice::next_prepared(TimePoint now, srd::TxPacket& out) {
  last_now_ = now;
  return gsi_.next_transmit(now, out) || engine_.next_transmit(now, out);
}

// Everything that the engine has for the application; called whenever the engine may have
// something.
void RxeDevice::publish() {
  // Places first: a program that has taken a completion may post at once.
  for (roce::Engine::Moved moved; engine_.next_moved(moved);) {
    note_moved(moved);
  }
  for (; !sink_.completions.empty(); sink_.completions.pop()) {
    publish(sink_.completions.front());
  }
  for (; !sink_.events.empty(); sink_.events.pop()) {
    publish(sink_.events.front());
  }
  for (OwnedQp* const qp : failed_) {
    qp->flush_receives();
  }
  for (OwnedCq* const cq : awaited_) {
    cq->channel->events.flush_backlog();
  }
  flush_events();
}

void RxeDevice::note_moved(const roce::Engine::Moved& moved) {
  OwnedQp* const qp = find_qp(moved.qpn);
  if (qp == nullptr) {
    return;
  }
  qp->retire(moved.retired);
  if (qp->has_waiting()) {
    (void)post_send(*qp);  // those that found no room
  }
  if (moved.state == roce::QpState::error && !qp->failed()) {
    qp->set_failed(true);
    failed_.push_back(qp);
  }
}

void RxeDevice::publish(const roce::Completion& completion) {
  OwnedCq* const cq = cqs_.find(completion.cq);
  if (cq == nullptr) {
    return;
  }
  Cqe entry{};
  entry.wr_id = completion.wr_id;
  entry.status = static_cast<std::uint32_t>(completion.status);
  entry.opcode = static_cast<std::uint32_t>(completion.opcode);
  entry.length = completion.length;
  entry.immediate = completion.immediate;
  entry.qpn = completion.qpn;
  entry.source_qpn = completion.source_qpn;
  entry.flags = completion.flags;
  entry.sl = completion.service_level;
  entry.port = 1;
  cq->publish(entry, completion.solicited || completion.status != roce::WcStatus::success);
}

void RxeDevice::publish(const roce::Event& event) {
  if (OwnedQp* const qp = find_qp(event.id)) {
    qp->report(static_cast<std::uint32_t>(event.type));
  }
}

// Newer libraries name an address handle, older ones write the address into the request.
bool RxeDevice::resolve(const OwnedQp& qp, SendWork& work) const {
  if (work.ah == 0) {
    return true;
  }
  const OwnedAh* const ah = ahs_.find(work.ah - 1);
  if (ah == nullptr || ah->domain != qp.domain()) {
    return false;
  }
  work.request.address = ah->address;
  return true;
}

nic::Outcome<void> RxeDevice::post_send(kernel::Qp& qp) {
  auto& pair = static_cast<OwnedQp&>(qp);
  pair.set_waiting(false);
  while (pair.next_send(send_work_)) {
    SendWork& work = send_work_;
    if (!resolve(pair, work)) {
      work.request.opcode = kNoOperation;
    }
    const int error =
        engine_.post_send(pair.number, work.request, std::span(work.segments).first(work.sges),
                          std::span(work.inline_data).first(work.inline_size));
    if (error == ENOMEM) {
      pair.set_waiting(true);  // it stays in the ring until there is room
      break;
    }
    if (error != 0) {
      return nic::refuse(error);
    }
    pair.fetched_one();
  }
  return {};
}

bool RxeDevice::awaits_events() const {
  return std::any_of(awaited_.begin(), awaited_.end(),
                     [](const OwnedCq* cq) { return cq->armed(); });
}

bool RxeDevice::is_awaited() const {
  const roce::Counters& seen = engine_.counters();
  return seen.completer_retry_err != 0 || seen.rcvd_rnr_err != 0 || seen.duplicate_request != 0 ||
         seen.out_of_seq_request != 0;
}

// --- What it says about itself

void RxeDevice::query_device(abi::QueryDevice& to) const {
  const Abilities& d = abilities_;
  std::memcpy(&to.node_guid, &config_.addresses.front().bytes[8], sizeof to.node_guid);
  to.sys_image_guid = to.node_guid;
  to.max_mr_size = ~std::uint64_t{0};
  to.page_size_cap = 0xFFFFF000;
  to.vendor_id = 0xFFFFFF;
  to.max_qp = config_.max_qps;
  to.max_qp_wr = d.max_qp_wr;
  to.device_cap_flags = kCapabilityFlags;
  to.max_sge = d.max_sge;
  to.max_sge_rd = d.max_sge;
  to.max_cq = d.max_cq;
  to.max_cqe = d.max_cqe;
  to.max_mr = d.max_mr;
  to.max_pd = d.max_pd;
  to.max_qp_rd_atom = d.max_rd_atomic;
  to.max_res_rd_atom = d.max_rd_atomic * config_.max_qps;
  to.max_qp_init_rd_atom = d.max_rd_atomic;
  to.atomic_cap = 1;  // among queue pairs of this device
  to.max_mw = d.max_mw;
  to.max_mcast_grp = kMaxGroups;
  to.max_mcast_qp_attach = kMaxGroupMembers;
  to.max_total_mcast_qp_attach = kMaxGroups * kMaxGroupMembers;
  to.max_ah = d.max_ah;
  to.max_srq = d.max_srq;
  to.max_srq_wr = d.max_srq_wr;
  to.max_srq_sge = d.max_sge;
  to.max_pkeys = 1;
  to.local_ca_ack_delay = 15;
  to.phys_port_cnt = 1;
}

nic::Outcome<void> RxeDevice::query_port(std::uint8_t port, abi::QueryPort& to) const {
  if (port != 1) {
    return nic::refuse(EINVAL);
  }
  to.port_cap_flags = kConnectionManager;
  to.max_msg_sz = roce::kMaxMessage;
  to.gid_tbl_len = static_cast<std::uint32_t>(gids_.size());
  to.pkey_tbl_len = 1;
  to.state = abi::port_state(port_up());
  to.phys_state = abi::port_physical_state(port_up());
  to.max_mtu = 5;  // 4096, the largest there is a number for
  to.active_mtu = config_.max_path_mtu;
  to.max_vl_num = 1;
  to.active_width = 2;   // 4x
  to.active_speed = 32;  // EDR
  to.link_layer = kEthernet;
  return {};
}

}  // namespace weft::devices::rxe
