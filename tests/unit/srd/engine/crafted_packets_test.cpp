// Owns the tests of an engine alone with packets made by hand: what two honest engines rarely meet.
//
// Headers are those of docs/wire.md; the checksum is off, so that a test need not compute it. The
// engine's own life is 10 and the peer's 20; life 0 in a packet means that its sender knows none.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "srd/engine/engine.hpp"
#include "srd/wire/parse.hpp"

namespace weft::srd {
namespace {

using Bytes = std::vector<std::byte>;
using wire::PacketType;

constexpr AttachmentId kUs{1};
constexpr AttachmentId kThem{2};
constexpr Life kOurLife{10};
constexpr Life kTheirLife{20};
constexpr Qpn kEndpoint{17};
constexpr std::uint32_t kDomain = 3;

Address their_address() {
  Address address;
  address.bytes[0] = std::byte{0xFD};
  address.bytes[15] = std::byte{2};
  return address;
}

// The peer is the test: it writes headers as it likes, and reads what the engine says.
class CraftedPackets : public testing::Test {
 protected:
  explicit CraftedPackets(Psn first_psn = Psn{0}) : CraftedPackets(config(first_psn)) {}
  explicit CraftedPackets(const EngineConfig& config) : engine_(config) {
    EXPECT_TRUE(engine_.open_endpoint(kEndpoint, {.domain = kDomain, .receive_depth = 64}));
    const auto key = engine_.memory().insert(
        {memory_.data(), 0, memory_.size(), Access::remote_read | Access::remote_write, kDomain});
    EXPECT_TRUE(key.has_value());
    key_ = *key;
  }

  static EngineConfig config(Psn first_psn) {
    EngineConfig config;
    config.attachment = kUs;
    config.life = kOurLife;
    config.first_psn = first_psn;
    config.checksum = false;
    // Each packet is answered at once, so that said() has the answer to what just came.
    config.ack_every = 1;
    return config;
  }

  static wire::CommonHeader common(PacketType type, Life source, Life destination) {
    wire::CommonHeader header{};
    header.version = wire::kVersion;
    header.type = static_cast<std::uint8_t>(type);
    header.destination_attachment = kUs.value();
    header.source_attachment = kThem.value();
    header.destination_qpn = kEndpoint.value();
    header.source_qpn = 99;
    header.source_life = source.value();
    header.destination_life = destination.value();
    return header;
  }
  static wire::DataHeader data(PacketType type, Psn psn, std::uint16_t back = 0,
                               Life source = kTheirLife, Life destination = kOurLife) {
    wire::DataHeader header{};
    header.common = common(type, source, destination);
    header.common.flags = wire::kAckRequested;
    header.psn = psn.value();
    header.back = back;
    return header;
  }

  template <class Header>
  void arrive(const Header& header, std::size_t payload = 0, bool trimmed = false,
              Ecn ecn = Ecn::capable_0) {
    Bytes bytes(sizeof header + payload);
    wire::store(bytes.data(), header);
    RxPacket packet;
    packet.from = their_address();
    packet.trimmed = trimmed;
    packet.ecn = ecn;
    packet.bytes = bytes;
    engine_.on_packet(now_, packet);
  }

