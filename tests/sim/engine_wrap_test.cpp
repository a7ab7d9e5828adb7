// Owns the stories of numbers that come round: clocks, records, read numbers; and of millions of
// requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "srd/base/check.hpp"
#include "srd/engine/engine.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr Qpn kQpn{7};
constexpr std::size_t kMemory = 4096;

// Two engines, and a network that brings each packet 2 us later and loses none: nothing here but
// the engines costs time, so that millions of requests are a matter of a second.
class Two {
 public:
  explicit Two(const EngineConfig& config, TimePoint start = TimePoint{})
      : a(config), b(config), now(start) {
    for (Engine* engine : {&a, &b}) {
      WEFT_CHECK(engine->open_endpoint(kQpn, {.receive_depth = 16}).has_value());
    }
    Region region;
    region.data = memory.data();
    region.length = memory.size();
    region.access = Access::remote_read | Access::remote_write;
    key = *b.memory().insert(region);
    peer = *a.peer(Address{}, AttachmentId{});
  }

  PostResult write(std::uint64_t cookie, std::uint32_t length, std::uint64_t to = 0) {
    WriteRequest request;
    fill(request, cookie);
    request.segments[0] = {source.data(), length};
    request.remote_key = key;
    request.remote_address = to;
    return a.post(request);
  }
  PostResult read(std::uint64_t cookie, std::uint64_t from, std::byte* into, std::uint32_t length) {
    ReadRequest request;
    fill(request, cookie);
    request.segments[0] = {into, length};
    request.remote_key = key;
    request.remote_address = from;
    return a.post(request);
  }
  PostResult send(std::uint64_t cookie, std::uint32_t length) {
    SendRequest request;
    fill(request, cookie);
    request.segments[0] = {source.data(), length};
    return a.post(request);
  }

  // One step of time: timers, then one burst each way.
  void step() {
    now += 1us;
    for (Engine* engine : {&a, &b}) {
      if (engine->next_timeout() <= now) {
        engine->on_timeout(now);
      }
    }
    carry(a, b);
    carry(b, a);
    std::array<Completion, 64> batch;
    while (const std::size_t count = a.poll(batch)) {
      done.insert(done.end(), batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(count));
    }
    while (b.poll(batch) != 0) {
    }
  }
  bool run_until_idle(int steps = 100'000) {
    while (a.outstanding() != 0 && steps-- > 0) {
      step();
    }
    return a.outstanding() == 0;
  }

  std::vector<std::byte> memory{kMemory};
  std::vector<std::byte> source{kMemory, std::byte{1}};
  Engine a;
  Engine b;
  TimePoint now;
  RegionKey key;
  PeerId peer;
  std::vector<Completion> done;

 private:
  void fill(RequestBase& request, std::uint64_t cookie) const {
    request.peer = peer;
    request.source = request.destination = kQpn;
    request.cookie = cookie;
  }
  // At most a burst of 64, and only the first piece of each payload: the requests above have one
  // segment.
  void carry(Engine& from, Engine& to) {
    TxPacket packet;
    for (int i = 0; i < 64 && from.next_transmit(now, packet); ++i) {
      RxPacket received;
      received.path = packet.path;
      received.bytes = std::span(packet.header).first(packet.header_size);
      received.more = packet.payload[0];
      to.on_packet(now + 2us, received);
    }
    now += 2us;
  }
};

// So small that every index and every generation comes round many times.
EngineConfig small_tables() {
  EngineConfig config;
  config.max_work_requests = 8;
  config.max_completions = 16;
  config.window_packets = 8;
  config.first_psn = Psn{0xFFFFFFFFU - 1000};
  return config;
}

