// Owns what of a tunnel's outside shows inside, and which senders it accepts.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "srd/io/tunnel_io.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/srd_codec.hpp"
#include "tests/unit/srd/io/conformance.hpp"

namespace weft::srd {
namespace {

// A tunnel whose other end is a plain socket, so that a test decides from which address and with
// which marks a datagram comes.
class Tunnel : public testing::Test {
 protected:
  void SetUp() override {
    base_ = "127.93." + std::to_string(::getpid() % 250) + ".";
    auto io = TunnelIo::create({.local = base_ + "1", .remote = base_ + "2", .key = key_});
    ASSERT_TRUE(io) << io.error().message;
    io_ = std::move(*io);
  }
  std::vector<std::byte> frame(Ecn ecn) const {
    const auto writer = net::EnvelopeWriter::make(test::ipv4(10, 0, 0, 1), wire::SrdCodec::kPorts);
    std::vector<std::byte> bytes(writer->size() + 100);
    EXPECT_TRUE(writer->write(bytes.data(), test::ipv4(10, 0, 0, 2), PathId{3}, ecn, 0, 100));
    return bytes;
  }
  // As the kernel of `host` sends it, with this service class outside.
  void send(const char* host, const std::vector<std::byte>& bytes, int ip_class,
            std::uint16_t port = TunnelIo::kDefaultPort + 1) const {
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ASSERT_EQ(::inet_pton(AF_INET, (base_ + host).c_str(), &address.sin_addr), 1);
    address.sin_port = htons(port);
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::inet_pton(AF_INET, (base_ + "1").c_str(), &address.sin_addr), 1);
    address.sin_port = htons(TunnelIo::kDefaultPort);
    ASSERT_EQ(::setsockopt(socket.get(), IPPROTO_IP, IP_TOS, &ip_class, sizeof ip_class), 0);
    ASSERT_EQ(::sendto(socket.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<sockaddr*>(&address), sizeof address),
              static_cast<ssize_t>(bytes.size()));
  }
  // The mark of the frame that arrives; nothing: none did.
  std::optional<Ecn> arrives() {
    for (int i = 0; i < 10'000; ++i) {
      for (const RxFrame& received : io_->receive()) {
        const auto envelope = net::Envelope::parse(received, wire::SrdCodec::kPorts);
        EXPECT_TRUE(envelope.ok()) << to_string(envelope.fault());
        return envelope.ecn();
      }
      if (io_->counters().rx_dropped + io_->counters().rx_unproved != 0) {
        return std::nullopt;
      }
      std::this_thread::yield();
    }
    return std::nullopt;
  }

  std::optional<JoinKey> key_;
  std::string base_;
  std::unique_ptr<TunnelIo> io_;
};

// A router marks the outer header (3: congestion experienced). Inside it counts only for a packet
// that said it can be marked.
TEST_F(Tunnel, AMarkOutsideBecomesOneInside) {
  send("2", frame(Ecn::capable_0), 3);
  EXPECT_EQ(arrives(), Ecn::congested);
  EXPECT_EQ(io_->counters().rx_marked, 1U);
  send("2", frame(Ecn::capable_0), 2);
  EXPECT_EQ(arrives(), Ecn::capable_0);
  send("2", frame(Ecn::not_capable), 3);  // what cannot be marked is not
  EXPECT_EQ(arrives(), Ecn::not_capable);
  EXPECT_EQ(io_->counters().rx_marked, 1U);
}

// Another address than the configured one.
TEST_F(Tunnel, StrangersAreNotHeard) {
  send("3", frame(Ecn::capable_0), 0);
  EXPECT_EQ(arrives(), std::nullopt);
  EXPECT_EQ(io_->counters().rx_dropped, 1U);
}

TEST_F(Tunnel, NeitherAreOtherPortsOfTheSameMachine) {
  for (const int offset : {0, -1, TunnelIo::kSenders + 1}) {
    const auto before = io_->counters().rx_dropped;
    send("2", frame(Ecn::capable_0), 0,
         static_cast<std::uint16_t>(TunnelIo::kDefaultPort + offset));
    for (int i = 0; i < 10'000 && io_->counters().rx_dropped == before; ++i) {
      EXPECT_TRUE(io_->receive().empty());
      std::this_thread::yield();
    }
    EXPECT_EQ(io_->counters().rx_dropped, before + 1) << offset;
  }
}

class ProvedTunnel : public Tunnel {
 protected:
  ProvedTunnel() { key_ = JoinKey{}; }
};

// Right address, right port, no key: what any user of the other machine may send.
TEST_F(ProvedTunnel, AFrameWithoutAProofIsNotHeard) {
  send("2", frame(Ecn::capable_0), 0);
  EXPECT_EQ(arrives(), std::nullopt);
  EXPECT_EQ(io_->counters().rx_unproved, 1U);
  EXPECT_EQ(io_->counters().rx_frames, 0U);
}

// Each has one mistake: ports out of range (a tunnel needs several in a row), families that differ,
// names, rubbish behind the number.
TEST_F(Tunnel, WrongAddressesAreRefused) {
  for (const auto& [local, remote] :
       std::vector<std::pair<const char*, const char*>>{{"", "127.0.0.1"},
                                                        {"127.0.0.1:0", "127.0.0.2"},
                                                        {"127.0.0.1:99999", "127.0.0.2"},
                                                        {"127.0.0.1:65530", "127.0.0.2"},
                                                        {"[::1", "::1"},
                                                        {"127.0.0.1", "::1"},
                                                        {"host", "127.0.0.1"},
                                                        {"127.0.0.1:7x", "127.0.0.1"}}) {
    EXPECT_FALSE(TunnelIo::create({.local = local, .remote = remote})) << local << " " << remote;
  }
  EXPECT_TRUE(TunnelIo::create({.local = "[::1]:7411", .remote = "::1"}));
}

}  // namespace
}  // namespace weft::srd
