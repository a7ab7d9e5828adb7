// Owns the tests of processes that speak RoCEv2 on weftd's network.
//
// weftd reads of a RoCE packet what it needs to steer it, and nothing else: the number of the queue
// pair, whose upper bits name the process; for queue pair 1 the connection manager's message; for a
// group the address. These tests send packets that are right in that much only.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "emu/daemon/groups.hpp"
#include "emu/roce/wire/addresses.hpp"
#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/headers.hpp"
#include "emu/roce/wire/mad.hpp"
#include "emu/roce/wire/packet.hpp"
#include "emu/roce/wire/roce_codec.hpp"
#include "srd/io/network_protocol.hpp"
#include "srd/net/address_text.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"
#include "tests/unit/emu/daemon/intruder.hpp"
#include "tests/unit/emu/daemon/roce_frame.hpp"

namespace weft::daemon {
namespace {

namespace wire = roce::wire;
using srd::net::kEtherType;

class RoceTest : public DaemonTest {
 protected:
  [[nodiscard]] Result<attach::Attachment> join_as(const std::string& host,
                                                   const srd::NetworkProtocol& protocol) const {
    attach::AttachOptions options;
    options.socket = directory_ + "/attach.sock";
    options.host = host;
    options.protocol = &protocol;
    return attach::attach(std::move(options));
  }
  [[nodiscard]] Result<attach::Attachment> join_roce(const std::string& host) const {
    return join_as(host, srd::kNetworkProtocol<wire::RoceCodec>);
  }
  // Of a packet to a process weftd looks at the number of the queue pair and at no other field of
  // the header.
  static srd::TxPacket packet_to(const attach::Attachment& to, std::uint32_t qpn) {
    static const std::array<std::byte, 8> kPayload{std::byte{1}, std::byte{2}, std::byte{3}};
    srd::TxPacket packet;
    packet.to = to.address;
    packet.path = srd::PathId{0x1234};
    packet.dscp = 26;
    packet.hop_limit = 7;
    packet.header_size = sizeof(wire::Bth);
    packet.header.fill({});
    for (std::size_t i = 0; i < 3; ++i) {
      packet.header[5 + i] = static_cast<std::byte>(qpn >> (16 - 8 * i));
    }
    packet.payload[0] = kPayload;
    return packet;
  }
  // The next one that comes, with its envelope; empty: none within the patience of a test.
  static std::vector<std::byte> next_frame(attach::Attachment& at) {
    std::vector<std::byte> frame;
    const auto look = [&] {
      for (const srd::RxPacket& packet : at.io->receive()) {
        const auto envelope = packet.envelope();
        frame.assign(envelope.begin(), envelope.end());
        frame.insert(frame.end(), packet.bytes.begin(), packet.bytes.end());
      }
      at.io->release();
      return !frame.empty();
    };
    EXPECT_TRUE(eventually(look));
    return frame;
  }
};

// A block of 256 numbers for SRD, of 65536 for RoCEv2, each beginning where the attachment's number
// says.
TEST_F(RoceTest, AProcessHasTheQueuePairNumbersOfItsProtocol) {
  start(false);
  auto srd = join("h1");
  auto roce = join_roce("h1");
  ASSERT_TRUE(srd && roce);
  EXPECT_EQ(srd->qpn_count, 1U << 8);
  EXPECT_EQ(srd->first_qpn, srd->id.value() * (1U << 8));
  EXPECT_EQ(roce->qpn_count, 1U << 16);
  EXPECT_EQ(roce->first_qpn, roce->id.value() * (1U << 16));
  EXPECT_EQ(status()["nics"][0]["processes"][1]["first_qpn"], roce->first_qpn);
}

// weftd could not tell for which process its packets are.
TEST_F(RoceTest, AProtocolThatNobodyKnowsIsRefused) {
  start(false);
  srd::NetworkProtocol unknown = srd::kNetworkProtocol<wire::RoceCodec>;
  // The port by which the protocol's frames would be known.
  unknown.udp_port = 4242;
  const auto other = join_as("h1", unknown);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("UDP port 4242"), std::string::npos)
      << other.error().message;
}

// Through weftd first; from the second packet on, where `direct` allows it, through a ring between
// the two. The envelope must be the same either way.
TEST_F(RoceTest, PacketsArriveAsTheirSenderAskedFor) {
  for (const bool direct : {false, true}) {
    start(direct);
    auto one = join_roce("h1");
    auto other = join_roce("h2");
    ASSERT_TRUE(one && other);
    const srd::TxPacket packet = packet_to(*other, other->first_qpn + 5);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(one->io->transmit({&packet, 1}), 1U);
      const auto frame = next_frame(*other);
      wire::Datagram datagram;
      ASSERT_EQ(wire::parse_datagram(frame, datagram), wire::DatagramFault::none);
      EXPECT_EQ(datagram.header.source, one->address);
      // DSCP 26 and ECN-capable (ECT(0)).
      EXPECT_EQ(datagram.header.traffic_class, 26U << 2 | 2U);
      EXPECT_EQ(datagram.header.hop_limit, 7);
      EXPECT_EQ(datagram.header.source_port, 0xC000 | 0x1234);
      EXPECT_EQ(datagram.packet.size(), packet.size());
      EXPECT_EQ(datagram.icrc, 0U);  // it is not computed inside memory
      if (direct) {
        EXPECT_TRUE(eventually([&] {
          poll_once(*one);
          poll_once(*other);
          return one->io->direct_ports() == 1 && other->io->direct_ports() == 1;
        }));
      }
    }
    weftd_.reset();
  }
}

