// Owns a sender without an engine around it, for the tests of what it keeps true.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "srd/engine/engine_parts.hpp"

namespace weft::srd {

using namespace std::chrono_literals;
using wire::PacketType;

inline constexpr TimePoint kStart{Duration{1s}};
inline constexpr Psn kFirst{100};
inline constexpr std::uint32_t kMtu = 64;
inline constexpr Qpn kQpn{17};
inline constexpr Qpn kTheirs{99};

// One sender whose peer is the test. There is no engine around it: a turn is a call of transmit(),
// and a deadline is reached by pass().
class SenderTest : public ::testing::Test {
 protected:
  explicit SenderTest(const EngineConfig& config = configure()) : parts_(config, nullptr, nullptr) {
    parts_.endpoints.insert(kQpn, {});
  }

  static EngineConfig configure() {
    EngineConfig config;
    config.first_psn = kFirst;
    config.max_work_requests = 16;
    config.mtu_payload = kMtu;
    config.checksum = false;
    config.paths = 2;
    // The plainest of each, so that no policy decides what a test sees: paths in turn, a window
    // that stays.
    config.path_selector = "oblivious";
    config.congestion_control = "fixed";
    config.max_rto = 1ms;
    config.peer_timeout = 5ms;
    return config;
  }

  // A request of so many packets.
  Work& request(WorkKind kind = WorkKind::send, std::uint32_t packets = 1) {
    return request_to(peer_, kind, packets * kMtu, packets);
  }
  Work& request_to(Peer& peer, WorkKind kind, std::uint32_t bytes, std::uint32_t packets) {
    const auto [index, work] =
        parts_.works.begin_request(peer, *parts_.endpoints.find(kQpn), kind, kTheirs, bytes);
    work->data[0] = memory_.data();
    work->lengths[0] = work->length;
    work->packets = packets;
    work->message = parts_.sender(peer).number_message();
    work->cookie = index;
    parts_.sender(peer).enqueue_request(index, *work);
    return *work;
  }
  std::optional<wire::DataHeader> transmit() {
    TxPacket out;
    if (!sender_.transmit(now_, out)) {
      return std::nullopt;
    }
    wire::DataHeader header{};
    const bool loaded = wire::load(std::span(out.header).first(out.header_size), header);
    return loaded ? header : wire::DataHeader{};
  }
  // All packets that may leave now.
  std::vector<wire::DataHeader> transmit_all() {
    std::vector<wire::DataHeader> packets;
    while (const auto packet = transmit()) {
      packets.push_back(*packet);
    }
    return packets;
  }
  static PacketType type_of(const wire::DataHeader& header) {
    return static_cast<PacketType>(header.common.type);
  }

  // The peer grants so many credits, in all, and says nothing else.
  void grant(std::uint32_t credits) {
    wire::AckHeader header{};
    header.common.version = wire::kVersion;
    header.common.type = static_cast<std::uint8_t>(PacketType::ack);
    header.common.source_life = 1;
    header.common.destination_life = 1;
    header.common.flags = wire::kNoWindow | wire::kCreditValid;
    header.credit = credits;
    std::array<std::byte, sizeof header> bytes{};
    wire::store(bytes.data(), header);
    const auto packet = wire::parse_packet(bytes);
    ASSERT_TRUE(packet.ok());
    (void)sender_.on_ack(now_, now_, packet);
  }
  // Everything before `cumulative` has arrived, and the numbers in `word`, of the 64 around it.
  void acknowledge(Psn cumulative, std::uint64_t word = 0) { tell(cumulative, word, {}); }
  // The peer tells the outcome of one packet.
  void answer(Psn psn, std::uint8_t code, std::uint8_t attempt = 0) {
    wire::ResultEntry entry{};
    entry.psn = psn.value();
    entry.code = code;
    // Which transmission the news is of: the first one is 0.
    entry.attempt = attempt;
    tell(kFirst, 0, entry);
  }
  void tell(Psn cumulative, std::uint64_t word, const std::optional<wire::ResultEntry>& result,
            const wire::DataHeader* echoed = nullptr) {
    wire::AckHeader header{};
    header.common.version = wire::kVersion;
    header.common.type = static_cast<std::uint8_t>(PacketType::ack);
    header.common.source_life = 1;
    header.common.destination_life = 1;
    header.cumulative = cumulative.value();
    if (echoed != nullptr) {
      header.common.flags = wire::kEchoValid;
      header.common.path = echoed->common.path;
      header.common.attempt = echoed->common.attempt;
      header.echo_psn = echoed->psn;
      header.echo_send_time = echoed->send_time;
    }
    header.sack_words = word != 0 ? 1 : 0;
    header.results = result ? 1 : 0;
    std::array<std::byte, 256> bytes{};
    std::byte* end = bytes.data();
    const auto add = [&](const auto& part) {
      wire::store(end, part);
      end += sizeof part;
    };
    add(header);
    if (word != 0) {
      add(wire::big_uint64_buf_t{word});
    }
    if (result) {
      add(*result);
    }
    const auto packet =
        wire::parse_packet(std::span(bytes).first(static_cast<std::size_t>(end - bytes.data())));
    ASSERT_TRUE(packet.ok());
    (void)sender_.on_ack(now_, now_, packet);
  }

  // The next deadline comes, and no answer.
  void pass() {
    now_ = sender_.next_deadline();
    sender_.on_timeout(now_);
  }
  std::optional<Completion> completed() {
    const Completion* const next = parts_.completions.next();
    if (next == nullptr) {
      return std::nullopt;
    }
    const Completion completion = *next;
    parts_.completions.pop();
    return completion;
  }
  std::optional<Status> ended() {
    const auto completion = completed();
    return completion ? std::optional{completion->status} : std::nullopt;
  }

  std::array<std::byte, std::size_t{64} * kMtu> memory_{};
  TimePoint now_ = kStart;
  EngineParts parts_;
  Peer& peer_ = *parts_.peers.find_or_make(PeerKey{});
  Sender& sender_ = parts_.sender(peer_);
};

}  // namespace weft::srd
