// Owns the way of a rank through its steps.
//
// Two things go on at once: the plan's items, one after the other as a GPU's stream would run them,
// and the queue of collectives, of which one runs at a time. go_on() moves both as far as they get;
// the rest waits for a completion or for next_timeout().
#include "integration/workloads/step_rank.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "srd/base/rng.hpp"

namespace weft::workloads {
namespace {

// Immediate data: bit 31 says that the sender is ready to receive, otherwise this is a piece; then
// 12 bits of the collective's number and 18 of the piece's. The collective's number wraps: ranks
// are at most one collective apart.
constexpr std::uint32_t kReady = 1U << 31;
constexpr std::uint32_t kCollectives = 1U << 12;
std::uint32_t word_of(bool ready, std::uint32_t collective, std::uint32_t piece) {
  return (ready ? kReady : 0) | (collective % kCollectives) << 18 | piece;
}

// Addresses of the phantom region: all offsets are 0, so any size does that no piece exceeds.
constexpr Bytes kEverything = Bytes{1} << 40;

}  // namespace

StepRank::StepRank(srd::Engine& engine, const StepSetup& setup)
    : engine_(engine), setup_(setup), outbox_(engine, setup.place.qpn) {
  // Memory without bytes: writes to it are counted and dropped. So a run of gigabytes per step
  // costs no memory.
  outbox_.open(setup_.place, {.length = kEverything, .placement = srd::Placement::phantom});
}

// A normal number by Box and Muller, as an exponent: computing times are skewed to the long side. A
// function of seed, rank and step, so that a run with another transport has the same times.
double StepRank::jitter_of(std::uint32_t step) const {
  Rng rng(mix64(setup_.seed ^ mix64(std::uint64_t{setup_.rank} << 32 | step)));
  const double radius = std::sqrt(-2 * std::log(1 - rng.unit()));
  return std::exp(setup_.jitter * radius * std::cos(2 * std::numbers::pi * rng.unit()));
}

void StepRank::begin(TimePoint now) {
  has_begun_ = true;
  run_began_ = now;
  begin_step(now);
  go_on(now);
}

void StepRank::begin_step(TimePoint now) {
  item_ = 0;
  stretch_ = jitter_of(step_) * setup_.slowness;
  records_.emplace_back();
  records_.back().began = now - run_began_;
}

TimePoint StepRank::next_timeout() const {
  if (!failure_.empty()) {
    return kNever;
  }
  return std::min(computes_until_,
                  running_ ? collective_began_ + setup_.watchdog : TimePoint{kNever});
}

void StepRank::fail(TimePoint now, const std::string& why) {
  if (failure_.empty()) {
    failure_ = why;
    failed_after_ = now - run_began_;
  }
}

void StepRank::progress(TimePoint now) {
  while (const srd::Completion* const completion = engine_.next_completion()) {
    const srd::Completion copy = *completion;
    engine_.pop_completion();
    on_completion(now, copy);
  }
  if (has_begun_ && failure_.empty()) {
    go_on(now);
  }
}

// A collective's end may let the GPU go on, and its going on may start the next one: hence the
// loop.
void StepRank::go_on(TimePoint now) {
  while (true) {
    if (running_) {
      post_pieces();
      if (running_->finished() && !refused_) {
        end_collective(now);
        continue;
      }
      if (now >= collective_began_ + setup_.watchdog) {
        const auto missing = running_->missing();
        fail(now, "watchdog: " +
                      std::string(kCollectiveNames[static_cast<std::size_t>(
                          setup_.plan.collectives[queue_.front().collective].kind)]) +
                      " " + std::to_string(queue_.front().collective) + " of step " +
                      std::to_string(queue_.front().step) + " has run for too long" +
                      (missing ? ": nothing more from rank " + std::to_string(*missing) : ""));
        return;
      }
    } else if (!queue_.empty()) {
      begin_collective(now);
      continue;
    }
    if (step_ == setup_.steps) {
      return;
    }
    if (item_ == setup_.plan.items.size()) {
      records_.back().ended = now - run_began_;
      if (++step_ != setup_.steps) {
        begin_step(now);
      }
      continue;
    }
    if (!do_item(now, setup_.plan.items[item_])) {
      return;
    }
    ++item_;
  }
}

// False: it takes longer.
bool StepRank::do_item(TimePoint now, const PlanItem& item) {
  switch (item.kind) {
    case PlanItem::Kind::compute: {
      if (computes_until_ == kNever) {
        const Duration time{
            static_cast<std::int64_t>(static_cast<double>(item.time.count()) * stretch_)};
        computes_until_ = now + time;
        records_.back().computed += time;
      }
      if (now < computes_until_) {
        return false;
      }
      computes_until_ = kNever;
      return true;
    }
    // A collective has a turn in the queue even if it could run at once: all ranks run them in one
    // order.
    case PlanItem::Kind::start:
      (void)queue_.push({step_, item.collective});
      if (!running_) {
        begin_collective(now);
      }
      return true;
    case PlanItem::Kind::wait:
      break;
  }
  const auto number =
      static_cast<std::uint32_t>(step_ * setup_.plan.collectives.size() + item.collective);
  if (ended_collectives_ > number) {
    if (waits_since_ != kNever) {
      records_.back().waited += now - waits_since_;
      waits_since_ = kNever;
    }
    return true;
  }
  waits_since_ = std::min(waits_since_, now);
  return false;
}

// A rank receives when it has begun: until then nothing of this collective may be sent to it. So it
// greets the ranks that send to it. Some may have greeted it before; those were noted meanwhile.
void StepRank::begin_collective(TimePoint now) {
  const CollectiveSpec& collective = setup_.plan.collectives[queue_.front().collective];
  running_.emplace(collective, setup_.ranks, setup_.rank);
  collective_began_ = now;
  ++begun_collectives_;
  for (const std::uint32_t rank : running_->senders()) {
    (void)greetings_.push(rank);
  }
  for (const std::uint32_t rank : ready_for_next_) {
    running_->ready(rank);
  }
  ready_for_next_.clear();
  post_pieces();
}

// Everything is posted and everything due is here. What this rank has posted may still be
// unacknowledged; section_over() waits for that (outstanding_).
void StepRank::end_collective(TimePoint now) {
  collectives_.push_back({queue_.front().step, queue_.front().collective,
                          collective_began_ - run_began_, now - run_began_});
  queue_.pop();
  running_.reset();
  ++ended_collectives_;
}

// Keeps a piece that the engine had no room for: CollectiveRun has counted it as sent.
void StepRank::post_pieces() {
  const std::uint32_t number = begun_collectives_ - 1;
  for (; !greetings_.empty(); greetings_.pop()) {
    if (!outbox_.post({.rank = greetings_.front(), .immediate = word_of(true, number, 0)})) {
      return;
    }
    ++outstanding_;
  }
  while (auto piece = refused_ ? refused_ : running_->next()) {
    Outbox::Item item{.rank = piece->to, .immediate = word_of(false, number, piece->number)};
    item.segments[0] = {nullptr, piece->bytes};
    item.phantom = true;
    if (!outbox_.post(item)) {
      refused_ = piece;
      return;
    }
    refused_.reset();
    ++outstanding_;
  }
}

// A peer that is ahead by one collective can only greet; its pieces come after our own greeting.
void StepRank::on_completion(TimePoint now, const srd::Completion& completion) {
  const std::uint32_t rank = outbox_.rank_of(completion.peer);
  if (completion.kind != srd::Completion::Kind::receive_write_imm) {
    --outstanding_;
    if (completion.status != srd::Status::ok) {
      fail(now, "transport: rank " + std::to_string(rank) + " does not answer");
    }
    return;
  }
  const bool is_ready = (completion.immediate & kReady) != 0;
  const std::uint32_t collective = completion.immediate >> 18 & (kCollectives - 1);
  const std::uint32_t piece = completion.immediate & ((1U << 18) - 1);
  const std::uint32_t present = begun_collectives_ - (running_ ? 1 : 0);  // or the next one
  if (rank == Outbox::kNobody) {
    ++stray_;
  } else if (running_ && collective == present % kCollectives) {
    if (is_ready) {
      running_->ready(rank);
    } else {
      stray_ += running_->arrived(rank, piece) ? 0U : 1U;
    }
  } else if (is_ready && collective == begun_collectives_ % kCollectives &&
             ready_for_next_.size() < setup_.ranks) {
    ready_for_next_.push_back(rank);
  } else {
    ++stray_;
  }
}

}  // namespace weft::workloads
