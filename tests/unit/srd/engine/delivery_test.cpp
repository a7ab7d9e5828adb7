// Owns the proof that each packet has one outcome, and that one which is refused or put off changes
// nothing. [wire 4.3]
#include "srd/engine/delivery.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "srd/base/lent_memory.hpp"

namespace weft::srd {
namespace {

using wire::PacketType;

constexpr TimePoint kNow{std::chrono::seconds{1}};
constexpr Qpn kEndpoint{17};
constexpr Qpn kTheirs{99};
constexpr std::uint32_t kQkey = 7;
constexpr std::uint32_t kDomain = 3;
constexpr std::uint32_t kPart = 8;  // payload bytes of each packet here
constexpr std::byte kBlank{0xEE};

std::uint8_t code_of(Status status) { return static_cast<std::uint8_t>(status); }
const std::uint8_t kAccepted = code_of(Status::ok);

// The tables of an engine without the engine: a header comes in, and its outcome, the memory and
// the completions are looked at. Room is short (two completions, one read), so that all of it can
// be used up.
class DeliveryTest : public ::testing::Test {
 protected:
  DeliveryTest() {
    EndpointConfig endpoint;
    endpoint.qkey = kQkey;
    endpoint.domain = kDomain;
    endpoint.receive_depth = 4;
    parts_.endpoints.insert(kEndpoint, endpoint);
    memory_.fill(kBlank);
    key_ = register_region(Access::remote_read | Access::remote_write, kDomain);
  }

  static EngineConfig configure() {
    EngineConfig config;
    config.max_work_requests = 4;
    config.max_completions = 2;
    config.max_reads_per_peer = 1;
    config.mtu_payload = kPart;
    return config;
  }
  RegionKey register_region(Access access, std::uint32_t domain) {
    Region region;
    region.data = memory_.data();
    region.length = memory_.size();
    region.access = access;
    region.domain = domain;
    return *parts_.memory.insert(region);
  }
  Endpoint& endpoint() { return *parts_.endpoints.find(kEndpoint); }
  // A receive of `length` bytes at `offset` of the memory; its cookie is the offset.
  void post_receive(std::size_t offset, std::uint32_t length = kPart) {
    ReceiveRequest request;
    request.segments[0] = {&memory_[offset], length};
    request.cookie = offset;
    ASSERT_TRUE(endpoint().receives.push(request));
  }

  static wire::DataHeader header(PacketType type) {
    wire::DataHeader header{};
    header.common.type = static_cast<std::uint8_t>(type);
    header.common.destination_qpn = kEndpoint.value();
    header.common.source_qpn = kTheirs.value();
    header.payload_length = kPart;
    header.message_length = kPart;
    return header;
  }
  static wire::DataHeader send() {
    wire::DataHeader send = header(PacketType::send);
    send.key = kQkey;
    return send;
  }
  wire::DataHeader write(std::uint64_t address) const {
    wire::DataHeader write = header(PacketType::write);
    write.key = key_.value();
    write.remote_address = address;
    return write;
  }
  // Packet `part` of a write of two packets with immediate data.
  wire::DataHeader half(std::uint32_t part, std::uint8_t flags = 0) const {
    wire::DataHeader half = write(part * kPart);
    half.common.flags = static_cast<std::uint8_t>(wire::kImmediate | flags);
    half.message_length = 2 * kPart;
    half.message = 5;
    half.immediate = 1234;
    half.psn = 100 + part;
    return half;
  }
  wire::DataHeader read() const {
    wire::DataHeader read = header(PacketType::read_request);
    read.key = key_.value();
    read.payload_length = 0;
    return read;
  }

  // The payload consists of `fill`.
  std::uint8_t deliver(const wire::DataHeader& header, std::byte fill = std::byte{1}) {
    return delivery_.deliver(kNow, peer_, header, packet(header, fill));
  }
  RxPacket packet(const wire::DataHeader& header, std::byte fill) {
    bytes_.assign(sizeof header + header.payload_length.value(), fill);
    std::memcpy(bytes_.data(), &header, sizeof header);
    RxPacket packet;
    packet.bytes = bytes_;
    return packet;
  }
  [[nodiscard]] bool is_filled(std::size_t offset, std::byte with) const {
    const auto part = std::span(memory_).subspan(offset, kPart);
    return std::ranges::all_of(part, [&](std::byte byte) { return byte == with; });
  }
  [[nodiscard]] bool nothing_happened() const {
    return parts_.completions.next() == nullptr &&
           std::ranges::all_of(memory_, [](std::byte byte) { return byte == kBlank; });
  }
  // There must be one.
  Completion completed() {
    const Completion completion = *parts_.completions.next();
    parts_.completions.pop();
    return completion;
  }

