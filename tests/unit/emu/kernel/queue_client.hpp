// Owns a program with a queue pair on one emulated EFA device, which writes its queues itself.
#pragma once

#include "tests/unit/emu/kernel/raw_client.hpp"

namespace weft::kernel {

using efa::Cqe;

// Does by hand what libefa does in user space: it writes descriptors into the mapped rings, and a
// doorbell tells the device how many there are. SetUp() makes a queue pair with room for eight
// sends and eight receives, hence every `% 8`, and leaves it in the state reset.
class QueueClient : public RawClient {
 protected:
  void SetUp() override {
    open_context();
    pd = alloc_pd();
    std::array<std::uint32_t, 3> keys{};
    // 7: local write, remote write and remote read.
    ASSERT_EQ(reg_mr(pd, memory.data(), memory.size(), 7, keys), 0);
    lkey = keys[1];
    ASSERT_EQ(create_ah(pd, gid_of(*srd::parse_address(kTestAddress)), ah), 0);
    make_cq(-1, 4);
    make_qp(qp_words(), qp_request(pd, cq.handle));
  }
  // Replaces the completion queue that the helpers below look at; -1 is no channel.
  void make_cq(std::int32_t channel, std::uint32_t entries, std::uint8_t flags = 0) {
    ASSERT_EQ(create_cq(cq_request(entries, channel), cq_words(flags), cq), 0);
    cq_ring = map(cq.reply.ring_key, cq.reply.ring_size, PROT_READ);
    cq_doorbell = map(cq.reply.doorbell_key, 4096, PROT_WRITE);
    next_cqe = 0;
  }
  void make_qp(const efa::QpCommand& own, const abi::CreateQp& core) {
    ASSERT_EQ(create_qp(core, own, qp), 0);
    // The device concludes the size of a descriptor from these two as well.
    wqe_size = own.sq_ring_size / core.max_send_wr;
    sq = map(qp.own.sq_key, own.sq_ring_size, PROT_WRITE);
    rq = map(qp.own.rq_key, qp.own.rq_size, PROT_WRITE);
    sq_doorbell = map(qp.own.sq_doorbell_key, 4096, PROT_WRITE);
    rq_doorbell = map(qp.own.rq_doorbell_key, 4096, PROT_WRITE);
    sent = received = 0;
  }

  // Not yet known to the device: the test rings the doorbell with the number of all descriptors so
  // far.
  void put_receive(std::uint16_t id, std::uint32_t offset, std::uint16_t length,
                   std::uint32_t flags = efa::kFirstDescriptor | efa::kLastDescriptor) {
    const auto address = reinterpret_cast<std::uint64_t>(memory.data()) + offset;
    const efa::ReceiveDescriptor descriptor{static_cast<std::uint32_t>(address),
                                            static_cast<std::uint32_t>(address >> 32), id, length,
                                            lkey | flags};
    std::memcpy(rq + received++ % 8 * sizeof descriptor, &descriptor, sizeof descriptor);
  }
  // To the queue pair itself, through the address handle of SetUp().
  efa::WqeHead head(std::uint16_t id, std::uint8_t operation, std::uint8_t flags) const {
    efa::WqeHead wqe{};
    wqe.req_id = id;
    // 0x80: a descriptor that begins a request. 0x1C: its first and its last one, and a completion
    // is asked for.
    wqe.ctrl1 = static_cast<std::uint8_t>(operation | flags | 0x80);
    wqe.ctrl2 = 0x1C;
    wqe.destination_qpn = static_cast<std::uint16_t>(qp.core.qpn);
    wqe.ah = ah;
    // That of to_rts().
    wqe.qkey = 5;
    return wqe;
  }
  void put_inline(std::uint16_t id, const std::string& text) {
    efa::WqeHead wqe = head(id, efa::kOpSend, efa::kInline);
    wqe.length = static_cast<std::uint16_t>(text.size());
    put_wqe(wqe, text.data(), text.size());
  }
  void put_wqe(const efa::WqeHead& wqe, const void* rest, std::size_t size) {
    std::byte* const to = sq + sent++ % 8 * wqe_size;
    std::memcpy(to, &wqe, sizeof wqe);
    std::memcpy(to + sizeof wqe, rest, size);
  }
  // The next entry, if its phase says that it is there: the device writes 1 in its first round
  // through the ring and the other value in each following one.
  bool take(Cqe& entry) {
    std::memcpy(&entry, cq_ring + next_cqe % cq.entries * sizeof entry, sizeof entry);
    const bool there = (entry.flags & 1) == (next_cqe / cq.entries % 2 == 0 ? 1 : 0);
    next_cqe += there ? 1 : 0;
    return there;
  }
  Cqe take_one() {
    Cqe entry{};
    EXPECT_TRUE(take(entry));
    return entry;
  }
  static bool is_send(const Cqe& entry) { return (entry.flags & 6) == efa::kCqeSendQueue; }

  std::vector<std::byte> memory = std::vector<std::byte>(64 * 1024);
  std::uint32_t pd = 0;
  std::uint32_t lkey = 0;
  std::uint16_t ah = 0;
  CqHandle cq;
  QpHandle qp;
  std::uint32_t wqe_size = 0;
  std::byte* cq_ring = nullptr;
  std::byte* cq_doorbell = nullptr;
  std::byte* sq = nullptr;
  std::byte* rq = nullptr;
  std::byte* sq_doorbell = nullptr;
  std::byte* rq_doorbell = nullptr;
  std::uint32_t next_cqe = 0;
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
};

}  // namespace weft::kernel
