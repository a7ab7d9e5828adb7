// Owns the members of the laboratory of remote memory access.
#include "tests/unit/integration/nccl/rma_lab.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace weft::testing {

using nccl::Outcome;
using nccl::RmaStep;

RmaLab::RmaLab(std::uint32_t ranks, const RmaLabConfig& config)
    : config_(config), ranks_(ranks), world_(config.lab.seed), members_(ranks) {
  world_.network().link() = config.lab.link;
  const std::uint32_t nics = nic_of(ranks - 1) + 1;
  rmas_.resize(nics);
  for (std::uint32_t i = 0; i < nics; ++i) {
    engines_.push_back(config.lab.engine);
    engines_.back().seed = config.lab.seed * 100 + i;
    world_.add_host(engines_.back());
    boot(i);
  }
  for (std::uint32_t i = 0; i < ranks; ++i) {
    members_[i].listener = rma(i).listen(members_[i].handle);
  }
}

void RmaLab::boot(std::uint32_t nic) {
  nccl::RmaConfig config;
  config.nic = {.address = world::address_of_host(nic),
                .attachment = engines_[nic].attachment,
                .first_qpn = srd::Qpn{8},
                .seed = engines_[nic].seed};
  config.part_bytes = config_.part_bytes;
  auto made = nccl::Rma::create(world_.engine(nic), config);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  rmas_[nic] = std::move(*made);
}

void RmaLab::crash(std::uint32_t rank) {
  rmas_[nic_of(rank)].reset();
  world_.crash(nic_of(rank));
}

void RmaLab::restart(std::uint32_t rank) {
  const std::uint32_t nic = nic_of(rank);
  crash(rank);
  engines_[nic].life = engines_[nic].life.plus(1);
  engines_[nic].seed += 1000;
  world_.start(nic, engines_[nic]);
  boot(nic);
}

bool RmaLab::join() {
  std::vector<nccl::ListenHandle> handles;
  for (const Member& one : members_) {
    handles.push_back(one.handle);
  }
  for (std::uint32_t i = 0; i < ranks_; ++i) {
    EXPECT_EQ(rma(i).join(handles, i, members_[i].listener, members_[i].group), Outcome::ok);
    run_for(3us);  // not all at the same moment
  }
  std::vector<RmaStep> steps(ranks_, RmaStep::waits);
  (void)run_until([&] {
    for (std::uint32_t i = 0; i < ranks_; ++i) {
      steps[i] = rma(i).joined(members_[i].group);
    }
    return std::ranges::count(steps, RmaStep::waits) == 0;
  });
  for (std::uint32_t i = 0; i < ranks_; ++i) {
    rma(i).close_listener(members_[i].listener);
  }
  return std::ranges::count(steps, RmaStep::done) == ranks_;
}

void RmaLab::make_contexts() {
  for (std::uint32_t i = 0; i < ranks_; ++i) {
    EXPECT_EQ(rma(i).create_context(members_[i].group, 1, members_[i].context), Outcome::ok);
  }
}

std::uint32_t RmaLab::register_all(std::vector<std::vector<std::byte>>& memory) {
  std::uint32_t window = 0;
  std::vector<RmaStep> steps(ranks_, RmaStep::waits);
  for (std::uint32_t i = 0; i < ranks_; ++i) {
    EXPECT_EQ(rma(i).register_window(members_[i].group, memory[i].data(), memory[i].size(), window),
              Outcome::ok);
    run_for(3us);
  }
  (void)run_until([&] {
    for (std::uint32_t i = 0; i < ranks_; ++i) {
      steps[i] = rma(i).registered(members_[i].group, window);
    }
    return std::ranges::count(steps, RmaStep::waits) == 0;
  });
  return std::ranges::count(steps, RmaStep::done) == ranks_ ? window : 0;
}

nccl::Request* RmaLab::put(std::uint32_t from, std::uint32_t to, nccl::RmaPlace source,
                           std::size_t size, nccl::RmaPlace target,
                           std::optional<nccl::RmaSignal> signal) {
  nccl::Request* request = nullptr;
  EXPECT_EQ(rma(from).put(members_[from].group, members_[from].context, to, source, size, target,
                          signal, request),
            Outcome::ok);
  return request;
}

nccl::Request* RmaLab::get(std::uint32_t to, std::uint32_t from, nccl::RmaPlace source,
                           std::size_t size, nccl::RmaPlace target) {
  nccl::Request* request = nullptr;
  EXPECT_EQ(
      rma(to).get(members_[to].group, members_[to].context, from, source, size, target, request),
      Outcome::ok);
  return request;
}

std::optional<Outcome> RmaLab::ended(std::uint32_t rank, nccl::Request* request) {
  if (request->state.load() == nccl::Request::State::pending) {
    return std::nullopt;
  }
  EXPECT_NE(request->state.load(), nccl::Request::State::free) << "its end was told before";
  const Outcome outcome =
      request->state.load() == nccl::Request::State::done ? Outcome::ok : request->outcome;
  rma(rank).release(*request);
  return outcome;
}

Outcome RmaLab::outcome(std::uint32_t rank, nccl::Request* request, Duration limit) {
  std::optional<Outcome> end;
  EXPECT_TRUE(run_until([&] { return (end = ended(rank, request)).has_value(); }, limit));
  return end.value_or(Outcome::internal_error);
}

// Steps of 10 ms at most: the members look at the clock in progress().
bool RmaLab::run_until(const std::function<bool()>& reached, Duration limit) {
  const TimePoint end = world_.now() + limit;
  while (!reached()) {
    const bool more = world_.step(std::min(end, world_.now() + 10ms));
    for (std::uint32_t i = 0; i < rmas_.size(); ++i) {
      if (rmas_[i] == nullptr) {
        continue;
      }
      srd::Engine& engine = world_.engine(i);
      while (const srd::Completion* const next = engine.next_completion()) {
        const srd::Completion completion = *next;
        engine.pop_completion();
        EXPECT_TRUE(rmas_[i]->owns(completion.endpoint));
        rmas_[i]->take(completion);
      }
      rmas_[i]->progress(world_.now());
    }
    world_.pump();
    EXPECT_EQ(world_.broken(), "");
    if (!more && world_.now() >= end) {
      return reached();
    }
  }
  return true;
}

void RmaLab::run_for(Duration duration) {
  (void)run_until([] { return false; }, duration);
}

RmaLabConfig patient_members() {
  RmaLabConfig config;
  config.lab.engine.peer_timeout = 10s;
  return config;
}

RmaGroup::RmaGroup(std::uint32_t ranks, const RmaLabConfig& config)
    : lab(ranks, config), memory(ranks, std::vector<std::byte>(65536)) {
  EXPECT_TRUE(lab.join());
  lab.make_contexts();
  window = lab.register_all(memory);
  EXPECT_NE(window, 0U);
}

std::uint64_t word_at(const std::vector<std::byte>& memory, std::size_t offset) {
  std::uint64_t word = 0;
  std::memcpy(&word, memory.data() + offset, sizeof word);
  return word;
}

}  // namespace weft::testing
