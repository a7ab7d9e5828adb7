// Owns the tests of processes that speak RoCEv2 on weftd's network.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/headers.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"
#include "tests/unit/emu/daemon/roce_frame.hpp"

namespace weft::daemon {
namespace {

namespace wire = roce::wire;

class RoceTest : public DaemonTest {
 protected:
  [[nodiscard]] Result<attach::Attachment> join_as(const std::string& host, std::uint16_t port,
                                                   bool management = false) const {
    attach::AttachOptions options;
    options.socket = directory_ + "/attach.sock";
    options.host = host;
    options.udp_port = port;
    options.wants_management = management;
    return attach::attach(std::move(options));
  }
  [[nodiscard]] Result<attach::Attachment> join_roce(const std::string& host,
                                                     bool management = false) const {
    return join_as(host, wire::kUdpPort, management);
  }
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

TEST_F(RoceTest, AProtocolThatNobodyKnowsIsRefused) {
  start(false);
  const auto other = join_as("h1", 4242);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("UDP port 4242"), std::string::npos)
      << other.error().message;
}

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
      EXPECT_EQ(datagram.header.traffic_class, 26U << 2 | 2U);
      EXPECT_EQ(datagram.header.hop_limit, 7);
      EXPECT_EQ(datagram.header.source_port, 0xC000 | 0x1234);
      EXPECT_EQ(datagram.packet.size(), packet.size());
      EXPECT_EQ(datagram.icrc, 0U);  // nobody computes it inside memory
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

TEST_F(RoceTest, ManagementGoesToThoseWhoAskForIt) {
  start(false);
  auto one = join_roce("h1");
  auto deaf = join_roce("h2");
  auto listener = join_roce("h2", true);
  ASSERT_TRUE(one && deaf && listener);
  const srd::TxPacket packet = packet_to(*listener, RoceCodec::kManagementQpn);
  ASSERT_EQ(one->io->transmit({&packet, 1}), 1U);
  EXPECT_FALSE(next_frame(*listener).empty());
  EXPECT_TRUE(deaf->io->receive().empty());
}

}  // namespace
}  // namespace weft::daemon
