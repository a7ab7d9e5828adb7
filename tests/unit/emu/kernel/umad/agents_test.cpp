// Tests of the agents of a RoCE port: what Linux registers, and with which errno it refuses the
// rest.
#include <algorithm>
#include <memory>

#include "emu/roce/wire/mad_owners.hpp"
#include "tests/unit/emu/kernel/umad/two_hosts.hpp"

namespace weft::kernel::testing {
namespace {

class UmadAgents : public ::testing::Test {
 protected:
  Machine machine{1, 1};
  Program program{machine};
};

TEST_F(UmadAgents, AreNumberedFromZeroOnAndReused) {
  umad::RegisterAgent sender{};
  sender.qpn = 1;
  EXPECT_EQ(program.add(sender), 0);
  EXPECT_EQ(program.add(sender), 1);
  EXPECT_EQ(program.remove(0), 0);
  EXPECT_EQ(program.remove(0), -EINVAL);
  EXPECT_EQ(program.add(sender), 0);
  EXPECT_EQ(program.remove(32), -EINVAL);
  EXPECT_EQ(program.remove(0xFFFFFFFF), -EINVAL);
  EXPECT_EQ(program.file.ioctl(umad::kUnregisterAgent, 8), -EFAULT);
}

TEST_F(UmadAgents, AFileHasThirtyTwo) {
  umad::RegisterAgent sender{};
  sender.qpn = 1;
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(program.add(sender), i);
  }
  EXPECT_EQ(program.add(sender), -ENOMEM);
  Program other(machine);
  EXPECT_EQ(other.add(sender), 0);
}

TEST_F(UmadAgents, OnlyQueuePairOneIsThere) {
  auto request = ping_agent(true);
  request.qpn = 0;
  EXPECT_EQ(program.add(request), -EPROTONOSUPPORT);
  request.management_class = 0x01;  // the subnet's, which asks for it
  EXPECT_EQ(program.add(request), -EPROTONOSUPPORT);
  request.qpn = 2;
  EXPECT_EQ(program.add(request), -EINVAL);
  request.qpn = 1;
  EXPECT_EQ(program.add(request), -EINVAL);
}

TEST_F(UmadAgents, WhatMakesNoSenseIsRefused) {
  const auto refused = [&](auto change) {
    auto request = ping_agent(true);
    change(request);
    EXPECT_EQ(program.add(request), -EINVAL);
  };
  refused([](auto& request) { request.class_version = 0x83; });
  refused([](auto& request) { request.management_class = 80; });
  refused([](auto& request) { request.management_class = 0x81; });
  refused([](auto& request) { request.rmpp_version = 2; });
  refused([](auto& request) { std::fill_n(request.oui, 3, std::uint8_t{0}); });
  refused([](auto& request) {  // no class of long messages
    request.management_class = 0x04;
    request.rmpp_version = 1;
  });
  refused([](auto& request) {  // the kernel's connection manager has it
    request.management_class = 0x07;
    request.class_version = 2;
    request.methods[0] = 1U << 3;
  });
  EXPECT_TRUE(machine.claimed.empty());
  EXPECT_EQ(program.file.ioctl(umad::kRegisterAgent, 8), -EFAULT);
  EXPECT_EQ(program.file.ioctl(0x1B05, 0), -ENOTTY);
}

TEST_F(UmadAgents, AMethodHasOneOwner) {
  EXPECT_EQ(program.add(ping_agent(true)), 0);
  EXPECT_EQ(program.add(ping_agent(true)), -EINVAL);
  Program other(machine);
  EXPECT_EQ(other.add(ping_agent(true)), -EINVAL);
  EXPECT_EQ(other.add(ping_agent(false)), 0) << "it only asks";
  auto another = ping_agent(true);
  another.oui[0] = 7;
  EXPECT_EQ(other.add(another), 1);
  EXPECT_EQ(program.remove(0), 0);
  EXPECT_EQ(other.add(ping_agent(true)), 2);
}

TEST_F(UmadAgents, AnotherProcessMayHaveTheMethod) {
  machine.others.insert(roce::wire::method_service(kPingClass, 1, 2, kPingOui));
  auto request = ping_agent(true);
  request.methods[0] = 0b110;  // of two, the second one
  EXPECT_EQ(program.add(request), -EINVAL);
  EXPECT_TRUE(machine.claimed.empty()) << "all or none";
}

TEST_F(UmadAgents, AFileThatIsClosedLeavesNothing) {
  {
    Program other(machine);
    auto request = ping_agent(true);
    std::fill_n(request.methods, 4, ~0U);
    EXPECT_EQ(other.add(request), 0);
    EXPECT_EQ(machine.claimed.size(), 128U);
    EXPECT_EQ(other.write(to(machine.address(), 0, 1000), 56 + kMad),
              static_cast<ssize_t>(56 + kMad));
    EXPECT_NE(machine.port.next_timeout(), kNever);
  }
  EXPECT_TRUE(machine.claimed.empty());
  EXPECT_EQ(machine.port.next_timeout(), kNever);
  EXPECT_EQ(program.add(ping_agent(true)), 0);
}

TEST_F(UmadAgents, TheLongerRequestKnowsOneFlag) {
  umad::RegisterAgent2 request{};
  request.qpn = 1;
  request.management_class = kPingClass;
  request.class_version = 1;
  request.oui = kPingOui;
  request.methods[0] = 2;
  request.flags = 6;
  EXPECT_EQ(program.add(request), -EINVAL);
  EXPECT_EQ(request.flags, umad::kUserRmpp) << "what the kernel knows";
  request.oui = 0x1000000;
  EXPECT_EQ(program.add(request), -EINVAL);
  request.oui = kPingOui;
  EXPECT_EQ(program.add(request), 0);
  umad::RegisterAgent2 sender{};
  sender.qpn = 1;
  sender.flags = umad::kUserRmpp;
  EXPECT_EQ(program.add(sender), -EINVAL) << "segments of no class";
  sender.flags = 0;
  EXPECT_EQ(program.add(sender), 1);
}

TEST_F(UmadAgents, TheLayoutIsChosenBeforeTheFirstAgent) {
  EXPECT_EQ(program.enable_pkey(), 0);
  EXPECT_EQ(program.enable_pkey(), 0);
  EXPECT_EQ(program.add(ping_agent(false)), 0);
  EXPECT_EQ(program.enable_pkey(), -EINVAL);
}

// The number that a transaction begins with is unique on the machine, and never that of an agent
// that is there.
TEST_F(UmadAgents, ThousandsOfThemAreTold) {
  std::vector<std::unique_ptr<Program>> programs;
  umad::RegisterAgent sender{};
  sender.qpn = 1;
  for (int i = 0; i < 100; ++i) {
    programs.push_back(std::make_unique<Program>(machine));
    for (int agent = 0; agent < 32; ++agent) {
      ASSERT_EQ(programs.back()->add(sender), agent);
    }
  }
  std::set<std::uint32_t> numbers;
  for (auto& one : programs) {
    ASSERT_EQ(one->enable_pkey(), -EINVAL);
    for (std::uint32_t agent = 0; agent < 32; ++agent) {
      const Datagram datagram = to(machine.address(), agent);
      ASSERT_EQ(one->file.write(&datagram, 56 + kMad), 56 + static_cast<ssize_t>(kMad));
    }
  }
  for (const ManagementMessage& message : machine.sent) {
    numbers.insert(roce::wire::agent_of(roce::wire::read_mad_header(message.bytes).transaction));
  }
  EXPECT_EQ(numbers.size(), 3200U);
  EXPECT_EQ(*numbers.begin() >> 24, 1U) << "the attachment of the process";
}

}  // namespace
}  // namespace weft::kernel::testing
