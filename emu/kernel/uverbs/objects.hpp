// Owns what the handles of a device file stand for; each device type derives its own from these.
//
// A handle is an index into the table of one UverbsFile, which owns the objects. What a device adds
// to an object (rings, keys, the NIC's own queue pair) lies in its derived class and goes with it.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/kernel/uverbs/event_channel.hpp"
#include "emu/kernel/uverbs/queue_memory.hpp"
#include "srd/base/lent_memory.hpp"

namespace weft::kernel {

enum class ObjectKind : std::uint8_t { pd, mr, mw, ah, cq, srq, qp, channel, counter };

// Objects hold each other by count: one that others stand on cannot be destroyed (EBUSY). All of it
// under the device's lock.
class Object {
 public:
  explicit Object(ObjectKind kind) : kind_(kind) {}
  virtual ~Object() {
    for (Object* const used : uses_) {
      --used->users_;
    }
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  [[nodiscard]] ObjectKind kind() const { return kind_; }
  [[nodiscard]] virtual bool busy() const { return users_ > 0; }
  // The errno of destroying it while it is.
  [[nodiscard]] virtual int error_of_busy() const { return EBUSY; }

  void use(Object& other) {
    uses_.push_back(&other);
    ++other.users_;
  }
  // Instead of all that it used before.
  void use_only(Object& other) {
    use(other);
    for (Object* const used : std::span(uses_).first(uses_.size() - 1)) {
      --used->users_;
    }
    uses_ = {&other};
  }

  std::uint64_t user_handle = 0;   // what events call it
  std::uint32_t async_events = 0;  // asynchronous events sent about it

 private:
  ObjectKind kind_;
  std::uint32_t users_ = 0;
  std::vector<Object*> uses_;
};

// One struct for each kind. The members are what commands, queries and events of any device show.
struct Pd : Object {
  Pd() : Object(ObjectKind::pd) {}
};
struct Mr : Object {
  Mr() : Object(ObjectKind::mr) {}
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
};
struct Mw : Object {
  Mw() : Object(ObjectKind::mw) {}
  std::uint32_t rkey = 0;
};
struct Ah : Object {
  Ah() : Object(ObjectKind::ah) {}
};
struct Channel : Object {
  Channel() : Object(ObjectKind::channel) {}
  EventChannel events{EventChannel::Kind::completion};
};
struct Cq : Object {
  Cq() : Object(ObjectKind::cq) {}
  Channel* channel = nullptr;
  std::uint32_t comp_events = 0;  // completion events sent about it
  std::uint32_t cqe = 0;          // the size it really got

  void notify() {
    ++comp_events;
    channel->events.send({user_handle, 0, 0});
  }
};
struct Srq : Object {
  Srq() : Object(ObjectKind::srq) {}
  std::uint32_t number = 0;
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
};
// Two numbers in the program's memory, counted there by the device: completions, and completions in
// error. The program may unmap that memory at any time, so each access may fail.
struct CompletionCounter : Object {
  CompletionCounter() : Object(ObjectKind::counter) {}
  static constexpr std::size_t kEntries = 2;
  std::array<std::uint64_t*, kEntries> values{};

  void count(bool good) { (void)add(good ? 0 : 1, 1); }
  // False: that memory is gone.
  [[nodiscard]] bool add(std::size_t entry, std::uint64_t more) {
    return touch_lent(values[entry], sizeof(std::uint64_t), [&] {
      std::atomic_ref(*values[entry]).fetch_add(more, std::memory_order_release);
    });
  }
  [[nodiscard]] bool set(std::size_t entry, std::uint64_t value) {
    return touch_lent(values[entry], sizeof(std::uint64_t),
                      [&] { std::atomic_ref(*values[entry]).store(value); });
  }
  [[nodiscard]] bool get(std::size_t entry, std::uint64_t& value) {
    return touch_lent(values[entry], sizeof(std::uint64_t),
                      [&] { value = std::atomic_ref(*values[entry]).load(); });
  }
};
// Bits, as the verbs number them.
enum CountedOperation : std::uint32_t {
  kCountSends = 1U << 0,
  kCountReceives = 1U << 1,
  kCountReads = 1U << 2,
  kCountWrites = 1U << 4,
};
// The core knows of a queue pair what queries and replies show; its states and its work are the
// device's.
struct Qp : Object {
  Qp() : Object(ObjectKind::qp) {}
  [[nodiscard]] bool busy() const override { return Object::busy() || !groups.empty(); }
  static constexpr std::size_t kMaxCounters = 8;

  // False: there are too many already.
  [[nodiscard]] bool attach(CompletionCounter& counter, std::uint32_t operations) {
    if (counters_used_ == counters_.size()) {
      return false;
    }
    use(counter);
    counters_[counters_used_++] = {&counter, operations};
    return true;
  }
  void count(CountedOperation operation, bool good) {
    for (const Attached& attached : std::span(counters_).first(counters_used_)) {
      if ((attached.operations & operation) != 0) {
        attached.counter->count(good);
      }
    }
  }
  std::uint32_t number = 0;
  std::uint32_t max_send_wr = 0;
  std::uint32_t max_recv_wr = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_recv_sge = 0;
  std::uint32_t max_inline_data = 0;
  std::vector<std::array<std::byte, 16>> groups;  // of multicast, that it has joined
  QueueRegion send_doorbell;  // where the library tells of posted sends; nowhere: no data
  bool sq_sig_all = false;

 private:
  struct Attached {
    CompletionCounter* counter = nullptr;
    std::uint32_t operations = 0;
  };
  std::array<Attached, kMaxCounters> counters_{};
  std::size_t counters_used_ = 0;
};

}  // namespace weft::kernel
