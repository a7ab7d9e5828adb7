// Owns the types behind Gloo's interface of a transport: a group, its pairs, and memory to move.
//
// A pair is two connections of the NCCL plugin's core, one each way: a receive announces its
// buffer, a send is written straight into it when it is announced. A slot of Gloo is the tag of a
// message, and messages of one slot keep their order. All state belongs to the NIC's lock, except
// the flags of abortWait...(), which another thread sets while a wait is running.
#pragma once

#include <gloo/common/error.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "integration/gloo/device.hpp"
#include "srd/run/clock.hpp"

namespace weft::gloo {

class Context;
class Pair;

// A buffer's memory as it is registered at one connection, while the buffer is there.
struct Lease {
  Pair* pair = nullptr;  // null: it is closed
  bool sends = false;
  nccl::CommRegion* region = nullptr;
};

// A message that was asked for, until the caller has seen its end.
struct PairMessage {
  Pair* pair = nullptr;  // null: it is closed
  int rank = 0;          // of the other side
  bool sends = false;
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::int64_t tag = 0;
  const Lease* lease = nullptr;      // null: it has no bytes
  nccl::Request* request = nullptr;  // null while there is no room for it
  std::optional<nccl::Outcome> end;
};

// In milliseconds: "for ever" may be more of them than there are nanoseconds in a Duration.
[[nodiscard]] inline bool took_longer(TimePoint begin, std::chrono::milliseconds limit) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(srd::monotonic_now() - begin) >
         limit;
}

// What ranks exchange before they connect: the handle of the core's listener, as bytes.
class PairAddress final : public ::gloo::transport::Address {
 public:
  explicit PairAddress(const nccl::ListenHandle& handle) : handle_(handle) {}
  [[nodiscard]] std::string str() const override;
  [[nodiscard]] std::vector<char> bytes() const override;

 private:
  nccl::ListenHandle handle_;
};

// The connections to one other rank. Owned by its Context, so `context_` stays valid.
class Pair final : public ::gloo::transport::Pair {
 public:
  Pair(Context& context, int rank);
  ~Pair() override { close(); }

  [[nodiscard]] const PairAddress& address() const override { return *address_; }
  // Returns when both connections are there.
  void connect(const std::vector<char>& bytes) override;
  void close() override;
  void setSync(bool, bool) override {}  // there is one way to wait
  // Gloo's older algorithms, which no Gloo of these years uses by itself.
  std::unique_ptr<::gloo::transport::Buffer> createSendBuffer(int, void*, std::size_t) override;
  std::unique_ptr<::gloo::transport::Buffer> createRecvBuffer(int, void*, std::size_t) override;
  void send(::gloo::transport::UnboundBuffer* buffer, std::uint64_t slot, std::size_t offset,
            std::size_t size) override;
  void recv(::gloo::transport::UnboundBuffer* buffer, std::uint64_t slot, std::size_t offset,
            std::size_t size) override;

  // --- With the lock.
  void begin(nccl::Core& core, const std::shared_ptr<PairMessage>& message);
  // Posts what had no room before, and notes what has ended.
  void advance(nccl::Core& core);
  // Null if there is no room, or no connection any more.
  [[nodiscard]] std::shared_ptr<Lease> lease(nccl::Core& core, std::byte* data, std::size_t size,
                                             bool sends);
  // Afterwards the memory is not touched. With messages under way the pair is broken.
  void end(nccl::Core& core, Lease& lease);
  void shut(nccl::Core& core);

 private:
  [[nodiscard]] bool post(nccl::Core& core, PairMessage& message);
  void finish(PairMessage& message, nccl::Outcome end);

  Context& context_;
  const int rank_;
  std::unique_ptr<PairAddress> address_;
  std::uint32_t listener_ = 0;
  bool listens_ = false;
  nccl::ListenHandle asked_;  // of the other side, while it is asked
  nccl::SendComm* sender_ = nullptr;
  nccl::ReceiveComm* receiver_ = nullptr;
  std::list<std::shared_ptr<PairMessage>> messages_;  // that have not ended, in order
  std::vector<std::shared_ptr<Lease>> leases_;
};

// Memory of the caller, with the messages that move it. It may be destroyed with messages under
// way, after an exception, say: the pairs concerned are shut then, since the memory is the
// caller's.
class UnboundBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
  UnboundBuffer(std::shared_ptr<Context> context, void* data, std::size_t size);
  ~UnboundBuffer() override;

  using ::gloo::transport::UnboundBuffer::waitRecv;
  using ::gloo::transport::UnboundBuffer::waitSend;
  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    return wait(receives_, rank, timeout);
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    return wait(sends_, rank, timeout);
  }
  void abortWaitRecv() override { receives_.aborted = true; }
  void abortWaitSend() override { sends_.aborted = true; }
  void send(int rank, std::uint64_t slot, std::size_t offset, std::size_t size) override;
  void recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t size) override;
  void recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset,
            std::size_t size) override;

 private:
  // Messages of one direction, until wait() has reported each: oldest first, all ranks together.
  struct Side {
    std::deque<std::shared_ptr<PairMessage>> messages;
    std::vector<std::shared_ptr<Lease>> leases;  // one for each rank
    std::atomic<bool> aborted = false;
  };
  void begin(bool sends, int rank, std::uint64_t slot, std::size_t offset, std::size_t size);
  [[nodiscard]] const Lease* lease_at(nccl::Core& core, Pair& pair, Side& side, bool sends);
  [[nodiscard]] static std::shared_ptr<PairMessage> take_ended(Side& side);
  bool wait(Side& side, int* rank, std::chrono::milliseconds timeout);

  std::shared_ptr<Context> context_;
  Side sends_;
  Side receives_;
};

// A group of ranks. Buffers hold it, it holds the device.
class Context final : public ::gloo::transport::Context,
                      public std::enable_shared_from_this<Context> {
 public:
  Context(std::shared_ptr<GlooDevice> device, int own, int ranks)
      : ::gloo::transport::Context(own, ranks), device_(std::move(device)) {}
  ~Context() override { pairs_.clear(); }  // before the device goes

  std::unique_ptr<::gloo::transport::Pair>& createPair(int other) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                        std::size_t size) override;

  [[nodiscard]] nccl::PluginNic& nic() { return device_->nic(); }
  [[nodiscard]] Pair& pair(int other);
  // With the lock: every pair goes on.
  void advance(nccl::Core& core);
  // A wait has taken too long: nobody knows any more what the others have seen, so nothing goes on.
  void shut(nccl::Core& core);

 private:
  std::shared_ptr<GlooDevice> device_;
};

}  // namespace weft::gloo