// By each of the NIC's addresses, from the one of the same kind; through direct rings as well.
TEST_F(RoceTest, ANicIsCalledByAnyOfItsAddresses) {
  for (const bool direct : {false, true}) {
    start(direct);
    auto one = join_roce("h1");
    auto other = join_roce("h2");
    ASSERT_TRUE(one && other);
    const auto from = wire::addresses_of(one->address);
    const auto to = wire::addresses_of(other->address);
    ASSERT_EQ(to.size(), 3U);
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < to.size(); ++i) {
        srd::TxPacket packet = packet_to(*other, other->first_qpn + 5);
        packet.to = to[i];
        packet.source = static_cast<std::uint8_t>(i + 1);
        ASSERT_EQ(one->io->transmit({&packet, 1}), 1U);
        const auto frame = next_frame(*other);
        wire::Datagram datagram;
        ASSERT_EQ(wire::parse_datagram(frame, datagram), wire::DatagramFault::none);
        EXPECT_EQ(datagram.header.source, from[i]);
        EXPECT_EQ(datagram.header.destination, to[i]);
        EXPECT_EQ(frame[kEtherType],
                  std::byte{to[i].is_v4() ? std::uint8_t{8} : std::uint8_t{0x86}});
      }
      if (direct) {
        EXPECT_TRUE(eventually([&] {
          poll_once(*one);
          poll_once(*other);
          return one->io->direct_ports() == 1 && other->io->direct_ports() == 1;
        }));
      }
    }
    weftd_.reset();
  }
}

// An IPv4 address and two IPv6 ones belong to each NIC. Of others weftd knows that nobody has them:
// a connection to one fails at once, instead of after its retries.
TEST_F(RoceTest, WhoHasAnAddress) {
  start(false);
  auto one = join_roce("h1");
  auto other = join_roce("h2");
  ASSERT_TRUE(one && other);
  for (const srd::Address& address : wire::addresses_of(other->address)) {
    EXPECT_TRUE(one->services->may_exist(address)) << srd::to_text(address);
  }
  EXPECT_TRUE(one->services->may_exist(one->address));
  // Of other networks, of no NIC, of another prefix, of the machine itself.
  for (const char* const nobody : {"10.1.2.3", "fe80::1", "2001:db8::1", "127.0.0.1"}) {
    EXPECT_FALSE(one->services->may_exist(*srd::parse_address(nobody))) << nobody;
  }
}

// --- Multicast
class GroupTest : public RoceTest {
 protected:
  static constexpr std::uint32_t kGroupQpn = RoceCodec::kMulticastQpn;
  const srd::Address group_ = srd::Address::v4(239, 1, 2, 3);
  const srd::Address group6_ = *srd::parse_address("ff0e::1:2");

