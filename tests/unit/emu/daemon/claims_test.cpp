// Owns the tests of what a frame from outside may make weftd believe: behind which port an address
// lives, which addresses are never out there, and which questions for Ethernet addresses it
// answers.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "emu/daemon/switchboard.hpp"
#include "emu/roce/wire/addresses.hpp"
#include "srd/net/envelope.hpp"
#include "tests/support/fake_port.hpp"
#include "tests/unit/emu/daemon/roce_frame.hpp"
#include "tests/unit/emu/daemon/two_hosts.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;
using testing::FakePort;
using Frame = std::vector<std::byte>;

// Hosts 1 and 2 are weftd's own; the others live outside, if anywhere.
srd::Address address(unsigned host) { return srd::Address::v4(127, 77, host, 1); }

// Good in itself, so that only its source is in question.
Frame roce(const srd::Address& from, const srd::Address& to) {
  return roce_frame(from, to, 2, 200);
}

// A broadcast of a kernel: an IP packet (type 0x0800) of no protocol that weftd knows, or an ARP
// message (0x0806), in which the sender's address stands elsewhere. `mac` ends its Ethernet
// address.
Frame foreign(const srd::Address& from, unsigned type, unsigned mac = 0x42) {
  Frame frame(64);
  std::memset(frame.data(), 0xFF, 6);
  frame[6] = std::byte{0x02};
  frame[11] = static_cast<std::byte>(mac);
  frame[12] = static_cast<std::byte>(type >> 8);
  frame[13] = static_cast<std::byte>(type);
  std::memcpy(&frame[type == 0x0806 ? 28 : 26], from.bytes.data() + 12, 4);
  return frame;
}

// Three ports lead out of the network, and the test is what lies behind each of them.
class ClaimsTest : public TwoHosts {
 protected:
  ClaimsTest() {
    for (FakePort*& port : ports_) {
      auto io = std::make_unique<FakePort>();
      port = io.get();
      EXPECT_TRUE(outside_.add("port", std::move(io), nullptr));
    }
    switchboard_->set_outside(&outside_);
  }
  void arrive(std::size_t port, const Frame& frame) {
    ports_[port]->in.push_back(frame);
    (void)switchboard_->pump_outside(now_, port);
    switchboard_->notify();
  }
  // Through which ports a frame leaves that comes in at `from`. One whose destination was not heard
  // of leaves through all the others; one that is refused, through none.
  std::vector<std::size_t> ways(std::size_t from, const Frame& frame) {
    for (FakePort* port : ports_) {
      port->out.clear();
    }
    arrive(from, frame);
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      if (!ports_[i]->out.empty()) {
        found.push_back(i);
      }
    }
    return found;
  }
  // Frames that were refused because their source lives elsewhere.
  [[nodiscard]] std::uint64_t forged() const { return dropped(FrameDrop::wrong_source); }

  Outside outside_{2000};
  std::array<FakePort*, 3> ports_{};
  TimePoint now_{};
};

// The first port at which an address was heard keeps it: whoever could take it by one frame with a
// made-up source would get the frames for it.
TEST_F(ClaimsTest, OneDatagramMovesNobody) {
  const srd::Address h5 = address(5);
  const srd::Address h6 = address(6);
  arrive(0, roce(h5, address(1)));
  EXPECT_EQ(outside_.find(h5), 0);
  arrive(1, roce(h5, address(1)));
  EXPECT_EQ(outside_.find(h5), 0);
  EXPECT_EQ(forged(), 1U);
  EXPECT_EQ(outside_.port(1).dropped, 1U);
  // Nor do frames from one port to another: weftd learns where h6 lives, and does not unlearn it.
  arrive(1, roce(h6, h5));
  EXPECT_EQ(ways(2, roce(address(7), h6)), std::vector<std::size_t>{1});
  arrive(0, roce(h6, address(9)));
  EXPECT_EQ(forged(), 2U);
  EXPECT_EQ(ways(2, roce(address(7), h6)), std::vector<std::size_t>{1});
}

