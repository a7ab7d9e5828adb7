// Owns the tests of the first look at arriving bytes: each reason of [wire 5.1], and that no bytes
// do harm.
//
// Packets start as golden ones (golden.hpp) and are changed in one field, so that the reason to
// drop them is known. What a field allows is tried to the last value on both sides.
#include "srd/wire/parse.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "srd/base/rng.hpp"
#include "tests/unit/srd/wire/golden.hpp"

namespace weft::srd {
// For readable failures.
static void PrintTo(DropReason reason, std::ostream* out) { *out << to_string(reason); }
}  // namespace weft::srd

namespace weft::srd::wire {
namespace {

using test::golden;
using Bytes = std::vector<std::byte>;

// A golden packet with some fields of its header changed.
template <class Header>
Bytes with(std::string_view name, const std::function<void(Header&)>& change) {
  Bytes bytes = golden(name);
  Header header;
  EXPECT_TRUE(load(bytes, header));
  change(header);
  store(bytes.data(), header);
  return bytes;
}
Bytes with_data(std::string_view name, const std::function<void(DataHeader&)>& change) {
  return with<DataHeader>(name, change);
}
Bytes with_common(std::string_view name, const std::function<void(CommonHeader&)>& change) {
  return with<CommonHeader>(name, change);
}

DropReason reason_of(const Bytes& bytes, bool trimmed = false) {
  return parse_packet(bytes, 0, trimmed).reason();
}

// Two reasons, by whether the header is whole: with it, the packet says itself how long it should
// be.
TEST(Parse, EveryTruncationIsRefused) {
  for (const test::Golden& packet : test::kGolden) {
    const Bytes whole = test::from_hex(packet.hex);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const DropReason reason =
          reason_of(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
      const bool header_is_there =
          size >= (packet.name == "ack" ? sizeof(AckHeader) : sizeof(DataHeader));
      EXPECT_EQ(reason, header_is_there ? DropReason::bad_length : DropReason::too_short)
          << packet.name << " cut to " << size;
    }
  }
}

TEST(Parse, EveryExtensionIsRefused) {
  for (const test::Golden& packet : test::kGolden) {
    Bytes bytes = test::from_hex(packet.hex);
    for (int extra = 0; extra < 100; ++extra) {
      bytes.push_back(std::byte{0});
      EXPECT_EQ(reason_of(bytes), DropReason::bad_length) << packet.name << " + " << extra + 1;
    }
  }
}

// Some carriers deliver header and payload apart. The header must be in one piece; the payload may
// be cut anywhere, and the checksum covers both parts.
TEST(Parse, PayloadMayLieElsewhere) {
  const Bytes whole = golden("send");
  for (std::size_t first = 0; first <= whole.size(); ++first) {
    const auto bytes = std::span{whole}.first(first);
    const auto more = std::span{whole}.subspan(first);
    const ParsedPacket parsed = parse_packet(bytes, more.size());
    if (first < sizeof(DataHeader)) {
      EXPECT_EQ(parsed.reason(), DropReason::too_short) << "a torn header, at " << first;
    } else {
      ASSERT_EQ(parsed.reason(), DropReason::none) << first;
      EXPECT_EQ(parsed.payload().size() + more.size(), 4U);
      EXPECT_EQ(verify_checksum(parsed, more, true), DropReason::none);
    }
  }
  for (const auto name : {"ack", "stale_life", "credit_request"}) {
    EXPECT_EQ(parse_packet(golden(name), 1).reason(), DropReason::bad_length) << name;
  }
}

TEST(Parse, OnlyTheVersionThatIsSpecified) {
  for (unsigned version = 0; version < 256; ++version) {
    const Bytes bytes =
        with_common("send", [&](auto& h) { h.version = static_cast<std::uint8_t>(version); });
    EXPECT_EQ(reason_of(bytes), version == kVersion ? DropReason::none : DropReason::bad_version);
  }
}

// [wire 3.2]
TEST(Parse, OnlyKnownTypes) {
  for (unsigned type = 0; type < 256; ++type) {
    const Bytes bytes =
        with_common("probe", [&](auto& h) { h.type = static_cast<std::uint8_t>(type); });
    const bool known = (type >= 1 && type <= 5) || (type >= 16 && type <= 18);
    EXPECT_EQ(reason_of(bytes) != DropReason::bad_type, known) << type;
  }
}

// [wire 3.3]
TEST(Parse, FlagsThatATypeDoesNotHave) {
  struct Case {
    std::string_view name;
    unsigned allowed;
  };
  for (const Case& c : {Case{"send", 0x0F}, Case{"write", 0x2F}, Case{"read_request", 0x05},
                        Case{"read_response", 0x1D}, Case{"probe", 0x05}, Case{"ack", 0xFD},
                        Case{"stale_life", 0x04}, Case{"credit_request", 0x04}}) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      const unsigned flag = 1U << bit;
      const Bytes bytes =
          with_common(c.name, [&](auto& h) { h.flags = static_cast<std::uint8_t>(flag); });
      EXPECT_EQ(reason_of(bytes) != DropReason::reserved_bits, (c.allowed & flag) != 0)
          << c.name << " flag " << flag;
    }
  }
}