  static srd::TxPacket packet_for(const srd::Address& group, std::uint32_t qpn = kGroupQpn) {
    attach::Attachment to;
    srd::TxPacket packet = packet_to(to, qpn);
    packet.to = group;
    // Which of its own addresses it speaks from, counted from 1: one of the same kind as the group.
    packet.source = group.is_v4() ? 1 + 1 : wire::kIpv6Gid + 1;
    return packet;
  }
  // How many packets come, until there are `most` of them or patience ends.
  static std::size_t heard(attach::Attachment& at, std::size_t most) {
    std::size_t count = 0;
    (void)eventually([&] {
      for (const srd::RxPacket& packet : at.io->receive()) {
        EXPECT_EQ(packet.to, srd::net::kToGroup);
        ++count;
      }
      at.io->release();
      return count >= most;
    });
    return count;
  }
  // weftd does not answer a leave, and frames do not wait for it, as they go another way. But
  // messages of a process are read in order: when the join behind it is answered, the leave has
  // been read.
  void leave(attach::Attachment& at, const srd::Address& group) {
    at.services->leave(group);
    srd::Address other = group;
    other.bytes[15] ^= std::byte{0x55};
    EXPECT_TRUE(at.services->join(other));
  }
  // Nothing has come so far: asked when a packet sent later has arrived elsewhere.
  static bool is_quiet(attach::Attachment& at) {
    const bool quiet = at.io->receive().empty();
    at.io->release();
    return quiet;
  }
};

// Two members on one NIC, and the sender itself; a third process of that NIC is none. Direct rings
// are on: a group's packets must not go by the ring of one of its members alone.
TEST_F(GroupTest, MembersHearAndOthersDoNot) {
  start(true);
  auto sender = join_roce("h1");
  auto member = join_roce("h2");
  auto neighbour = join_roce("h2");
  auto stranger = join_roce("h2");
  ASSERT_TRUE(sender && member && neighbour && stranger);
  for (const srd::Address& group : {group_, group6_}) {
    ASSERT_TRUE(member->services->join(group));
    ASSERT_TRUE(neighbour->services->join(group));
    ASSERT_TRUE(sender->services->join(group));  // it hears itself
    const srd::TxPacket packet = packet_for(group);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(sender->io->transmit({&packet, 1}), 1U);
    }
    EXPECT_EQ(heard(*member, 3), 3U);
    EXPECT_EQ(heard(*neighbour, 3), 3U);
    EXPECT_EQ(heard(*sender, 3), 3U);
    EXPECT_TRUE(is_quiet(*stranger));
    leave(*neighbour, group);
    leave(*sender, group);
    ASSERT_EQ(sender->io->transmit({&packet, 1}), 1U);
    EXPECT_EQ(heard(*member, 1), 1U);
    EXPECT_TRUE(is_quiet(*neighbour) && is_quiet(*sender));
  }
}

// The room is a process's own: one that has used up its groups does not keep others from joining.
TEST_F(GroupTest, OnlyGroupsAreJoinedAndOnlySoMany) {
  start(false);
  auto one = join_roce("h1");
  auto other = join_roce("h2");
  ASSERT_TRUE(one && other);
  EXPECT_FALSE(one->services->join(other->address));
  EXPECT_FALSE(one->services->join(srd::Address{}));
  // A packet to a group that is for no group's queue pair, and one for it to a host, reach nobody.
  ASSERT_TRUE(other->services->join(group_));
  srd::TxPacket packet = packet_for(group_, other->first_qpn);
  ASSERT_EQ(one->io->transmit({&packet, 1}), 1U);
  packet = packet_for(group_);
  packet.to = other->address;
  ASSERT_EQ(one->io->transmit({&packet, 1}), 1U);
  EXPECT_TRUE(eventually([&] { return status()["counters"]["dropped"]["malformed"] == 2; }));
  EXPECT_TRUE(is_quiet(*other));
  std::size_t joined = 1;
  // More than enough to find the limit, and an end if there is none.
  for (srd::Address next = group6_; joined < 3 * Groups::kMaxOfAProcess; ++joined) {
    next.bytes[14] = static_cast<std::byte>(joined >> 8);
    next.bytes[15] = static_cast<std::byte>(joined);
    if (!other->services->join(next)) {
      break;
    }
  }
  EXPECT_EQ(joined, Groups::kMaxOfAProcess);
  EXPECT_TRUE(one->services->join(group6_));
}

