// Owns the stations of the message laboratory: their memory, their requests, what came of them.
#include "tests/support/message_lab.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace weft::testing {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xA5};
constexpr std::uint64_t kFirstCookie = 100;  // lower ones are the tests' own

// The byte that fill() writes at that place.
std::byte byte_at(std::uint64_t seed, std::size_t at) {
  return static_cast<std::byte>(mix64(seed * 0x10001 + at / 8) >> (8 * (at % 8)));
}

}  // namespace

MessageLabConfig message_lab_config() {
  MessageLabConfig config;
  config.engine.paths = 16;
  config.engine.mtu_payload = 1024;
  config.engine.base_rtt = 10us;
  config.link.latency = 5us;
  config.messenger.endpoint = srd::Qpn{8};
  config.messenger.qkey = 0x1CE;
  config.messenger.domain = 5;
  return config;
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    const std::uint64_t word = mix64(seed * 0x10001 + at / 8);
    std::memcpy(bytes.data() + at, &word, 8);
  }
  for (; at < bytes.size(); ++at) {
    bytes[at] = byte_at(seed, at);
  }
}

std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed) {
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::size_t count = std::min<std::size_t>(8, bytes.size() - at);
    const std::uint64_t word = mix64(seed * 0x10001 + at / 8);
    if (std::memcmp(bytes.data() + at, &word, count) != 0) {
      return at;
    }
  }
  return bytes.size();
}

// --- Station

srd::Engine& Station::engine() { return lab_.world_.engine(host_); }

srd::MessageAddress Station::address(const Station& other) {
  const srd::PeerId peer =
      engine().peer(world::address_of_host(other.host_), other.config_.attachment).value();
  return {peer, lab_.config_.messenger.endpoint, lab_.config_.messenger.qkey};
}

void Station::boot(const srd::EngineConfig& engine_config,
                   const srd::MessengerConfig& messenger_config) {
  config_ = engine_config;
  auto made = srd::Messenger::create(engine(), messenger_config);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  messenger_ = std::move(*made);
}

void Station::stop() {
  messenger_.reset();
  requests_.clear();
  received_.clear();
  completions_.clear();
  sends_open_ = 0;
  receives_open_ = 0;
}

std::optional<std::uint64_t> Station::try_send(const Station& to, std::uint64_t tag,
                                               std::size_t size, const SendOptions& options) {
  const std::uint64_t cookie = ++last_cookie_;
  Request& request = requests_[cookie];
  request.memory.resize(size);
  request.size = size;
  request.is_send = true;
  fill(request.memory, options.seed != 0 ? options.seed : cookie);
  const srd::PostResult result = messenger_->post_send({.to = address(to),
                                                        .data = request.memory,
                                                        .tag = tag,
                                                        .immediate = options.immediate,
                                                        .cookie = cookie});
  if (result != srd::PostResult::accepted) {
    requests_.erase(cookie);
    return std::nullopt;
  }
  ++sends_open_;
  return cookie;
}

std::uint64_t Station::send(const Station& to, std::uint64_t tag, std::size_t size,
                            const SendOptions& options) {
  const auto cookie = try_send(to, tag, size, options);
  EXPECT_TRUE(cookie.has_value()) << "the messenger refused a send";
  return cookie.value_or(0);
}

std::uint64_t Station::receive(std::uint64_t tag, std::size_t size, const ReceiveOptions& options) {
  const std::uint64_t cookie = ++last_cookie_;
  Request& request = requests_[cookie];
  request.memory.assign(size + kGuard, kGuardByte);
  request.size = size;
  srd::MessageReceive receive;
  receive.data = std::span{request.memory}.first(size);
  receive.tag = tag;
  receive.ignore = options.ignore;
  receive.cookie = cookie;
  if (options.from) {
    receive.from = address(lab_[*options.from]);
  }
  EXPECT_EQ(messenger_->post_receive(receive), srd::PostResult::accepted);
  ++receives_open_;
  return cookie;
}

void Station::collect() {
  if (!messenger_) {
    return;
  }
  messenger_->progress();
  std::array<srd::MessageCompletion, 16> batch;
  for (std::size_t n = messenger_->poll(batch); n > 0; n = messenger_->poll(batch)) {
    for (std::size_t i = 0; i < n; ++i) {
      const srd::MessageCompletion& completion = batch[i];
      completions_.push_back(completion);
      const auto found = requests_.find(completion.cookie);
      const bool made_here = completion.cookie > kFirstCookie;
      if (completion.kind > srd::MessageCompletion::Kind::receive || !made_here) {
        continue;  // the test's own affair
      }
      ASSERT_TRUE(found != requests_.end()) << "a completion for a request that nobody made";
      Request& request = found->second;
      ASSERT_FALSE(request.result.has_value()) << "a second completion for one request";
      request.result = completion;
      --(request.is_send ? sends_open_ : receives_open_);
      if (request.is_send) {
        // It may be reused from now on: code that still reads it is found out by this.
        std::ranges::fill(request.memory, std::byte{0xEE});
        continue;
      }
      received_.push_back(completion.cookie);
      const auto guard = std::span{request.memory}.subspan(request.size);
      EXPECT_TRUE(std::ranges::all_of(guard, [](std::byte b) { return b == kGuardByte; }))
          << "bytes behind a receive were overwritten";
    }
  }
}

const srd::MessageCompletion* Station::result(std::uint64_t cookie) const {
  const auto found = requests_.find(cookie);
  return found == requests_.end() || !found->second.result ? nullptr : &*found->second.result;
}

std::optional<srd::Status> Station::status(std::uint64_t cookie) const {
  const srd::MessageCompletion* completion = result(cookie);
  return completion == nullptr ? std::nullopt : std::optional{completion->status};
}

std::span<std::byte> Station::memory(std::uint64_t cookie) {
  Request& request = requests_.at(cookie);
  return std::span{request.memory}.first(request.size);
}

// --- Lab

MessageLab::MessageLab(std::uint32_t stations, const MessageLabConfig& config)
    : config_(config), world_(config.seed) {
  world_.network().link() = config.link;
  for (std::uint32_t i = 0; i < stations; ++i) {
    srd::EngineConfig engine = config.engine;
    engine.seed = config.seed * 100 + i;
    world_.add_host(engine);
    stations_.emplace_back(*this, i);
    stations_.back().boot(engine, config.messenger);
  }
}

bool MessageLab::step(TimePoint limit) {
  const bool more = world_.step(limit);
  for (Station& station : stations_) {
    station.collect();
  }
  EXPECT_EQ(world_.broken(), "");
  return more;
}

bool MessageLab::run_until(const std::function<bool()>& reached, Duration limit) {
  const TimePoint end = world_.now() + limit;
  while (!reached()) {
    if (!step(end)) {
      return reached();
    }
  }
  return true;
}

void MessageLab::run_for(Duration duration) {
  const TimePoint limit = world_.now() + duration;
  while (step(limit)) {
  }
}

bool MessageLab::run_until_done(Duration limit) {
  return run_until(
      [this] {
        return std::ranges::all_of(stations_, [](const Station& station) {
          return station.sends_open() == 0 && station.receives_open() == 0;
        });
      },
      limit);
}

void MessageLab::crash(Station& station) {
  station.stop();
  world_.crash(station.host());
}

void MessageLab::restart(Station& station) {
  crash(station);
  srd::EngineConfig engine = station.config_;
  engine.life = engine.life.plus(1);
  world_.start(station.host(), engine);
  station.boot(engine, config_.messenger);
}

}  // namespace weft::testing
