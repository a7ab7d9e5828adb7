// Owns a program that speaks the kernel's verbs interface without any library: commands as bytes,
// queues as memory.
//
// The libraries would refuse most of what the tests send, or would never send it. So the bytes are
// laid out here, as the header uapi/rdma/ib_user_verbs.h of Linux has them.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "emu/devices/efa/abi.hpp"
#include "emu/devices/efa/device.hpp"
#include "emu/kernel/abi/uverbs.hpp"
#include "emu/kernel/nic_description.hpp"
#include "emu/kernel/uverbs/file.hpp"
#include "srd/net/address_text.hpp"

namespace weft::kernel {

namespace efa = devices::efa;
using efa::Abilities;
using efa::address_of;
using efa::gid_of;

// The device's own address: what it sends goes there, so it talks to itself.
inline constexpr const char* kTestAddress = "10.1.2.3";

// A device whose network is a wire from its output to its input, driven by its caller: each poll()
// lets 400 us of virtual time pass. All in one thread, so nothing needs a lock.
class LoopRunner final : public Runner {
 public:
  explicit LoopRunner(const Abilities& abilities)
      : device(abilities, *srd::parse_address(kTestAddress), {256, 256},
               efa::engine_config(abilities, config())) {}

  static srd::EngineConfig config() {
    srd::EngineConfig config;
    config.attachment = srd::AttachmentId{1};
    // An EFA device's MTU.
    config.mtu_payload = 8928;
    return config;
  }
  void exclusively(const std::function<void()>& work) override {
    work();
    poll();
  }
  bool poll() override {
    srd::TxPacket packet;
    bool moved = false;
    // Enough for a send, its acknowledgement and its completion, with a microsecond between them.
    for (int round = 0; round < 400; ++round) {
      now_ += std::chrono::microseconds{1};
      if (device.next_timeout() <= now_) {
        device.on_timeout(now_);
      }
      while (device.next_transmit(now_, packet)) {
        std::vector<std::byte> bytes(packet.header.begin(),
                                     packet.header.begin() + packet.header_size);
        for (const auto& piece : packet.payload) {
          bytes.insert(bytes.end(), piece.begin(), piece.end());
        }
        device.on_packet(now_, srd::RxPacket{.from = packet.to,
                                             .path = packet.path,
                                             .ecn = packet.ecn,
                                             .trimmed = false,
                                             .bytes = bytes,
                                             .more = {}});
        moved = true;
      }
    }
    return moved;
  }
  void expect_events() override {}

  efa::EfaDevice device;

 private:
  TimePoint now_ = time_at(std::chrono::seconds{1});
};

inline Abilities test_abilities() {
  Abilities abilities;
  abilities.request_id_64 = true;
  return abilities;
}

// What a program knows of a completion queue, and below of a queue pair, once it is made.
struct CqHandle {
  std::uint32_t handle = 0;
  std::uint32_t entries = 0;
  efa::CqReply reply{};
};

struct QpHandle {
  abi::CreateQpReply core{};
  efa::QpReply own{};
};

// One context on an emulated device. Commands go to the kernel's side directly, as a write() on the
// device file would bring them. Helpers return 0 or the errno of the refusal, unless they say
// otherwise.
class RawClient : public ::testing::Test {
 protected:
  explicit RawClient(const Abilities& abilities = test_abilities())
      : runner(abilities), file(runner.device, runner, nullptr) {
    fd_ = file.open();
    EXPECT_GE(fd_, 0);
  }
  ~RawClient() override {
    for (const auto& [data, size] : mapped_) {
      munmap(data, size);
    }
  }

  // The bytes of trivial values or of vectors, one behind the other without any padding between
  // them.
  template <class... Parts>
  static std::vector<std::byte> join(const Parts&... parts) {
    std::vector<std::byte> bytes;
    (append(bytes, parts), ...);
    return bytes;
  }

  // The bytes of `body` after the response address, which is filled in. Returns 0 or an errno.
  // Sizes in the header count words of 4 bytes, and those of the header with them.
  int command(abi::Command number, std::vector<std::byte> body, std::span<std::byte> reply,
              bool with_response = true) {
    if (with_response) {
      const auto address = reinterpret_cast<std::uint64_t>(reply.data());
      std::memcpy(body.data(), &address, sizeof address);
    }
    const abi::CommandHeader header{static_cast<std::uint32_t>(number),
                                    static_cast<std::uint16_t>((body.size() + 8) / 4),
                                    static_cast<std::uint16_t>(reply.size() / 4)};
    return write(join(header, body));
  }
  int write(const std::vector<std::byte>& bytes) {
    const ssize_t result = file.write(fd_, bytes.data(), bytes.size());
    return result < 0 ? static_cast<int>(-result) : 0;
  }
  template <class Reply, class... Parts>
  // For commands whose first field is the response address; `parts` are what follows it.
  int command_for(abi::Command number, Reply& reply, const Parts&... parts) {
    return command(number, join(std::uint64_t{0}, parts...),
                   std::as_writable_bytes(std::span(&reply, 1)));
  }
  // Only these two have a reply: the numbers of events that the program has to have acknowledged.
  int destroy(abi::Command number, std::uint32_t handle) {
    std::array<std::uint32_t, 2> reply{};
    if (number == abi::Command::destroy_cq || number == abi::Command::destroy_qp) {
      return command(number, join(std::uint64_t{0}, handle, std::uint32_t{0}),
                     std::as_writable_bytes(std::span(reply)));
    }
    return command(number, join(handle), {}, false);
  }