// Killed, or closed: weftd sees a connection end. The next process may get its place, and must not
// be a member by that. The survivor shows when a packet has come.
TEST_F(GroupTest, WhoHasGoneIsNoMemberAnyMore) {
  start(false);
  auto sender = join_roce("h1");
  auto joined = join_roce("h2");
  auto survivor = join_roce("h2");
  ASSERT_TRUE(sender && joined && survivor);
  std::optional<attach::Attachment> member(std::move(*joined));
  for (const srd::Address& group : {group_, group6_}) {
    ASSERT_TRUE(member->services->join(group) && survivor->services->join(group));
  }
  member.reset();
  ASSERT_TRUE(eventually([&] { return status()["nics"][2]["processes"].size() == 1; }));
  auto next = join_roce("h2");
  ASSERT_TRUE(next);
  for (const srd::Address& group : {group_, group6_}) {
    const srd::TxPacket packet = packet_for(group);
    ASSERT_EQ(sender->io->transmit({&packet, 1}), 1U);
    EXPECT_EQ(heard(*survivor, 1), 1U);
    EXPECT_TRUE(is_quiet(*next));
  }
}

// Frames to the group, written by hand: those whose source is an address of another NIC get
// nowhere, those with any address of its own arrive.
TEST_F(GroupTest, NobodySpeaksInTheNameOfAnotherNic) {
  start(false);
  Intruder liar(*weftd_);
  auto member = join_roce("h2");
  ASSERT_TRUE(member && member->services->join(group_) && member->services->join(group6_));
  srd::RingProducer ring(liar.outgoing(), liar.capacity());
  const auto send = [&](const srd::Address& from) {
    const auto& group = from.is_v4() ? group_ : group6_;
    const auto frame = roce_frame(from, group, kGroupQpn, 100);
    std::byte* const place = ring.reserve(frame.size());
    ASSERT_NE(place, nullptr);
    ring.copy(place, frame);
    ring.commit(frame.size(), {.flags = srd::kRecordUnchecked});
    liar.ring();
  };
  const auto others = wire::addresses_of(member->address);
  for (std::size_t lies = 0; lies < others.size(); ++lies) {
    send(others[lies]);
    EXPECT_TRUE(
        eventually([&] { return status()["counters"]["dropped"]["wrong_source"] == lies + 1; }));
  }
  EXPECT_TRUE(is_quiet(*member));
  for (const srd::Address& own : wire::addresses_of(liar.place.address)) {
    send(own);
    EXPECT_EQ(heard(*member, 1), 1U);
  }
}

// The process tells the next weftd what it had joined, without being asked by its program.
TEST_F(GroupTest, MembershipOutlivesWeftd) {
  start(false);
  auto member = join_roce("h1");
  ASSERT_TRUE(member && member->services->join(group_));
  weftd_->kill(SIGKILL);
  weftd_->start();
  auto sender = join_roce("h2");
  ASSERT_TRUE(sender);
  EXPECT_TRUE(eventually([&] {
    const srd::TxPacket packet = packet_for(group_);
    EXPECT_EQ(sender->io->transmit({&packet, 1}), 1U);
    return !is_quiet(*member);
  }));
}

// Connection management: all processes of a NIC share its queue pair 1.
class ManagementTest : public RoceTest {
 protected:
  static constexpr std::uint64_t kService = 0x1060000 + 7471;

  // The upper byte of an id names the process. This is how weftd knows whose an answer is, without
  // knowing any connection.
  static std::uint32_t id_of(const attach::Attachment& at, std::uint32_t number) {
    return std::uint32_t{at.id.value()} << 24 | number;
  }
  // As a datagram from queue pair 1.
  void send(attach::Attachment& from, const attach::Attachment& to, wire::CmMessage message) {
    wire::write_cm(message, mad_);
    wire::Packet headers;
    headers.opcode = wire::opcode_of(wire::Transport::ud, wire::Operation::send_only);
    headers.destination_qpn = headers.source_qpn = RoceCodec::kManagementQpn;
    headers.qkey = wire::kGsiQkey;
    srd::TxPacket packet;
    packet.to = to.address;
    packet.header_size =
        static_cast<std::uint16_t>(wire::write_headers(headers, packet.header.data()));
    packet.payload[0] = mad_;
    EXPECT_EQ(from.io->transmit({&packet, 1}), 1U);
  }
  static wire::CmMessage next_message(attach::Attachment& at) {
    wire::CmMessage message;
    const auto frame = next_frame(at);
    wire::Datagram datagram;
    wire::Packet packet;
    EXPECT_EQ(wire::parse_datagram(frame, datagram), wire::DatagramFault::none);
    EXPECT_EQ(wire::parse_packet(datagram.packet, 0, packet), wire::PacketFault::none);
    EXPECT_EQ(packet.qkey, wire::kGsiQkey);
    EXPECT_EQ(wire::parse_cm(datagram.packet.subspan(packet.header_size), message),
              wire::MadFault::none);
    return message;
  }
  static wire::CmMessage request(const attach::Attachment& from,
                                 wire::CmKind kind = wire::CmKind::request) {
    wire::CmMessage message;
    message.kind = kind;
    message.transaction = 5;
    message.local_id = id_of(from, 9);
    message.service_id = kService;
    return message;
  }

