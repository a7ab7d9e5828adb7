// Tests of work that a device refuses: one good work request, spoiled in one place per case, and
// the status that the completion must have.
#include "tests/unit/emu/kernel/queue_client.hpp"

namespace weft::kernel {
namespace {

using efa::ReceiveDescriptor;
using efa::Status;
using efa::WireSge;
using efa::WqeHead;

// Of the memory, which is 64 KiB: what is local lies in the first half, what is remote in the
// second.
constexpr std::uint32_t kHalf = 32 * 1024;

// What a case may change. Keys and addresses are of regions that the fixture made.
struct Work {
  WqeHead head;
  WireSge remote;
  WireSge local;
  WireSge local2;
  std::uint32_t foreign_lkey;  // of another domain
  std::uint32_t gone_key;      // of a region that was deregistered
  std::uint32_t readonly_key;  // local reads only, no remote right
  std::uint32_t no_read_key;   // remote writes only
  std::uint32_t no_write_key;  // remote reads only
  std::uint16_t foreign_ah;
  std::uint16_t gone_ah;
  std::uint16_t fresh_qpn;   // of a queue pair in INIT
  std::uint16_t failed_qpn;  // of one in the error state

  void move(WireSge& sge, std::uint64_t by) {
    const std::uint64_t address = sge.address() + by;
    sge.address_low = static_cast<std::uint32_t>(address);
    sge.address_high = static_cast<std::uint32_t>(address >> 32);
  }
  void at(WireSge& sge, std::uint64_t address) {
    sge.address_low = static_cast<std::uint32_t>(address);
    sge.address_high = static_cast<std::uint32_t>(address >> 32);
  }
};

// A queue pair that talks to itself. post() puts the request into its ring, rings, and returns the
// status of the completion; keys of each wrong kind lie ready.
class RefusedWork : public QueueClient {
 protected:
  void SetUp() override {
    QueueClient::SetUp();
    to_rts(qp);
    const std::uint32_t other_pd = alloc_pd();
    work.foreign_lkey = region(other_pd, 7);
    work.readonly_key = region(pd, 0);
    work.no_read_key = region(pd, 1 | 2);
    work.no_write_key = region(pd, 1 | 4);
    std::array<std::uint32_t, 3> keys{};
    EXPECT_EQ(reg_mr(pd, memory.data(), memory.size(), 7, keys), 0);
    work.gone_key = keys[1];
    EXPECT_EQ(destroy(abi::Command::dereg_mr, keys[0]), 0);
    const srd::Address gid = gid_of(*srd::parse_address(kTestAddress));
    EXPECT_EQ(create_ah(other_pd, gid, work.foreign_ah), 0);
    // Numbers are given out from below, so this one is free.
    work.gone_ah = 0x0FFF;
    QpHandle other;
    EXPECT_EQ(create_qp(qp_request(pd, cq.handle), qp_words(), other), 0);
    EXPECT_EQ(modify_qp(other.core.handle, 0x71, nic::QpState::init, 5), 0);
    work.fresh_qpn = static_cast<std::uint16_t>(other.core.qpn);
    EXPECT_EQ(create_qp(qp_request(pd, cq.handle), qp_words(), other), 0);
    EXPECT_EQ(modify_qp(other.core.handle, 0x71, nic::QpState::init, 5), 0);
    EXPECT_EQ(modify_qp(other.core.handle, 0x1, nic::QpState::error), 0);
    work.failed_qpn = static_cast<std::uint16_t>(other.core.qpn);
  }
  std::uint32_t region(std::uint32_t domain, std::uint32_t access) {
    std::array<std::uint32_t, 3> keys{};
    EXPECT_EQ(reg_mr(domain, memory.data(), memory.size(), access, keys), 0);
    return keys[1];
  }
  [[nodiscard]] WireSge sge(std::uint32_t offset, std::uint32_t length) const {
    const auto address = reinterpret_cast<std::uint64_t>(memory.data()) + offset;
    return {length, lkey, static_cast<std::uint32_t>(address),
            static_cast<std::uint32_t>(address >> 32)};
  }
  // A request that would succeed: two pieces of 512 bytes to send, or one to read or write.
  void good(std::uint8_t operation) {
    work.head = head(7, operation, 0);
    work.head.length = operation == efa::kOpSend ? 2 : 1;
    work.local = sge(0, 512);
    work.local2 = sge(1024, 512);
    work.remote = sge(kHalf, 512);
  }
  Status post() {
    std::array<WireSge, 2> rest{work.remote, work.local};
    if ((work.head.ctrl1 & efa::kOperationMask) == efa::kOpSend) {
      rest = {work.local, work.local2};
    }
    put_wqe(work.head, rest.data(), sizeof rest);
    ring(sq_doorbell, sent);
    Cqe entry{};
    while (take(entry)) {
      if (is_send(entry)) {
        EXPECT_EQ(entry.req_id, 7U);
        return static_cast<Status>(entry.status);
      }
    }
    ADD_FAILURE() << "no completion";
    return Status::ok;
  }
  Work work{};
};

struct Spoiled {
  std::string name;
  std::uint8_t operation;
  Status expected;
  void (*spoil)(Work& work);
};

// What may be wrong with local memory is the same for all operations.
std::vector<Spoiled> local_cases() {
  struct Row {
    const char* name;
    void (*spoil)(Work& work);
  };
  static constexpr Row kRows[] = {
      {"KeyZero", [](Work& w) { w.local.key = 0; }},
      {"KeyOfNothing", [](Work& w) { w.local.key = 0xFFFFFF; }},
      {"KeyOfAnotherGeneration", [](Work& w) { w.local.key ^= 1; }},
      {"KeyOfAnotherIndex", [](Work& w) { w.local.key ^= 1U << 20; }},
      {"KeyOfAnotherDomain", [](Work& w) { w.local.key = w.foreign_lkey; }},
      {"KeyOfAGoneRegion", [](Work& w) { w.local.key = w.gone_key; }},
      {"JustBelow", [](Work& w) { w.move(w.local, ~0ULL); }},
      {"JustBeyond", [](Work& w) { w.move(w.local, 64 * 1024 - 511); }},
      {"FarBeyond", [](Work& w) { w.move(w.local, 1ULL << 40); }},
      {"AtZero", [](Work& w) { w.at(w.local, 0); }},
      {"AtTheEndOfAll", [](Work& w) { w.at(w.local, ~0ULL); }},
      {"WrapsAround", [](Work& w) { w.at(w.local, ~0ULL - 100); }},
      {"LongerThanTheRegion", [](Work& w) { w.local.length = 64 * 1024 + 1; }},
      {"LongestLength", [](Work& w) { w.local.length = 0xFFFFFFFF; }},
  };
  const std::pair<const char*, std::uint8_t> operations[] = {
      {"Send", efa::kOpSend}, {"Read", efa::kOpRead}, {"Write", efa::kOpWrite}};
  std::vector<Spoiled> cases;
  for (const auto& [name, operation] : operations) {
    for (const Row& row : kRows) {
      cases.push_back(
          {std::string(name) + "Local" + row.name, operation, Status::bad_lkey, row.spoil});
    }
  }
  return cases;
}

// What the other side refuses: it knows the key, the range and the rights. A read also needs a
// right at home.
std::vector<Spoiled> remote_cases() {
  struct Row {
    const char* name;
    void (*spoil)(Work& work);
  };
  static constexpr Row kRows[] = {
      {"KeyZero", [](Work& w) { w.remote.key = 0; }},
      {"KeyOfNothing", [](Work& w) { w.remote.key = 0xFFFFFFFF; }},
      {"KeyOfAnotherGeneration", [](Work& w) { w.remote.key ^= 1; }},
      {"KeyOfAnotherIndex", [](Work& w) { w.remote.key ^= 1U << 20; }},
      {"KeyWithHighBits", [](Work& w) { w.remote.key |= 1U << 31; }},
      {"KeyOfAnotherDomain", [](Work& w) { w.remote.key = w.foreign_lkey; }},
      {"KeyOfAGoneRegion", [](Work& w) { w.remote.key = w.gone_key; }},
      {"NoRemoteRight", [](Work& w) { w.remote.key = w.readonly_key; }},
      {"JustBelow", [](Work& w) { w.move(w.remote, ~std::uint64_t{kHalf}); }},
      {"JustBeyond", [](Work& w) { w.move(w.remote, kHalf - 511); }},
      {"FarBeyond", [](Work& w) { w.move(w.remote, 1ULL << 40); }},
      {"AtZero", [](Work& w) { w.at(w.remote, 0); }},
      {"AtTheEndOfAll", [](Work& w) { w.at(w.remote, ~0ULL); }},
      {"WrapsAround", [](Work& w) { w.at(w.remote, ~0ULL - 100); }},
  };
  const std::pair<const char*, std::uint8_t> operations[] = {{"Read", efa::kOpRead},
                                                             {"Write", efa::kOpWrite}};
  std::vector<Spoiled> cases;
  for (const auto& [name, operation] : operations) {
    for (const Row& row : kRows) {
      cases.push_back({std::string(name) + "Remote" + row.name, operation,
                       Status::remote_bad_address, row.spoil});
    }
  }
  cases.push_back({"ReadWithoutRemoteRead", efa::kOpRead, Status::remote_bad_address,
                   [](Work& w) { w.remote.key = w.no_read_key; }});
  cases.push_back({"WriteWithoutRemoteWrite", efa::kOpWrite, Status::remote_bad_address,
                   [](Work& w) { w.remote.key = w.no_write_key; }});
  cases.push_back({"ReadIntoReadonly", efa::kOpRead, Status::bad_lkey,
                   [](Work& w) { w.local.key = w.readonly_key; }});
  return cases;
}

// What is wrong with the request itself, whatever its memory.
std::vector<Spoiled> request_cases() {
  struct Row {
    const char* name;
    Status expected;
    void (*spoil)(Work& work);
  };
  static constexpr Row kRows[] = {
      {"HandleOfNothing", Status::bad_ah, [](Work& w) { w.head.ah = w.gone_ah; }},
      {"HandleUnknown", Status::bad_ah, [](Work& w) { w.head.ah = 0xFFFF; }},
      {"HandleOfAnotherDomain", Status::bad_ah, [](Work& w) { w.head.ah = w.foreign_ah; }},
      {"NobodyThere", Status::remote_bad_qpn, [](Work& w) { w.head.destination_qpn = 499; }},
      {"PeerInInit", Status::remote_bad_qpn, [](Work& w) { w.head.destination_qpn = w.fresh_qpn; }},
      {"PeerInError", Status::remote_bad_qpn,
       [](Work& w) { w.head.destination_qpn = w.failed_qpn; }},
      {"ThreePieces", Status::bad_length, [](Work& w) { w.head.length = 3; }},
      {"MostPieces", Status::bad_length, [](Work& w) { w.head.length = 0xFFFF; }},
      {"TooMuchInline", Status::bad_length,
       [](Work& w) {
         w.head.ctrl1 |= efa::kInline;
         w.head.length = 33;
       }},
      {"MostInline", Status::bad_length,
       [](Work& w) {
         w.head.ctrl1 |= efa::kInline;
         w.head.length = 0xFFFF;
       }},
      {"Operation3", Status::unsupported_operation, [](Work& w) { w.head.ctrl1 |= 3; }},
      {"Operation15", Status::unsupported_operation, [](Work& w) { w.head.ctrl1 |= 15; }},
  };
  const std::pair<const char*, std::uint8_t> operations[] = {
      {"Send", efa::kOpSend}, {"Read", efa::kOpRead}, {"Write", efa::kOpWrite}};
  std::vector<Spoiled> cases;
  for (const auto& [name, operation] : operations) {
    for (const Row& row : kRows) {
      cases.push_back({std::string(name) + row.name, operation, row.expected, row.spoil});
    }
  }
  for (int operation = 3; operation <= 15; ++operation) {
    cases.push_back({"NoOperation" + std::to_string(operation),
                     static_cast<std::uint8_t>(operation), Status::unsupported_operation,
                     [](Work&) {}});
  }
  cases.push_back({"SendOfAnotherQkey", efa::kOpSend, Status::remote_bad_qpn,
                   [](Work& w) { w.head.qkey = 6; }});
  cases.push_back({"SendLongerThanTheMtu", efa::kOpSend, Status::bad_length,
                   [](Work& w) { w.local.length = 8928 - 511; }});
  cases.push_back({"SendToNoReceive", efa::kOpSend, Status::remote_rnr, [](Work&) {}});
  cases.push_back({"ReadInline", efa::kOpRead, Status::unsupported_operation, [](Work& w) {
                     w.head.ctrl1 |= efa::kInline;
                     w.head.length = 16;
                   }});
  return cases;
}

class SpoiledWork : public RefusedWork, public ::testing::WithParamInterface<Spoiled> {};

TEST_P(SpoiledWork, EndsAsTheDeviceSays) {
  good(GetParam().operation);
  // No patience with receivers that are not ready.
  ASSERT_EQ(modify_qp(qp.core.handle, 0x1, nic::QpState::reset), 0);
  ASSERT_EQ(modify_qp(qp.core.handle, 0x71, nic::QpState::init, 5), 0);
  ASSERT_EQ(modify_qp(qp.core.handle, 0x1, nic::QpState::rtr), 0);
  // 0x800: how often to try again where no receive is posted, which is 0 times.
  ASSERT_EQ(modify_qp(qp.core.handle, 0x10801, nic::QpState::rts), 0);
  GetParam().spoil(work);
  EXPECT_EQ(post(), GetParam().expected);
}

const auto kName = [](const auto& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Local, SpoiledWork, ::testing::ValuesIn(local_cases()), kName);
INSTANTIATE_TEST_SUITE_P(Remote, SpoiledWork, ::testing::ValuesIn(remote_cases()), kName);
INSTANTIATE_TEST_SUITE_P(Request, SpoiledWork, ::testing::ValuesIn(request_cases()), kName);

// --- The table's yardstick: unspoiled, all of it works.

TEST_F(RefusedWork, UnspoiledWorkIsDone) {
  for (const std::uint8_t operation : {efa::kOpRead, efa::kOpWrite}) {
    good(operation);
    EXPECT_EQ(post(), Status::ok);
  }
  good(efa::kOpSend);
  put_receive(1, 4096, 2048);
  ring(rq_doorbell, received);
  EXPECT_EQ(post(), Status::ok);
}

// By one byte.
TEST_F(RefusedWork, AReceiveThatIsTooShortIsTheSendersError) {
  good(efa::kOpSend);
  put_receive(1, 4096, 1023);
  ring(rq_doorbell, received);
  EXPECT_EQ(post(), Status::remote_length);
}

struct BadReceive {
  const char* name;
  void (*spoil)(Work& work);
};
class SpoiledReceive : public RefusedWork, public ::testing::WithParamInterface<BadReceive> {};

TEST_P(SpoiledReceive, CompletesInError) {
  good(efa::kOpSend);
  GetParam().spoil(work);
  const ReceiveDescriptor descriptor{work.local.address_low, work.local.address_high, 3, 512,
                                     work.local.key | efa::kFirstDescriptor | efa::kLastDescriptor};
  std::memcpy(rq, &descriptor, sizeof descriptor);
  ring(rq_doorbell, 1);
  ASSERT_EQ(modify_qp(qp.core.handle, 0x1, nic::QpState::rts),
            0);  // the device looks at its queues
  const Cqe entry = take_one();
  EXPECT_FALSE(is_send(entry));
  EXPECT_EQ(entry.req_id, 3U);
  EXPECT_EQ(static_cast<Status>(entry.status), Status::bad_lkey);
}

INSTANTIATE_TEST_SUITE_P(
    All, SpoiledReceive,
    ::testing::Values(BadReceive{"KeyZero", [](Work& w) { w.local.key = 0; }},
                      BadReceive{"KeyOfNothing", [](Work& w) { w.local.key = 0xFFFFFF; }},
                      BadReceive{"KeyOfAnotherGeneration", [](Work& w) { w.local.key ^= 1; }},
                      BadReceive{"KeyOfAnotherDomain",
                                 [](Work& w) { w.local.key = w.foreign_lkey; }},
                      BadReceive{"KeyOfAGoneRegion", [](Work& w) { w.local.key = w.gone_key; }},
                      BadReceive{"NoLocalWrite", [](Work& w) { w.local.key = w.readonly_key; }},
                      BadReceive{"JustBelow", [](Work& w) { w.move(w.local, ~0ULL); }},
                      BadReceive{"JustBeyond", [](Work& w) { w.move(w.local, 64 * 1024 - 511); }},
                      BadReceive{"AtZero", [](Work& w) { w.at(w.local, 0); }},
                      BadReceive{"WrapsAround", [](Work& w) { w.at(w.local, ~0ULL - 100); }}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::kernel