TEST(EngineWrap, AMillionRequestsGoThroughTablesOfEight) {
  Two two(small_tables());
  constexpr std::uint64_t kRequests = 1'000'000;
  std::uint64_t posted = 0;
  std::uint64_t sum = 0;
  std::uint64_t ended = 0;
  std::uint64_t refused = 0;
  while (ended < kRequests) {
    while (posted < kRequests) {
      const PostResult result = two.write(posted, static_cast<std::uint32_t>(posted % 3));
      if (result != PostResult::accepted) {
        ASSERT_EQ(result, PostResult::queue_full);
        ++refused;
        break;
      }
      ++posted;
    }
    two.step();
    for (const Completion& completion : two.done) {
      ASSERT_EQ(completion.status, Status::ok);
      sum += completion.cookie;
      ++ended;
    }
    two.done.clear();
  }
  EXPECT_EQ(ended, kRequests);
  EXPECT_EQ(sum, kRequests * (kRequests - 1) / 2);
  EXPECT_GT(refused, 0U);
  EXPECT_EQ(two.a.counters().retrans_pkts, 0U);
}

TEST(EngineWrap, AsManyRequestsAtOnceAsTheLimitSays) {
  EngineConfig config;
  Two two(config);
  for (std::uint32_t i = 0; i < config.max_work_requests; ++i) {
    ASSERT_EQ(two.write(i, 1), PostResult::accepted) << i;
  }
  EXPECT_EQ(two.write(0, 1), PostResult::queue_full);
  ASSERT_TRUE(two.run_until_idle());
  std::vector<int> ended(config.max_work_requests);
  for (const Completion& completion : two.done) {
    EXPECT_EQ(completion.status, Status::ok);
    ++ended[completion.cookie];
  }
  EXPECT_EQ(std::count(ended.begin(), ended.end(), 1), config.max_work_requests);
  EXPECT_EQ(two.write(0, 1), PostResult::accepted);
}

// A read's number on the wire is its record and 12 bits of how often that was used; the record
// itself counts to 16 bits.
TEST(EngineWrap, ReadNumbersComeRoundMoreThanOnce) {
  Two two(small_tables());
  for (std::size_t i = 0; i < kMemory; ++i) {
    two.memory[i] = static_cast<std::byte>(i * 7);
  }
  std::array<std::byte, 8> into{};
  for (std::uint32_t i = 0; i < 150'000; ++i) {
    const std::uint64_t from = i % (kMemory - into.size());
    into.fill(std::byte{0xEE});
    ASSERT_EQ(two.read(i, from, into.data(), into.size()), PostResult::accepted);
    ASSERT_TRUE(two.run_until_idle());
    ASSERT_EQ(two.done.back().status, Status::ok);
    ASSERT_EQ(two.done.back().cookie, i);
    ASSERT_EQ(std::memcmp(into.data(), two.memory.data() + from, into.size()), 0) << "read " << i;
    two.done.clear();
  }
}

// Packets carry 32 bits of nanoseconds: they come round every 4.3 seconds.
TEST(EngineWrap, TheClockInThePacketsComesRound) {
  for (const std::int64_t turn : {std::int64_t{1} << 32, std::int64_t{1} << 31}) {
    Two two(EngineConfig{}, TimePoint{Duration{turn} - 1ms});
    const TimePoint end{Duration{turn} + 1ms};
    std::uint64_t posted = 0;
    while (two.now < end) {
      while (two.write(posted, 1000) == PostResult::accepted && ++posted % 32 != 0) {
      }
      two.step();
    }
    ASSERT_TRUE(two.run_until_idle());
    EXPECT_EQ(two.done.size(), posted);
    EXPECT_EQ(two.a.counters().retrans_pkts, 0U);
    EXPECT_EQ(two.a.counters().tail_probes, 0U);
  }
}

TEST(EngineWrap, NothingIsAMessageToo) {
  Two two(EngineConfig{});
  ASSERT_EQ(two.b.post_receive(kQpn, {}), PostResult::accepted);
  ASSERT_EQ(two.send(1, 0), PostResult::accepted);
  ASSERT_EQ(two.write(2, 0), PostResult::accepted);
  ASSERT_EQ(two.read(3, 0, nullptr, 0), PostResult::accepted);
  ASSERT_TRUE(two.run_until_idle());
  ASSERT_EQ(two.done.size(), 3U);
  for (const Completion& completion : two.done) {
    EXPECT_EQ(completion.status, Status::ok);
    EXPECT_EQ(completion.length, 0U);
  }
}

}  // namespace
}  // namespace weft::srd