 private:
  std::array<std::byte, wire::kMadSize> mad_{};
};

// Of two processes on h2 one listens. To claim what is one's own is no error, and what a process
// gives up, or leaves behind, is free for others.
TEST_F(ManagementTest, RequestsGoToTheProcessThatHasTheirService) {
  start(false);
  auto one = join_roce("h1");
  auto deaf = join_roce("h2");
  auto listener = join_roce("h2");
  ASSERT_TRUE(one && deaf && listener);
  ASSERT_TRUE(listener->services->claim(kService));
  EXPECT_TRUE(listener->services->claim(kService));
  EXPECT_FALSE(deaf->services->claim(kService));  // one process of a NIC
  EXPECT_TRUE(one->services->claim(kService));    // this is another NIC
  for (const wire::CmKind kind : {wire::CmKind::request, wire::CmKind::sidr_request}) {
    send(*one, *listener, request(*one, kind));
    EXPECT_EQ(next_message(*listener).kind, kind);
  }
  EXPECT_TRUE(deaf->io->receive().empty());
  listener->services->release(kService);
  EXPECT_TRUE(eventually([&] { return deaf->services->claim(kService); }));
  deaf = join_roce("h2");  // the process that had the service has gone by that
  EXPECT_TRUE(eventually([&] { return listener->services->claim(kService); }));
}

// All messages but the two requests. SIDR's reply names the one that asked in another field.
TEST_F(ManagementTest, AnswersGoToTheProcessThatTheirIdBeginsWith) {
  start(false);
  auto one = join_roce("h1");
  auto other = join_roce("h1");
  auto server = join_roce("h2");
  ASSERT_TRUE(one && other && server);
  for (const wire::CmKind kind :
       {wire::CmKind::reply, wire::CmKind::ready_to_use, wire::CmKind::reject,
        wire::CmKind::disconnect_request, wire::CmKind::disconnect_reply,
        wire::CmKind::message_received, wire::CmKind::sidr_reply}) {
    wire::CmMessage message;
    message.kind = kind;
    const std::uint32_t id = id_of(*other, 77);
    (kind == wire::CmKind::sidr_reply ? message.local_id : message.remote_id) = id;
    send(*server, *other, message);
    EXPECT_EQ(next_message(*other).kind, kind);
  }
  EXPECT_TRUE(one->io->receive().empty());
}

// Who gives up before there was an answer knows no number of the other side. So a REJ without one
// goes where the REQ of its sender went, even if nobody listens there any more.
TEST_F(ManagementTest, ARequestIsTakenBackFromTheProcessThatWasAsked) {
  start(false);
  auto one = join_roce("h1");
  auto listener = join_roce("h2");
  auto other = join_roce("h2");
  ASSERT_TRUE(one && listener && other);
  ASSERT_TRUE(listener->services->claim(kService));
  ASSERT_TRUE(other->services->claim(kService + 1));
  auto message = request(*one);
  send(*one, *listener, message);
  EXPECT_EQ(next_message(*listener).kind, wire::CmKind::request);
  listener->services->release(kService);
  message.kind = wire::CmKind::reject;
  send(*other, *listener, message);  // the same number, and not its request
  send(*one, *listener, message);
  EXPECT_EQ(next_message(*listener).kind, wire::CmKind::reject);
  EXPECT_TRUE(listener->io->receive().empty());
  EXPECT_TRUE(other->io->receive().empty());
}

