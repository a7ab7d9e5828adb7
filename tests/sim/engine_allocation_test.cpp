// Owns the proof that a warm engine does not allocate: operator new is counted in this program.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "srd/engine/engine.hpp"

// Counted in counting_new.cpp, which replaces operator new.
extern std::size_t allocations;

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr Qpn kEndpoint{3};
constexpr std::size_t kSize = 100'000;

// Two engines and a wire that keeps nothing: what leaves arrives at once.
class Wire {
 public:
  Wire() {
    for (Engine* engine : {&a_, &b_}) {
      EXPECT_TRUE(engine->open_endpoint(kEndpoint, {.receive_depth = 64}));
    }
    peer_ = a_.peer(address(2), AttachmentId{}).value();
    key_ = b_.memory()
               .insert({.data = memory_.data(),
                        .address = 0,
                        .length = kSize,
                        .access = Access::local_write | Access::remote_write | Access::remote_read})
               .value();
  }

  // Eight sends, writes and reads, carried until they have ended.
  void exchange() {
    post();
    for (int i = 0; i < 1000 && done_ < posted_; ++i) {
      now_ += 1us;
      carry(a_, b_, address(1));
      carry(b_, a_, address(2));
      a_.on_timeout(now_);
      b_.on_timeout(now_);
      done_ += a_.poll(completions_);
      (void)b_.poll(completions_);
    }
    EXPECT_EQ(done_, posted_);
  }

 private:
  static Address address(unsigned last) {
    Address address;
    address.bytes[15] = static_cast<std::byte>(last);
    return address;
  }
  void fill(RequestBase& base) const {
    base.peer = peer_;
    base.source = base.destination = kEndpoint;
  }
  void post() {
    ReceiveRequest receive;
    receive.segments[0] = {memory_.data(), 4096};
    SendRequest send;
    WriteRequest write;
    ReadRequest read;
    for (RequestBase* base : {static_cast<RequestBase*>(&send), static_cast<RequestBase*>(&write),
                              static_cast<RequestBase*>(&read)}) {
      fill(*base);
    }
    send.segments[0] = {buffer_.data(), 4096};
    write.segments[0] = {buffer_.data(), static_cast<std::uint32_t>(kSize)};
    write.remote_key = read.remote_key = key_;
    write.immediate = 1;
    read.segments[0] = {buffer_.data(), static_cast<std::uint32_t>(kSize)};
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(b_.post_receive(kEndpoint, receive), PostResult::accepted);
      EXPECT_EQ(b_.post_receive(kEndpoint, receive), PostResult::accepted);
      EXPECT_EQ(a_.post(send), PostResult::accepted);
      EXPECT_EQ(a_.post(write), PostResult::accepted);
      EXPECT_EQ(a_.post(read), PostResult::accepted);
      posted_ += 3;
    }
  }
  void carry(Engine& from, Engine& to, const Address& source) {
    // Static, so that the test itself allocates nothing.
    static TxPacket packet;
    static std::array<std::byte, 16384> bytes;
    while (from.next_transmit(now_, packet)) {
      std::size_t size = packet.header_size;
      std::memcpy(bytes.data(), packet.header.data(), size);
      for (const auto& piece : packet.payload) {
        std::ranges::copy(piece, bytes.data() + size);
        size += piece.size();
      }
      RxPacket arrival;
      arrival.from = source;
      arrival.path = packet.path;
      arrival.bytes = std::span(bytes).first(size);
      if (++count_ % 97 != 0) {  // a little loss, so that recovery is warm, too
        to.on_packet(now_, arrival);
      }
    }
  }

  static EngineConfig config() {
    EngineConfig config;
    config.paths = 16;
    return config;
  }

  Engine a_{config()};
  Engine b_{config()};
  PeerId peer_;
  RegionKey key_;
  TimePoint now_ = time_at(1ms);
  std::size_t posted_ = 0;
  std::size_t done_ = 0;
  std::size_t count_ = 0;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kSize);
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kSize);
  std::array<Completion, 64> completions_{};
};

TEST(EngineAllocation, AWarmEngineDoesNotAllocate) {
  Wire wire;
  // So many, because tables grow with the worst that has happened: losses that fall together are
  // rare.
  for (int i = 0; i < 1000; ++i) {
    wire.exchange();
  }
  const std::size_t before = allocations;
  for (int i = 0; i < 500; ++i) {
    wire.exchange();
  }
  const std::size_t after = allocations;
  EXPECT_EQ(after - before, 0U);
  // The count counts.
  const auto probe = std::make_unique<int>(1);
  EXPECT_GT(allocations, after);
}

}  // namespace
}  // namespace weft::srd