  // Everything that the engine wants to say now.
  std::vector<Bytes> said() {
    std::vector<Bytes> packets;
    TxPacket out;
    while (engine_.next_transmit(now_, out)) {
      packets.emplace_back(out.header.begin(), out.header.begin() + out.header_size);
      for (const auto piece : out.payload) {
        packets.back().insert(packets.back().end(), piece.begin(), piece.end());
      }
    }
    return packets;
  }
  std::vector<Completion> completed() {
    std::array<Completion, 64> completions;
    const std::size_t count = engine_.poll(completions);
    return {completions.begin(), completions.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  void pass(Duration duration) {
    for (const TimePoint end = now_ + duration; now_ < end;) {
      now_ = std::min(end, std::max(engine_.next_timeout(), now_ + Duration{1}));
      engine_.on_timeout(now_);
    }
  }

  // The packet number `part` of a write of two packets with immediate data. The result's code, 0
  // for success.
  std::uint8_t write_part(std::uint32_t message, std::uint32_t part, Psn psn, std::uint16_t back,
                          std::uint8_t flags = 0) {
    constexpr std::uint16_t kPart = 8;
    wire::DataHeader header = data(PacketType::write, psn, back);
    header.common.flags = static_cast<std::uint8_t>(wire::kAckRequested | wire::kImmediate | flags);
    header.payload_length = kPart;
    header.message = message;
    header.key = key_.value();
    header.remote_address = part * kPart;
    header.immediate = message;
    header.message_length = 2 * kPart;
    arrive(header, kPart);
    std::uint8_t code = 0;
    for (const Bytes& bytes : said()) {
      const wire::ParsedPacket packet = wire::parse_packet(bytes);
      for (std::size_t i = 0; packet.type() == PacketType::ack && i < packet.ack().results; ++i) {
        if (packet.result(i).psn.value() == psn.value()) {
          code = packet.result(i).code;
        }
      }
    }
    return code;
  }

  std::array<std::byte, 4096> memory_{};
  TimePoint now_ = time_at(std::chrono::seconds{1});
  Engine engine_;
  RegionKey key_;
};

// --- Lives [wire 4.2]

TEST_F(CraftedPackets, RestartedPeerThatBelievesInOurFormerLifeIsToldInItsOwnName) {
  // The peer is known now, in its first life.
  arrive(data(PacketType::probe, Psn{0}, 0, kTheirLife, Life{0}));
  static_cast<void>(said());
  const Life later = kTheirLife.plus(1);
  arrive(data(PacketType::probe, Psn{0}, 0, later, Life{kOurLife.value() - 1}));
  const auto packets = said();
  ASSERT_EQ(packets.size(), 1U);
  const wire::ParsedPacket notice = wire::parse_packet(packets[0]);
  ASSERT_TRUE(notice.ok());
  ASSERT_EQ(notice.type(), PacketType::stale_life);
  EXPECT_EQ(notice.common().source_life.value(), kOurLife.value());
  EXPECT_EQ(notice.common().destination_life.value(), later.value()) << "or it will not listen";
  EXPECT_EQ(notice.stale_life().refused_life.value(), kOurLife.value() - 1);
}

// --- Windows [wire 4.4]

TEST_F(CraftedPackets, ReceiverWithoutWindowSaysSo) {
  // A probe has a number and opens no window: the receiver cannot know where its peer's numbers
  // stand.
  wire::DataHeader probe = data(PacketType::probe, Psn{0x80001234}, 0, kTheirLife, Life{0});
  arrive(probe);
  auto packets = said();
  ASSERT_EQ(packets.size(), 1U);
  const wire::ParsedPacket answer = wire::parse_packet(packets[0]);
  ASSERT_EQ(answer.type(), PacketType::ack);
  EXPECT_TRUE(answer.has(wire::kNoWindow));
  EXPECT_TRUE(answer.has(wire::kEchoProbe));

  arrive(data(PacketType::send, Psn{0x80001234}));
  packets = said();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_FALSE(wire::parse_packet(packets[0]).has(wire::kNoWindow));
}

class CraftedPacketsAtTheWrap : public CraftedPackets {
 protected:
  CraftedPacketsAtTheWrap() : CraftedPackets(Psn{0xFFFFFFF8}) {}
};

TEST_F(CraftedPacketsAtTheWrap, AckWithoutWindowSettlesNothing) {
  const auto peer = engine_.peer(their_address(), kThem);
  ASSERT_TRUE(peer.has_value());
  std::array<std::byte, 16> bytes{};
  for (int i = 0; i < 16; ++i) {
    SendRequest request;
    request.peer = *peer;
    request.source = request.destination = kEndpoint;
    request.segments[0] = {bytes.data(), bytes.size()};
    ASSERT_EQ(engine_.post(request), PostResult::accepted);
  }
  // Numbers 0xFFFFFFF8 to 7.
  ASSERT_EQ(said().size(), 16U);
  wire::AckHeader ack{};  // cumulative 0: in the middle of what was sent
  ack.common = common(PacketType::ack, kTheirLife, kOurLife);
  ack.common.flags = wire::kNoWindow;
  arrive(ack);
  EXPECT_TRUE(completed().empty());
  ack.common.flags = 0;
  arrive(ack);
  EXPECT_EQ(completed().size(), 8U) << "the same with a window is an acknowledgement";
}

// Its header is not covered by a checksum once the payload is gone, so it proves nothing of its
// sender.
TEST_F(CraftedPackets, TrimmedPacketOpensNoWindow) {
  arrive(data(PacketType::probe, Psn{5}));
  static_cast<void>(said());
  wire::DataHeader header = data(PacketType::send, Psn{7});
  header.payload_length = 100;
  header.message_length = 100;
  arrive(header, 0, true);
  const std::vector<Bytes> replies = said();
  ASSERT_EQ(replies.size(), 1U);
  const wire::ParsedPacket answer = wire::parse_packet(replies[0]);
  ASSERT_EQ(answer.type(), PacketType::ack);
  EXPECT_TRUE(answer.has(wire::kNoWindow));
  ASSERT_EQ(answer.ack().results, 1);
  EXPECT_EQ(answer.result(0).psn.value(), 7U);
  EXPECT_EQ(answer.result(0).code, wire::kResultTrimmed);
}

// A trimmed packet can be from any sender: it gives none a place in the table for good.
TEST_F(CraftedPackets, StrangersAreForgottenUnlessAPacketOfTheirsIsVerified) {
  // Of the table of peers, against ten times as many strangers.
  constexpr std::uint32_t kPlaces = 4;
  EngineConfig few = config(Psn{0});
  few.max_peers = kPlaces;
  Engine engine(few);
  const auto arrive_from = [&](std::uint16_t stranger, wire::DataHeader header, bool trimmed) {
    header.common.source_attachment = stranger;
    Bytes bytes(sizeof header);
    wire::store(bytes.data(), header);
    RxPacket packet;
    packet.from = their_address();
    packet.trimmed = trimmed;
    packet.bytes = bytes;
    engine.on_packet(now_, packet);
  };
  const auto answers = [&] {
    std::uint32_t count = 0;
    TxPacket out;
    while (engine.next_transmit(now_, out)) {
      ++count;
    }
    return count;
  };
  wire::DataHeader trimmed = data(PacketType::send, Psn{7});
  trimmed.payload_length = 100;
  trimmed.message_length = 100;
  wire::DataHeader misled = trimmed;  // speaks to a life of ours that is over
  misled.common.destination_life = kOurLife.value() - 1;
  std::uint16_t stranger = 100;
  for (std::uint32_t i = 0; i < 10 * kPlaces; ++i) {
    arrive_from(++stranger, misled, true);
  }
  EXPECT_EQ(answers(), 0U);
  const auto dropped = [&](DropReason reason) {
    return engine.counters().drops[static_cast<std::size_t>(reason)];
  };
  EXPECT_EQ(dropped(DropReason::unverified_life), 10 * kPlaces);
  for (int i = 0; i < 10; ++i) {
    for (std::uint32_t together = 0; together < kPlaces; ++together) {
      arrive_from(++stranger, trimmed, true);
    }
    EXPECT_EQ(answers(), kPlaces);
  }
  EXPECT_EQ(dropped(DropReason::peer_table_full), 0U);

  // One that is verified later stays, and one that the program asks for.
  arrive_from(1, trimmed, true);
  arrive_from(1, data(PacketType::probe, Psn{0}), false);
  EXPECT_EQ(answers(), 2U) << "the probe has its own";
  const auto asked_for = engine.peer(their_address(), AttachmentId{2});
  ASSERT_TRUE(asked_for);
  arrive_from(2, trimmed, true);
  EXPECT_EQ(answers(), 1U);
  EXPECT_EQ(engine.peer(their_address(), AttachmentId{2}).value(), *asked_for);
  const auto known = engine.peer(their_address(), AttachmentId{1});
  ASSERT_TRUE(known);
  const auto history = engine.history_of(*known);
  ASSERT_TRUE(history);
  EXPECT_TRUE(history->life_known);
}

// --- Writes with immediate data [wire 4.6]

constexpr std::uint8_t kNotReady = static_cast<std::uint8_t>(Status::receiver_not_ready);
constexpr std::uint32_t kManyMessages = 40;  // more than a receiver counts at a time

TEST_F(CraftedPackets, MessagesThatWaitForAReceiveAreNotForgotten) {
  Psn psn{0};
  std::vector<std::uint32_t> waiting;
  for (std::uint32_t message = 1; message <= kManyMessages; ++message) {
    const std::uint8_t first = write_part(message, 0, psn, 0);
    ++psn;
    if (first == wire::kResultDeferred) {
      break;  // no room: its sender keeps it
    }
    ASSERT_EQ(first, 0);
    ASSERT_EQ(write_part(message, 1, psn, 0), kNotReady);
    ++psn;
    waiting.push_back(message);
    if (waiting.size() % 8 == 0) {  // the sender has seen the results and moves on
      wire::DataHeader probe = data(PacketType::send, psn, 0);
      probe.common.destination_qpn = kEndpoint.value();
      arrive(probe);
      static_cast<void>(said());
      ++psn;
    }
  }
  ASSERT_EQ(waiting.size(), kManyMessages) << "they take no room";
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    ASSERT_EQ(engine_.post_receive(kEndpoint, {}), PostResult::accepted);
  }
  static_cast<void>(completed());
  for (const std::uint32_t message : waiting) {
    EXPECT_EQ(write_part(message, 1, psn, 0, wire::kCompletes), 0) << message;
    ++psn;
    const auto completions = completed();
    ASSERT_EQ(completions.size(), 1U) << "message " << message << " is complete";
    EXPECT_EQ(completions[0].immediate, message);
  }
}

// Each has half of its bytes and no receive; none is ever finished.
TEST_F(CraftedPackets, MessagesThatAreGivenUpMakeRoomInTheEnd) {
  Psn psn{0};
  for (std::uint32_t message = 1; message <= kManyMessages; ++message) {
    if (write_part(message, 0, psn, 0) == 0) {
      ++psn;
      static_cast<void>(write_part(message, 1, psn, 0));
    }
    ++psn;
  }
  ASSERT_EQ(engine_.post_receive(kEndpoint, {}), PostResult::accepted);
  EXPECT_EQ(write_part(1000, 0, psn, 0), 0);
  EXPECT_EQ(write_part(1000, 1, psn.plus(1), 1), 0);
  const auto completions = completed();
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].immediate, 1000U);
}

// Numbers of messages come round.
TEST_F(CraftedPackets, AMessageIsNotTakenForOneThatWasGivenUpLongAgo) {
  ASSERT_EQ(engine_.post_receive(kEndpoint, {}), PostResult::accepted);
  Psn psn{0};
  const auto arrives = [&](std::uint32_t message, std::uint32_t part) {
    const Psn here = psn;
    ++psn;
    return write_part(message, part, here, 0);
  };
  ASSERT_EQ(arrives(7, 0), 0);  // and its sender gives it up
  // `back` is 0 in each of them: their sender has settled all numbers before, message 7's among
  // them.
  for (std::uint32_t message = 8; message < 11; ++message) {
    ASSERT_EQ(engine_.post_receive(kEndpoint, {}), PostResult::accepted);
    ASSERT_EQ(arrives(message, 0), 0);
    ASSERT_EQ(arrives(message, 1), 0);
  }
  EXPECT_EQ(completed().size(), 3U);
  ASSERT_EQ(arrives(7, 1), 0);
  EXPECT_TRUE(completed().empty()) << "half of it is missing";
  ASSERT_EQ(arrives(7, 0), 0);
  EXPECT_EQ(completed().size(), 1U);
}

// --- Answers

// As a sender probes all of its paths at once, and needs the round trip of each.
TEST_F(CraftedPackets, EachOfManyProbesIsAnswered) {
  constexpr std::uint16_t kProbes = 64;
  arrive(data(PacketType::send, Psn{0}));
  for (std::uint16_t path = 0; path < kProbes; ++path) {
    wire::DataHeader probe = data(PacketType::probe, Psn{1});
    probe.common.path = path;
    probe.send_time = 1000U + path;
    arrive(probe);
  }
  std::vector<std::uint16_t> echoed;
  bool data_echoed = false;
  for (const Bytes& bytes : said()) {
    const wire::ParsedPacket packet = wire::parse_packet(bytes);
    ASSERT_EQ(packet.type(), PacketType::ack);
    if (packet.has(wire::kEchoProbe)) {
      echoed.push_back(packet.ack().common.path.value());
      EXPECT_EQ(packet.ack().echo_send_time.value(), 1000U + echoed.back());
    } else {
      data_echoed |= packet.has(wire::kEchoValid);
    }
  }
  EXPECT_EQ(echoed.size(), kProbes);
  EXPECT_TRUE(data_echoed);
}

class UnhurriedReceiver : public CraftedPackets {
 protected:
  UnhurriedReceiver() : CraftedPackets(unhurried()) {}

