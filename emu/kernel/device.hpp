// Owns the interface between the verbs commands, which are the same for all devices, and one type
// of device.
//
// Three parties meet here. UverbsFile calls a Device, with the device locked by
// Runner::exclusively(). The preload library calls the Runner from the program's polls and posts.
// UverbsFile reports new objects to LibraryHooks, after the command and without the lock.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "emu/kernel/abi/uverbs.hpp"
#include "emu/kernel/management.hpp"
#include "emu/kernel/statistics.hpp"
#include "emu/kernel/uverbs/ioctl.hpp"
#include "emu/kernel/uverbs/objects.hpp"
#include "emu/kernel/uverbs/queue_memory.hpp"
#include "emu/nic/outcome.hpp"
#include "emu/nic/qp_attributes.hpp"

namespace weft::kernel {

using nic::Outcome;
using nic::refuse;

// The device-specific part of a command and of its reply, which only the device's own library and
// the device understand. `in` is a copy of the application's bytes; `out` follows the common reply.
struct Udata {
  std::span<const std::byte> in;
  std::vector<std::byte> out;

  // Appends to the reply.
  template <class T>
  void answer(const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
};

// What one open device file provides for the objects that are made through it.
struct FileServices {
  QueueMemory& queues;
  EventChannel& async_events;
};

// What the application asks for; the core has checked what is wrong whatever the device is
// (commands.cpp). Numbers of work requests and the like are wishes: the object says what it got.
struct MrRequest {
  std::uint64_t start = 0;
  std::uint64_t length = 0;
  std::uint64_t iova = 0;
  std::uint32_t access = 0;
};

struct CqRequest {
  std::uint32_t cqe = 0;
  std::uint32_t vector = 0;
  bool has_channel = false;
};

struct QpRequest {
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;  // null: it has a receive queue of its own
  std::uint8_t type = 0;
  bool signal_all = false;
  std::uint32_t max_send_wr = 0;
  std::uint32_t max_recv_wr = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_recv_sge = 0;
  std::uint32_t max_inline_data = 0;
};

struct SrqRequest {
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
  std::uint32_t limit = 0;
};

// What completion counters there are.
struct CompletionCounterLimits {
  std::uint32_t operations = 0;  // that can be counted, as CountedOperation; 0: no counters
  std::uint32_t max_counters = 0;
  std::uint64_t max_value = 0;
};

// An ioctl method about one object, which the attribute `handle` names.
struct OwnIoctlMethod {
  abi::IoctlObject object{};
  std::uint16_t method = 0;
  IoctlCall::Spec attributes;
  std::uint16_t handle = 0;
  ObjectKind kind{};
  Outcome<void> (*run)(IoctlCall& call, Object& object) = nullptr;
};

// A type of device. One instance serves all device files that this process opens for one NIC.
// Objects return what they hold to the device when they are destroyed. All calls are made under the
// device's lock (see Runner). A refusal is an errno, which the application sees.
class Device {
 public:
  virtual ~Device() = default;

  // The number of the kernel's driver, by which libraries find theirs.
  [[nodiscard]] virtual std::uint32_t driver_id() const = 0;
  // Where commands, existing objects and what the device does are counted.
  [[nodiscard]] virtual Statistics& statistics() = 0;
  [[nodiscard]] virtual std::uint32_t completion_vectors() const = 0;
  virtual void query_device(abi::QueryDevice& to) const = 0;
  [[nodiscard]] virtual Outcome<void> query_port(std::uint8_t port, abi::QueryPort& to) const = 0;

  // The GIDs of the only port, by index, as they are on the wire.
  [[nodiscard]] virtual std::span<const abi::GidEntry> gids() const = 0;
  // In units of 100 Mb/s.
  [[nodiscard]] virtual std::uint64_t port_speed() const = 0;
  // The port's link comes up or goes down: queries show it from now on, and every open file that
  // has a context gets an event (PORT_ACTIVE, PORT_ERR). Packets are not affected here, only by the
  // network.
  void set_port_state(bool up) {
    if (up == port_up_) {
      return;
    }
    port_up_ = up;
    statistics().link_downed += up ? 0 : 1;
    const auto event = up ? abi::AsyncEvent::port_active : abi::AsyncEvent::port_error;
    for (EventChannel* const channel : async_channels_) {
      channel->send({kPort, static_cast<std::uint32_t>(event), 0});
    }
  }
  // The same before any file is open: how the port was found is no event.
  void begin_with_port_state(bool up) { port_up_ = up; }
  [[nodiscard]] bool port_up() const { return port_up_; }

  // Between these two calls the channel gets such events.
  void remember(EventChannel& channel) { async_channels_.push_back(&channel); }
  void forget(const EventChannel& channel) { std::erase(async_channels_, &channel); }

  [[nodiscard]] virtual CompletionCounterLimits completion_counters() const { return {}; }
  // The ioctl methods that only its own library calls.
  [[nodiscard]] virtual std::span<const OwnIoctlMethod> own_ioctl_methods() const { return {}; }

  // Only the device-specific part of these two.
  [[nodiscard]] virtual Outcome<void> get_context(Udata& /*udata*/) const { return {}; }
  [[nodiscard]] virtual Outcome<void> query_device_extended(Udata& /*udata*/) const { return {}; }