  // Must come first: every other command needs the context.
  void open_context() {
    struct {
      std::uint32_t async_fd, vectors;
      efa::ContextReply own;
    } reply{};
    ASSERT_EQ(command_for(abi::Command::get_context, reply, std::uint64_t{0}), 0);
    async_fd = static_cast<int>(reply.async_fd);
  }
  std::uint32_t alloc_pd() {
    struct {
      std::uint32_t handle;
      efa::NumberReply own;
    } reply{};
    EXPECT_EQ(command_for(abi::Command::alloc_pd, reply), 0);
    return reply.handle;
  }
  // The reply: handle, local key, remote key.
  int reg_mr(std::uint32_t pd, void* data, std::uint64_t length, std::uint32_t access,
             std::array<std::uint32_t, 3>& reply) {
    const auto address = reinterpret_cast<std::uint64_t>(data);
    return command_for(abi::Command::reg_mr, reply, address, length, address, pd, access);
  }
  // `ah` is the handle's number.
  int create_ah(std::uint32_t pd, const srd::Address& gid, std::uint16_t& ah) {
    abi::AhAttributes attributes{};
    attributes.dgid = gid.bytes;
    attributes.is_global = 1;
    attributes.port_num = 1;
    struct {
      std::uint32_t handle;
      efa::NumberReply own;
    } reply{};
    const int error = command_for(abi::Command::create_ah, reply, std::uint64_t{0}, pd,
                                  std::uint32_t{0}, attributes);
    ah = reply.own.number;
    return error;
  }
  int create_cq(const abi::CreateCq& core, const efa::CqCommand& own, CqHandle& cq) {
    struct {
      std::uint32_t handle, cqe;
      efa::CqReply own;
    } reply{};
    const auto body = join(core, own);
    const int error =
        command(abi::Command::create_cq, body, std::as_writable_bytes(std::span(&reply, 1)));
    cq = {reply.handle, reply.cqe, reply.own};
    return error;
  }
  int create_qp(const abi::CreateQp& core, const efa::QpCommand& own, QpHandle& qp) {
    struct {
      abi::CreateQpReply core;
      efa::QpReply own;
    } reply{};
    const int error = command(abi::Command::create_qp, join(core, own),
                              std::as_writable_bytes(std::span(&reply, 1)));
    qp = {reply.core, reply.own};
    return error;
  }
  int modify_qp(std::uint32_t handle, std::uint32_t mask, nic::QpState state,
                std::uint32_t qkey = 0) {
    abi::ModifyQp request{};
    request.handle = handle;
    request.attr_mask = mask;
    request.qp_state = static_cast<std::uint8_t>(state);
    request.port_num = 1;
    request.qkey = qkey;
    return command(abi::Command::modify_qp, join(request), {}, false);
  }
  // Through the states that a queue pair has to go through before it may send.
  void to_rts(const QpHandle& qp, std::uint32_t qkey = 5) {
    // Masks of ib_qp_attr_mask: state, P_Key index, port and Q_Key; state; state and first sequence
    // number of sends.
    ASSERT_EQ(modify_qp(qp.core.handle, 0x71, nic::QpState::init, qkey), 0);
    ASSERT_EQ(modify_qp(qp.core.handle, 0x1, nic::QpState::rtr), 0);
    ASSERT_EQ(modify_qp(qp.core.handle, 0x10001, nic::QpState::rts), 0);
  }

  static abi::CreateCq cq_request(std::uint32_t cqe, std::int32_t channel = -1) {
    return {0, 0xC0FFEE, cqe, 0, channel, 0};
  }
  // Entries of 32 bytes, in one sub-queue.
  static efa::CqCommand cq_words(std::uint8_t flags = 0) { return {0, 32, 1, flags, {}}; }
  static abi::CreateQp qp_request(std::uint32_t pd, std::uint32_t cq) {
    return {.response = 0,
            .user_handle = 0xBEEF,
            .pd = pd,
            .send_cq = cq,
            .recv_cq = cq,
            .srq = 0,
            .max_send_wr = 8,
            .max_recv_wr = 8,
            .max_send_sge = 2,
            .max_recv_sge = 1,
            .max_inline_data = 32,
            .sq_sig_all = 1,
            .qp_type = abi::kQpDriver,
            .is_srq = 0,
            .reserved = 0};
  }
  // Rings for eight receives of 16 bytes and eight sends of 64.
  static efa::QpCommand qp_words() { return {0, 8 * 16, 8 * 64, 0, 0, 0, {}}; }

  // Unmapped at the end of the test.
  std::byte* map(std::uint64_t key, std::size_t size, int protection) {
    void* const data = mmap(nullptr, size, protection, MAP_SHARED, fd_, static_cast<off_t>(key));
    EXPECT_NE(data, MAP_FAILED);
    mapped_.emplace_back(data, size);
    return static_cast<std::byte*>(data);
  }
  // Lets the device see it at once.
  void ring(std::byte* doorbell, std::uint32_t value) {
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(doorbell)).store(value);
    runner.poll();
  }

  LoopRunner runner;
  UverbsFile file;
  int async_fd = -1;

 private:
  template <class T>
  static void append(std::vector<std::byte>& to, const T& part) {
    const auto bytes = std::as_bytes(std::span(&part, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  static void append(std::vector<std::byte>& to, const std::vector<std::byte>& part) {
    to.insert(to.end(), part.begin(), part.end());
  }
  int fd_ = -1;
  std::vector<std::pair<void*, std::size_t>> mapped_;
};

}  // namespace weft::kernel
