// Owns a queue pair as the stock EFA library sees it: two rings that the application writes, two
// doorbells.
//
// The rings are in memory that the library has mapped. It writes entries and then a doorbell
// without calling anybody, so nothing here is notified: EfaDevice asks each queue pair for new
// entries in every round of progress. An entry that has been fetched may be overwritten by the
// library as soon as its completion is polled; the copy that fetch_sends() makes is therefore the
// only one that counts.
#pragma once

#include <optional>

#include "emu/devices/efa/abi.hpp"
#include "emu/devices/efa/cq.hpp"
#include "emu/devices/late_receives.hpp"
#include "emu/kernel/device.hpp"
#include "emu/nic/nic.hpp"

namespace weft::devices::efa {

// Destroying it ends the queue pair of the NIC. Indices count modulo 2^16, as the doorbells do.
class QueuePair : public kernel::Qp {
 public:
  struct Shape {
    std::uint32_t sq_entries = 0;  // powers of two, or 0
    std::uint32_t wqe_size = 0;
    std::uint32_t rq_descriptors = 0;
    bool request_id_64 = false;
  };
  QueuePair(nic::Nic& nic, nic::DatagramQp& qp, kernel::QueueMemory& memory, const Shape& shape,
            CompletionQueue& send_cq, CompletionQueue& recv_cq);
  ~QueuePair() override;

  [[nodiscard]] bool valid() const;
  [[nodiscard]] nic::DatagramQp& qp() { return qp_; }
  [[nodiscard]] const nic::DatagramQp& qp() const { return qp_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  void describe(QpReply& reply) const;

  // Takes what the doorbells announce. False: the application wrote nonsense, the queue is to fail.
  [[nodiscard]] bool fetch_sends();
  // Those that are not in the ring for `late` stay there.
  [[nodiscard]] bool fetch_receives(TimePoint now, Duration late);
  // Sets our indices to zero. The library does the same with its own, and rings no doorbell for it.
  void reset();
  void publish(const nic::WorkCompletion& done);

 private:
  [[nodiscard]] std::uint16_t pending(const kernel::QueueRegion& doorbell,
                                      std::uint16_t taken) const;
  [[nodiscard]] nic::SendWork parse(std::span<const std::byte> wqe) const;
  // Descriptors from the next one up to the last of its work request; 0: nonsense.
  [[nodiscard]] std::uint16_t gather(std::uint16_t available, nic::ReceiveWork& work) const;

  nic::Nic& nic_;
  nic::DatagramQp& qp_;
  kernel::QueueMemory& memory_;
  Shape shape_;
  CompletionQueue& send_cq_;
  CompletionQueue& recv_cq_;
  kernel::QueueRegion sq_;
  kernel::QueueRegion rq_;
  kernel::QueueRegion sq_doorbell_;
  kernel::QueueRegion rq_doorbell_;
  std::uint16_t sq_taken_ = 0;  // work requests
  std::uint16_t rq_taken_ = 0;  // descriptors
  LateReceives late_;
};

}  // namespace weft::devices::efa
