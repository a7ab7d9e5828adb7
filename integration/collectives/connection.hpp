// Owns one direction of a connection as NCCL has it: a buffer of eight steps, the counters between
// GPU and proxy, and the proxy.
//
// In NCCL a kernel on the GPU and the proxy thread share these counters in memory. Here one thread
// plays both by turns (rank.hpp), which is why plain numbers are enough.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "integration/collectives/net.hpp"
#include "integration/collectives/shape.hpp"

namespace weft::collectives {

// A call of the plugin has failed: the communicator is dead.
class NetFailure : public std::runtime_error {
 public:
  NetFailure(const std::string& call, Result result)
      : std::runtime_error(call + ": " + to_string(result)), result_(result) {}
  [[nodiscard]] Result result() const { return result_; }

 private:
  Result result_;
};
inline void require(Result result, const char* call) {
  if (result != nccl::abi::kSuccess) {
    throw NetFailure(call, result);
  }
}

// What an operation needs of a connection.
struct Transfer {
  std::uint32_t grain = 1;  // steps of a chunk: an operation begins at a whole one
  std::uint32_t steps_of_slice = 1;
  std::size_t messages = 0;
  bool early = false;  // the GPU looks into the slot itself: completions may be told early
};

// Begins at a page, as what a GPU shares does: lines of 128 bytes are whole in it.
class Pages {
 public:
  Pages(std::size_t bytes, std::byte fill);
  [[nodiscard]] std::byte* data() const { return bytes_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte[], Free> bytes_;
};

// What is left of a channel that is no longer used: a connection that must be closed, and memory
// that is registered for it.
struct LooseEnd {
  void* connection = nullptr;
  void* memory = nullptr;
  Pages buffer;
  int tag = 0;
  std::size_t step_bytes = 0;
  [[nodiscard]] std::byte* data() const { return buffer.data(); }
};

// The GPU's side calls slot() and push(); progress() is the proxy. A slot is lent to the plugin
// from isend() until test() has said that it is done. done_ <= posted_ <= tail_ <= done_ + kSteps.
class SendChannel {
 public:
  SendChannel(Net& net, void* connection, int tag, std::size_t buffer_bytes);
  ~SendChannel();
  SendChannel(const SendChannel&) = delete;
  SendChannel& operator=(const SendChannel&) = delete;

  // The last operation's sends may still be under way, unless this one cuts the buffer otherwise.
  [[nodiscard]] bool may_begin(const Transfer& transfer) const {
    return idle() ||
           (tail_ % transfer.grain == 0 && transfer.steps_of_slice == transfer_.steps_of_slice);
  }
  // `poison`: the buffer is overwritten after a send is done, so that what is sent later is no
  // message.
  void begin(const Transfer& transfer, bool poison);
  // nullptr: all slots are in use.
  [[nodiscard]] std::byte* slot();
  // The flag for this use of the slot (ll, ll128): no other use of the slot has the same, as it
  // counts steps.
  [[nodiscard]] std::uint32_t flag() const { return static_cast<std::uint32_t>(tail_ + 1); }
  void push(std::size_t bytes);
  // Makes the proxy go on by one post and one test. Returns whether anything moved.
  bool progress();
  [[nodiscard]] bool idle() const { return done_ == tail_; }
  // Messages that have been posted, and have not ended.
  [[nodiscard]] std::uint64_t waiting() const {
    return (posted_ - done_) / transfer_.steps_of_slice;
  }
  // The caller closes it. The channel must not be used again.
  [[nodiscard]] LooseEnd release();

 private:
  Net& net_;
  void* connection_;
  int tag_;
  Pages buffer_;
  void* memory_ = nullptr;
  std::size_t step_bytes_;
  Transfer transfer_;
  bool poison_ = false;
  std::uint64_t tail_ = 0;    // steps that the GPU has filled,
  std::uint64_t posted_ = 0;  // that were given to the plugin,
  std::uint64_t done_ = 0;    // and that are free again
  std::array<std::size_t, kSteps> sizes_{};
  std::array<void*, kSteps> requests_{};
};

// The GPU's side calls slot() and pop(). tail_ <= posted_ <= last_, and posted_ is at most kSteps
// ahead of head_ and of tail_. With the Simple protocol head_ <= tail_; with the others the GPU
// sees the flags of a message in its slot, and may be through with it before test() has told of it.
class ReceiveChannel {
 public:
  ReceiveChannel(Net& net, void* connection, int tag, std::size_t buffer_bytes);
  ~ReceiveChannel();
  ReceiveChannel(const ReceiveChannel&) = delete;
  ReceiveChannel& operator=(const ReceiveChannel&) = delete;

  void begin(const Transfer& transfer);
  // nullptr: nothing has arrived.
  [[nodiscard]] std::byte* slot();
  // What is or will be the next slot, whether or not anything has arrived there.
  [[nodiscard]] std::byte* place() { return buffer_.data() + head_ % kSteps * step_bytes_; }
  [[nodiscard]] std::uint32_t flag() const { return static_cast<std::uint32_t>(head_ + 1); }
  [[nodiscard]] std::size_t arrived_bytes() const { return sizes_[head_ % kSteps]; }
  // Gives the slot back to the proxy and overwrites `poisoned` bytes of it: what is read there
  // after this is no message.
  void pop(std::size_t poisoned);
  bool progress();
  [[nodiscard]] bool idle() const { return head_ == last_ && tail_ == last_; }
  [[nodiscard]] std::uint64_t waiting() const {
    return (posted_ - tail_) / transfer_.steps_of_slice;
  }
  [[nodiscard]] LooseEnd release();

 private:
  Net& net_;
  void* connection_;
  int tag_;
  Pages buffer_;
  void* memory_ = nullptr;
  std::size_t step_bytes_;
  Transfer transfer_;
  std::uint64_t last_ = 0;    // steps of all operations begun
  std::uint64_t posted_ = 0;  // that wait for a message or have one,
  std::uint64_t tail_ = 0;    // that have one,
  std::uint64_t head_ = 0;    // and that the GPU is through with
  std::array<std::size_t, kSteps> sizes_{};
  std::array<void*, kSteps> requests_{};
};

}  // namespace weft::collectives
