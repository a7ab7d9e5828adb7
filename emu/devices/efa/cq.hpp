// Owns a completion queue as the stock EFA library sees it: a ring of phase-marked entries and a
// doorbell. The library says reliably what it has reaped only when it asks for an event, so that,
// as on a real device, the application has to make its queue as large as what it has outstanding.
#pragma once

#include "emu/devices/efa/abi.hpp"
#include "emu/kernel/device.hpp"
#include "emu/nic/nic.hpp"
#include "srd/engine/types.hpp"

namespace weft::devices::efa {

// Written by the thread that holds the device; read by any thread of the application, without a
// lock.
class CompletionQueue : public kernel::Cq {
 public:
  struct Shape {
    std::uint32_t entries = 0;     // a power of two
    std::uint32_t entry_size = 0;  // 16 or 32
    bool source_gid = false;
    bool request_id_64 = false;
    bool channel = false;
  };
  CompletionQueue(kernel::QueueMemory& memory, const Shape& shape);
  ~CompletionQueue() override;

  [[nodiscard]] bool valid() const { return ring_.data != nullptr && doorbell_.data != nullptr; }
  [[nodiscard]] const kernel::QueueRegion& ring() const { return ring_; }
  [[nodiscard]] const kernel::QueueRegion& doorbell() const { return doorbell_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }

  // `wide_id`: the queue pair uses 64-bit request ids on its send side.
  void publish(const nic::WorkCompletion& done, bool wide_id);
  // Looks at the doorbell: has the application asked for an event?
  void look();
  // The program has asked for an event, and the next completion sends it.
  [[nodiscard]] bool armed() const { return armed_; }

 private:
  [[nodiscard]] std::uint32_t doorbell_word() const;
  void write(Cqe entry);

  kernel::QueueMemory& memory_;
  Shape shape_;
  kernel::QueueRegion ring_;
  kernel::QueueRegion doorbell_;
  std::uint16_t produced_ = 0;  // modulo 2^16, as the doorbell counts
  std::uint32_t slot_ = 0;
  std::uint8_t phase_ = 1;  // changes each time round the ring
  bool armed_ = false;
  std::uint32_t last_arm_ = 0;  // the doorbell word that armed it; the next one differs
};

}  // namespace weft::devices::efa
