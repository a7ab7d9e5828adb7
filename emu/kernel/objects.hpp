// Owns what the handles of a device file stand for; each device type derives its own from these.
#pragma once

#include <cstdint>

#include "emu/kernel/event_channel.hpp"

namespace weft::emu::kernel {

enum class ObjectKind : std::uint8_t { pd, mr, ah, cq, qp, channel };

// Objects hold each other by count: one that others stand on cannot be destroyed (EBUSY).
class Object {
 public:
  explicit Object(ObjectKind kind) : kind_(kind) {}
  virtual ~Object() {
    for (Object* const used : uses_) {
      if (used != nullptr) {
        --used->users_;
      }
    }
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  [[nodiscard]] ObjectKind kind() const { return kind_; }
  [[nodiscard]] bool busy() const { return users_ > 0; }

  void use(Object& other) {
    for (Object*& slot : uses_) {
      if (slot == nullptr) {
        slot = &other;
        ++other.users_;
        return;
      }
    }
  }

  std::uint64_t user_handle = 0;   // what events call it
  std::uint32_t async_events = 0;  // asynchronous events sent about it

 private:
  static constexpr int kMostUses = 4;
  ObjectKind kind_;
  std::uint32_t users_ = 0;
  Object* uses_[kMostUses] = {};
};

struct Pd : Object {
  Pd() : Object(ObjectKind::pd) {}
};
struct Mr : Object {
  Mr() : Object(ObjectKind::mr) {}
  std::uint32_t lkey = 0;
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
struct Qp : Object {
  Qp() : Object(ObjectKind::qp) {}
  std::uint32_t number = 0;
  std::uint32_t max_send_wr = 0;
  std::uint32_t max_recv_wr = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_recv_sge = 0;
  std::uint32_t max_inline_data = 0;
  bool sq_sig_all = false;
};

}  // namespace weft::emu::kernel
