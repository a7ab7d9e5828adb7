// Tests of the datagrams themselves: to whom they go, which answers are whose, and what becomes of
// those that nobody answers.
#include <sys/mman.h>

#include <algorithm>
#include <optional>

#include "tests/unit/emu/kernel/umad/two_hosts.hpp"

namespace weft::kernel::testing {
namespace {

class UmadDatagrams : public ::testing::Test {
 protected:
  UmadDatagrams() {
    EXPECT_EQ(client.enable_pkey(), 0);
    EXPECT_EQ(server.enable_pkey(), 0);
    EXPECT_EQ(client.add(ping_agent(false)), 0);
    EXPECT_EQ(server.add(ping_agent(true)), 0);
  }
  // All that one of them has sent reaches the other one.
  static void pass(Machine& from, Machine& to) {
    for (const ManagementMessage& message : std::exchange(from.sent, {})) {
      to.hear(message);
    }
  }
  [[nodiscard]] Datagram ping(std::uint32_t timeout_ms = 1000, std::uint32_t retries = 0) const {
    return to(there.address(), 0, timeout_ms, retries);
  }
  // As a server does it: the datagram that it got, with the bit that says so.
  [[nodiscard]] static Datagram answer_to(const Datagram& asked) {
    Datagram answer = asked;
    answer.header.timeout_ms = 0;
    answer.mad[3] |= 0x80;
    return answer;
  }