  std::array<std::byte, std::size_t{8} * kPart> memory_{};
  std::vector<std::byte> bytes_;
  RegionKey key_;
  EngineParts parts_{configure(), nullptr, nullptr};
  Peer& peer_ = *parts_.peers.find_or_make(PeerKey{});
  Delivery delivery_{parts_};
};

// --- Sends

TEST_F(DeliveryTest, ASendTakesTheFirstReceive) {
  post_receive(0);
  post_receive(kPart);
  ASSERT_EQ(deliver(send()), kAccepted);
  EXPECT_TRUE(is_filled(0, std::byte{1}));
  EXPECT_TRUE(is_filled(kPart, kBlank));
  EXPECT_EQ(endpoint().receives.size(), 1U);
  const Completion completion = completed();
  EXPECT_EQ(completion.kind, Completion::Kind::receive);
  EXPECT_EQ(completion.status, Status::ok);
  EXPECT_EQ(completion.cookie, 0U);
  EXPECT_EQ(completion.length, kPart);
  EXPECT_EQ(completion.endpoint, kEndpoint);
  EXPECT_EQ(completion.remote, kTheirs);
  EXPECT_EQ(completion.peer, peer_.id);
  EXPECT_FALSE(completion.has_immediate);
}

// Too short a receive; no such endpoint; another Q_Key; an endpoint that does not receive. Whoever
// is refused must not use up what honest senders need.
TEST_F(DeliveryTest, ARefusedSendLeavesTheReceiveWhereItIs) {
  post_receive(0, kPart - 1);
  EXPECT_EQ(deliver(send()), code_of(Status::length_error));
  wire::DataHeader elsewhere = send();
  elsewhere.common.destination_qpn = kEndpoint.value() + 1;
  EXPECT_EQ(deliver(elsewhere), code_of(Status::bad_qpn));
  wire::DataHeader stranger = send();
  stranger.key = kQkey + 1;
  EXPECT_EQ(deliver(stranger), code_of(Status::bad_qkey));
  endpoint().config.receiving = false;
  EXPECT_EQ(deliver(send()), code_of(Status::bad_qpn));
  EXPECT_TRUE(nothing_happened());
  EXPECT_EQ(endpoint().receives.size(), 1U);
}

TEST_F(DeliveryTest, ASendWithoutAReceiveIsRefused) {
  EXPECT_EQ(deliver(send()), code_of(Status::receiver_not_ready));
  EXPECT_EQ(parts_.counters.rnr_sent, 1U);
  EXPECT_TRUE(nothing_happened());
}

TEST_F(DeliveryTest, ASendIsPutOffWhileItsCompletionHasNoRoom) {
  for (const std::size_t offset : {0U, kPart, 2 * kPart}) {
    post_receive(offset);
  }
  ASSERT_EQ(deliver(send()), kAccepted);
  ASSERT_EQ(deliver(send()), kAccepted);
  // Two completions are all that there is room for.
  EXPECT_EQ(deliver(send()), wire::kResultDeferred);
  EXPECT_TRUE(is_filled(std::size_t{2} * kPart, kBlank));
  EXPECT_EQ(endpoint().receives.size(), 1U);
  (void)completed();
  EXPECT_EQ(deliver(send()), kAccepted);
}

// The first touch fails, as if the receive's memory had been unmapped.
bool fail_once(void (*work)(void*), void* argument, const void*, std::size_t) {
  lent_memory.touch = nullptr;
  (void)work;
  (void)argument;
  return false;
}

TEST_F(DeliveryTest, AReceiveWhoseMemoryIsGoneFailsAndTheNextOneIsTaken) {
  post_receive(0);
  post_receive(kPart);
  lent_memory.touch = fail_once;
  ASSERT_EQ(deliver(send()), kAccepted);
  const Completion gone = completed();
  EXPECT_EQ(gone.cookie, 0U);
  EXPECT_EQ(gone.status, Status::local_protection);
  const Completion taken = completed();
  EXPECT_EQ(taken.cookie, kPart);
  EXPECT_EQ(taken.status, Status::ok);
  EXPECT_TRUE(is_filled(kPart, std::byte{1}));
}

// --- Writes

TEST_F(DeliveryTest, AWriteIsPlacedAndTellsNobody) {
  ASSERT_EQ(deliver(write(kPart)), kAccepted);
  EXPECT_TRUE(is_filled(0, kBlank));
  EXPECT_TRUE(is_filled(kPart, std::byte{1}));
  EXPECT_EQ(parts_.completions.next(), nullptr);
}

// A carrier may hand over the payload in two pieces.
TEST_F(DeliveryTest, AWriteIsPlacedInLinesWhereTheRegionWantsThem) {
  Region region;
  region.data = memory_.data();
  region.length = memory_.size();
  region.access = Access::remote_write;
  region.domain = kDomain;
  region.placement = Placement::lines;
  wire::DataHeader lines = write(kPart / 2);
  lines.key = parts_.memory.insert(region)->value();
  for (std::size_t cut = 0; cut <= kPart; ++cut) {
    RxPacket whole = packet(lines, std::byte{static_cast<std::uint8_t>(cut + 1)});
    const std::size_t first = sizeof lines + cut;
    whole.more = std::span<const std::byte>(bytes_).subspan(first);
    whole.bytes = std::span(bytes_).first(first);
    ASSERT_EQ(delivery_.deliver(kNow, peer_, lines, whole), kAccepted);
    EXPECT_TRUE(is_filled(kPart / 2, std::byte{static_cast<std::uint8_t>(cut + 1)}));
  }
}

// Beyond the region; a key with one wrong bit; without the right to write; of another domain; to an
// endpoint that does not receive.
TEST_F(DeliveryTest, ARefusedWriteChangesNoMemory) {
  EXPECT_EQ(deliver(write(memory_.size() - kPart + 1)), code_of(Status::out_of_bounds));
  wire::DataHeader wrong = write(0);
  wrong.key = key_.value() ^ 1;
  EXPECT_EQ(deliver(wrong), code_of(Status::bad_key));
  wrong.key = register_region(Access::remote_read, kDomain).value();
  EXPECT_EQ(deliver(wrong), code_of(Status::access_denied));
  wrong.key = register_region(Access::remote_write, kDomain + 1).value();
  EXPECT_EQ(deliver(wrong), code_of(Status::bad_key));
  endpoint().config.receiving = false;
  EXPECT_EQ(deliver(write(0)), code_of(Status::bad_qpn));
  EXPECT_TRUE(nothing_happened());
}

// The second half comes first.
TEST_F(DeliveryTest, ImmediateDataIsToldOnceAllBytesAreThere) {
  post_receive(0);
  ASSERT_EQ(deliver(half(1)), kAccepted);
  EXPECT_EQ(parts_.completions.next(), nullptr);
  ASSERT_EQ(deliver(half(0), std::byte{2}), kAccepted);
  const Completion completion = completed();
  EXPECT_EQ(completion.kind, Completion::Kind::receive_write_imm);
  EXPECT_EQ(completion.length, 2 * kPart);
  EXPECT_TRUE(completion.has_immediate);
  EXPECT_EQ(completion.immediate, 1234U);
  EXPECT_TRUE(completion.consumed_receive);
  EXPECT_TRUE(is_filled(0, std::byte{2}));
  EXPECT_TRUE(is_filled(kPart, std::byte{1}));
  EXPECT_TRUE(endpoint().receives.empty());
}

TEST_F(DeliveryTest, ImmediateDataWithoutAReceiveIsRefusedWithTheLastPacket) {  // [wire 4.6]
  peer_.receiver.window().advance(Psn{half(0).psn.value()});
  ASSERT_EQ(deliver(half(0)), kAccepted);
  peer_.receiver.window().accept(Psn{half(0).psn.value()});
  EXPECT_EQ(deliver(half(1)), code_of(Status::receiver_not_ready));
  EXPECT_EQ(parts_.completions.next(), nullptr);
  post_receive(0);
  ASSERT_EQ(deliver(half(1, wire::kCompletes)), kAccepted);
  EXPECT_EQ(completed().length, 2 * kPart);
}

TEST_F(DeliveryTest, UnsolicitedImmediateDataTakesNoReceive) {
  endpoint().config.unsolicited_immediate = true;
  post_receive(0);
  ASSERT_EQ(deliver(half(0)), kAccepted);
  ASSERT_EQ(deliver(half(1)), kAccepted);
  EXPECT_FALSE(completed().consumed_receive);
  EXPECT_EQ(endpoint().receives.size(), 1U);
}

TEST_F(DeliveryTest, AWriteWithImmediateDataIsPutOffWhileItsCompletionHasNoRoom) {
  post_receive(0);
  post_receive(0);
  ASSERT_EQ(deliver(send()), kAccepted);
  ASSERT_EQ(deliver(send()), kAccepted);
  memory_.fill(kBlank);
  post_receive(0);
  EXPECT_EQ(deliver(half(0)), wire::kResultDeferred);
  EXPECT_TRUE(is_filled(0, kBlank));
  EXPECT_EQ(deliver(write(0)), kAccepted) << "without immediate data it needs no completion";
}

// --- Reads

// Answers are sent when it is the peer's turn, not from within the arrival.
TEST_F(DeliveryTest, AReadRequestBecomesWorkForItsPeer) {
  ASSERT_EQ(deliver(read()), kAccepted);
  EXPECT_EQ(peer_.works.responses(), 1U);
  EXPECT_TRUE(peer_.sender->has_work());
  EXPECT_EQ(deliver(read()), code_of(Status::responder_busy)) << "max_reads_per_peer is 1";
  EXPECT_EQ(peer_.works.responses(), 1U);
}

TEST_F(DeliveryTest, ARefusedReadRequestIsNoWork) {
  wire::DataHeader wrong = read();
  wrong.key = key_.value() ^ 1;
  EXPECT_EQ(deliver(wrong), code_of(Status::bad_key));
  wrong = read();
  wrong.remote_address = memory_.size();
  EXPECT_EQ(deliver(wrong), code_of(Status::out_of_bounds));
  wrong = read();
  wrong.message_length = kMaxTransfer + 1;
  EXPECT_EQ(deliver(wrong), code_of(Status::length_error));
  EXPECT_EQ(peer_.works.responses(), 0U);
}

TEST_F(DeliveryTest, AReadEndsWhenAllOfItsBytesHaveCome) {
  (void)parts_.sender(peer_);
  const auto [index, work] =
      parts_.works.begin_request(peer_, endpoint(), WorkKind::read, kTheirs, 2 * kPart);
  ASSERT_NE(work, nullptr);
  work->data[0] = memory_.data();
  work->lengths[0] = 2 * kPart;
  parts_.works.number_read(index, *work, peer_.sender->next_read());
  wire::DataHeader answer = header(PacketType::read_response);
  answer.message = work->message;
  answer.message_length = 2 * kPart;
  answer.remote_address = kPart;
  ASSERT_EQ(deliver(answer), kAccepted);
  EXPECT_EQ(parts_.completions.next(), nullptr);
  answer.remote_address = 0;
  ASSERT_EQ(deliver(answer, std::byte{2}), kAccepted);
  EXPECT_EQ(completed().kind, Completion::Kind::read);
  EXPECT_TRUE(is_filled(0, std::byte{2}));
  EXPECT_TRUE(is_filled(kPart, std::byte{1}));

  answer.psn = 1;
  peer_.receiver.window().advance(Psn{1});
  ASSERT_EQ(deliver(answer, std::byte{3}), kAccepted) << "the answer to a read that has ended";
  EXPECT_TRUE(is_filled(0, std::byte{2}));
  EXPECT_EQ(parts_.counters.drops[static_cast<std::size_t>(DropReason::unknown_read)], 1U);
  ASSERT_EQ(peer_.receiver.window().results().size(), 1U) << "the responder is to be told";
  EXPECT_EQ(peer_.receiver.window().results()[0].code, code_of(Status::bad_key));
}

// Its bytes would end one behind the buffer.
TEST_F(DeliveryTest, AnAnswerBeyondTheReadIsDropped) {
  (void)parts_.sender(peer_);
  const auto [index, work] =
      parts_.works.begin_request(peer_, endpoint(), WorkKind::read, kTheirs, kPart);
  ASSERT_NE(work, nullptr);
  work->data[0] = memory_.data();
  work->lengths[0] = kPart;
  parts_.works.number_read(index, *work, peer_.sender->next_read());
  wire::DataHeader answer = header(PacketType::read_response);
  answer.message = work->message;
  answer.remote_address = 1;
  (void)deliver(answer);
  EXPECT_TRUE(nothing_happened());
}

// --- Which peers may read and write

TEST_F(DeliveryTest, OnlyAcquaintedPeersMayAccessMemoryWhereThatIsAsked) {
  endpoint().config.acquainted_only = true;
  EXPECT_EQ(deliver(write(0)), code_of(Status::unknown_peer));
  EXPECT_EQ(deliver(read()), code_of(Status::unknown_peer));
  delivery_.acquaint(kDomain + 1, peer_.key.address, true);
  EXPECT_EQ(deliver(write(0)), code_of(Status::unknown_peer)) << "not in this domain";
  delivery_.acquaint(kDomain, peer_.key.address, true);
  EXPECT_EQ(deliver(write(0)), kAccepted);
  EXPECT_EQ(deliver(read()), kAccepted);
  delivery_.acquaint(kDomain, peer_.key.address, false);
  EXPECT_EQ(deliver(write(0)), code_of(Status::unknown_peer));
  post_receive(0);
  EXPECT_EQ(deliver(send()), kAccepted) << "a message touches only memory that was posted for it";
}

// --- Copies

TEST_F(DeliveryTest, ACopyHasNoEffect) {
  post_receive(0);
  const wire::DataHeader message = send();
  delivery_.deliver_copy(kNow, peer_, message, packet(message, std::byte{1}));
  const wire::DataHeader placed = write(0);
  delivery_.deliver_copy(kNow, peer_, placed, packet(placed, std::byte{1}));
  EXPECT_TRUE(nothing_happened());
  EXPECT_EQ(endpoint().receives.size(), 1U);
}

}  // namespace
}  // namespace weft::srd
