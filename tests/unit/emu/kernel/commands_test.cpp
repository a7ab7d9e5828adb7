// Tests of commands: what is refused, and with which errno. Libraries decide by the errno which way
// they take next, so it has to be the kernel's.
#include <climits>

#include "tests/unit/emu/kernel/raw_client.hpp"

namespace weft::kernel {
namespace {

// An open context with a domain and a completion queue: what most commands refer to.
class Commands : public RawClient {
 protected:
  void SetUp() override {
    open_context();
    pd = alloc_pd();
    ASSERT_EQ(create_cq(cq_request(16), cq_words(), cq), 0);
  }
  std::vector<std::byte> memory = std::vector<std::byte>(8192);
  std::uint32_t pd = 0;
  CqHandle cq;
};

// Command 3 allocates a domain: 16 bytes with the header, and a reply of 12. The numbers below are
// the words in, the words out, and the bytes behind the header.
TEST_F(Commands, FramingIsChecked) {
  EXPECT_EQ(write({}), EINVAL);
  EXPECT_EQ(write(std::vector<std::byte>(7)), EINVAL);
  EXPECT_EQ(write(std::vector<std::byte>(5000)), EINVAL);
  const auto framed = [this](std::uint32_t number, std::uint16_t in, std::uint16_t out,
                             std::size_t body) {
    return write(join(abi::CommandHeader{number, in, out}, std::vector<std::byte>(body)));
  };
  EXPECT_EQ(framed(3, 4, 3, 12), EINVAL);          // more words than announced
  EXPECT_EQ(framed(3, 5, 3, 8), EINVAL);           // fewer
  EXPECT_EQ(framed(3, 2, 3, 0), ENOSPC);           // shorter than the command
  EXPECT_EQ(framed(3, 4, 0, 8), ENOSPC);           // no room for the reply
  EXPECT_EQ(framed(3, 4, 3, 8), EFAULT);           // reply to nowhere
  EXPECT_EQ(framed(0x40000003, 4, 3, 8), EINVAL);  // reserved bits
  // Commands that the kernel has and this device lacks, and two that nobody has.
  for (const std::uint32_t number :
       {6U,  7U,  10U, 11U, 12U, 14U, 15U, 16U, 19U, 21U, 22U, 23U, 28U,
        29U, 30U, 31U, 32U, 33U, 34U, 35U, 36U, 39U, 40U, 99U, 255U}) {
    EXPECT_EQ(framed(number, 4, 3, 8), EOPNOTSUPP) << number;
  }
  EXPECT_EQ(framed(abi::kExtended | 24, 0, 0, 16), EOPNOTSUPP);
  EXPECT_EQ(framed(abi::kExtended | 1, 1, 38, 8), EINVAL);   // no second header
  EXPECT_EQ(framed(abi::kExtended | 1, 1, 38, 24), EINVAL);  // room for a reply, and no place
  EXPECT_EQ(framed(abi::kExtended | 1, 0, 38, 16), ENOSPC);  // no body
}

// write() of Linux would fail in the same way; here the bytes are read by this process itself,
// which would otherwise crash.
TEST_F(Commands, BogusPointersAreFaults) {
  EXPECT_EQ(file.write(3, nullptr, 16), -EFAULT);
  EXPECT_EQ(file.write(3, reinterpret_cast<void*>(8), 16), -EFAULT);
  EXPECT_EQ(file.ioctl(abi::kIoctl, 8), -EFAULT);
  EXPECT_EQ(file.ioctl(abi::kIoctl + 1, 0), -ENOTTY);
}

// And a file has one context: the second command in this test is refused because there is one
// already.
TEST_F(Commands, NothingWorksBeforeTheContext) {
  UverbsFile fresh(runner.device, runner, nullptr);
  ASSERT_GE(fresh.open(), 0);
  std::array<std::uint32_t, 3> reply{};
  const auto bytes =
      join(abi::CommandHeader{3, 4, 3}, reinterpret_cast<std::uint64_t>(reply.data()));
  EXPECT_EQ(fresh.write(3, bytes.data(), bytes.size()), -EINVAL);
  std::array<std::byte, 32> context{};
  EXPECT_EQ(command(abi::Command::get_context, std::vector<std::byte>(16), context), EINVAL);
}

// By vendor and part the stock library recognises an EFA device; what such a device has none of
// must be zero.
TEST_F(Commands, DeviceSaysWhatItIs) {
  abi::QueryDevice device{};
  ASSERT_EQ(command_for(abi::Command::query_device, device), 0);
  EXPECT_EQ(device.vendor_id, 0x1D0FU);
  EXPECT_EQ(device.vendor_part_id, 0xEFA1U);
  EXPECT_EQ(device.max_sge_rd, 1U);
  EXPECT_EQ(device.phys_port_cnt, 1);
  EXPECT_EQ(device.max_srq + device.max_mw + device.max_qp_rd_atom + device.atomic_cap, 0U);
  abi::QueryPort port{};
  ASSERT_EQ(command_for(abi::Command::query_port, port, std::uint64_t{1}), 0);
  EXPECT_EQ(port.max_msg_sz, 8928U);
  EXPECT_EQ(port.state, 4);
  EXPECT_EQ(command_for(abi::Command::query_port, port, std::uint64_t{0}), EINVAL);
  EXPECT_EQ(command_for(abi::Command::query_port, port, std::uint64_t{2}), EINVAL);
}

TEST_F(Commands, MemoryRegionsAreChecked) {
  std::array<std::uint32_t, 3> keys{};
  const auto reg = [&](void* data, std::uint64_t length, std::uint32_t access) {
    return reg_mr(pd, data, length, access, keys);
  };
  EXPECT_EQ(reg(memory.data(), memory.size(), 7), 0);
  EXPECT_LE(keys[1], 0xFFFFFFU);
  EXPECT_EQ(reg(memory.data(), memory.size(), 0), 0);
  EXPECT_EQ(reg(memory.data(), memory.size(), 1U << 20 | 1), 0);    // optional: ignored
  EXPECT_EQ(reg(memory.data(), memory.size(), 8 | 1), EOPNOTSUPP);  // atomics
  EXPECT_EQ(reg(memory.data(), memory.size(), 16), EOPNOTSUPP);     // memory windows
  EXPECT_EQ(reg(memory.data(), memory.size(), 64), EOPNOTSUPP);     // paging on demand
  EXPECT_EQ(reg(memory.data(), memory.size(), 2), EINVAL);  // remote write needs local write
  EXPECT_EQ(reg(memory.data(), 0, 1), EINVAL);
  EXPECT_EQ(reg(memory.data(), ~0ULL, 1), EINVAL);
  EXPECT_EQ(reg(nullptr, 4096, 1), EFAULT);
  // Three pages of which the middle one is gone; then the first one may only be read.
  void* const hole =
      mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(static_cast<std::byte*>(hole) + 4096, 4096);
  EXPECT_EQ(reg(hole, 3 * 4096, 1), EFAULT);
  mprotect(hole, 4096, PROT_READ);
  EXPECT_EQ(reg(hole, 4096, 0), 0);
  EXPECT_EQ(reg(hole, 4096, 1), EFAULT);
  munmap(hole, 3 * 4096);
  EXPECT_EQ(reg_mr(pd + 100, memory.data(), 64, 1, keys), ENOENT);
  EXPECT_EQ(reg_mr(cq.handle, memory.data(), 64, 1, keys), EINVAL);  // a handle of something else
}

// Devices number address handles per domain and address: a program that asks twice gets one number,
// and libraries rely on it.
TEST_F(Commands, AddressHandlesAreOnePerDomainAndAddress) {
  std::uint16_t first = 0;
  std::uint16_t second = 0;
  std::uint16_t third = 0;
  const srd::Address gid = gid_of(*srd::parse_address("10.9.8.7"));
  EXPECT_EQ(create_ah(pd, gid, first), 0);
  EXPECT_EQ(create_ah(pd, gid, second), 0);
  EXPECT_EQ(first, second);
  EXPECT_EQ(create_ah(alloc_pd(), gid, third), 0);
  EXPECT_NE(first, third);
  // No such domain.
  EXPECT_EQ(create_ah(77, gid, first), EINVAL);
  abi::AhAttributes attributes{};
  struct {
    std::uint32_t handle;
    efa::NumberReply own;
  } reply{};
  const auto create = [&] {
    return command_for(abi::Command::create_ah, reply, std::uint64_t{0}, pd, std::uint32_t{0},
                       attributes);
  };
  attributes.port_num = 1;
  EXPECT_EQ(create(), EINVAL);  // by local identifier
  attributes.is_global = 1;
  attributes.port_num = 2;
  EXPECT_EQ(create(), EINVAL);
  attributes.port_num = 1;
  attributes.sgid_index = 1;
  EXPECT_EQ(create(), EINVAL);
}

// One request that is good, changed in one place at a time.
TEST_F(Commands, CompletionQueuesAreChecked) {
  CqHandle made;
  const auto with = [&](auto&& change) {
    abi::CreateCq core = cq_request(16);
    efa::CqCommand own = cq_words();
    change(core, own);
    return create_cq(core, own, made);
  };
  EXPECT_EQ(with([](auto& core, auto&) { core.cqe = 5; }), 0);
  EXPECT_EQ(made.entries, 8U);  // the library indexes with entries - 1
  EXPECT_EQ(made.reply.doorbell_offset, 0U);
  EXPECT_EQ(with([](auto& core, auto&) { core.cqe = 0; }), EINVAL);
  EXPECT_EQ(with([](auto& core, auto&) { core.cqe = 32769; }), EINVAL);
  EXPECT_EQ(with([](auto& core, auto&) { core.comp_vector = 2; }), EINVAL);
  EXPECT_EQ(with([](auto& core, auto&) { core.comp_channel = 12345; }), EBADF);
  EXPECT_EQ(with([](auto&, auto& own) { own.entry_size = 16; }), 0);
  EXPECT_EQ(with([](auto&, auto& own) { own.entry_size = 64; }), EINVAL);
  EXPECT_EQ(with([](auto&, auto& own) { own.entry_size = 0; }), EINVAL);
  EXPECT_EQ(with([](auto&, auto& own) { own.sub_cqs = 2; }), EINVAL);
  EXPECT_EQ(with([](auto&, auto& own) { own.sub_cqs = 0; }), EINVAL);
  EXPECT_EQ(with([](auto&, auto& own) { own.comp_mask = 1; }), EINVAL);
  EXPECT_EQ(with([](auto&, auto& own) { own.flags = 8; }), EOPNOTSUPP);
  EXPECT_EQ(with([](auto&, auto& own) {
              own.flags = efa::kCqWithSgidFlag;
              own.entry_size = 16;
            }),
            EINVAL);
}

struct QpCase {
  const char* name;
  int error;
  void (*change)(abi::CreateQp& core, efa::QpCommand& own);
};

// Each row changes one thing of a request that is good.
class CreateQpCases : public Commands, public ::testing::WithParamInterface<QpCase> {};

TEST_P(CreateQpCases, IsAnsweredAsADeviceDoes) {
  abi::CreateQp core = qp_request(pd, cq.handle);
  efa::QpCommand own = qp_words();
  GetParam().change(core, own);
  QpHandle made;
  EXPECT_EQ(create_qp(core, own, made), GetParam().error);
}

using Core = abi::CreateQp;
using Own = efa::QpCommand;
INSTANTIATE_TEST_SUITE_P(
    All, CreateQpCases,
    ::testing::Values(
        QpCase{"Good", 0, [](Core&, Own&) {}},
        QpCase{"Datagram", 0, [](Core& c, Own&) { c.qp_type = abi::kQpUd; }},
        QpCase{"ReliableConnection", EOPNOTSUPP, [](Core& c, Own&) { c.qp_type = 2; }},
        QpCase{"UnreliableConnection", EOPNOTSUPP, [](Core& c, Own&) { c.qp_type = 3; }},
        QpCase{"RawPacket", EOPNOTSUPP, [](Core& c, Own&) { c.qp_type = 8; }},
        QpCase{"OtherDriverType", EOPNOTSUPP, [](Core&, Own& o) { o.driver_type = 1; }},
        QpCase{"NoType", EINVAL, [](Core& c, Own&) { c.qp_type = 77; }},
        QpCase{"SharedReceives", EINVAL, [](Core& c, Own&) { c.is_srq = 1; }},
        QpCase{"NoDomain", EINVAL, [](Core& c, Own&) { c.pd = 99; }},
        QpCase{"DomainIsACq", EINVAL, [](Core& c, Own&) { c.pd = c.send_cq; }},
        QpCase{"NoSendCq", EINVAL, [](Core& c, Own&) { c.send_cq = 99; }},
        QpCase{"NoReceiveCq", EINVAL, [](Core& c, Own&) { c.recv_cq = ~0U; }},
        QpCase{"TooManySends", EINVAL,
               [](Core& c, Own& o) {
                 c.max_send_wr = 4096;
                 o.sq_ring_size = 4096 * 64;
               }},
        QpCase{"TooManyReceives", EINVAL,
               [](Core& c, Own& o) {
                 c.max_recv_wr = 8192;
                 o.rq_ring_size = 8192 * 16;
               }},
        QpCase{"TooManySendPieces", EINVAL, [](Core& c, Own&) { c.max_send_sge = 3; }},
        QpCase{"TooManyReceivePieces", EINVAL, [](Core& c, Own&) { c.max_recv_sge = 4; }},
        QpCase{"TooMuchInline", EINVAL, [](Core& c, Own&) { c.max_inline_data = 33; }},
        QpCase{"WideInline", 0,
               [](Core& c, Own& o) {
                 c.max_inline_data = 80;
                 o.sq_ring_size = 8 * 128;
               }},
        QpCase{"TooMuchWideInline", EINVAL,
               [](Core& c, Own& o) {
                 c.max_inline_data = 81;
                 o.sq_ring_size = 8 * 128;
               }},
        QpCase{"OddWorkSize", EINVAL, [](Core&, Own& o) { o.sq_ring_size = 8 * 96; }},
        QpCase{"UnevenRing", EINVAL, [](Core&, Own& o) { o.sq_ring_size = 8 * 64 + 1; }},
        QpCase{"SendRingNoPowerOfTwo", EINVAL,
               [](Core& c, Own& o) {
                 c.max_send_wr = 6;
                 o.sq_ring_size = 6 * 64;
               }},
        QpCase{"ReceiveRingNoPowerOfTwo", EINVAL, [](Core&, Own& o) { o.rq_ring_size = 12 * 16; }},
        QpCase{"ReceiveRingTooShort", EINVAL, [](Core&, Own& o) { o.rq_ring_size = 4 * 16; }},
        QpCase{"ReceiveRingTooLong", EINVAL, [](Core&, Own& o) { o.rq_ring_size = 65536 * 16; }},
        QpCase{"NoReceives", 0,
               [](Core& c, Own& o) {
                 c.max_recv_wr = 0;
                 o.rq_ring_size = 0;
               }},
        QpCase{"NoSends", 0,
               [](Core& c, Own& o) {
                 c.max_send_wr = 0;
                 o.sq_ring_size = 0;
               }},
        QpCase{"UnknownWords", EINVAL, [](Core&, Own& o) { o.comp_mask = 1; }},
        QpCase{"UnknownFlag", EOPNOTSUPP, [](Core&, Own& o) { o.flags = 4; }}),
    [](const auto& test) { return std::string(test.param.name); });

// A domain or a queue that a queue pair uses; and handles of another kind, used twice, or never
// given out.
TEST_F(Commands, ObjectsInUseStay) {
  QpHandle qp;
  ASSERT_EQ(create_qp(qp_request(pd, cq.handle), qp_words(), qp), 0);
  EXPECT_EQ(destroy(abi::Command::dealloc_pd, pd), EBUSY);
  EXPECT_EQ(destroy(abi::Command::destroy_cq, cq.handle), EBUSY);
  EXPECT_EQ(destroy(abi::Command::destroy_qp, cq.handle), EINVAL);
  EXPECT_EQ(destroy(abi::Command::destroy_qp, qp.core.handle), 0);
  EXPECT_EQ(destroy(abi::Command::destroy_qp, qp.core.handle), ENOENT);
  EXPECT_EQ(destroy(abi::Command::destroy_cq, cq.handle), 0);
  EXPECT_EQ(destroy(abi::Command::dealloc_pd, pd), 0);
  EXPECT_EQ(destroy(abi::Command::dealloc_pd, pd), ENOENT);
  EXPECT_EQ(destroy(abi::Command::dereg_mr, 0), ENOENT);
  EXPECT_EQ(destroy(abi::Command::destroy_ah, UINT_MAX), ENOENT);
}

TEST_F(Commands, QueryTellsWhatModifySaid) {
  QpHandle qp;
  ASSERT_EQ(create_qp(qp_request(pd, cq.handle), qp_words(), qp), 0);
  abi::QueryQp attributes{};
  const auto query = [&](std::uint32_t mask) {
    return command_for(abi::Command::query_qp, attributes, qp.core.handle, mask);
  };
  to_rts(qp, 0x77);
  // The mask asks for the state, the port, the Q_Key and the first sequence number.
  ASSERT_EQ(query(0x10061), 0);
  EXPECT_EQ(attributes.qp_state, 3);
  EXPECT_EQ(attributes.qkey, 0x77U);
  EXPECT_EQ(attributes.port_num, 1);
  EXPECT_EQ(attributes.max_send_wr, 8U);
  // An address (bit 7) and a destination queue pair (bit 20) are of connections, which EFA has none
  // of; nor has it a path MTU (bit 8).
  EXPECT_EQ(query(1U << 7), EOPNOTSUPP);
  EXPECT_EQ(query(1U << 20), EOPNOTSUPP);
  EXPECT_EQ(modify_qp(qp.core.handle, 0x1, nic::QpState::init), EINVAL);
  EXPECT_EQ(modify_qp(qp.core.handle, 0x81, nic::QpState::rtr), EINVAL);  // an address of no port
  EXPECT_EQ(modify_qp(qp.core.handle, 0x101, nic::QpState::rtr), EOPNOTSUPP);
  EXPECT_EQ(modify_qp(99, 0x1, nic::QpState::reset), EINVAL);
}

// 200 domains a round: in three rounds more than the device has, if they were not given back.
TEST_F(Commands, ClosingAFileReturnsEverything) {
  for (int round = 0; round < 3; ++round) {
    UverbsFile other(runner.device, runner, nullptr);
    ASSERT_GE(other.open(), 0);
    std::array<std::byte, 32> context{};
    auto bytes = join(abi::CommandHeader{0, 6, 8}, reinterpret_cast<std::uint64_t>(context.data()),
                      std::uint64_t{0});
    ASSERT_EQ(other.write(3, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    for (int i = 0; i < 200; ++i) {
      std::array<std::uint32_t, 3> reply{};
      bytes = join(abi::CommandHeader{3, 4, 3}, reinterpret_cast<std::uint64_t>(reply.data()));
      ASSERT_EQ(other.write(3, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
  }
}

}  // namespace
}  // namespace weft::kernel