  Machine here{1, 1};
  Machine there{2, 2};
  Program client{here};
  Program server{there};
};

TEST_F(UmadDatagrams, APingIsAnswered) {
  ASSERT_EQ(client.write(ping()), sizeof(Datagram));
  EXPECT_FALSE(client.readable());
  pass(here, there);
  EXPECT_TRUE(server.readable());
  Datagram asked;
  ASSERT_EQ(server.read(asked), sizeof(Datagram));
  EXPECT_FALSE(server.readable());
  EXPECT_EQ(asked.header.id, 0U);
  EXPECT_EQ(asked.header.status, 0U);
  EXPECT_EQ(asked.header.length, sizeof(Datagram));
  EXPECT_EQ(asked.header.qpn_be, boost::endian::native_to_big(1U));
  EXPECT_EQ(asked.header.lid_be, 0U);
  EXPECT_EQ(asked.header.grh_present, 1U);
  EXPECT_EQ(asked.header.gid_index, 2U);
  EXPECT_EQ(std::memcmp(asked.header.gid, here.address().bytes.data(), 16), 0);
  EXPECT_EQ(asked.mad[255], 0xAB);
  EXPECT_EQ(asked.mad[8], 1) << "the upper half of the transaction is the agent's";
  EXPECT_EQ(asked.mad[15], 0x77) << "the lower one is the program's";
  ASSERT_EQ(server.write(answer_to(asked)), sizeof(Datagram));
  pass(there, here);
  Datagram answer;
  ASSERT_EQ(client.read(answer), sizeof(Datagram));
  EXPECT_EQ(answer.header.status, 0U);
  EXPECT_EQ(answer.mad[3], 0x81);
  EXPECT_EQ(answer.mad[15], 0x77);
  EXPECT_EQ(here.port.next_timeout(), kNever);
  here.wait(milliseconds{5000});
  EXPECT_EQ(client.read(answer), -EAGAIN);
}

TEST_F(UmadDatagrams, OfTheShortLayout) {
  Program old(here);
  ASSERT_EQ(old.add(ping_agent(false)), 0);
  const Datagram wide = ping();
  std::array<std::uint8_t, 56 + kMad> datagram{};
  std::memcpy(datagram.data(), &wide.header, 56);
  std::memcpy(&datagram[56], wide.mad.data(), kMad);
  ASSERT_EQ(old.file.write(datagram.data(), datagram.size()), 56 + 256);
  pass(here, there);
  Datagram asked;
  ASSERT_EQ(server.read(asked), sizeof(Datagram));
  ASSERT_EQ(server.write(answer_to(asked)), sizeof(Datagram));
  pass(there, here);
  EXPECT_EQ(old.file.read(datagram.data(), 55), -EINVAL);
  EXPECT_EQ(old.file.read(datagram.data(), datagram.size() - 1), -EINVAL);
  ASSERT_EQ(old.file.read(datagram.data(), datagram.size()), 56 + 256);
  EXPECT_EQ(datagram[16], 56) << "the length's lower byte";
  EXPECT_EQ(datagram[56 + 255], 0xAB);
}

TEST_F(UmadDatagrams, NobodyAnswers) {
  ASSERT_EQ(client.write(ping(100, 2)), sizeof(Datagram));
  EXPECT_EQ(here.sent.size(), 1U);
  here.wait(milliseconds{99});
  EXPECT_EQ(here.sent.size(), 1U);
  here.wait(milliseconds{1});
  EXPECT_EQ(here.sent.size(), 2U);
  here.wait(milliseconds{100});
  EXPECT_EQ(here.sent.size(), 3U);
  EXPECT_FALSE(client.readable());
  here.wait(milliseconds{100});
  EXPECT_EQ(here.sent.size(), 3U);
  EXPECT_TRUE(client.readable());
  Datagram ended;
  EXPECT_EQ(client.read(ended, 64 + 23), -EINVAL);
  ASSERT_EQ(client.read(ended), 64 + 24);
  EXPECT_EQ(ended.header.status, static_cast<std::uint32_t>(ETIMEDOUT));
  EXPECT_EQ(ended.header.timeout_ms, 100U);
  EXPECT_EQ(ended.mad[15], 0x77);
  pass(here, there);  // all three arrive late
  Datagram asked;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(server.read(asked), sizeof(Datagram));
    ASSERT_EQ(server.write(answer_to(asked)), sizeof(Datagram));
  }
  pass(there, here);
  EXPECT_EQ(client.read(ended), -EAGAIN) << "nobody waits for it any more";
}

// Not in the order in which the memory for them happens to lie. The second half takes the places of
// the first one, from back to front.
TEST_F(UmadDatagrams, TimeOutsAtOneTimeAreToldInTheOrderOfSending) {
  constexpr std::uint8_t kPings = 40;
  Datagram one = ping(100);
  for (std::uint8_t round = 0; round < 2; ++round) {
    for (std::uint8_t i = 0; i < kPings; ++i) {
      one.mad[15] = round == 0 ? i : static_cast<std::uint8_t>(kPings - i);
      ASSERT_EQ(client.write(one), sizeof(Datagram));
    }
    here.wait(milliseconds{100});
    for (std::uint8_t i = 0; i < kPings; ++i) {
      Datagram ended;
      ASSERT_EQ(client.read(ended), 64 + 24);
      EXPECT_EQ(ended.mad[15], round == 0 ? i : kPings - i);
    }
  }
}

TEST_F(UmadDatagrams, WithoutATimeOutNoAnswerIsHeard) {
  ASSERT_EQ(client.write(ping(0)), sizeof(Datagram));
  EXPECT_EQ(here.port.next_timeout(), kNever);
  pass(here, there);
  Datagram asked;
  ASSERT_EQ(server.read(asked), sizeof(Datagram));
  ASSERT_EQ(server.write(answer_to(asked)), sizeof(Datagram));
  pass(there, here);
  EXPECT_EQ(client.read(asked), -EAGAIN);
}

TEST_F(UmadDatagrams, OneTransactionAtATime) {
  ASSERT_EQ(client.write(ping()), sizeof(Datagram));
  EXPECT_EQ(client.write(ping()), -EINVAL);
  Datagram other = ping();
  other.mad[15] = 0x78;
  EXPECT_EQ(client.write(other), sizeof(Datagram));
  here.wait(milliseconds{1000});
  EXPECT_EQ(client.write(ping()), sizeof(Datagram));
}

// An agent's own answers only: of its number, transaction and class, to the address that has asked.
TEST_F(UmadDatagrams, AnswersOfOthersAreNotHeard) {
  ASSERT_EQ(client.write(ping()), sizeof(Datagram));
  pass(here, there);
  Datagram asked;
  ASSERT_EQ(server.read(asked), sizeof(Datagram));
  ManagementMessage answer;
  answer.from = there.address();
  answer.to = here.address();
  std::memcpy(answer.bytes.data(), asked.mad.data(), kMad);
  answer.bytes[3] = std::byte{0x81};
  const auto unheard = [&](std::size_t at, unsigned value) {
    ManagementMessage other = answer;
    other.bytes[at] = static_cast<std::byte>(value);
    here.hear(other);
    Datagram none;
    EXPECT_EQ(client.read(none), -EAGAIN) << at;
  };
  unheard(0, 2);      // base version
  unheard(1, 0x33);   // class
  unheard(1, 0x81);   // of queue pair 0
  unheard(3, 1);      // a request, for which nobody has registered here
  unheard(8, 9);      // another process
  unheard(11, 0x55);  // another agent
  unheard(15, 0);     // another transaction
  ManagementMessage other = answer;
  other.to = here.port.addresses()[0];
  here.hear(other);
  Datagram heard;
  EXPECT_EQ(client.read(heard), -EAGAIN);
  here.hear(answer);
  EXPECT_EQ(client.read(heard), sizeof(Datagram));
  here.hear(answer);
  EXPECT_EQ(client.read(heard), -EAGAIN) << "once";
}

// As on Linux, where requests by IPv4 arrive, and answers are not found to be any.
TEST_F(UmadDatagrams, ByIpv4NoAnswerIsHeard) {
  Datagram request = to(there.ipv4(), 0, 1000);
  request.header.gid_index = 1;
  ASSERT_EQ(client.write(request), sizeof(Datagram));
  pass(here, there);
  Datagram asked;
  ASSERT_EQ(server.read(asked), sizeof(Datagram));
  EXPECT_EQ(asked.header.gid_index, 1U);
  ASSERT_EQ(server.write(answer_to(asked)), sizeof(Datagram));
  pass(there, here);
  EXPECT_EQ(client.read(asked), -EAGAIN);
  here.wait(milliseconds{1000});
  ASSERT_EQ(client.read(asked), 64 + 24);
  EXPECT_EQ(asked.header.status, static_cast<std::uint32_t>(ETIMEDOUT));
}

TEST_F(UmadDatagrams, RequestsFindTheirMethod) {
  const auto heard = [&](std::size_t at, std::uint8_t value) {
    Datagram request = ping(0);
    request.mad[at] = value;
    EXPECT_EQ(client.write(request), sizeof(Datagram));
    pass(here, there);
    Datagram got;
    return server.read(got) == sizeof(Datagram);
  };
  EXPECT_TRUE(heard(255, 1));
  EXPECT_FALSE(heard(2, 2)) << "class version";
  EXPECT_FALSE(heard(2, 0x90)) << "no class version";
  EXPECT_FALSE(heard(1, 0x33)) << "class";
  EXPECT_FALSE(heard(1, 90)) << "no class";
  EXPECT_FALSE(heard(3, 2)) << "method";
  EXPECT_FALSE(heard(37, 1)) << "vendor";
  EXPECT_FALSE(heard(0, 0)) << "base version";
}

TEST_F(UmadDatagrams, WhatCannotBeSentIsRefused) {
  const auto refused = [&](int error, auto change, std::size_t size = sizeof(Datagram)) {
    Datagram datagram = ping();
    change(datagram);
    EXPECT_EQ(client.write(datagram, size), -error);
  };
  const auto nothing = [](Datagram& /*datagram*/) {};
  refused(EINVAL, nothing, 0);
  refused(EINVAL, nothing, 64 + 35);
  refused(EINVAL, nothing, 64 + 39);  // a vendor's datagram begins later
  refused(EIO, [](auto& datagram) { datagram.header.id = 1; });
  refused(EINVAL, [](auto& datagram) { datagram.header.id = 32; });
  refused(EINVAL, [](auto& datagram) { datagram.header.grh_present = 0; });
  refused(ENODATA, [](auto& datagram) { datagram.header.gid_index = 3; });
  refused(ENODATA, [](auto& datagram) { datagram.header.gid_index = 255; });
  refused(EINVAL, [](auto& datagram) { datagram.header.gid_index = 1; });
  refused(EINVAL, [](auto& datagram) { datagram.mad[1] = 0x81; });
  here.nobody.push_back(there.address());
  refused(ETIMEDOUT, nothing);
  here.nobody.clear();
  std::array<std::uint8_t, 64 + 257> too_long{};
  const Datagram good = ping();
  std::memcpy(too_long.data(), &good, sizeof good);
  EXPECT_EQ(client.file.write(too_long.data(), too_long.size()), -EINVAL);
  EXPECT_TRUE(here.sent.empty());
  EXPECT_EQ(client.write(ping(), 64 + 40), 64 + 40) << "the rest is zero";
  ASSERT_EQ(here.sent.size(), 1U);
  EXPECT_EQ(here.sent[0].bytes[255], std::byte{0});
}

TEST_F(UmadDatagrams, LongMessagesAreNotCut) {
  auto request = ping_agent(false);
  request.rmpp_version = 1;
  ASSERT_EQ(client.add(request), 1);
  Datagram datagram = to(there.address(), 1);
  EXPECT_EQ(client.write(datagram), sizeof(Datagram));
  datagram.mad[26] = 1;  // active
  EXPECT_EQ(client.write(datagram), -EOPNOTSUPP);
  datagram.mad[26] = 0;
  datagram.mad[1] = 0x04;  // of no class that has them
  EXPECT_EQ(client.write(datagram), -EINVAL);
  datagram = to(there.address(), 0, 1000);
  datagram.mad[26] = 1;  // a segment that the program itself has cut
  EXPECT_EQ(client.write(datagram), sizeof(Datagram));
  EXPECT_EQ(client.write(datagram), sizeof(Datagram)) << "segments have one transaction";
}

TEST_F(UmadDatagrams, BadPointersAreNotFollowed) {
  constexpr std::size_t kPage = 4096;
  auto* const page = static_cast<std::uint8_t*>(
      ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(page, MAP_FAILED);
  ASSERT_EQ(::munmap(page + kPage, kPage), 0);
  const Datagram good = ping();
  const auto end_at = [&](std::size_t bytes) { return page + kPage - bytes; };
  std::memcpy(end_at(64 + 200), &good, 64 + 200);
  EXPECT_EQ(client.file.write(end_at(64 + 200), sizeof good), -EFAULT);
  std::memcpy(end_at(70), &good, 70);
  EXPECT_EQ(client.file.write(end_at(70), sizeof good), -EFAULT);
  EXPECT_EQ(client.file.write(end_at(10), sizeof good), -EFAULT);
  EXPECT_TRUE(here.sent.empty());
  ASSERT_EQ(client.write(ping()), sizeof(Datagram));
  pass(here, there);
  EXPECT_EQ(server.file.read(end_at(100), sizeof good), -EFAULT);
  Datagram asked;
  EXPECT_EQ(server.read(asked), sizeof(Datagram)) << "it is still the first";
  ::munmap(page, kPage);
}

// Neither a program that never reads nor one that never hears is a danger to its own memory.
TEST_F(UmadDatagrams, WhatWaitsIsBounded) {
  Datagram datagram = ping(0);
  for (std::size_t i = 0; i < UmadFile::kMaxUnread + 10; ++i) {
    ASSERT_EQ(client.write(datagram), sizeof(Datagram));
    pass(here, there);
  }
  std::size_t heard = 0;
  for (Datagram got; server.read(got) == sizeof(Datagram); ++heard) {
  }
  EXPECT_EQ(heard, UmadFile::kMaxUnread);
  EXPECT_FALSE(server.readable());
  datagram = ping(1000);
  for (std::size_t i = 0; i < UmadPort::kMaxWaiting; ++i) {
    std::memcpy(&datagram.mad[12], &i, 4);
    ASSERT_EQ(client.write(datagram), sizeof(Datagram));
  }
  datagram.mad[12] = 0xFF;
  datagram.mad[15] = 0xFF;
  EXPECT_EQ(client.write(datagram), -ENOMEM);
  EXPECT_EQ(client.remove(0), 0);
  EXPECT_EQ(here.port.next_timeout(), kNever);
  here.wait(milliseconds{2000});
  EXPECT_EQ(client.read(datagram), -EAGAIN) << "its agent has gone";
}

TEST_F(UmadDatagrams, AnAgentThatDiesHearsNothing) {
  ASSERT_EQ(client.write(ping()), sizeof(Datagram));
  pass(here, there);
  ASSERT_EQ(server.remove(0), 0);
  Datagram asked;
  ASSERT_EQ(server.read(asked), sizeof(Datagram)) << "what had come is there";
  EXPECT_EQ(server.write(answer_to(asked)), -EIO);
  Datagram another = ping(0);
  another.mad[15] = 0x78;
  ASSERT_EQ(client.write(another), sizeof(Datagram));
  pass(here, there);
  EXPECT_EQ(server.read(asked), -EAGAIN);
}

}  // namespace
}  // namespace weft::kernel::testing
