// Owns the fuzz target of the engine: any packets, calls and steps of time, against memory whose
// owner checks it.
//
// Two endpoints, peers of six addresses in room for four, small limits: everything that can be full
// is so soon. The memory has margins, which no packet may reach, and the books of requests must
// balance when everything is given up.
#include "srd/engine/engine.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "srd/base/check.hpp"
#include "srd/wire/parse.hpp"
#include "tests/fuzz/tape.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kMemory = 4096;
constexpr std::byte kBlank{0x5A};
constexpr std::uint64_t kAddress = 0x1000;

using testing::Tape;

class Game {
 public:
  Game(const std::uint8_t* data, std::size_t size) : tape_(data, size), engine_(config(tape_)) {
    std::fill(memory_.begin(), memory_.end(), kBlank);
    for (std::uint32_t qpn = 1; qpn <= 2; ++qpn) {
      WEFT_CHECK(
          engine_
              .open_endpoint(
                  Qpn{qpn},
                  {.qkey = 1, .domain = 1, .receive_depth = 8, .unsolicited_immediate = qpn == 2})
              .has_value());
    }
    key_ = engine_.memory()
               .insert({.data = memory_.data() + 64,
                        .address = kAddress,
                        .length = kMemory - 128,
                        .access = Access::local_write | Access::remote_write | Access::remote_read,
                        .domain = 1})
               .value();
  }

  void play() {
    while (!tape_.done()) {
      move();
      WEFT_CHECK(std::all_of(memory_.begin(), memory_.begin() + 64, is_blank));
      WEFT_CHECK(std::all_of(memory_.end() - 64, memory_.end(), is_blank));
    }
    // Whatever happened, giving up on everything gives every completion exactly once.
    engine_.close_endpoint(Qpn{1});
    engine_.close_endpoint(Qpn{2});
    poll();
    WEFT_CHECK(engine_.outstanding() == 0);
    WEFT_CHECK(accepted_ == completed_);
  }

 private:
  // The first byte of an input chooses what a packet cannot: credits, forced disorder, trimming,
  // numbers that wrap.
  static EngineConfig config(Tape& tape) {
    EngineConfig config;
    config.checksum = false;  // a fuzzer would have to guess it
    config.max_peers = 4;
    config.max_work_requests = 16;
    config.max_completions = 64;
    config.max_reads_per_peer = 2;
    config.mtu_payload = 256;
    config.paths = 4;
    config.window_packets = 64;
    // Shorter than one step of time may be, so that an input can make a peer die.
    config.peer_timeout = std::chrono::milliseconds{2};
    config.max_rto = std::chrono::microseconds{500};
    const std::uint8_t choice = tape.byte();
    config.receiver_credits = (choice & 1) != 0;
    config.forced_reorder = (choice & 2) != 0 ? 8 : 0;
    config.trimming = (choice & 4) != 0;
    config.first_psn = Psn{(choice & 8) != 0 ? 0xFFFFFFF8 : 0};
    return config;
  }
  static bool is_blank(std::byte byte) { return byte == kBlank; }
  static Address address(std::uint8_t number) {
    Address address;
    address.bytes[15] = static_cast<std::byte>(number % 6);
    return address;
  }

  void move() {
    // Packets most often: what a peer sends is what the engine cannot choose.
    switch (tape_.byte() % 10) {
      case 0:
      case 1:
      case 2:
        return raw_packet();
      case 3:
      case 4:
        return shaped_packet();
      case 5:
        now_ += Duration{tape_.word() % 3'000'000};
        engine_.on_timeout(now_);
        return;
      case 6:
        return post();
      case 7:
        return receive();
      case 8:
        return transmit();
      default:
        return housekeeping();
    }
  }

