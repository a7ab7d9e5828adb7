// Owns the tests of the netlink interface: what is told, and that nothing a program sends does
// harm. Commands and attributes are Linux's numbers (rdma_netlink.h). Commands: 1 a device, 5 a
// port, 9 resources, 15 a character device, 17 counters. Attributes: 1 the device's index, 3 the
// port's, 69 the kind of character device.
#include "emu/kernel/netlink/nldev.hpp"

#include <gtest/gtest.h>
#include <linux/netlink.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "srd/base/rng.hpp"

namespace weft::kernel::nldev {
namespace {

constexpr std::uint32_t kPort = 4711;

std::vector<DeviceFacts> two_devices() {
  return {{.name = "efa_0",
           .index = 0,
           .guid = 0x0011223344556677,
           .up = true,
           .character_device = "uverbs0",
           // As Linux numbers the first device for verbs.
           .device_number = 231 << 8 | 192,
           .port_counters = {{"tx_bytes", 5}, {"rx_bytes", 1ULL << 40}},
           .resources = {{"pd", 1}, {"qp", 2}}},
          {.name = "efa_1",
           .index = 1,
           .guid = 1,
           .up = false,
           .character_device = "uverbs1",
           .device_number = 231 << 8 | 193,
           .port_counters = {},
           .resources = {}}};
}

std::vector<std::byte> request(std::uint16_t command, std::uint16_t flags,
                               const std::map<std::uint16_t, std::uint32_t>& numbers = {},
                               const std::string& text = {}) {
  std::vector<std::byte> bytes(sizeof(nlmsghdr));
  const auto put = [&bytes](const void* from, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + size);
    bytes.resize((bytes.size() + 3) / 4 * 4);
  };
  for (const auto& [type, number] : numbers) {
    const nlattr header{8, type};
    put(&header, sizeof header);
    put(&number, sizeof number);
  }
  if (!text.empty()) {
    const nlattr header{static_cast<std::uint16_t>(4 + text.size() + 1), 69};
    put(&header, sizeof header);
    put(text.c_str(), text.size() + 1);
  }
  // 5 << 10: the family of netlink for RDMA devices (RDMA_NL_NLDEV).
  const nlmsghdr header{static_cast<std::uint32_t>(bytes.size()),
                        static_cast<std::uint16_t>(5 << 10 | command),
                        static_cast<std::uint16_t>(flags | NLM_F_REQUEST), 99, 0};
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

nlmsghdr header_of(const std::vector<std::byte>& datagram) {
  nlmsghdr header{};
  EXPECT_GE(datagram.size(), sizeof header);
  std::memcpy(&header, datagram.data(), sizeof header);
  EXPECT_EQ(header.nlmsg_len, datagram.size());
  EXPECT_EQ(header.nlmsg_seq, 99U);
  EXPECT_EQ(header.nlmsg_pid, kPort);
  return header;
}

// The error of an acknowledgement, positive; -1: it is none.
int error_of(const Datagrams& answers) {
  if (answers.size() != 1 || header_of(answers[0]).nlmsg_type != NLMSG_ERROR) {
    return -1;
  }
  nlmsgerr body{};
  std::memcpy(&body, answers[0].data() + sizeof(nlmsghdr), sizeof body);
  return -body.error;
}

bool says(const std::vector<std::byte>& datagram, const std::string& text) {
  const auto* const begin = reinterpret_cast<const char*>(datagram.data());
  return std::string(begin, datagram.size()).find(text) != std::string::npos;
}

Datagrams ask(const std::vector<std::byte>& bytes) {
  const auto devices = two_devices();
  return answer(bytes, kPort, devices);
}

TEST(Nldev, ListsDevices) {
  const Datagrams answers = ask(request(1, NLM_F_DUMP));
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_TRUE(says(answers[0], "efa_0") && says(answers[1], "efa_1"));
  EXPECT_EQ(header_of(answers[0]).nlmsg_flags, NLM_F_MULTI);
  EXPECT_EQ(header_of(answers[2]).nlmsg_type, NLMSG_DONE);
}

// The kernel's numbers of the attributes: 50 is the index of a network interface, 51 its name.
TEST(Nldev, APortSaysWhichInterfaceItIsOn) {
  auto devices = two_devices();
  devices[1].interface = "weft7";
  devices[1].interface_index = 77;
  const std::vector<std::byte> index = {std::byte{8}, {}, std::byte{50}, {}, std::byte{77}, {},
                                        {},           {}};
  for (std::uint32_t device = 0; device < 2; ++device) {
    const Datagrams answers = answer(request(5, 0, {{1, device}, {3, 1}}), kPort, devices);
    ASSERT_EQ(answers.size(), 1U);
    const bool on_one = device == 1;
    EXPECT_EQ(says(answers[0], std::string("\x0a\0\x33\0weft7\0", 10)), on_one);
    EXPECT_EQ(std::ranges::search(answers[0], index).empty(), !on_one);
  }
}

TEST(Nldev, TellsOfConnectionManagement) {
  const CharacterDevice others[] = {{"rdma_cm", "rdma_cm_7", 4, 10U << 8 | 122}};
  const Datagrams answers = answer(request(15, 0, {}, "rdma_cm"), kPort, {}, others);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(says(answers[0], "rdma_cm_7"));
  EXPECT_EQ(error_of(answer(request(15, 0, {}, "umad"), kPort, {}, others)), EOPNOTSUPP);
}

TEST(Nldev, TellsOfOne) {
  for (const std::uint16_t command : {std::uint16_t{1}, std::uint16_t{9}}) {
    const Datagrams answers = ask(request(command, 0, {{1, 1}}));
    ASSERT_EQ(answers.size(), 1U) << command;
    EXPECT_TRUE(says(answers[0], "efa_1") && !says(answers[0], "efa_0"));
  }
  const Datagrams counters = ask(request(17, 0, {{1, 0}, {3, 1}}));
  ASSERT_EQ(counters.size(), 1U);
  EXPECT_TRUE(says(counters[0], "tx_bytes") && says(counters[0], "rx_bytes"));
  const Datagrams ports = ask(request(5, NLM_F_DUMP, {{1, 0}}));
  ASSERT_EQ(ports.size(), 2U);
  const Datagrams character = ask(request(15, 0, {{1, 0}}, "uverbs"));
  ASSERT_EQ(character.size(), 1U);
  EXPECT_TRUE(says(character[0], "uverbs0"));
}

TEST(Nldev, RefusesWhatItCannotTell) {
  EXPECT_EQ(error_of(ask(request(1, 0))), EINVAL);                    // of no device
  EXPECT_EQ(error_of(ask(request(1, 0, {{1, 7}}))), EINVAL);          // of one that is not there
  EXPECT_EQ(error_of(ask(request(5, 0, {{1, 0}, {3, 2}}))), EINVAL);  // nor is this port
  EXPECT_EQ(error_of(ask(request(17, NLM_F_DUMP, {{1, 0}}))), EINVAL);
  EXPECT_EQ(error_of(ask(request(15, 0, {{1, 0}}, "rdma_cm"))), EOPNOTSUPP) << "it is not there";
  EXPECT_EQ(error_of(ask(request(15, 0, {{1, 0}}))), EINVAL);
  EXPECT_EQ(error_of(ask(request(2, 0, {{1, 0}}))), EOPNOTSUPP);  // set
  EXPECT_EQ(error_of(ask(request(999, 0))), EOPNOTSUPP);
  std::vector<std::byte> other = request(1, NLM_F_DUMP);
  other[5] = std::byte{2 << 2};  // another family
  EXPECT_EQ(error_of(ask(other)), EINVAL);
}

TEST(Nldev, AcknowledgesWhatIsAskedTo) {
  EXPECT_EQ(ask(request(1, NLM_F_ACK, {{1, 0}})).size(), 2U);
  std::vector<std::byte> silent = request(1, NLM_F_DUMP);
  silent[6] = std::byte{0};  // no request
  silent[7] = std::byte{0};
  EXPECT_TRUE(ask(silent).empty());
}

// Attributes that are too short, too long, or run out of the message; datagrams of any length.
TEST(Nldev, StandsAnyBytes) {
  for (const int number : {0, 3, 5, 7, 9, 0xFFFF}) {
    const auto length = static_cast<std::uint16_t>(number);
    std::vector<std::byte> bytes = request(1, 0, {{1, 0}});
    std::memcpy(bytes.data() + sizeof(nlmsghdr), &length, sizeof length);
    EXPECT_EQ(error_of(ask(bytes)), EINVAL) << length;
  }
  Rng rng(1);
  const std::vector<std::vector<std::byte>> seeds = {
      request(1, NLM_F_DUMP), request(5, NLM_F_DUMP, {{1, 0}}), request(17, 0, {{1, 0}, {3, 1}}),
      request(15, NLM_F_ACK, {{1, 1}}, "uverbs"), request(9, NLM_F_DUMP)};
  for (int round = 0; round < 200000; ++round) {
    std::vector<std::byte> bytes = seeds[rng.below(static_cast<std::uint32_t>(seeds.size()))];
    for (std::uint32_t changes = rng.below(6); changes > 0; --changes) {
      bytes[rng.below(static_cast<std::uint32_t>(bytes.size()))] =
          static_cast<std::byte>(rng.below(256));
    }
    // Every fourth is cut somewhere, too.
    bytes.resize(rng.below(4) == 0 ? rng.below(static_cast<std::uint32_t>(bytes.size()) + 1)
                                   : bytes.size());
    for (const auto& datagram : ask(bytes)) {
      nlmsghdr header{};
      std::memcpy(&header, datagram.data(), sizeof header);
      ASSERT_EQ(header.nlmsg_len, datagram.size());
    }
  }
}

}  // namespace
}  // namespace weft::kernel::nldev