// Frames of other protocols are known by their Ethernet addresses. The same one comes in at two
// ports: an answer to it leaves by the first.
TEST_F(ClaimsTest, AKernelsFramesMoveNobodyEither) {
  arrive(0, foreign(address(50), 0x0800, 0x50));
  arrive(1, foreign(address(51), 0x0800, 0x50));
  EXPECT_EQ(forged(), 1U);
  Frame reply = foreign(address(52), 0x0800, 0x52);
  std::memset(reply.data(), 0, 6);
  reply[0] = std::byte{0x02};
  reply[5] = std::byte{0x50};
  EXPECT_EQ(ways(2, reply), std::vector<std::size_t>{0});
}

// A source that is a NIC of this network is a lie, by whichever header: processes here would take
// such frames for those of a neighbour. The last frame, with addresses of its own, shows that
// frames of its kind pass otherwise.
TEST_F(ClaimsTest, NobodyOutThereIsOneOfUs) {
  const srd::Address& ours = plant_->nics()[0]->address;
  std::uint64_t count = 0;
  for (const Frame& frame : {roce(ours, address(9)), roce(ours, plant_->nics()[1]->address),
                             foreign(ours, 0x0800), foreign(ours, 0x0806)}) {
    EXPECT_TRUE(ways(0, frame).empty());
    EXPECT_EQ(forged(), ++count);
  }
  Frame frame = foreign(address(50), 0x0800);
  const auto mac = net::mac_of(ours);
  std::memcpy(&frame[6], mac.data(), mac.size());
  EXPECT_TRUE(ways(0, frame).empty());
  EXPECT_EQ(forged(), ++count);
  EXPECT_EQ(ways(0, foreign(address(50), 0x0806)), (std::vector<std::size_t>{1, 2}));
}

// A RoCE NIC has two IPv6 addresses beside the one that weftd gave it. None of the three may be the
// source of a frame from outside, to a host beyond or to a multicast group.
TEST_F(ClaimsTest, NobodyOutThereHasAnotherAddressOfOurs) {
  constexpr std::uint32_t kGroupQpn = RoceCodec::kMulticastQpn;
  const srd::Address group = srd::Address::v4(239, 1, 2, 3);
  srd::Address group6 = group;
  group6.bytes[0] = std::byte{0xFF};
  std::uint64_t count = 0;
  const auto abroad = roce::wire::addresses_of(address(9));
  const auto ours = roce::wire::addresses_of(plant_->nics()[0]->address);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    for (const Frame& frame :
         {roce(ours[i], abroad[i]),
          roce_frame(ours[i], ours[i].is_v4() ? group : group6, kGroupQpn, 200)}) {
      EXPECT_TRUE(ways(0, frame).empty());
      EXPECT_EQ(forged(), ++count);
    }
  }
  const Frame good = roce_frame(address(9), group, kGroupQpn, 200);
  EXPECT_EQ(ways(0, good), (std::vector<std::size_t>{1, 2}));
}

// A NIC has several addresses. A port that has shown that it leads to one of them has a claim to
// all, so another port cannot take the same NIC under another of its addresses.
TEST_F(ClaimsTest, AnAddressIsNotAnothersUnderAnotherName) {
  const auto h5 = roce::wire::addresses_of(address(5));
  const auto h6 = roce::wire::addresses_of(address(6));
  for (std::size_t i = 0; i < h5.size(); ++i) {
    arrive(0, roce(h5[i], h6[i]));
  }
  for (std::size_t i = 0; i < h5.size(); ++i) {
    arrive(1, roce(h5[i], h6[i]));
    EXPECT_EQ(forged(), i + 1);
  }
  // h6 is heard at port 2 by one address, and then not believed at port 1 by another.
  arrive(2, roce(h6[1], h5[1]));
  arrive(1, roce(h6[0], h5[0]));
  EXPECT_EQ(forged(), h5.size() + 1);
}

// Processes do not look at checksums, as their frames come through memory: weftd has to, where a
// frame comes in from a wire.
TEST_F(ClaimsTest, ADamagedFrameComesNotIn) {
  Frame frame = roce(address(5), plant_->nics()[0]->address);
  frame[100] ^= std::byte{4};
  arrive(0, frame);
  EXPECT_EQ(dropped(FrameDrop::corrupted), 1U);
  EXPECT_EQ(outside_.find(address(5)), -1);  // nor is its source believed
}

