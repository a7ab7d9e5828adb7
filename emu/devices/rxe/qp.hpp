// Owns queue pairs and shared receive queues as the stock soft-RoCE library sees them: rings that
// the application fills, of which the device moves the consumer's index.
#pragma once

#include <memory>
#include <optional>

#include "emu/devices/late_receives.hpp"
#include "emu/devices/rxe/cq.hpp"
#include "emu/devices/rxe/ring.hpp"
#include "emu/devices/rxe/wqe.hpp"
#include "emu/kernel/device.hpp"
#include "emu/roce/engine/queues.hpp"

namespace weft::devices::rxe {

class SharedReceiveQueue : public kernel::Srq {
 public:
  SharedReceiveQueue(const kernel::FileServices& file, std::uint32_t entries, std::uint32_t sges);

  [[nodiscard]] bool valid() const { return ring_->valid(); }
  [[nodiscard]] MapInfo map_info() const { return ring_->map_info(); }
  // Moves one entry to `queue`, if there is one that has been in the ring for `late`.
  void refill(roce::ReceiveQueue& queue, ReceiveWork& scratch, TimePoint now, Duration late);
  // An event when fewer entries remain; 0: none.
  void set_limit(std::uint32_t limit) { limit_ = limit; }
  [[nodiscard]] std::uint32_t limit() const { return limit_; }
  // Nothing: there is no memory for so many, or no room for what is in the queue. The former ring
  // lives on until the next time: the application still has it.
  [[nodiscard]] std::optional<MapInfo> resize(std::uint32_t entries);

 private:
  kernel::FileServices file_;
  std::unique_ptr<Ring> ring_;
  std::unique_ptr<Ring> former_;
  std::uint32_t limit_ = 0;
  LateReceives late_;
};

// A send keeps its place in the ring until the engine has finished it: the application must not
// overwrite it before.
class QueuePair : public kernel::Qp {
 public:
  struct Shape {
    std::uint32_t send_entries = 0;
    WqeShape send;
    std::uint32_t receive_entries = 0;
    std::uint32_t receive_sges = 0;
    bool datagram = false;
  };
  // `srq` may be null.
  QueuePair(const kernel::FileServices& file, const Shape& shape, CompletionQueue& receive_cq,
            const SharedReceiveQueue* srq);

  [[nodiscard]] bool valid() const { return send_.valid() && (!receive_ || receive_->valid()); }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] QpReply describe() const;
  [[nodiscard]] std::uint32_t send_capacity() const { return send_.capacity(); }
  [[nodiscard]] std::uint32_t receive_capacity() const {
    return receive_ ? receive_->capacity() : 0;
  }

  // The next send that has not been fetched; false: there is none.
  [[nodiscard]] bool next_send(SendWork& work) const;
  void fetched_one() { ++fetched_; }
  // The engine has had no room for all that was posted.
  [[nodiscard]] bool has_waiting() const { return waits_; }
  void set_waiting(bool waits) { waits_ = waits; }
  // Of those that were ever fetched, `retired` are over: the application may use their places.
  void retire(std::uint64_t retired);
  void refill(roce::ReceiveQueue& queue, ReceiveWork& scratch, TimePoint now, Duration late);
  // The queue pair is in error: what is posted to receive ends so.
  void flush_receives();
  [[nodiscard]] bool failed() const { return failed_; }
  void set_failed(bool failed) { failed_ = failed; }
  // All that is posted vanishes.
  void reset();
  void report(std::uint32_t event);

 private:
  kernel::FileServices file_;
  Shape shape_;
  CompletionQueue& receive_cq_;
  Ring send_;
  std::unique_ptr<Ring> receive_;
  std::uint32_t fetched_ = 0;  // but not retired
  std::uint64_t retired_ = 0;
  bool failed_ = false;
  bool waits_ = false;
  LateReceives late_;
};

}  // namespace weft::devices::rxe
