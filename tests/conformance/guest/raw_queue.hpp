// Owns an SRD queue pair of a program that speaks to the device file itself: commands as bytes,
// work requests and doorbells by stores, completions by loads. No library sees any of it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <span>
#include <vector>

#include "emu/devices/efa/abi.hpp"
#include "emu/kernel/abi/uverbs.hpp"
#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {

namespace abi = kernel::abi;
namespace efa = devices::efa;

// The commands are those that rdma-core's EFA library gives, in its order; what it keeps, as
// handles and ring positions, is kept here.
class RawQueue {
 public:
  // To peers on the same host, `gid`. `memory` is what they may write to.
  RawQueue(const ibv_gid& gid, std::span<std::uint8_t> memory) : memory_(memory) {
    fd_ = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    demand(fd_ >= 0, "cannot open the device file");
    struct {
      std::uint32_t async_fd, vectors;
      efa::ContextReply own;
    } context{};
    command(abi::Command::get_context, context, std::uint64_t{0});
    struct {
      std::uint32_t handle;
      efa::NumberReply own;
    } pd{};
    command(abi::Command::alloc_pd, pd);
    std::array<std::uint32_t, 3> region{};
    const auto start = reinterpret_cast<std::uint64_t>(memory.data());
    constexpr std::uint32_t kLocalAndRemoteWrite = 3;
    command(abi::Command::reg_mr, region, start, std::uint64_t{memory.size()}, start, pd.handle,
            kLocalAndRemoteWrite);
    key_ = region[1];
    abi::AhAttributes to{};
    std::memcpy(to.dgid.data(), gid.raw, to.dgid.size());
    to.is_global = 1;
    to.port_num = 1;
    struct {
      std::uint32_t handle;
      efa::NumberReply own;
    } ah{};
    command(abi::Command::create_ah, ah, std::uint64_t{0}, pd.handle, std::uint32_t{0}, to);
    ah_ = ah.own.number;
    struct {
      std::uint32_t handle, cqe;
      efa::CqReply own;
    } cq{};
    std::vector<std::uint8_t> body;
    append(body, abi::CreateCq{0, 0, kEntries, 0, -1, 0});
    append(body, efa::CqCommand{0, kCqeSize, 1, 0, {}});
    send(abi::Command::create_cq, body, &cq, sizeof cq);
    cq_ = map(cq.own.ring_key, cq.own.ring_size, PROT_READ);
    create_qp(pd.handle, cq.handle);
    // To INIT (P_Key index, port, Q_Key), to RTR, and to RTS (first PSN), as rdma-core asks for
    // them.
    modify(0x71, 1);
    modify(0x1, 2);
    modify(0x10001, 3);
  }
  ~RawQueue() { close(fd_); }
  RawQueue(const RawQueue&) = delete;
  RawQueue& operator=(const RawQueue&) = delete;

  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] std::uint32_t key() const { return key_; }

  // Writes `length` bytes of ours at `from` to the peer's `to`.
  void post_write(std::uint32_t peer, const std::uint8_t* from, std::uint32_t length,
                  std::uint64_t to, std::uint32_t key) {
    efa::WqeHead head{};
    head.req_id = static_cast<std::uint16_t>(posted_);
    // A descriptor of metadata; its first and last piece at once, and a completion is wanted. The
    // phase bit stays 0: our device counts doorbells instead.
    head.ctrl1 = static_cast<std::uint8_t>(efa::kOpWrite | 0x80);
    head.ctrl2 = 0x1C;
    head.destination_qpn = static_cast<std::uint16_t>(peer);
    head.ah = ah_;
    head.qkey = kQkey;
    head.length = 1;
    const std::array pieces{piece(length, key, to),
                            piece(length, key_, reinterpret_cast<std::uint64_t>(from))};
    std::uint8_t* const wqe = sq_ + posted_++ % kEntries * efa::kWqeSize;
    std::memcpy(wqe, &head, sizeof head);
    std::memcpy(wqe + sizeof head, pieces.data(), sizeof pieces);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    *reinterpret_cast<volatile std::uint32_t*>(doorbell_) = posted_;
  }
  // True: one more is done.
  [[nodiscard]] bool poll() {
    const std::uint8_t* const at = cq_ + taken_ % kEntries * kCqeSize;
    const auto flags =
        *reinterpret_cast<const volatile std::uint8_t*>(at + offsetof(efa::Cqe, flags));
    // The phase bit tells new entries from those of the round before: 1 in the first round, then 0,
    // and so on.
    if ((flags & 1) != (taken_ / kEntries % 2 == 0 ? 1 : 0)) {
      return false;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    efa::Cqe entry;
    std::memcpy(&entry, at, kCqeSize);
    demand(entry.status == 0, "a write failed");
    ++taken_;
    return true;
  }

 private:
  static constexpr std::uint32_t kEntries = 16;
  static constexpr std::uint8_t kCqeSize = 32;

  static efa::WireSge piece(std::uint32_t length, std::uint32_t key, std::uint64_t address) {
    return {length, key, static_cast<std::uint32_t>(address),
            static_cast<std::uint32_t>(address >> 32)};
  }
  void create_qp(std::uint32_t pd, std::uint32_t cq) {
    struct {
      abi::CreateQpReply core;
      efa::QpReply own;
    } reply{};
    abi::CreateQp wanted{};
    wanted.pd = pd;
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.max_send_wr = kEntries;
    wanted.max_send_sge = 1;
    wanted.sq_sig_all = 1;
    wanted.qp_type = abi::kQpDriver;
    std::vector<std::uint8_t> body;
    append(body, wanted);
    append(body, efa::QpCommand{0, 0, kEntries * efa::kWqeSize, 0, 0, 0, {}});
    send(abi::Command::create_qp, body, &reply, sizeof reply);
    handle_ = reply.core.handle;
    number_ = reply.core.qpn;
    sq_ = map(reply.own.sq_key, kEntries * efa::kWqeSize, PROT_WRITE);
    doorbell_ = map(reply.own.sq_doorbell_key, 4096, PROT_WRITE);
  }
  void modify(std::uint32_t mask, std::uint8_t state) {
    abi::ModifyQp request{};
    request.handle = handle_;
    request.attr_mask = mask;
    request.qp_state = state;
    request.port_num = 1;
    request.qkey = kQkey;
    std::vector<std::uint8_t> body;
    append(body, request);
    send(abi::Command::modify_qp, body, nullptr, 0);
  }

  template <class T>
  static void append(std::vector<std::uint8_t>& to, const T& part) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&part);
    to.insert(to.end(), bytes, bytes + sizeof part);
  }
  // What follows the address of the reply.
  template <class Reply, class... Parts>
  void command(abi::Command number, Reply& reply, const Parts&... parts) {
    std::vector<std::uint8_t> body;
    append(body, std::uint64_t{0});
    (append(body, parts), ...);
    send(number, body, &reply, sizeof reply);
  }
  void send(abi::Command number, std::vector<std::uint8_t>& body, void* reply, std::size_t size) {
    if (reply != nullptr) {
      // A command that has a reply begins with its address.
      std::memcpy(body.data(), &reply, sizeof reply);
    }
    std::vector<std::uint8_t> bytes;
    append(bytes, abi::CommandHeader{static_cast<std::uint32_t>(number),
                                     static_cast<std::uint16_t>((body.size() + 8) / 4),
                                     static_cast<std::uint16_t>(size / 4)});
    bytes.insert(bytes.end(), body.begin(), body.end());
    demand(::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
           "a command is refused");
  }
  std::uint8_t* map(std::uint64_t key, std::size_t size, int protection) {
    void* const data = mmap(nullptr, size, protection, MAP_SHARED, fd_, static_cast<off_t>(key));
    demand(data != MAP_FAILED, "cannot map a queue");
    return static_cast<std::uint8_t*>(data);
  }

  std::span<std::uint8_t> memory_;
  int fd_ = -1;
  std::uint32_t key_ = 0;
  std::uint16_t ah_ = 0;
  std::uint32_t handle_ = 0;
  std::uint32_t number_ = 0;
  std::uint8_t* sq_ = nullptr;
  std::uint8_t* doorbell_ = nullptr;
  std::uint8_t* cq_ = nullptr;
  std::uint32_t posted_ = 0;
  std::uint32_t taken_ = 0;
};

}  // namespace weft::conformance
