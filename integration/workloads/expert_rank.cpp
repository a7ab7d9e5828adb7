// Owns the sections of a rank, and the check of their results.
//
// A section runs like this: prepare() makes all that will go; start() posts it; a counter that may
// be believed (ordering.hpp) says that data lie in the window, and they are copied out at once;
// when all has come the section's time is taken. The next prepare() checks what was copied, outside
// of the time that counts.
#include "integration/workloads/expert_rank.hpp"

#include <algorithm>
#include <bit>

#include "integration/workloads/chunk_ring.hpp"
#include "integration/workloads/low_latency_rank.hpp"
#include "integration/workloads/normal_rank.hpp"
#include "srd/base/rng.hpp"

namespace weft::workloads {

std::string mistake_in(const ExpertSetup& setup) {
  if (std::string mistake = mistake_in(setup.problem); !mistake.empty()) {
    return mistake;
  }
  if (setup.mode == ExpertMode::low_latency) {
    return setup.problem.experts_per_rank() <= Mark::kMaxGroup
               ? ""
               : "a rank can have " + std::to_string(Mark::kMaxGroup) +
                     " experts at most, which is what a counter can name";
  }
  if (setup.chunk == 0 || setup.ring % setup.chunk != 0 || setup.ring == 0) {
    return "a ring of " + std::to_string(setup.ring) + " tokens is no whole number of chunks of " +
           std::to_string(setup.chunk);
  }
  if (setup.ring / setup.chunk > kMaxRingPlaces) {
    return "a ring can have " + std::to_string(kMaxRingPlaces) + " chunks at most, not " +
           std::to_string(setup.ring / setup.chunk);
  }
  return {};
}

std::uint64_t memory_needed(const ExpertSetup& setup) {
  const ExpertProblem& problem = setup.problem;
  const std::uint64_t payload = payload_bytes(problem.precision, problem.hidden);
  const std::uint64_t result = std::uint64_t{problem.hidden} * 2;
  const bool is_normal = setup.mode == ExpertMode::normal;
  // Of a token: what goes to others, once or twice there, what comes back, and its sum.
  const std::uint64_t copies =
      is_normal ? std::min({problem.topk, problem.ranks,
                            problem.groups == 0 ? problem.ranks : problem.groups})
                : problem.topk;
  const std::uint64_t each = payload + std::uint64_t{problem.hidden} * sizeof(float) +
                             copies * (is_normal ? payload + result : 3 * payload + 3 * result);
  const std::uint64_t rings =
      is_normal ? std::uint64_t{2} * setup.ring * std::max(payload, result) * problem.ranks : 0;
  return problem.ranks * (problem.tokens * each + rings);
}

void ExpertResult::add(const ExpertResult& other) {
  dispatch_us.insert(dispatch_us.end(), other.dispatch_us.begin(), other.dispatch_us.end());
  combine_us.insert(combine_us.end(), other.combine_us.begin(), other.combine_us.end());
  dispatch_bytes += other.dispatch_bytes;
  combine_bytes += other.combine_bytes;
  checked += other.checked;
  wrong += other.wrong;
  wrong_sums += other.wrong_sums;
  ordering.add(other.ordering);
  digest = mix64(digest ^ other.digest);
}

std::unique_ptr<ExpertRank> ExpertRank::make(srd::Engine& engine, const ExpertSetup& setup) {
  if (setup.mode == ExpertMode::normal) {
    return std::make_unique<NormalRank>(engine, setup);
  }
  return std::make_unique<LowLatencyRank>(engine, setup);
}

ExpertRank::ExpertRank(srd::Engine& engine, const ExpertSetup& setup, std::size_t window_bytes)
    : engine_(engine),
      setup_(setup),
      router_(setup.problem),
      window_(window_bytes),
      outbox_(engine, setup.place.qpn) {
  outbox_.open(setup_.place, {.data = window_.data(),
                              .address = reinterpret_cast<std::uintptr_t>(window_.data()),
                              .length = window_.size()});
}

void ExpertRank::prepare() {
  if (section_ != 0) {
    combining() ? check_combined() : check_dispatched();
  }
  if (finished()) {
    return;
  }
  const std::uint32_t next = section_ + 1;
  if (next % 2 == 0) {
    sums_.assign(std::size_t{problem().tokens} * problem().hidden, 0.0F);
    prepare_combine((next - 1) / 2);
  } else {
    route_ = router_.route(setup_.rank, (next - 1) / 2);
    prepare_dispatch((next - 1) / 2);
  }
}

void ExpertRank::begin(TimePoint now) {
  ++section_;
  began_ = now;
  start(now);
}

void ExpertRank::progress(TimePoint now) {
  bool any = false;
  while (const srd::Completion* const completion = engine_.next_completion()) {
    const srd::Completion copy = *completion;
    engine_.pop_completion();
    on_completion(now, copy);
    any = true;
  }
  if (any) {
    post_all(now);
  }
}

void ExpertRank::note_time(TimePoint now, std::uint64_t bytes) {
  if (round() < setup_.warm_up) {
    return;
  }
  const double us = static_cast<double>((now - began_).count()) / 1e3;
  (combining() ? result_.combine_us : result_.dispatch_us).push_back(us);
  (combining() ? result_.combine_bytes : result_.dispatch_bytes) += bytes;
}

void ExpertRank::fail_at(std::uint32_t rank, srd::Status status) {
  failure_ = "rank " + std::to_string(rank) + " does not answer: " + to_string(status);
}

// The digest tells whether two runs had the same results; it takes in every column.
void ExpertRank::check_combined() {
  for (std::uint32_t token = 0; token < problem().tokens; ++token) {
    const std::span<const float> sum = sum_of(token);
    const std::size_t wrong =
        count_wrong_columns(problem(), setup_.rank, round(), token, route_of(token), sum);
    ++result_.checked;
    result_.wrong += wrong == 0 ? 0U : 1U;
    result_.wrong_sums += wrong == 0 ? 0U : 1U;
    std::uint64_t digest = result_.digest;
    for (const float one : sum) {
      digest = digest * 31 + std::bit_cast<std::uint32_t>(one);
    }
    result_.digest = mix64(digest);
  }
}

}  // namespace weft::workloads