  static EngineConfig unhurried() {
    EngineConfig unhurried = config(Psn{0});
    unhurried.ack_every = 100;
    return unhurried;
  }
};

// [wire 4.7] Whether it asks for it or not.
TEST_F(UnhurriedReceiver, AnswersAProbeAtOnce) {
  wire::DataHeader probe = data(PacketType::probe, Psn{0});
  probe.common.flags = 0;
  arrive(probe, 0, false, Ecn::congested);
  const std::vector<Bytes> answers = said();
  ASSERT_EQ(answers.size(), 1U);
  const wire::ParsedPacket answer = wire::parse_packet(answers.front());
  EXPECT_TRUE(answer.has(wire::kEchoProbe));
  EXPECT_TRUE(answer.has(wire::kEchoCongested));
  EXPECT_EQ(engine_.counters().congested_pkts, 1U);
}

// And data that does not ask for it, later.
TEST_F(UnhurriedReceiver, PutsOffTheAnswerToData) {
  wire::DataHeader write = data(PacketType::write, Psn{0});
  write.common.flags = wire::kLastOfMessage;
  arrive(write);
  EXPECT_TRUE(said().empty());
  pass(config(Psn{0}).ack_delay);
  EXPECT_EQ(said().size(), 1U);
}

// A copy says that its answer was lost, and a header that its payload was.
TEST_F(UnhurriedReceiver, AnswersCopiesAndTrimmedPacketsAtOnce) {
  wire::DataHeader packet = data(PacketType::write, Psn{0});
  packet.common.flags = wire::kLastOfMessage;
  arrive(packet);
  EXPECT_TRUE(said().empty());
  arrive(packet);
  EXPECT_EQ(said().size(), 1U);
  packet.psn = 1;
  packet.payload_length = 64;
  packet.message_length = 64;
  arrive(packet, 0, true);
  EXPECT_EQ(said().size(), 1U);
}

}  // namespace
}  // namespace weft::srd
