// Owns the NICs of the laboratory: plugin cores over real engines, in a world with virtual time.
// What a core does in a thread of its own is done here between the steps of that world.
#include "tests/unit/integration/nccl/core_lab.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "srd/base/rng.hpp"

namespace weft::testing {

NcclLabConfig nccl_lab_config() {
  NcclLabConfig config;
  config.engine.paths = 16;
  // Small packets: messages of some thousand bytes already have many of them.
  config.engine.mtu_payload = 1024;
  config.engine.base_rtt = 10us;
  config.link.latency = 5us;
  return config;
}

void fill_bytes(std::span<std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(mix64(seed * 0x10001 + i / 8) >> (8 * (i % 8)));
  }
}

bool has_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::vector<std::byte> expected(bytes.size());
  fill_bytes(expected, seed);
  return std::ranges::equal(bytes, expected);
}

NcclLab::NcclLab(std::uint32_t nics, const NcclLabConfig& config)
    : config_(config), world_(config.seed) {
  world_.network().link() = config.link;
  cores_.resize(nics);
  for (std::uint32_t i = 0; i < nics; ++i) {
    engines_.push_back(config.engine);
    engines_.back().seed = config.seed * 100 + i;
    world_.add_host(engines_.back());
    boot(i);
  }
}

void NcclLab::boot(std::uint32_t nic) {
  auto made = nccl::Core::create(engine(nic), {.address = world::address_of_host(nic),
                                               .attachment = engines_[nic].attachment,
                                               .first_qpn = srd::Qpn{8},
                                               .seed = engines_[nic].seed});
  ASSERT_TRUE(made.has_value()) << made.error().message;
  cores_[nic] = std::move(*made);
}

void NcclLab::crash(std::uint32_t nic) {
  cores_[nic].reset();
  world_.crash(nic);
}

void NcclLab::restart(std::uint32_t nic) {
  crash(nic);
  // As weftd gives them: a new process at an old place has another life.
  engines_[nic].life = engines_[nic].life.plus(1);
  engines_[nic].seed += 1000;
  world_.start(nic, engines_[nic]);
  boot(nic);
}

// The cores look at the clock every so often: no step is longer.
bool NcclLab::step(TimePoint limit) {
  bool more = world_.step(std::min(limit, world_.now() + 10ms));
  for (const auto& core : cores_) {
    if (core) {
      core->progress(world_.now());
    }
  }
  world_.pump();
  EXPECT_EQ(world_.broken(), "");
  return more || world_.now() < limit;
}

bool NcclLab::run_until(const std::function<bool()>& reached, Duration limit) {
  const TimePoint end = world_.now() + limit;
  while (!reached()) {
    if (!step(end)) {
      return reached();
    }
  }
  return true;
}

void NcclLab::run_for(Duration duration) {
  (void)run_until([] { return false; }, duration);
}

NcclLab::Connection NcclLab::connect(std::uint32_t from, std::uint32_t to) {
  nccl::ListenHandle handle;
  const std::uint32_t listener = core(to).listen(handle);
  Connection made;
  EXPECT_TRUE(run_until([&] {
    if (made.sender == nullptr) {
      EXPECT_EQ(core(from).connect(handle, made.sender), nccl::Outcome::ok);
    }
    if (made.receiver == nullptr) {
      EXPECT_EQ(core(to).accept(listener, made.receiver), nccl::Outcome::ok);
    }
    return made.sender != nullptr && made.receiver != nullptr;
  }));
  core(to).close_listener(listener);
  return made;
}

// As NCCL's test(): it takes the end of a request once, and the request is free afterwards.
std::optional<nccl::Outcome> ended(nccl::Request* request) {
  const auto state = request->state.load();
  if (state == nccl::Request::State::pending) {
    return std::nullopt;
  }
  EXPECT_NE(state, nccl::Request::State::free) << "its end was told before";
  const nccl::Outcome outcome = request->outcome;
  request->state.store(nccl::Request::State::free);
  return outcome;
}

}  // namespace weft::testing