// Its echo_psn is another number.
TEST(Parse, AnAckOfAProcessThatLeavesHasNoEcho) {
  for (unsigned bit = 0; bit < 8; ++bit) {
    const unsigned flag = 1U << bit;
    const unsigned echoes = kEchoValid | kEchoCongested | kEchoProbe;
    const Bytes bytes = with_common(
        "ack", [&](auto& h) { h.flags = static_cast<std::uint8_t>(kLeaving | (flag & ~0x02U)); });
    EXPECT_EQ(reason_of(bytes) == DropReason::reserved_bits, (echoes & flag) != 0) << flag;
  }
}

TEST(Parse, PathsBelow256) {
  EXPECT_EQ(reason_of(with_common("send", [](auto& h) { h.path = 255; })), DropReason::none);
  EXPECT_EQ(reason_of(with_common("send", [](auto& h) { h.path = 256; })), DropReason::bad_path);
  EXPECT_EQ(reason_of(with_common("ack", [](auto& h) { h.path = 0xFFFF; })), DropReason::bad_path);
}

// 0 means that a life is not known. A sender knows its own, and an answer is to a life that has
// been told; only a first packet may not know whom it speaks to.
TEST(Parse, LivesThatMustNotBeZero) {
  for (const test::Golden& packet : test::kGolden) {
    EXPECT_EQ(reason_of(with_common(packet.name, [](auto& h) { h.source_life = 0; })),
              DropReason::zero_life)
        << packet.name;
    const bool answer = packet.name == "ack" || packet.name == "stale_life";
    EXPECT_EQ(reason_of(with_common(packet.name, [](auto& h) { h.destination_life = 0; })),
              answer ? DropReason::zero_life : DropReason::none)
        << packet.name;
  }
  EXPECT_EQ(reason_of(with<StaleLife>("stale_life", [](auto& h) { h.refused_life = 0; })),
            DropReason::zero_life);
}

// `back` leads from a packet's number to the window's base, so it cannot be as much as the window
// spans.
TEST(Parse, BackStaysInsideOfTheWindow) {
  EXPECT_EQ(reason_of(with_data("send", [](auto& h) { h.back = 1983; })), DropReason::none);
  EXPECT_EQ(reason_of(with_data("send", [](auto& h) { h.back = 1984; })), DropReason::bad_window);
  EXPECT_EQ(reason_of(with_data("probe", [](auto& h) { h.back = 0xFFFF; })),
            DropReason::bad_window);
}

// [wire 3.4] The rules on payload_length, message_length and offset, type by type.
TEST(Parse, MessageOfASend) {
  EXPECT_EQ(reason_of(with_data("send", [](auto& h) { h.message_length = 5; })),
            DropReason::bad_message);
  EXPECT_EQ(reason_of(with_data("send", [](auto& h) { h.message_length = 3; })),
            DropReason::bad_message);
  Bytes empty = with_data("send", [](auto& h) {
    h.message_length = 0;
    h.payload_length = 0;
  });
  empty.resize(sizeof(DataHeader));
  EXPECT_EQ(reason_of(empty), DropReason::none);
}

