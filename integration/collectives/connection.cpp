// Owns the two proxies: posting, testing in order, and handing slots on.
//
// A channel is a ring of slots in a buffer of its own, as NCCL's proxy has one: `tail_` counts
// slots filled by the one side, `posted_` those given to the network, `done_` (or `head_`) those
// that are free again. Steps of a slice are posted together.
#include "integration/collectives/connection.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace weft::collectives {
namespace {

// What memory holds that no message may be read from: found again by the check of the data.
constexpr std::byte kPoison{0xA5};

std::uint64_t round_up(std::uint64_t step, std::uint32_t grain) {
  return (step + grain - 1) / grain * grain;
}

}  // namespace

Pages::Pages(std::size_t bytes, std::byte fill) : size_(bytes) {
  constexpr std::size_t kPage = 4096;
  bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, round_up(bytes, kPage))));
  if (!bytes_) {
    throw std::bad_alloc();
  }
  std::fill_n(bytes_.get(), bytes, fill);
}

// --- Sending

SendChannel::SendChannel(Net& net, void* connection, int tag, std::size_t buffer_bytes)
    : net_(net),
      connection_(connection),
      tag_(tag),
      buffer_(buffer_bytes, kPoison),
      step_bytes_(buffer_bytes / kSteps) {
  require(net_.register_memory(connection_, buffer_.data(), buffer_.size(), memory_), "regMr");
}

SendChannel::~SendChannel() {
  if (connection_ != nullptr) {
    (void)net_.deregister_memory(connection_, memory_);
    (void)net_.close_send(connection_);
  }
}

LooseEnd SendChannel::release() {
  return {std::exchange(connection_, nullptr), memory_, std::move(buffer_), tag_, step_bytes_};
}

// An operation begins at a whole chunk, as if the GPU had filled the rest of the last one: both
// ends count alike, so each finds the other's slots without being told where they are.
void SendChannel::begin(const Transfer& transfer, bool poison) {
  transfer_ = transfer;
  poison_ = poison;
  if (tail_ % transfer.grain != 0) {
    tail_ = posted_ = done_ = round_up(tail_, transfer.grain);
  }
}

// A slice takes several steps; all of them have to be free.
std::byte* SendChannel::slot() {
  return tail_ + transfer_.steps_of_slice > done_ + kSteps
             ? nullptr
             : buffer_.data() + tail_ % kSteps * step_bytes_;
}

void SendChannel::push(std::size_t bytes) {
  sizes_[tail_ % kSteps] = bytes;
  tail_ += transfer_.steps_of_slice;
}

bool SendChannel::progress() {
  bool moved = false;
  // One slot is posted and the oldest request is tested for each call: the proxy visits all
  // connections of a rank by turns, as NCCL's does, and stays with none.
  if (posted_ < tail_) {
    const std::size_t at = posted_ % kSteps;
    requests_[at] = nullptr;
    require(net_.send(connection_, {buffer_.data() + at * step_bytes_, sizes_[at], tag_, memory_},
                      requests_[at]),
            "isend");
    if (requests_[at] != nullptr) {
      posted_ += transfer_.steps_of_slice;
      moved = true;
    }
  }
  if (done_ < posted_) {
    bool done = false;
    std::array<int, kMaxBuffers> sizes{};
    require(net_.test(requests_[done_ % kSteps], done, sizes), "test of an isend");
    if (done) {
      if (poison_) {
        const std::size_t at = done_ % kSteps;
        std::fill_n(buffer_.data() + at * step_bytes_, sizes_[at], kPoison);
      }
      done_ += transfer_.steps_of_slice;
      moved = true;
    }
  }
  return moved;
}

// --- Receiving

ReceiveChannel::ReceiveChannel(Net& net, void* connection, int tag, std::size_t buffer_bytes)
    : net_(net),
      connection_(connection),
      tag_(tag),
      buffer_(buffer_bytes, kPoison),
      step_bytes_(buffer_bytes / kSteps) {
  require(net_.register_memory(connection_, buffer_.data(), buffer_.size(), memory_), "regMr");
}

ReceiveChannel::~ReceiveChannel() {
  if (connection_ != nullptr) {
    (void)net_.deregister_memory(connection_, memory_);
    (void)net_.close_receive(connection_);
  }
}

LooseEnd ReceiveChannel::release() {
  return {std::exchange(connection_, nullptr), memory_, std::move(buffer_), tag_, step_bytes_};
}

void ReceiveChannel::begin(const Transfer& transfer) {
  transfer_ = transfer;
  head_ = tail_ = posted_ = round_up(head_, transfer.grain);
  last_ = head_ + transfer.messages * transfer.steps_of_slice;
}

std::byte* ReceiveChannel::slot() { return head_ == tail_ ? nullptr : place(); }

void ReceiveChannel::pop(std::size_t poisoned) {
  // Poisoned before the slot is posted again: a plugin that says "done" without having written is
  // found.
  std::fill_n(place(), poisoned, kPoison);
  head_ += transfer_.steps_of_slice;
}

// Posts all that can be posted; if there was nothing to post, tests the oldest request.
bool ReceiveChannel::progress() {
  bool moved = false;
  const std::size_t bytes = step_bytes_ * transfer_.steps_of_slice;
  const std::uint64_t free = std::min(head_, tail_) + kSteps;  // the GPU may be before its proxy
  while (posted_ < last_ && posted_ + transfer_.steps_of_slice <= free) {
    const std::size_t at = posted_ % kSteps;
    const Posted buffer{buffer_.data() + at * step_bytes_, bytes, tag_, memory_};
    requests_[at] = nullptr;
    require(net_.receive(connection_, {&buffer, 1}, transfer_.early, requests_[at]), "irecv");
    if (requests_[at] == nullptr) {
      break;
    }
    posted_ += transfer_.steps_of_slice;
    moved = true;
  }
  if (moved || tail_ == posted_) {
    return moved;
  }
  bool done = false;
  std::array<int, kMaxBuffers> sizes{};
  require(net_.test(requests_[tail_ % kSteps], done, sizes), "test of an irecv");
  if (done) {
    if (sizes[0] < 0 || static_cast<std::size_t>(sizes[0]) > bytes) {
      throw std::runtime_error("a receive of " + std::to_string(bytes) + " bytes says that " +
                               std::to_string(sizes[0]) + " have come");
    }
    sizes_[tail_ % kSteps] = static_cast<std::size_t>(sizes[0]);
    tail_ += transfer_.steps_of_slice;
  }
  return done;
}

}  // namespace weft::collectives