  // From any of six addresses, of which the engine has room for four.
  void arrive(std::size_t size, std::uint8_t from, bool trimmed) {
    RxPacket packet;
    packet.from = address(from);
    packet.trimmed = trimmed;
    packet.bytes = std::span(packet_).first(size);
    engine_.on_packet(now_, packet);
    engine_.on_timeout(now_);
  }
  void raw_packet() {
    const std::size_t size = tape_.byte();
    for (std::size_t i = 0; i < size; ++i) {
      packet_[i] = static_cast<std::byte>(tape_.byte());
    }
    arrive(size, tape_.byte(), (tape_.byte() & 7) == 0);
  }
  // A packet with the right form, so that the input reaches what lies behind the parser.
  void shaped_packet() {
    static constexpr std::array<std::uint8_t, 5> kTypes{1, 2, 3, 4, 5};
    wire::DataHeader header{};
    header.common.version = wire::kVersion;
    header.common.type = kTypes[tape_.byte() % kTypes.size()];
    header.common.flags = tape_.byte();
    header.common.attempt = tape_.byte();
    header.common.destination_qpn = tape_.byte() % 4;
    header.common.source_qpn = tape_.byte() % 4;
    header.common.path = tape_.byte() % 4;
    header.common.source_life = 1 + tape_.byte() % 3;
    header.common.destination_life = tape_.byte() % 3;
    // Around the numbers with which the engine and its window begin, on both sides of the wrap.
    header.psn = (tape_.byte() % 2 == 0 ? 0xFFFFFFE0 : 0) + tape_.byte();
    header.back = tape_.byte();
    const std::uint32_t length = tape_.byte() * 2U;
    header.payload_length = static_cast<std::uint16_t>(length);
    header.message = (tape_.byte() & 7U) << 12 | (tape_.byte() & 3U);
    header.key = tape_.byte() % 2 == 0 ? key_.value() : tape_.byte();
    // From a little before the region to far behind it.
    header.remote_address = kAddress - 8 + tape_.byte() * 20U;
    header.message_length = length + tape_.byte() * 8U;
    wire::store(packet_.data(), header);
    std::fill_n(packet_.begin() + sizeof header, length, std::byte{1});
    arrive(sizeof header + length, tape_.byte(), false);
  }

  template <class Request>
  void post_as(Request request) {
    const auto peer = engine_.peer(address(tape_.byte()), AttachmentId{});
    if (!peer) {
      return;
    }
    request.peer = *peer;
    request.source = request.destination = Qpn{1U + tape_.byte() % 3};
    request.qkey = 1;
    request.rnr_retry = tape_.byte() % 8;
    request.segments[0] = {buffer_.data(), tape_.byte() * 4U};
    request.segments[1] = {buffer_.data() + 1024, tape_.byte()};
    accepted_ += engine_.post(request) == PostResult::accepted;
  }
  void post() {
    switch (tape_.byte() % 3) {
      case 0: {
        SendRequest request;
        request.immediate = 5;
        return post_as(request);
      }
      case 1: {
        WriteRequest request;
        request.remote_key = key_;
        request.remote_address = kAddress;
        return post_as(request);
      }
      default: {
        ReadRequest request;
        request.remote_key = key_;
        request.remote_address = kAddress;
        return post_as(request);
      }
    }
  }
  void receive() {
    ReceiveRequest request;
    request.cookie = 1;
    request.segments[0] = {buffer_.data() + 2048, tape_.byte()};
    accepted_ += engine_.post_receive(Qpn{1U + tape_.byte() % 3}, request) == PostResult::accepted;
  }
  void transmit() {
    TxPacket packet;
    for (int n = tape_.byte(); n > 0 && engine_.next_transmit(now_, packet); --n) {
      // Twice the MTU of 256: more must never leave.
      WEFT_CHECK(packet.size() <= sizeof(wire::DataHeader) + 512);
    }
  }
  // What a program may do at any moment between two packets.
  void housekeeping() {
    switch (tape_.byte() % 4) {
      case 0:
        engine_.set_receiving(Qpn{1}, tape_.byte() % 2 == 0);
        return;
      case 1:
        if (const auto peer = engine_.peer(address(tape_.byte()), AttachmentId{})) {
          engine_.flush(*peer, Qpn{1});
        }
        return;
      case 2:
        poll();
        return;
      default:
        engine_.close_endpoint(Qpn{2});
        (void)engine_.open_endpoint(
            Qpn{2}, {.qkey = 1, .domain = 1, .receive_depth = 8, .unsolicited_immediate = true});
        return;
    }
  }
  void poll() {
    std::array<Completion, 8> batch;
    for (std::size_t n = engine_.poll(batch); n > 0; n = engine_.poll(batch)) {
      for (std::size_t i = 0; i < n; ++i) {
        completed_ += batch[i].consumed_receive;  // unsolicited ones were never accepted
      }
    }
  }

  Tape tape_;
  Engine engine_;
  RegionKey key_;
  TimePoint now_ = time_at(std::chrono::milliseconds{1});
  std::size_t accepted_ = 0;
  std::size_t completed_ = 0;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kMemory);
  std::vector<std::byte> buffer_ = std::vector<std::byte>(4096);
  std::array<std::byte, 1024> packet_{};
};

}  // namespace
}  // namespace weft::srd

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::srd::Game(data, size).play();
  return 0;
}
