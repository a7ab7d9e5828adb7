// Owns the soft-RoCE device: one process's share of an emulated RoCE NIC, as a Machine around the
// RoCEv2 engine.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "emu/devices/rxe/abi.hpp"
#include "emu/devices/rxe/abilities.hpp"
#include "emu/devices/rxe/gsi.hpp"
#include "emu/devices/rxe/qp.hpp"
#include "emu/kernel/device.hpp"
#include "emu/roce/engine/engine.hpp"
#include "srd/base/free_numbers.hpp"
#include "srd/net/machine.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::devices::rxe {

namespace abi = kernel::abi;

// The queue pair numbers that this process has on the NIC.
struct QpnBlock {
  std::uint32_t first = 0;
  std::uint32_t count = 65536;
};

// `carrier` says how to live on the network; the abilities, what applications can see; the
// environment (WEFT_SHORTEST_TIMEOUT, milliseconds), how long no retransmission comes at least.
[[nodiscard]] roce::EngineConfig engine_config(const Abilities& abilities,
                                               const srd::Address& address, const QpnBlock& qpns,
                                               const srd::IoCapabilities& carrier,
                                               std::uint64_t salt);

// Objects that applications own, by numbers of their own.
template <class T>
class Numbered {
 public:
  [[nodiscard]] std::uint32_t add(T* object) {
    const std::uint32_t number = numbers_.take();
    if (number >= objects_.size()) {
      objects_.resize(number + std::size_t{1});
    }
    objects_[number] = object;
    return number;
  }
  void remove(std::uint32_t number) {
    objects_[number] = nullptr;
    numbers_.give_back(number);
  }
  // Null: there is none.
  [[nodiscard]] T* find(std::uint32_t number) const {
    return number < objects_.size() ? objects_[number] : nullptr;
  }
  [[nodiscard]] std::size_t size() const { return numbers_.used(); }

 private:
  FreeNumbers numbers_;
  std::vector<T*> objects_;
};

// One process has one of these per NIC. All calls come one at a time, from the thread that holds
// the host's lock (DeviceRunner). Sends are announced by a command (post_send), receives are taken
// from the rings when the engine needs one. Tables hold objects that applications own; these enter
// and leave them.
class RxeDevice final : public kernel::Device, public srd::Machine {
 public:
  // Counts into `statistics`, if there are any; they must outlive it.
  RxeDevice(const Abilities& abilities, const roce::EngineConfig& engine,
            kernel::Statistics* statistics = nullptr);
  ~RxeDevice() override;
  // Receives count only so long after the NIC has first seen them.
  void set_late_receives(Duration late) { late_receives_ = late; }
  // Tells the network that packets to a multicast group are for this process, or not any more;
  // false: it does not want to know. Called with the device to itself.
  using OnGroup = std::function<bool(const srd::Address& group, bool wanted)>;
  void set_on_group(OnGroup on_group) { on_group_ = std::move(on_group); }
  // The number of the interface that its addresses are on.
  void set_interface(std::uint32_t number) {
    for (abi::GidEntry& gid : gids_) {
      gid.interface = number;
    }
  }

