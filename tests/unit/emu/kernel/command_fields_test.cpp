// Tests of the commands that EFA devices have, with one field at a time out of its range: the errno
// is that of Linux's core, or of its driver where the core has no opinion.
#include <algorithm>
#include <memory>

#include "tests/unit/emu/kernel/raw_client.hpp"

namespace weft::kernel {
namespace {

using abi::Command;

// One change to a command that is good without it.
struct Field {
  const char* name;
  Command command;
  std::size_t offset;  // in the body
  std::size_t size;
  std::uint64_t value;
  int error;
};

// A handle that was never given out, and one that no table could hold.
constexpr std::uint64_t kNoHandle = 1000;
constexpr std::uint64_t kHuge = 0xFFFFFFFF;
#define OF(type, member) offsetof(type, member), sizeof(type::member)
#define OWN(core, type, member) sizeof(core) + offsetof(type, member), sizeof(type::member)

const Field kFields[] = {
    {"QueryPortZero", Command::query_port, 8, 1, 0, EINVAL},
    {"QueryPortTwo", Command::query_port, 8, 1, 2, EINVAL},
    {"QueryPortLast", Command::query_port, 8, 1, 255, EINVAL},
    {"AllocPdWords", Command::alloc_pd, 8, 4, 1, EINVAL},
    {"DeallocPdHandle", Command::dealloc_pd, 0, 4, kNoHandle, ENOENT},
    {"DeallocPdKind", Command::dealloc_pd, 0, 4, 1, EINVAL},
    {"RegMrStart", Command::reg_mr, OF(abi::RegMr, start), 1, EINVAL},
    {"RegMrStartWraps", Command::reg_mr, OF(abi::RegMr, start), ~std::uint64_t{0} - 4095, EINVAL},
    {"RegMrNoLength", Command::reg_mr, OF(abi::RegMr, length), 0, EINVAL},
    {"RegMrWraps", Command::reg_mr, OF(abi::RegMr, length), ~std::uint64_t{0}, EINVAL},
    {"RegMrBeyond", Command::reg_mr, OF(abi::RegMr, length), std::uint64_t{1} << 46, EFAULT},
    {"RegMrOtherOffset", Command::reg_mr, OF(abi::RegMr, hca_va), 0x1008, EINVAL},
    {"RegMrAddressWraps", Command::reg_mr, OF(abi::RegMr, hca_va), ~std::uint64_t{0xFFF}, EINVAL},
    {"RegMrDomain", Command::reg_mr, OF(abi::RegMr, pd), kNoHandle, ENOENT},
    {"RegMrDomainKind", Command::reg_mr, OF(abi::RegMr, pd), 1, EINVAL},
    {"RegMrRemoteWrite", Command::reg_mr, OF(abi::RegMr, access_flags), 2, EINVAL},
    {"RegMrRemoteAtomic", Command::reg_mr, OF(abi::RegMr, access_flags), 8, EINVAL},
    {"RegMrAtomic", Command::reg_mr, OF(abi::RegMr, access_flags), 9, EOPNOTSUPP},
    {"RegMrWindow", Command::reg_mr, OF(abi::RegMr, access_flags), 17, EOPNOTSUPP},
    {"RegMrOnDemand", Command::reg_mr, OF(abi::RegMr, access_flags), 65, EOPNOTSUPP},
    {"RegMrUnheardOf", Command::reg_mr, OF(abi::RegMr, access_flags), 1 << 10 | 1, EINVAL},
    {"RegMrTopBit", Command::reg_mr, OF(abi::RegMr, access_flags), 0x80000001, EINVAL},
    {"RegMrWords", Command::reg_mr, sizeof(abi::RegMr), 4, 1, EINVAL},
    {"DeregMrHandle", Command::dereg_mr, 0, 4, kHuge, ENOENT},
    {"DeregMrKind", Command::dereg_mr, 0, 4, 0, EINVAL},
    {"CreateAhDomain", Command::create_ah, OF(abi::CreateAh, pd), kNoHandle, EINVAL},
    {"CreateAhPort", Command::create_ah, OF(abi::CreateAh, attributes.port_num), 2, EINVAL},
    {"CreateAhNoPort", Command::create_ah, OF(abi::CreateAh, attributes.port_num), 0, EINVAL},
    {"CreateAhLocal", Command::create_ah, OF(abi::CreateAh, attributes.is_global), 0, EINVAL},
    {"CreateAhGid", Command::create_ah, OF(abi::CreateAh, attributes.sgid_index), 1, EINVAL},
    {"CreateAhWords", Command::create_ah, sizeof(abi::CreateAh), 4, 1, EINVAL},
    {"DestroyAhHandle", Command::destroy_ah, 0, 4, kNoHandle, ENOENT},
    {"DestroyAhKind", Command::destroy_ah, 0, 4, 0, EINVAL},
    {"CreateCqNone", Command::create_cq, OF(abi::CreateCq, cqe), 0, EINVAL},
    {"CreateCqTooMany", Command::create_cq, OF(abi::CreateCq, cqe), kHuge, EINVAL},
    {"CreateCqVector", Command::create_cq, OF(abi::CreateCq, comp_vector), 2, EINVAL},
    {"CreateCqChannel", Command::create_cq, OF(abi::CreateCq, comp_channel), 12345, EBADF},
    {"CreateCqMask", Command::create_cq, OWN(abi::CreateCq, efa::CqCommand, comp_mask), 1, EINVAL},
    {"CreateCqEntry", Command::create_cq, OWN(abi::CreateCq, efa::CqCommand, entry_size), 24,
     EINVAL},
    {"CreateCqSubs", Command::create_cq, OWN(abi::CreateCq, efa::CqCommand, sub_cqs), 2, EINVAL},
    {"CreateCqFlags", Command::create_cq, OWN(abi::CreateCq, efa::CqCommand, flags), 128,
     EOPNOTSUPP},
    {"CreateCqReserved", Command::create_cq, sizeof(abi::CreateCq) + 11, 1, 1, EINVAL},
    {"CreateCqWords", Command::create_cq, sizeof(abi::CreateCq) + sizeof(efa::CqCommand), 4, 1,
     EINVAL},
    {"DestroyCqHandle", Command::destroy_cq, 8, 4, kNoHandle, ENOENT},
    {"DestroyCqKind", Command::destroy_cq, 8, 4, 0, EINVAL},
    {"DestroyCqBusy", Command::destroy_cq, 8, 4, 1, EBUSY},
    {"CreateQpDomain", Command::create_qp, OF(abi::CreateQp, pd), kNoHandle, EINVAL},
    {"CreateQpSendCq", Command::create_qp, OF(abi::CreateQp, send_cq), 0, EINVAL},
    {"CreateQpReceiveCq", Command::create_qp, OF(abi::CreateQp, recv_cq), kHuge, EINVAL},
    {"CreateQpSends", Command::create_qp, OF(abi::CreateQp, max_send_wr), kHuge, EINVAL},
    {"CreateQpReceives", Command::create_qp, OF(abi::CreateQp, max_recv_wr), kHuge, EINVAL},
    {"CreateQpSendPieces", Command::create_qp, OF(abi::CreateQp, max_send_sge), kHuge, EINVAL},
    {"CreateQpReceivePieces", Command::create_qp, OF(abi::CreateQp, max_recv_sge), kHuge, EINVAL},
    {"CreateQpInline", Command::create_qp, OF(abi::CreateQp, max_inline_data), kHuge, EINVAL},
    {"CreateQpNoType", Command::create_qp, OF(abi::CreateQp, qp_type), 1, EINVAL},
    {"CreateQpConnected", Command::create_qp, OF(abi::CreateQp, qp_type), 2, EOPNOTSUPP},
    {"CreateQpXrc", Command::create_qp, OF(abi::CreateQp, qp_type), 10, EOPNOTSUPP},
    {"CreateQpShared", Command::create_qp, OF(abi::CreateQp, is_srq), 1, EINVAL},
    {"CreateQpMask", Command::create_qp, OWN(abi::CreateQp, efa::QpCommand, comp_mask), 1, EINVAL},
    {"CreateQpReceiveRing", Command::create_qp, OWN(abi::CreateQp, efa::QpCommand, rq_ring_size),
     kHuge, EINVAL},
    {"CreateQpSendRing", Command::create_qp, OWN(abi::CreateQp, efa::QpCommand, sq_ring_size),
     kHuge, EINVAL},
    {"CreateQpDriverType", Command::create_qp, OWN(abi::CreateQp, efa::QpCommand, driver_type), 1,
     EOPNOTSUPP},
    {"CreateQpFlags", Command::create_qp, OWN(abi::CreateQp, efa::QpCommand, flags), 0x8000,
     EOPNOTSUPP},
    {"CreateQpReserved", Command::create_qp, sizeof(abi::CreateQp) + 19, 1, 1, EINVAL},
    {"CreateQpWords", Command::create_qp, sizeof(abi::CreateQp) + sizeof(efa::QpCommand), 4, 1,
     EINVAL},
    {"QueryQpHandle", Command::query_qp, 8, 4, kNoHandle, EINVAL},
    {"QueryQpKind", Command::query_qp, 8, 4, 0, EINVAL},
    {"QueryQpMask", Command::query_qp, 12, 4, 1 << 7, EOPNOTSUPP},
    {"QueryQpTopMask", Command::query_qp, 12, 4, 1U << 31, EOPNOTSUPP},
    {"ModifyQpHandle", Command::modify_qp, OF(abi::ModifyQp, handle), kNoHandle, EINVAL},
    {"ModifyQpKind", Command::modify_qp, OF(abi::ModifyQp, handle), 0, EINVAL},
    {"ModifyQpMask", Command::modify_qp, OF(abi::ModifyQp, attr_mask), 1 << 21 | 0x71, EOPNOTSUPP},
    {"ModifyQpTimeout", Command::modify_qp, OF(abi::ModifyQp, attr_mask), 1 << 9 | 0x71,
     EOPNOTSUPP},
    {"ModifyQpState", Command::modify_qp, OF(abi::ModifyQp, qp_state), 7, EINVAL},
    {"ModifyQpIllegal", Command::modify_qp, OF(abi::ModifyQp, qp_state), 3, EINVAL},
    {"ModifyQpPort", Command::modify_qp, OF(abi::ModifyQp, port_num), 2, EINVAL},
    {"ModifyQpNoPort", Command::modify_qp, OF(abi::ModifyQp, port_num), 0, EINVAL},
    {"ModifyQpKey", Command::modify_qp, OF(abi::ModifyQp, pkey_index), 1, EOPNOTSUPP},
    {"ModifyQpAddressPort", Command::modify_qp, OF(abi::ModifyQp, attr_mask), 1 << 7 | 0x71,
     EINVAL},
    {"ModifyQpAlternate", Command::modify_qp, OF(abi::ModifyQp, attr_mask), 1 << 14 | 0x71, EINVAL},
    {"ModifyQpWords", Command::modify_qp, sizeof(abi::ModifyQp), 4, 1, EINVAL},
    {"DestroyQpHandle", Command::destroy_qp, 8, 4, kNoHandle, ENOENT},
    {"DestroyQpKind", Command::destroy_qp, 8, 4, 1, EINVAL},
};
#undef OF
#undef OWN

// A good command of each kind, of which a test spoils one field. The handles are known numbers, so
// that rows of the table can name them.
class CommandFields : public RawClient, public ::testing::WithParamInterface<Field> {
 protected:
  // Handle 0 is a domain, 1 a completion queue, 2 a queue pair on them.
  void SetUp() override {
    open_context();
    ASSERT_EQ(alloc_pd(), 0U);
    CqHandle cq;
    ASSERT_EQ(create_cq(cq_request(16), cq_words(), cq), 0);
    ASSERT_EQ(cq.handle, 1U);
    ASSERT_EQ(create_qp(qp_request(0, 1), qp_words(), qp), 0);
    ASSERT_EQ(qp.core.handle, 2U);
  }
  std::vector<std::byte> good_body(Command command) {
    const auto address = reinterpret_cast<std::uint64_t>(memory.data());
    switch (command) {
      case Command::query_port:
        return join(std::uint64_t{0}, std::uint64_t{1});
      case Command::alloc_pd:
        return join(std::uint64_t{0});
      case Command::reg_mr:
        return join(abi::RegMr{0, address, 4096, address, 0, 1});
      case Command::create_ah: {
        abi::CreateAh request{};
        request.attributes.dgid = gid_of(*srd::parse_address("10.1.2.3")).bytes;
        request.attributes.is_global = 1;
        request.attributes.port_num = 1;
        return join(request);
      }
      case Command::create_cq:
        return join(cq_request(16), cq_words());
      case Command::create_qp:
        return join(qp_request(0, 1), qp_words());
      case Command::query_qp:
        return join(std::uint64_t{0}, std::uint32_t{2}, std::uint32_t{1});
      case Command::modify_qp: {
        abi::ModifyQp request{};
        request.handle = 2;
        request.attr_mask = 0x71;
        request.qp_state = 1;
        request.port_num = 1;
        return join(request);
      }
      case Command::destroy_qp:
        return join(std::uint64_t{0}, std::uint32_t{2}, std::uint32_t{0});
      case Command::destroy_cq:
        return join(std::uint64_t{0}, std::uint32_t{1}, std::uint32_t{0});
      default:
        return join(std::uint32_t{0});
    }
  }
  static bool has_reply(Command command) {
    return command != Command::modify_qp && command != Command::dealloc_pd &&
           command != Command::dereg_mr && command != Command::destroy_ah;
  }
  int run(Command number, const std::vector<std::byte>& body) {
    std::array<std::byte, 512> reply{};
    return command(number, body, reply, has_reply(number));
  }