// A message may have many packets of 1 GiB in all; a packet without bytes is allowed only if the
// message has none.
TEST(Parse, MessageOfAWrite) {
  const auto length = [](std::uint32_t message) {
    return with_data("write", [&](auto& h) { h.message_length = message; });
  };
  EXPECT_EQ(reason_of(length(4)), DropReason::none);
  EXPECT_EQ(reason_of(length(3)), DropReason::bad_message);
  EXPECT_EQ(reason_of(length(1U << 30)), DropReason::none);
  EXPECT_EQ(reason_of(length((1U << 30) + 1)), DropReason::bad_message);
  Bytes empty = with_data("write", [](auto& h) {
    h.message_length = 0;
    h.payload_length = 0;
  });
  empty.resize(sizeof(DataHeader));
  EXPECT_EQ(reason_of(empty), DropReason::none);
  Bytes part_without_bytes = with_data("write", [](auto& h) { h.payload_length = 0; });
  part_without_bytes.resize(sizeof(DataHeader));
  EXPECT_EQ(reason_of(part_without_bytes), DropReason::bad_message);
}

TEST(Parse, MessageOfARead) {
  const auto request = [](std::uint32_t message) {
    return with_data("read_request", [&](auto& h) { h.message_length = message; });
  };
  EXPECT_EQ(reason_of(request(0)), DropReason::none);
  EXPECT_EQ(reason_of(request(1U << 30)), DropReason::none);
  EXPECT_EQ(reason_of(request((1U << 30) + 1)), DropReason::bad_message);
  Bytes with_payload = with_data("read_request", [](auto& h) { h.payload_length = 1; });
  with_payload.push_back(std::byte{1});
  EXPECT_EQ(reason_of(with_payload), DropReason::bad_message);

  const auto response = [](std::uint64_t offset, std::uint32_t message) {
    return with_data("read_response", [&](auto& h) {
      h.remote_address = offset;
      h.message_length = message;
    });
  };
  EXPECT_EQ(reason_of(response(0, 4)), DropReason::none);
  EXPECT_EQ(reason_of(response(1, 4)), DropReason::bad_message);
  EXPECT_EQ(reason_of(response(5, 4)), DropReason::bad_message);
  EXPECT_EQ(reason_of(response(0xFFFFFFFFFFFFFFFF, 4)), DropReason::bad_message) << "wraps to -1";
  EXPECT_EQ(reason_of(response(0xFFFFFFFFFFFFFFFC, 0)), DropReason::bad_message);
  EXPECT_EQ(reason_of(response((1U << 30) - 4, 1U << 30)), DropReason::none);
  EXPECT_EQ(reason_of(response(0, (1U << 30) + 1)), DropReason::bad_message);
}

// The key field of such a response holds the status. 0 would be success, and above 10 there is
// none.
TEST(Parse, StatusOfAFailedRead) {
  for (std::uint32_t status = 0; status < 300; ++status) {
    EXPECT_EQ(reason_of(with_data("failed_read_response", [&](auto& h) { h.key = status; })),
              status >= 1 && status <= 10 ? DropReason::none : DropReason::bad_message)
        << status;
  }
  Bytes with_payload = with_data("failed_read_response", [](auto& h) { h.payload_length = 1; });
  with_payload.push_back(std::byte{1});
  EXPECT_EQ(reason_of(with_payload), DropReason::bad_message);
}

TEST(Parse, ProbeHasNoPayload) {
  Bytes bytes = with_data("probe", [](auto& h) { h.payload_length = 1; });
  bytes.push_back(std::byte{1});
  EXPECT_EQ(reason_of(bytes), DropReason::bad_message);
}