// An address that was silent for kAlive is free for another port: a host that has moved.
TEST_F(ClaimsTest, WhoHasGoneMayComeBackElsewhere) {
  const srd::Address h5 = address(5);
  arrive(0, roce(h5, address(1)));
  now_ += Whereabouts<srd::Address>::kAlive;
  arrive(1, roce(h5, address(1)));
  EXPECT_EQ(outside_.find(h5), 1);
  EXPECT_EQ(forged(), 0U);
}

// --- Questions for Ethernet addresses. No kernel is behind weftd's NICs to answer them, so weftd
// does it in their name.

// The Ethernet address of the host that asks.
const std::array kAsker{std::byte{0x02}, std::byte{0}, std::byte{0},
                        std::byte{0},    std::byte{0}, std::byte{0x42}};

// ARP over Ethernet for IPv4: who has `about`? Tell `from`.
Frame arp_question(const srd::Address& from, const srd::Address& about) {
  Frame frame(60);  // with padding, as on a wire
  std::memset(frame.data(), 0xFF, 6);
  std::ranges::copy(kAsker, &frame[6]);
  constexpr unsigned char kRequest[] = {8, 6, 0, 1, 8, 0, 6, 4, 0, 1};
  std::memcpy(&frame[12], kRequest, sizeof kRequest);
  std::ranges::copy(kAsker, &frame[22]);
  std::memcpy(&frame[28], from.v4_bytes().data(), 4);
  std::memcpy(&frame[38], about.v4_bytes().data(), 4);
  return frame;
}

// The sum of ICMPv6's checksum, over the pseudo header (addresses, length, protocol 58) and the
// message, which begins at byte 54. 0xFFFF if the checksum within is right.
unsigned icmp_sum(const Frame& frame) {
  unsigned sum = 58 + static_cast<unsigned>(frame.size() - 54);
  for (std::size_t i = 22; i < frame.size(); i += 2) {
    sum += net::load16(&frame[i]);
  }
  while (sum > 0xFFFF) {
    sum = (sum & 0xFFFF) + (sum >> 16);
  }
  return sum;
}

// Neighbour discovery, the same for IPv6: to the multicast group that follows from the last three
// bytes of `about`, with the Ethernet address of the asker as an option at the end.
Frame solicitation(const srd::Address& from, const srd::Address& about) {
  Frame frame(86);
  constexpr unsigned char kGroup[] = {0x33, 0x33, 0xFF};
  std::memcpy(frame.data(), kGroup, sizeof kGroup);
  std::memcpy(&frame[3], &about.bytes[13], 3);
  std::ranges::copy(kAsker, &frame[6]);
  constexpr unsigned char kHeader[] = {0x86, 0xDD, 0x60, 0, 0, 0, 0, 32, 58, 255};
  std::memcpy(&frame[12], kHeader, sizeof kHeader);
  std::ranges::copy(from.bytes, &frame[22]);
  // ff02::1:ffXX:XXXX
  constexpr unsigned char kSolicitedNode[] = {0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF};
  std::memcpy(&frame[38], kSolicitedNode, sizeof kSolicitedNode);
  std::memcpy(&frame[51], &about.bytes[13], 3);
  frame[54] = std::byte{135};  // neighbour solicitation
  std::ranges::copy(about.bytes, &frame[62]);
  frame[78] = frame[79] = std::byte{1};
  std::ranges::copy(kAsker, &frame[80]);
  net::store16(&frame[56], 0xFFFFU - icmp_sum(frame));
  return frame;
}

TEST_F(ClaimsTest, ArpQuestionsForOurNicsAreAnswered) {
  EXPECT_EQ(ways(0, arp_question(address(5), address(2))), std::vector<std::size_t>{0});
  const Frame& answer = ports_[0]->out.at(0);
  const auto mac = net::mac_of(address(2));
  ASSERT_EQ(answer.size(), 42U);  // without the padding of the question
  EXPECT_TRUE(std::ranges::equal(kAsker, std::span(answer).first(6)));
  EXPECT_TRUE(std::ranges::equal(mac, std::span(answer).subspan(6, 6)));
  EXPECT_EQ(net::load16(&answer[20]), 2);  // a reply
  EXPECT_TRUE(std::ranges::equal(mac, std::span(answer).subspan(22, 6)));
  EXPECT_EQ(srd::Address::v4(&answer[28]), address(2));
  EXPECT_TRUE(std::ranges::equal(kAsker, std::span(answer).subspan(32, 6)));
  EXPECT_EQ(srd::Address::v4(&answer[38]), address(5));
}