  alignas(4096) std::array<std::byte, 8192> memory{};
  QpHandle qp;
};

TEST_P(CommandFields, OutOfRangeIsRefusedAsTheKernelDoes) {
  const Field& field = GetParam();
  std::vector<std::byte> body = good_body(field.command);
  body.resize(std::max(body.size(), field.offset + field.size));
  std::memcpy(body.data() + field.offset, &field.value, field.size);
  EXPECT_EQ(run(field.command, body), field.error);
  // Nothing was made or lost.
  EXPECT_EQ(run(Command::query_qp, good_body(Command::query_qp)), 0);
}

INSTANTIATE_TEST_SUITE_P(All, CommandFields, ::testing::ValuesIn(kFields),
                         [](const auto& test) { return std::string(test.param.name); });

// Without a change they are good: the errors above are those of the field.
TEST_F(CommandFields, AreGoodWithoutAChange) {
  for (const Command command : {Command::query_port, Command::alloc_pd, Command::reg_mr,
                                Command::create_ah, Command::create_cq, Command::create_qp,
                                Command::query_qp, Command::modify_qp, Command::destroy_qp}) {
    EXPECT_EQ(run(command, good_body(command)), 0) << static_cast<int>(command);
  }
}

TEST_F(CommandFields, LibrariesThatSayTooLittleDestroyTheirQueues) {
  ASSERT_EQ(run(Command::destroy_qp, good_body(Command::destroy_qp)), 0);
  std::array<std::uint32_t, 2> reply{};
  const auto bytes =
      join(abi::CommandHeader{20, 4, 2}, reinterpret_cast<std::uint64_t>(reply.data()),
           std::uint32_t{1}, std::uint32_t{0});
  EXPECT_EQ(file.write(3, bytes.data(), 16), 16);
  EXPECT_EQ(file.write(3, bytes.data(), bytes.size()), -EINVAL);  // of this size, it says so
}

// The reply of query_device, the only extended command that EFA devices have: at least the common
// part and its length.
TEST_F(CommandFields, AnExtendedReplyNeedsItsRoom) {
  std::vector<std::byte> room(512);
  const auto query = [&](std::uint16_t words, std::uint64_t response, std::uint32_t reserved = 0) {
    return write(join(abi::CommandHeader{abi::kExtended | 1, 1, words},
                      abi::ExtendedHeader{response, 0, 0, reserved}, std::uint64_t{0}));
  };
  const auto address = reinterpret_cast<std::uint64_t>(room.data());
  EXPECT_EQ(query(23, address), 0);
  EXPECT_EQ(query(38, address), 0);
  EXPECT_EQ(query(22, address), ENOSPC);
  EXPECT_EQ(query(0, address), EINVAL);
  EXPECT_EQ(query(38, 0), EINVAL);
  EXPECT_EQ(query(0, 0), 0);  // a question without room for the answer
  EXPECT_EQ(query(38, address, 1), EINVAL);
  EXPECT_EQ(query(38, 0x18), EFAULT);
}

// More objects under one than anybody would have counted on.
TEST_F(CommandFields, AnObjectStandsOnAsManyAsItNeeds) {
  struct Leaf : Object {
    Leaf() : Object(ObjectKind::pd) {}
  };
  std::vector<std::unique_ptr<Leaf>> used;
  {
    Leaf user;
    for (int i = 0; i < 40; ++i) {
      used.push_back(std::make_unique<Leaf>());
      user.use(*used.back());
    }
    EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](const auto& one) { return one->busy(); }));
  }
  EXPECT_TRUE(std::none_of(used.begin(), used.end(), [](const auto& one) { return one->busy(); }));
}

}  // namespace
}  // namespace weft::kernel