  // --- Verbs. A kind of device overrides those that it has.
  [[nodiscard]] virtual Outcome<std::unique_ptr<Pd>> alloc_pd(Udata& /*udata*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<std::unique_ptr<Mr>> reg_mr(Pd& /*pd*/,
                                                            const MrRequest& /*request*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<std::unique_ptr<Ah>> create_ah(
      Pd& /*pd*/, const abi::AhAttributes& /*attributes*/, Udata& /*udata*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<std::unique_ptr<Cq>> create_cq(const FileServices& /*file*/,
                                                               const CqRequest& /*request*/,
                                                               Udata& /*udata*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<std::unique_ptr<Qp>> create_qp(const FileServices& /*file*/,
                                                               const QpRequest& /*request*/,
                                                               Udata& /*udata*/) {
    return refuse(EOPNOTSUPP);
  }
  // Of the request's attributes those count that its mask names.
  [[nodiscard]] virtual Outcome<void> modify_qp(Qp& /*qp*/, const abi::ModifyQp& /*request*/) {
    return refuse(EOPNOTSUPP);
  }
  // EOPNOTSUPP if `mask` asks for attributes that the device does not have.
  [[nodiscard]] virtual Outcome<void> query_qp(const Qp& /*qp*/, std::uint32_t /*mask*/,
                                               abi::QueryQp& /*to*/) const {
    return refuse(EOPNOTSUPP);
  }
  // Commands that not every driver has, known by the verbs that follow here, and the longer forms
  // of others. Without them they are EOPNOTSUPP whatever they say.
  [[nodiscard]] virtual bool has_optional_commands() const { return false; }
  // Changes what the flags say; the keys may change.
  [[nodiscard]] virtual Outcome<void> rereg_mr(Mr& /*mr*/, std::uint32_t /*flags*/, Pd* /*pd*/,
                                               const MrRequest& /*request*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<std::unique_ptr<Mw>> alloc_mw(Pd& /*pd*/, std::uint8_t /*type*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<void> resize_cq(Cq& /*cq*/, std::uint32_t /*cqe*/,
                                                Udata& /*udata*/) {
    return refuse(EOPNOTSUPP);
  }
  // The next completion sends an event.
  [[nodiscard]] virtual Outcome<void> req_notify_cq(Cq& /*cq*/, bool /*solicited_only*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<std::unique_ptr<Srq>> create_srq(const FileServices& /*file*/,
                                                                 Pd& /*pd*/,
                                                                 const SrqRequest& /*request*/,
                                                                 Udata& /*udata*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<void> modify_srq(Srq& /*srq*/, const abi::ModifySrq& /*request*/,
                                                 Udata& /*udata*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<void> query_srq(const Srq& /*srq*/,
                                                abi::QuerySrqReply& /*to*/) const {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<void> attach_multicast(Qp& /*qp*/,
                                                       const std::array<std::byte, 16>& /*group*/) {
    return refuse(EOPNOTSUPP);
  }
  [[nodiscard]] virtual Outcome<void> detach_multicast(Qp& /*qp*/,
                                                       const std::array<std::byte, 16>& /*group*/) {
    return refuse(EOPNOTSUPP);
  }
  // Whether libraries tell of posted sends by a command, and not by a store, which wakes no thread.
  [[nodiscard]] virtual bool rings_by_command() const { return false; }
  // That command: takes what is posted out of the queue pair's queue. Allocates nothing.
  [[nodiscard]] virtual Outcome<void> post_send(Qp& /*qp*/) { return refuse(EOPNOTSUPP); }

  // Queue pair 1; null: connections are not managed by datagrams of such devices.
  [[nodiscard]] virtual ManagementPort* management() { return nullptr; }

  // The application has just armed a completion queue, by a store to memory that its next store may
  // overwrite: look now.
  virtual void look_at_arms() {}

 protected:
  // Sends asynchronous events that did not fit into their channel before. Call it often.
  void flush_events() {
    for (EventChannel* const channel : async_channels_) {
      channel->flush_backlog();
    }
  }

 private:
  static constexpr std::uint64_t kPort = 1;
  bool port_up_ = true;
  std::vector<EventChannel*> async_channels_;  // of open files
};

// Makes progress for a device, and holds the lock around it.
class Runner {
 public:
  virtual ~Runner() = default;
  // Runs `work` with the device to itself, then lets it send what that made ready.
  virtual void exclusively(const std::function<void()>& work) = 0;
  // A round of progress, unless another thread is making one. True: a packet moved.
  virtual bool poll() = 0;
  // Sends what was just posted, and does not receive: a later poll() finds what has arrived.
  virtual void push() { poll(); }
  // Like push(), for callers outside the poll hooks; does not reset the idle timer.
  virtual void push_unpolled() { poll(); }
  // push() for what is posted by a command: `fetch` runs first, with the device to itself.
  virtual void post(const std::function<void()>& fetch) { exclusively(fetch); }
  // The application has taken completions out of a queue, `receives`: one of a receive among them.
  virtual void took_completions(bool /*receives*/) {}
  // The application is about to sleep until a completion event comes.
  virtual void expect_events() = 0;
};

// Called after commands that make or change objects, without the device's lock, so that progress
// can be hooked into the library's function tables.
class LibraryHooks {
 public:
  virtual ~LibraryHooks() = default;
  struct Touched {
    int fd = -1;
    std::uint64_t user_handle = 0;
    QueueRegion send_doorbell{};  // of a queue pair
    int channel = -1;             // the application's descriptor of a new one
    bool rings_by_command = false;
  };
  virtual void created_cq(const Touched& cq) = 0;
  virtual void touched_qp(const Touched& qp) = 0;
  virtual void destroyed_qp(const Touched& /*qp*/) {}
  virtual void made_channel(const Touched& /*channel*/) {}
};

}  // namespace weft::kernel
