// Owns the pair of engines that is measured.
//
// Both ends run on one thread and time is counted, not read: a step is a microsecond. Packets go
// from one engine to the other as the engine lends them, without a carrier. What remains is the
// cost of the transport itself: headers, bookkeeping, congestion control and one copy.
#include "emu/cli/perf/engine_bench.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "srd/base/check.hpp"
#include "srd/engine/engine.hpp"

namespace weft::cli {
namespace {

using namespace srd;

constexpr Qpn kSenderQpn{1};
constexpr Qpn kReceiverQpn{2};
constexpr std::size_t kBurst = TxPacket::kMaxBurst;
// Of one direction, before it is the other's turn. Bursts follow each other as in a Poller, where
// answers are looked at again only after several of them.
constexpr std::size_t kBurstsPerRound = 2;
// Enough requests that a burst is always full.
constexpr std::size_t kOutstanding = 16 * kBurst;
constexpr Duration kStep = std::chrono::microseconds{1};
constexpr std::size_t kRun = 8;  // messages for one peer before it is the next one's turn

// Any addresses do, as long as they differ: no carrier looks at them.
Address address_of(std::uint32_t number) {
  Address address;
  for (std::size_t i = 0; i < 4; ++i) {
    address.bytes[15 - i] = static_cast<std::byte>(number >> (8 * i));
  }
  return address;
}

template <class T>
T must(Result<T> result) {
  WEFT_CHECK(result.has_value());
  return *result;
}

// Memory that RDMA programs register begins at a cache line, and so does this. A target that lies
// less than a line beyond its source in the same place of its page would more than double the
// time of the copy: the processor mistakes loads for what was just stored.
constexpr std::size_t kLine = 64;

std::byte* align(std::byte* data) {
  return data + (kLine - reinterpret_cast<std::uintptr_t>(data) % kLine) % kLine;
}

// Two engines with as many reliability contexts between them as there are peers: each end knows the
// other under that many addresses. Source and target memory are small enough to stay in the cache:
// what is measured is the transport and one copy of each payload, not the machine's memory.
class Pair {
 public:
  explicit Pair(const EngineBenchCase& bench)
      : bench_(bench),
        sends_(bench.operation == "send"),
        sender_(configure(1)),
        receiver_(configure(2)),
        memory_(2 * bench.size + 4 * kLine),
        source_(align(memory_.data())),
        target_(align(source_ + bench.size) + kLine),
        burst_(kBurst) {
    WEFT_CHECK(sender_.open_endpoint(kSenderQpn, {}).has_value());
    EndpointConfig endpoint;
    endpoint.receive_depth = 2 * kOutstanding;
    WEFT_CHECK(receiver_.open_endpoint(kReceiverQpn, endpoint).has_value());
    Region region;
    region.data = target_;
    region.length = bench.size;
    region.access = Access::remote_write;
    key_ = must(receiver_.memory().insert(region));
    for (std::uint32_t i = 0; i < bench.peers; ++i) {
      peers_.push_back(must(sender_.peer(address_of(i), AttachmentId{0})));
    }
    for (std::size_t i = 0; i < 2 * kOutstanding; ++i) {
      post_receive();
    }
  }

  // Delivers about `packets` messages and returns how many exactly.
  std::uint64_t deliver(std::uint64_t packets) {
    // One round: post up to kOutstanding, some bursts there, some (mostly acknowledgements) back.
    const std::uint64_t start = delivered_;
    while (delivered_ - start < packets) {
      while (sender_.outstanding() < kOutstanding) {
        post();
      }
      pass();
    }
    return delivered_ - start;
  }

  // Ends all that is under way, so that rounds and the messages for one peer begin together again.
  // A peer whose messages straddle two rounds acknowledges them twice: whether they do, and for how
  // many peers, the warm-up would have left to chance.
  void fall_in_step() {
    while (sender_.outstanding() != 0) {
      pass();
    }
    in_run_ = 0;
  }