Bytes ack_of(unsigned sack_words, unsigned results) {
  Bytes bytes = with<AckHeader>("ack", [&](auto& h) {
    h.sack_words = static_cast<std::uint8_t>(sack_words);
    h.results = static_cast<std::uint8_t>(results);
  });
  bytes.resize(sizeof(AckHeader) + sack_words * 8 + results * 8);
  for (std::size_t at = sizeof(AckHeader) + sack_words * 8; at < bytes.size(); at += 8) {
    ResultEntry entry{};
    entry.code = 1;
    store(bytes.data() + at, entry);
  }
  return bytes;
}

// [wire 3.5]
TEST(Parse, AckOfEverySize) {
  for (unsigned words = 0; words < 256; ++words) {
    for (const unsigned results : {0U, 1U, 24U, 25U, 255U}) {
      const DropReason expected = words > 32     ? DropReason::bad_sack
                                  : results > 24 ? DropReason::bad_result
                                                 : DropReason::none;
      EXPECT_EQ(reason_of(ack_of(words, results)), expected) << words << " words, " << results;
    }
  }
  EXPECT_EQ(ack_of(32, 24).size(), kLargestAck);
}

TEST(Parse, ResultCodes) {
  for (unsigned code = 0; code < 256; ++code) {
    Bytes bytes = ack_of(3, 2);
    ResultEntry entry{};
    entry.code = static_cast<std::uint8_t>(code);
    store(bytes.data() + bytes.size() - sizeof entry, entry);
    const bool known = (code >= 1 && code <= 10) || code == 128 || code == 129;
    EXPECT_EQ(reason_of(bytes), known ? DropReason::none : DropReason::bad_result) << code;
  }
  for (const std::size_t reserved : {1U, 2U}) {
    Bytes bytes = ack_of(3, 2);
    bytes[bytes.size() - reserved] = std::byte{1};
    EXPECT_EQ(reason_of(bytes), DropReason::reserved_bits);
  }
}

// [wire 4.9]
TEST(Parse, TrimmedDataIsWhatIsLeftOfIt) {
  Bytes bytes = golden("write");
  for (const std::size_t size : {68U, 67U, 64U}) {
    bytes.resize(size);
    const ParsedPacket parsed = parse_packet(bytes, 0, true);
    ASSERT_EQ(parsed.reason(), DropReason::none) << size;
    EXPECT_TRUE(parsed.trimmed());
    EXPECT_EQ(parsed.data().psn.value(), 0x10203040U);
    EXPECT_EQ(verify_checksum(parsed, {}, true), DropReason::none) << "cannot be told";
  }
  bytes.resize(63);
  EXPECT_EQ(reason_of(bytes, true), DropReason::trimmed_without_psn);
  bytes = golden("write");
  bytes.push_back(std::byte{0});
  EXPECT_EQ(reason_of(bytes, true), DropReason::bad_length);
}

// A ring's memory is shared with its producer, which may go on writing.
TEST(Parse, WhatWasCheckedIsWhatIsUsed) {
  for (const test::Golden& packet : test::kGolden) {
    Bytes bytes = test::from_hex(packet.hex);
    const ParsedPacket parsed = parse_packet(bytes);
    ASSERT_TRUE(parsed.ok()) << packet.name;
    const ParsedPacket before = parsed;
    std::ranges::fill(bytes, std::byte{0xFF});
    EXPECT_EQ(std::memcmp(&parsed.common(), &before.common(), sizeof(CommonHeader)), 0);
    if (parsed.has_data_header()) {
      EXPECT_EQ(sizeof(DataHeader) + parsed.data().payload_length.value(), bytes.size());
    }
    if (parsed.type() != PacketType::ack) {
      continue;
    }
    const AckHeader ack = parsed.ack();
    EXPECT_EQ(sizeof ack + ack.sack_words * 8U + ack.results * sizeof(ResultEntry), bytes.size());
    for (std::size_t i = 0; i < ack.sack_words; ++i) {
      EXPECT_EQ(parsed.sack_word(i), before.sack_word(i));
      EXPECT_NE(parsed.sack_word(i), ~std::uint64_t{0});
    }
    for (std::size_t i = 0; i < ack.results; ++i) {
      EXPECT_NE(parsed.result(i).code, 0xFF);
    }
  }
}

