// Owns the frames that are inside of the modelled network: what is known of each, their bytes, and
// a limit on their memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "emu/daemon/block_pool.hpp"
#include "emu/daemon/frame_delivery.hpp"
#include "emu/fabric/picos.hpp"
#include "srd/base/check.hpp"

namespace weft::daemon {

class Loans;

// A frame: in the ring of its lender, or in a block of a pool. `lender` is null once the frame has
// a block of its own, or was never lent.
struct Stored {
  std::byte* bytes = nullptr;
  std::uint32_t size = 0;
  std::uint8_t size_class = 0;
  std::uint32_t block = BlockPool::kNone;  // in the pool of its size class
  FrameDelivery to;
  Loans* lender = nullptr;
  std::uint64_t loan = 0;
  bool gone = false;          // the system had no memory for the copy
  fabric::Picos entered = 0;  // when its NIC began to send it
  fabric::PortId from = 0;
};

// Each NIC may have at most as many bytes inside as are still free, the rule by which ports of a
// switch share its buffer (dynamic thresholds): a NIC that floods the network gets half, and leaves
// the rest to the others. A frame is charged for a block of its size class even while it is on
// loan, so that calling a loan in never needs more than was charged.
class FramesInside {
 public:
  static constexpr std::uint32_t kNone = BlockPool::kNone;

  // Blocks are as large as `max_frame` at the most; `budget` is in bytes, bookkeeping included.
  FramesInside(std::size_t max_frame, std::size_t budget, std::size_t ports);

  // Room for a frame that came from that port, or kNone. Its bytes come with keep().
  [[nodiscard]] std::uint32_t add(fabric::PortId from, std::size_t size) {
    WEFT_CHECK(size <= pools_.back().block_bytes());  // guaranteed by ports and rings
    const std::uint8_t size_class = class_of(size);
    const std::size_t charge = charges_[size_class];
    std::uint32_t handle = kNone;
    if (charged_ + charge <= budget_ && charged_to_[from] + charge <= budget_ - charged_) {
      handle = records_.allocate();
    }
    if (handle == kNone) [[unlikely]] {
      ++refused_;
      return kNone;
    }
    charged_ += charge;
    charged_to_[from] += charge;
    Stored* stored = new (records_.at(handle)) Stored;
    stored->size = static_cast<std::uint32_t>(size);
    stored->size_class = size_class;
    stored->from = from;
    return handle;
  }
  // Copies the bytes into a block. False: the system has no memory.
  [[nodiscard]] bool keep(Stored& stored, std::span<const std::byte> frame);
  // `stored` is (*this)[handle].
  void remove(std::uint32_t handle, const Stored& stored) {
    if (stored.block != kNone) {
      pools_[stored.size_class].release(stored.block);
    }
    const std::size_t charge = charges_[stored.size_class];
    charged_ -= charge;
    charged_to_[stored.from] -= charge;
    records_.release(handle);
  }

  [[nodiscard]] Stored& operator[](std::uint32_t handle) const {
    return *reinterpret_cast<Stored*>(records_.at(handle));
  }
  [[nodiscard]] std::size_t size() const { return records_.used(); }
  // Charged to the frames that are inside, and what is reserved for them.
  [[nodiscard]] std::size_t charged() const { return charged_; }
  [[nodiscard]] std::size_t memory() const;
  // How many frames found no room.
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  // For an acknowledgement, a small message, and a page with its headers; larger frames take
  // `max_frame`.
  static constexpr std::array<std::size_t, 3> kClasses{256, 1024, 4352};

  [[nodiscard]] std::uint8_t class_of(std::size_t size) const {
    std::uint8_t size_class = 0;
    while (block_bytes_[size_class] < size) {
      ++size_class;
    }
    return size_class;
  }

  std::size_t budget_;
  std::size_t charged_ = 0;
  std::uint64_t refused_ = 0;
  std::vector<std::size_t> charged_to_;  // by port
  BlockPool records_;
  // By size class: the size of a block, what a frame is charged, and the blocks.
  std::array<std::size_t, kClasses.size() + 1> block_bytes_{};
  std::array<std::size_t, kClasses.size() + 1> charges_{};
  std::vector<BlockPool> pools_;
};

}  // namespace weft::daemon