// weftd answers in the name of the host's kernel: a client learns at once that no process listens.
TEST_F(ManagementTest, ARequestForNobodyIsRefused) {
  start(false);
  auto one = join_roce("h1");
  auto other = join_roce("h2");
  ASSERT_TRUE(one && other);
  send(*one, *other, request(*one));
  wire::CmMessage answer = next_message(*one);
  EXPECT_EQ(answer.kind, wire::CmKind::reject);
  EXPECT_EQ(answer.transaction, 5U);
  EXPECT_EQ(answer.remote_id, id_of(*one, 9));
  // Invalid service ID, as Linux says where nobody listens.
  EXPECT_EQ(answer.reason, 8);
  send(*one, *other, request(*one, wire::CmKind::sidr_request));
  answer = next_message(*one);
  EXPECT_EQ(answer.kind, wire::CmKind::sidr_reply);
  EXPECT_EQ(answer.local_id, id_of(*one, 9));
  // SIDR's way to say it.
  EXPECT_EQ(answer.status, 1);
}

// A process that was killed cannot end its connections. A peer that asks it to (DREQ) is answered
// as by its kernel (DREP), instead of asking until its retries are over.
TEST_F(ManagementTest, AGoodByeToAProcessThatHasGoneIsAnswered) {
  start(false);
  auto one = join_roce("h1");
  auto other = join_roce("h2");
  auto third = join_roce("h2");
  ASSERT_TRUE(one && other && third);
  auto message = request(*one, wire::CmKind::disconnect_request);
  message.remote_id = id_of(*third, 77);
  third = join_roce("h1");  // the process on h2 has gone by that
  // Until weftd has noticed, the message is for a process that does not read it.
  EXPECT_TRUE(eventually([&] {
    send(*one, *other, message);
    const auto frames = one->io->receive();
    return !frames.empty();
  }));
  send(*one, *other, message);
  const wire::CmMessage answer = next_message(*one);
  EXPECT_EQ(answer.kind, wire::CmKind::disconnect_reply);
  EXPECT_EQ(answer.transaction, 5U);
  EXPECT_EQ(answer.local_id, message.remote_id);
  EXPECT_EQ(answer.remote_id, message.local_id);
}

// The limit is each process's own: another one has its services all the same.
TEST_F(ManagementTest, AProcessHasOnlySoManyServices) {
  start(false);
  auto one = join_roce("h1");
  auto other = join_roce("h1");
  ASSERT_TRUE(one && other);
  std::uint64_t granted = 0;
  while (one->services->claim(kService + granted)) {
    ++granted;
  }
  EXPECT_EQ(granted, ServiceOwners::kMaxOfAProcess);
  EXPECT_TRUE(other->services->claim(kService + granted));
}

// The request must come back to its sender, which has the service; weftd must not take it for its
// own echo.
TEST_F(ManagementTest, TwoEndsInOneProcessMeet) {
  start(false);
  auto one = join_roce("h1");
  ASSERT_TRUE(one);
  ASSERT_TRUE(one->services->claim(kService));
  send(*one, *one, request(*one));
  EXPECT_EQ(next_message(*one).kind, wire::CmKind::request);
}

// For queue pair 1, and no message of connection management.
TEST_F(ManagementTest, NonsenseReachesNobody) {
  start(false);
  auto one = join_roce("h1");
  auto other = join_roce("h2");
  ASSERT_TRUE(one && other);
  const srd::TxPacket packet = packet_to(*other, RoceCodec::kManagementQpn);
  ASSERT_EQ(one->io->transmit({&packet, 1}), 1U);
  EXPECT_TRUE(eventually([&] { return status()["counters"]["dropped"]["no_process"] == 1; }));
  EXPECT_TRUE(other->io->receive().empty());
}

// While there is no weftd a claim fails, for nobody can promise that it is the only one. What was
// claimed before is told to the next weftd, so another process does not get it.
TEST_F(ManagementTest, ServicesOutliveWeftd) {
  start(false);
  auto listener = join_roce("h1");
  ASSERT_TRUE(listener && listener->services->claim(kService));
  weftd_->kill(SIGKILL);
  EXPECT_TRUE(eventually([&] {
    poll_once(*listener);
    return !listener->services->claim(kService + 1);  // no weftd to ask
  }));
  weftd_->start();
  EXPECT_TRUE(eventually([&] {
    poll_once(*listener);
    return listener->services->claim(kService + 1);
  }));
  auto other = join_roce("h1");
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->services->claim(kService));
}

}  // namespace
}  // namespace weft::daemon