// For the link-local address and for the other IPv6 address of a NIC.
TEST_F(ClaimsTest, SolicitationsForOurNicsAreAnswered) {
  const auto theirs = roce::wire::addresses_of(address(5));
  const auto ours = roce::wire::addresses_of(address(2));
  for (const std::size_t gid : {std::size_t{0}, roce::wire::kIpv6Gid}) {
    EXPECT_EQ(ways(1, solicitation(theirs[gid], ours[gid])), std::vector<std::size_t>{1});
    const Frame& answer = ports_[1]->out.at(0);
    ASSERT_EQ(answer.size(), 86U);
    EXPECT_EQ(icmp_sum(answer), 0xFFFFU);
    EXPECT_EQ(answer[54], std::byte{136});   // neighbour advertisement
    EXPECT_EQ(answer[58], std::byte{0x60});  // solicited, and overrides what the asker knew before
    EXPECT_TRUE(std::ranges::equal(ours[gid].bytes, std::span(answer).subspan(22, 16)));
    EXPECT_TRUE(std::ranges::equal(theirs[gid].bytes, std::span(answer).subspan(38, 16)));
    EXPECT_TRUE(std::ranges::equal(ours[gid].bytes, std::span(answer).subspan(62, 16)));
    EXPECT_TRUE(std::ranges::equal(net::mac_of(address(2)), std::span(answer).subspan(80, 6)));
  }
}

TEST_F(ClaimsTest, QuestionsForOthersGoToThem) {
  EXPECT_EQ(ways(0, arp_question(address(5), address(6))), (std::vector<std::size_t>{1, 2}));
  const auto theirs = roce::wire::addresses_of(address(5));
  EXPECT_EQ(ways(0, solicitation(theirs[0], roce::wire::addresses_of(address(6))[0])),
            (std::vector<std::size_t>{1, 2}));
}

// Behind a tap on a host's link stands that host's own kernel, which has the address itself: two
// answers would contradict each other.
TEST_F(ClaimsTest, AKernelOfAHostAnswersItself) {
  outside_.port(2).is_kernel = true;
  outside_.port(2).nic = plant_->find(address(2));
  EXPECT_EQ(ways(0, arp_question(address(5), address(2))), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(ways(0, arp_question(address(5), address(1))), std::vector<std::size_t>{0});
}

// Cut at every length, from a group's address, and with one field wrong at a time. Such frames may
// be passed on to other ports, but nothing goes back to where they came from.
TEST_F(ClaimsTest, WhatIsNoQuestionIsNotAnswered) {
  const Frame arp = arp_question(address(5), address(2));
  const auto theirs = roce::wire::addresses_of(address(5));
  const Frame icmp = solicitation(theirs[0], roce::wire::addresses_of(address(2))[0]);
  const auto is_answered = [&](const Frame& frame) {
    const auto where = ways(0, frame);
    return std::ranges::find(where, std::size_t{0}) != where.end();
  };
  for (const Frame& whole : {arp, icmp}) {
    const std::size_t needed = whole.size() == arp.size() ? 42 : 86;  // ARP has padding behind it
    for (std::size_t size = 0; size < needed; ++size) {
      EXPECT_FALSE(is_answered(Frame(whole.begin(), whole.begin() + size))) << size;
    }
    Frame from_a_group = whole;
    from_a_group[6] |= std::byte{1};
    EXPECT_FALSE(is_answered(from_a_group));
  }
  // The link's kind, the network protocol, the two sizes of addresses, and a reply.
  for (const std::size_t at : {15U, 16U, 18U, 19U, 21U}) {
    Frame other = arp;
    other[at] ^= std::byte{3};
    EXPECT_FALSE(is_answered(other)) << at;
  }
  // Another protocol, routed (a hop limit below 255), another type or code, damaged.
  for (const std::size_t at : {20U, 21U, 54U, 55U, 60U, 82U}) {
    Frame other = icmp;
    other[at] ^= std::byte{1};
    EXPECT_FALSE(is_answered(other)) << at;
  }
  // From the unspecified address: a host that looks whether the address is free, and has none to
  // which an answer could go.
  EXPECT_FALSE(is_answered(solicitation({}, roce::wire::addresses_of(address(2))[0])));
}

}  // namespace
}  // namespace weft::daemon