// Switches cut payload off; these packets have none.
TEST(Parse, NothingElseCanBeTrimmed) {
  for (const auto name :
       {"ack", "stale_life", "credit_request", "probe", "read_request", "failed_read_response"}) {
    EXPECT_EQ(reason_of(golden(name), true), DropReason::trimmed_control) << name;
  }
}

// [wire 3.1]
TEST(Checksum, EveryFlippedBitIsNoticed) {
  for (const test::Golden& packet : test::kGolden) {
    const Bytes whole = test::from_hex(packet.hex);
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      Bytes bytes = whole;
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      const ParsedPacket parsed = parse_packet(bytes);
      EXPECT_FALSE(parsed.ok() && verify_checksum(parsed, {}, true) == DropReason::none)
          << packet.name << " bit " << bit;
    }
  }
}

// Whether it is required depends on the carrier, and is the last argument.
TEST(Checksum, MayBeAbsentWhereMemoryCarries) {
  const Bytes bytes = with_common("send", [](auto& h) { h.flags = kAckRequested | kImmediate; });
  const ParsedPacket parsed = parse_packet(bytes);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(verify_checksum(parsed, {}, false), DropReason::none);
  EXPECT_EQ(verify_checksum(parsed, {}, true), DropReason::missing_checksum);
}

TEST(Checksum, IsVerifiedWhereItIsEvenIfNotRequired) {
  Bytes bytes = golden("send");
  bytes.back() ^= std::byte{1};
  EXPECT_EQ(verify_checksum(parse_packet(bytes), {}, false), DropReason::bad_checksum);
}

TEST(Checksum, DoesNotDependOnTheFieldOrOnThePieces) {
  Bytes bytes = golden("send");
  const std::uint32_t sum = packet_checksum(bytes);
  const auto header = std::span{bytes}.first(sizeof(DataHeader));
  const auto payload = std::span{bytes}.subspan(sizeof(DataHeader));
  EXPECT_EQ(packet_checksum(header, payload), sum);
  EXPECT_EQ(packet_checksum(header, payload.first(1), payload.subspan(1)), sum);
  std::fill_n(bytes.begin() + 24, 4, std::byte{0xEE});
  EXPECT_EQ(packet_checksum(bytes), sum);
}

// Random bytes, and packets of ours with random damage: whatever is let through must be consistent.
class ParseAnything : public testing::TestWithParam<std::uint64_t> {};

void expect_consistent(const Bytes& bytes, std::size_t more, bool trimmed) {
  const ParsedPacket parsed = parse_packet(bytes, more, trimmed);
  if (!parsed.ok()) {
    return;
  }
  const std::size_t size = bytes.size() + more;
  if (parsed.has_data_header()) {
    const std::size_t whole = sizeof(DataHeader) + parsed.data().payload_length.value();
    EXPECT_TRUE(trimmed ? size <= whole : size == whole);
    EXPECT_LE(parsed.payload().size(), parsed.data().payload_length.value());
    return;
  }
  EXPECT_EQ(more, 0U);
  EXPECT_FALSE(trimmed);
  if (parsed.type() == PacketType::ack) {
    const AckHeader ack = parsed.ack();
    EXPECT_EQ(size, sizeof ack + ack.sack_words * 8U + ack.results * 8U);
  } else {
    EXPECT_EQ(size, 32U);
  }
}

TEST_P(ParseAnything, LetsOnlyConsistentPacketsThrough) {
  Rng rng{GetParam()};
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = test::from_hex(test::kGolden[rng.below(std::size(test::kGolden))].hex);
    for (std::uint32_t damage = rng.below(4); damage > 0; --damage) {
      bytes[rng.below(static_cast<std::uint32_t>(bytes.size()))] =
          static_cast<std::byte>(rng.next());
    }
    bytes.resize(rng.chance(0.7) ? bytes.size() : rng.below(200));
    expect_consistent(bytes, rng.chance(0.8) ? 0 : rng.below(10), rng.chance(0.2));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ParseAnything, testing::Values(1, 2, 3));

}  // namespace
}  // namespace weft::srd::wire