  // --- Machine: the engine's, with the application's rings read and written around it. Received
  // packets end with an ICRC, which has been checked; those that are sent have none yet.
  void on_packet(TimePoint now, const srd::RxPacket& packet) override;
  void on_packets(TimePoint now, std::span<const srd::RxPacket> packets);
  void on_timeout(TimePoint now) override;
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out) override;
  // Writes what the former burst has completed: its packets have left by now.
  void prepare_transmit() { publish(); }
  [[nodiscard]] bool next_prepared(TimePoint now, srd::TxPacket& out);
  // At once, if there are completions: those of datagrams are told when their packets have left.
  [[nodiscard]] TimePoint next_timeout() const override {
    return sink_.completions.empty() ? std::min(engine_.next_timeout(), gsi_.next_timeout())
                                     : TimePoint{};
  }

  // What tells a Host how the application waits.
  [[nodiscard]] std::uint64_t placed_bytes() const { return engine_.counters().placed_bytes; }
  [[nodiscard]] bool idle() const { return engine_.outstanding() == 0; }
  [[nodiscard]] bool awaits_events() const;
  // RoCE has no packet by which a process that ends could say so, or ask.
  static void take_leave(TimePoint /*now*/, srd::Leave /*how*/) {}
  static void stop_waiting() {}
  // Who has missed an answer is not known: anybody may have, where this process has seen a loss.
  [[nodiscard]] bool is_awaited() const;

  // --- Device
  [[nodiscard]] std::uint32_t driver_id() const override { return kDriverId; }
  [[nodiscard]] kernel::Statistics& statistics() override { return statistics_; }
  [[nodiscard]] std::uint32_t completion_vectors() const override { return 2; }
  void query_device(abi::QueryDevice& to) const override;
  [[nodiscard]] nic::Outcome<void> query_port(std::uint8_t port, abi::QueryPort& to) const override;
  [[nodiscard]] std::span<const abi::GidEntry> gids() const override { return gids_; }
  [[nodiscard]] std::uint64_t port_speed() const override {
    return std::uint64_t{abilities_.gbps} * 10;
  }
  [[nodiscard]] bool has_optional_commands() const override { return true; }
  [[nodiscard]] bool rings_by_command() const override { return true; }
  [[nodiscard]] kernel::ManagementPort* management() override { return &gsi_; }

  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Pd>> alloc_pd(kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Mr>> reg_mr(
      kernel::Pd& pd, const kernel::MrRequest& request) override;
  [[nodiscard]] nic::Outcome<void> rereg_mr(kernel::Mr& mr, std::uint32_t flags, kernel::Pd* pd,
                                            const kernel::MrRequest& request) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Mw>> alloc_mw(kernel::Pd& pd,
                                                                   std::uint8_t type) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Ah>> create_ah(
      kernel::Pd& pd, const abi::AhAttributes& attributes, kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Cq>> create_cq(
      const kernel::FileServices& file, const kernel::CqRequest& request,
      kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<void> resize_cq(kernel::Cq& cq, std::uint32_t cqe,
                                             kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<void> req_notify_cq(kernel::Cq& cq, bool solicited_only) override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Srq>> create_srq(
      const kernel::FileServices& file, kernel::Pd& pd, const kernel::SrqRequest& request,
      kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<void> modify_srq(kernel::Srq& srq, const abi::ModifySrq& request,
                                              kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<void> query_srq(const kernel::Srq& srq,
                                             abi::QuerySrqReply& to) const override;
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Qp>> create_qp(
      const kernel::FileServices& file, const kernel::QpRequest& request,
      kernel::Udata& udata) override;
  [[nodiscard]] nic::Outcome<void> modify_qp(kernel::Qp& qp, const abi::ModifyQp& request) override;
  [[nodiscard]] nic::Outcome<void> query_qp(const kernel::Qp& qp, std::uint32_t mask,
                                            abi::QueryQp& to) const override;
  [[nodiscard]] nic::Outcome<void> attach_multicast(
      kernel::Qp& qp, const std::array<std::byte, 16>& group) override;
  [[nodiscard]] nic::Outcome<void> detach_multicast(
      kernel::Qp& qp, const std::array<std::byte, 16>& group) override;
  [[nodiscard]] nic::Outcome<void> post_send(kernel::Qp& qp) override;

  [[nodiscard]] const roce::Engine& engine() const { return engine_; }

 private:
  // Objects that give back what they hold, in objects.hpp.
  struct OwnedPd;
  struct OwnedMr;
  struct OwnedMw;
  struct OwnedAh;
  class OwnedCq;
  class OwnedSrq;
  class OwnedQp;

  // The limits of Linux's driver.
  static constexpr std::uint32_t kMaxGroups = 8192;
  static constexpr std::uint32_t kMaxGroupMembers = 56;

  static void refill(void* owner, bool is_srq, std::uint32_t id, roce::ReceiveQueue& queue);
  void take(TimePoint now, const srd::RxPacket& packet);
  void publish();
  void publish(const roce::Completion& completion);
  void publish(const roce::Event& event);
  void note_moved(const roce::Engine::Moved& moved);
  [[nodiscard]] OwnedQp* find_qp(std::uint32_t qpn) const;
  // An errno, or 0. Of a path that a command names.
  template <class Path>
  [[nodiscard]] int why_no_path(const Path& path) const;
  // False: the request names an address handle that does not exist, or one of another domain.
  [[nodiscard]] bool resolve(const OwnedQp& qp, SendWork& work) const;
  [[nodiscard]] nic::Outcome<QueuePair::Shape> qp_shape(const kernel::QpRequest& request) const;
  [[nodiscard]] roce::MemoryRegion region_of(const kernel::Pd& pd,
                                             const kernel::MrRequest& request) const;

  Abilities abilities_;
  roce::EngineConfig config_;
  std::vector<abi::GidEntry> gids_;
  kernel::Statistics own_statistics_;
  kernel::Statistics& statistics_;
  roce::Sink sink_;
  roce::Engine engine_;
  Gsi gsi_;
  OnGroup on_group_;
  Duration late_receives_{};
  TimePoint last_now_{};  // commands come without the time
  std::uint32_t next_domain_ = 1;
  std::uint32_t pds_ = 0;
  std::uint32_t mrs_ = 0;
  std::uint32_t mws_ = 0;
  std::uint32_t srq_count_ = 0;
  std::vector<OwnedQp*> qps_;     // by number
  std::vector<OwnedQp*> failed_;  // what is posted to receive there ends at once
  Numbered<OwnedCq> cqs_;
  std::vector<OwnedCq*> awaited_;  // with a channel
  std::vector<OwnedSrq*> srqs_;    // by the engine's number
  Numbered<OwnedAh> ahs_;          // from 1 on
  SendWork send_work_;             // scratch
  ReceiveWork receive_work_;       // scratch
};

}  // namespace weft::devices::rxe