 private:
  [[nodiscard]] EngineConfig configure(std::uint64_t seed) const {
    EngineConfig config;
    config.seed = seed;
    config.paths = bench_.paths;
    config.checksum = bench_.checksum;
    config.mtu_payload = bench_.size;
    config.line_rate = Rate::gbps(400);
    config.pace_step = kStep;
    return config;
  }

  void post_receive() {
    ReceiveRequest receive;
    receive.segments[0] = {target_, bench_.size};
    WEFT_CHECK(receiver_.post_receive(kReceiverQpn, receive) == PostResult::accepted);
  }

  void post() {
    const auto fill = [&](auto& request) {
      request.peer = peers_[next_peer_];
      request.source = kSenderQpn;
      request.destination = kReceiverQpn;
      request.segments[0] = {source_, bench_.size};
    };
    PostResult result;
    if (sends_) {
      SendRequest request;
      fill(request);
      result = sender_.post(request);
    } else {
      WriteRequest request;
      fill(request);
      request.remote_key = key_;
      result = sender_.post(request);
    }
    WEFT_CHECK(result == PostResult::accepted);
    if (++in_run_ == kRun) {
      in_run_ = 0;
      next_peer_ = next_peer_ + 1 == peers_.size() ? 0 : next_peer_ + 1;
    }
  }

  void pass() {
    now_ += kStep;
    carry(sender_, receiver_);
    carry(receiver_, sender_);
    drain();
  }

  // What one end sends in a round. Packets are handed over as the engine lends them.
  void carry(Engine& from, Engine& to) {
    if (from.next_timeout() <= now_) {
      from.on_timeout(now_);
    }
    for (std::size_t burst = 0; burst < kBurstsPerRound && carry_burst(from, to); ++burst) {
    }
  }

  // Returns whether there may be more.
  bool carry_burst(Engine& from, Engine& to) {
    std::size_t count = 0;
    while (count < kBurst && from.next_transmit(now_, burst_[count])) {
      ++count;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const TxPacket& packet = burst_[i];
      RxPacket received;
      received.from = packet.to;  // both ends know each other under the same addresses
      received.path = packet.path;
      received.bytes = std::span(packet.header).first(packet.header_size);
      received.more = packet.payload[0];
      to.on_packet(now_, received);
    }
    return count == kBurst;
  }

  // A receive for each that was used, so that no send ever finds none and is refused.
  void drain() {
    std::array<Completion, kBurst> done;
    while (const std::size_t count = sender_.poll(done)) {
      for (std::size_t i = 0; i < count; ++i) {
        WEFT_CHECK(done[i].status == Status::ok);
      }
      delivered_ += count;
    }
    while (const std::size_t count = receiver_.poll(done)) {
      for (std::size_t i = 0; i < count; ++i) {
        post_receive();
      }
    }
  }

  const EngineBenchCase& bench_;
  bool sends_;
  Engine sender_;
  Engine receiver_;
  std::vector<std::byte> memory_;
  std::byte* source_;
  std::byte* target_;
  std::vector<TxPacket> burst_;
  std::vector<PeerId> peers_;
  RegionKey key_;
  std::size_t next_peer_ = 0;
  std::size_t in_run_ = 0;
  std::uint64_t delivered_ = 0;
  TimePoint now_{};
};

// Of this thread only: what others take of the core is not the engine's cost.
double cpu_nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

}  // namespace

EngineBenchResult run_engine_bench(const EngineBenchCase& bench, std::uint64_t packets,
                                   int rounds) {
  // The first run is a warm-up: it makes the reliability contexts and fills the caches.
  Pair pair(bench);
  pair.deliver(packets);
  pair.fall_in_step();
  std::vector<double> costs;
  EngineBenchResult result;
  for (int round = 0; round < rounds; ++round) {
    const double start = cpu_nanoseconds();
    const std::uint64_t delivered = pair.deliver(packets);
    costs.push_back((cpu_nanoseconds() - start) / static_cast<double>(delivered));
    result.packets += delivered;
  }
  std::nth_element(costs.begin(), costs.begin() + rounds / 2, costs.end());
  result.ns_per_packet = costs[static_cast<std::size_t>(rounds) / 2];
  return result;
}

}  // namespace weft::cli
