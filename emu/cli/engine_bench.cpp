#include "emu/cli/engine_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "srd/base/check.hpp"
#include "srd/engine/engine.hpp"

namespace weft::cli {
namespace {

using namespace srd;

constexpr Qpn kHubQpn{1};
constexpr Qpn kSpokeQpn{2};
constexpr std::size_t kBurst = 32;
constexpr std::size_t kReceivesPerSpoke = 64;

Address address_of(std::uint32_t number) {
  Address address;
  for (std::size_t i = 0; i < 4; ++i) {
    address.bytes[15 - i] = static_cast<std::byte>(number >> (8 * i));
  }
  return address;
}

// One engine sends to `peers` others. All share source and target memory, which stays in the cache:
// what is measured is the transport, and one copy of each payload.
class Star {
 public:
  explicit Star(const EngineBenchCase& bench)
      : bench_(bench), source_(bench.size), target_(bench.size + 64) {
    hub_ = make_engine(0);
    check(hub_->open_endpoint(kHubQpn, {}));
    spokes_.reserve(bench.peers);
    for (std::uint32_t i = 0; i < bench.peers; ++i) {
      add_spoke(i);
    }
  }

  // Delivers about `packets` messages and returns how many exactly.
  std::uint64_t deliver(std::uint64_t packets) {
    const std::uint64_t goal = delivered_ + packets;
    const std::uint64_t start = delivered_;
    while (delivered_ < goal) {
      post_batch();
      exchange();
      drain();
    }
    return delivered_ - start;
  }

 private:
  struct Spoke {
    std::unique_ptr<Engine> engine;
    PeerId peer;
    RegionKey key;
  };

  template <class T>
  static T check(Result<T> result) {
    WEFT_CHECK(result.has_value());
    if constexpr (!std::is_void_v<T>) {
      return *result;
    }
  }

  std::unique_ptr<Engine> make_engine(std::uint32_t number) const {
    EngineConfig config;
    config.seed = number + 1;
    config.paths = bench_.paths;
    config.checksum = bench_.checksum;
    config.mtu_payload = std::max(bench_.size, 256U);
    config.line_rate = Rate::gbps(400);
    config.max_peers = 2048;
    return std::make_unique<Engine>(config);
  }

  void add_spoke(std::uint32_t index) {
    Spoke spoke;
    spoke.engine = make_engine(index + 1);
    EndpointConfig endpoint;
    endpoint.receive_depth = kReceivesPerSpoke;
    check(spoke.engine->open_endpoint(kSpokeQpn, endpoint));
    Region region;
    region.data = target_.data();
    region.address = 0;
    region.length = target_.size();
    region.access = Access::remote_write;
    spoke.key = check(spoke.engine->memory().insert(region));
    spoke.peer = check(hub_->peer(address_of(index + 1), AttachmentId{0}));
    if (bench_.operation == "send") {
      for (std::size_t i = 0; i < kReceivesPerSpoke; ++i) {
        post_receive(*spoke.engine);
      }
    }
    spokes_.push_back(std::move(spoke));
  }

  void post_receive(Engine& engine) {
    ReceiveRequest receive;
    receive.segments[0] = {target_.data(), static_cast<std::uint32_t>(target_.size())};
    WEFT_CHECK(engine.post_receive(kSpokeQpn, receive) == PostResult::accepted);
  }

  void post_batch() {
    for (std::size_t i = 0; i < kBurst && hub_->outstanding() < 8 * kBurst; ++i) {
      const Spoke& spoke = spokes_[next_spoke_];
      next_spoke_ = next_spoke_ + 1 == spokes_.size() ? 0 : next_spoke_ + 1;
      WEFT_CHECK(post(spoke) == PostResult::accepted);
    }
  }

  PostResult post(const Spoke& spoke) {
    const auto fill = [&](auto& request) {
      request.peer = spoke.peer;
      request.source = kHubQpn;
      request.destination = kSpokeQpn;
      request.segments[0] = {source_.data(), bench_.size};
    };
    if (bench_.operation == "send") {
      SendRequest request;
      fill(request);
      return hub_->post(request);
    }
    WriteRequest request;
    fill(request);
    request.remote_key = spoke.key;
    return hub_->post(request);
  }

  // A burst out, and what it causes back. Packets are handed over as the engines lend them.
  void exchange() {
    now_ += std::chrono::microseconds{1};
    if (hub_->next_timeout() <= now_) {
      hub_->on_timeout(now_);
    }
    for (std::size_t i = 0; i < kBurst && hub_->next_transmit(now_, packet_); ++i) {
      const std::uint32_t number = std::to_integer<std::uint32_t>(packet_.to.bytes[15]) |
                                   std::to_integer<std::uint32_t>(packet_.to.bytes[14]) << 8;
      Engine& spoke = *spokes_[number - 1].engine;
      hand_over(spoke, address_of(0));
      while (spoke.next_transmit(now_, packet_)) {
        hand_over(*hub_, address_of(number));
      }
    }
    while (hub_->next_timeout() <= now_) {
      hub_->on_timeout(now_);
    }
    if (++rounds_ % 4 == 0) {
      settle_late_acks();
    }
  }

  void hand_over(Engine& to, const Address& from) {
    RxPacket received;
    received.from = from;
    received.path = packet_.path;
    received.bytes = std::span(packet_.header).first(packet_.header_size);
    received.more = packet_.payload[0];
    to.on_packet(now_, received);
  }

  // Acknowledgements that wait for company until their delay is over.
  void settle_late_acks() {
    for (std::uint32_t i = 0; i < spokes_.size(); ++i) {
      Engine& spoke = *spokes_[i].engine;
      if (spoke.next_timeout() > now_) {
        continue;
      }
      spoke.on_timeout(now_);
      while (spoke.next_transmit(now_, packet_)) {
        hand_over(*hub_, address_of(i + 1));
      }
    }
  }

  void drain() {
    std::array<Completion, kBurst> done;
    while (const std::size_t count = hub_->poll(done)) {
      for (std::size_t i = 0; i < count; ++i) {
        WEFT_CHECK(done[i].status == Status::ok);
      }
      delivered_ += count;
      if (bench_.operation == "send") {
        for (std::size_t i = 0; i < count; ++i) {
          Engine& spoke = *spokes_[done[i].peer.value()].engine;
          std::array<Completion, kBurst> received;
          for (std::size_t n = spoke.poll(received); n != 0; --n) {
            post_receive(spoke);
          }
        }
      }
    }
  }

  const EngineBenchCase& bench_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  std::unique_ptr<Engine> hub_;
  std::vector<Spoke> spokes_;
  std::size_t next_spoke_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t rounds_ = 0;
  TimePoint now_{};
  TxPacket packet_;
};

}  // namespace

EngineBenchResult run_engine_bench(const EngineBenchCase& bench, std::uint64_t packets,
                                   int rounds) {
  using Clock = std::chrono::steady_clock;
  Star star(bench);
  star.deliver(packets);
  std::vector<double> costs;
  EngineBenchResult result;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    const std::uint64_t delivered = star.deliver(packets);
    const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
    costs.push_back(elapsed.count() / static_cast<double>(delivered));
    result.packets += delivered;
  }
  std::nth_element(costs.begin(), costs.begin() + rounds / 2, costs.end());
  result.ns_per_packet = costs[static_cast<std::size_t>(rounds) / 2];
  return result;
}

}  // namespace weft::cli
