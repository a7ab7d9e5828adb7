// Owns the EFA device: one process's share of an emulated EFA NIC, as a Machine around the
// transport.
#pragma once

#include <memory>
#include <vector>

#include "emu/devices/efa/abi.hpp"
#include "emu/devices/efa/abilities.hpp"
#include "emu/devices/efa/gid.hpp"
#include "emu/devices/efa/qp.hpp"
#include "emu/kernel/device.hpp"
#include "emu/nic/nic.hpp"
#include "srd/engine/engine.hpp"
#include "srd/net/machine.hpp"

namespace weft::devices::efa {

namespace abi = kernel::abi;

// The queue pair numbers that this process has on the NIC.
struct QpnBlock {
  std::uint32_t first = 0;
  std::uint32_t count = 256;
};

// `base` says how to live on the network; the abilities, what applications can see.
[[nodiscard]] srd::EngineConfig engine_config(const Abilities& abilities, srd::EngineConfig base);

// One process has one of these per NIC. All calls come one at a time, from the thread that holds
// the host's lock (DeviceRunner). The application writes its rings and doorbells without a call to
// us: they are looked at in each call of the Machine.
class EfaDevice final : public kernel::Device, public srd::Machine {
 public:
  // Counts into `statistics`, if there are any; they must outlive it.
  EfaDevice(const Abilities& abilities, const srd::Address& address, const QpnBlock& qpns,
            const srd::EngineConfig& engine, kernel::Statistics* statistics = nullptr);
  // Receives count only so long after the NIC has first seen them.
  void set_late_receives(Duration late) { late_receives_ = late; }

  // --- Machine: the transport's, with the application's rings read and written around it.
  void on_packet(TimePoint now, const srd::RxPacket& packet) override;
  // The same for a burst: rings and completions are looked at once.
  void on_packets(TimePoint now, std::span<const srd::RxPacket> packets);
  void on_timeout(TimePoint now) override;
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out) override;
  // In two steps: what the application rang for, once; then packet by packet.
  void prepare_transmit() { fetch_sends(); }
  [[nodiscard]] bool next_prepared(TimePoint now, srd::TxPacket& out);
  [[nodiscard]] TimePoint next_timeout() const override { return engine_.next_timeout(); }

  // What tells a Host how the application waits: data of peers that have come into its memory, and
  // that nothing of its own is outstanding.
  [[nodiscard]] std::uint64_t placed_bytes() const {
    const srd::Counters& counters = engine_.counters();
    return counters.recv_bytes + counters.rdma_write_recv_bytes;
  }
  [[nodiscard]] bool idle() const { return engine_.outstanding() == 0; }

  // --- Device
  [[nodiscard]] std::uint32_t driver_id() const override { return kDriverId; }
  [[nodiscard]] kernel::Statistics& statistics() override { return statistics_; }
  [[nodiscard]] std::uint32_t completion_vectors() const override { return 2; }
  void query_device(abi::QueryDevice& to) const override;
  [[nodiscard]] nic::Outcome<void> query_port(std::uint8_t port, abi::QueryPort& to) const override;
  [[nodiscard]] std::span<const abi::GidEntry> gids() const override { return {&gid_, 1}; }
  [[nodiscard]] std::uint64_t port_speed() const override {
    return std::uint64_t{abilities_.gbps} * 10;
  }
  [[nodiscard]] kernel::CompletionCounterLimits completion_counters() const override;
  [[nodiscard]] std::span<const kernel::OwnIoctlMethod> own_ioctl_methods() const override;
  [[nodiscard]] nic::Outcome<void> get_context(kernel::Udata& udata) const override;
  [[nodiscard]] nic::Outcome<void> query_device_extended(kernel::Udata& udata) const override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Pd>> alloc_pd(kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Mr>> reg_mr(
      kernel::Pd& pd, const kernel::MrRequest& request) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Ah>> create_ah(
      kernel::Pd& pd, const abi::AhAttributes& attributes, kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Cq>> create_cq(
      const kernel::FileServices& file, const kernel::CqRequest& request,
      kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Qp>> create_qp(
      const kernel::FileServices& file, const kernel::QpRequest& request,
      kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<void> modify_qp(kernel::Qp& qp, const abi::ModifyQp& request) override;
  void look_at_arms() override;
  // The application waits for an event, or is about to.
  [[nodiscard]] bool awaits_events() const;
  [[nodiscard]] nic::Outcome<void> query_qp(const kernel::Qp& qp, std::uint32_t mask,
                                            abi::QueryQp& to) const override;

  void take_leave(TimePoint now, srd::Leave how) { engine_.take_leave(now, how); }
  [[nodiscard]] bool is_awaited() const { return engine_.is_awaited(); }
  void stop_waiting() { engine_.stop_waiting(); }
  [[nodiscard]] srd::Engine& engine() { return engine_; }

 private:
  class OwnedQp;
  class OwnedCq;

  [[nodiscard]] std::uint32_t capabilities() const;
  [[nodiscard]] nic::Outcome<QueuePair::Shape> qp_shape(const kernel::QpRequest& request,
                                                        const QpCommand& command) const;
  // Move what doorbells announce from the rings to the NIC. A queue pair with nonsense in its rings
  // fails.
  void fetch_receives(TimePoint now);
  void fetch_sends();
  // Writes completions into the rings of the application, and sends the events that they cause.
  void publish();
  void fail(QueuePair& qp);

  Abilities abilities_;
  srd::Address address_;
  abi::GidEntry gid_;
  kernel::Statistics own_statistics_;
  kernel::Statistics& statistics_;
  nic::Domains domains_;
  srd::Engine engine_;
  nic::Nic nic_;
  // Objects that applications hold; they enter and leave these lists themselves.
  std::vector<OwnedQp*> qps_;
  std::vector<OwnedCq*> cqs_;
  std::uint16_t next_cq_ = 0;
  Duration late_receives_{};
  nic::WorkCompletion done_;  // scratch of publish()
};

}  // namespace weft::devices::efa
