// Owns the low-latency way: posting, believing, and taking what has come.
//
// start() posts all messages in turns, for each batch its writes and then its counter. A counter
// that is believed says that the batch's data lie in the window. What stays at its rank is taken
// bit by bit meanwhile.
#include "integration/workloads/low_latency_rank.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::workloads {
namespace {

// A request's cookie: the batch that it belongs to, its number in the sequence, whether it is the
// counter.
struct Cookie {
  std::uint32_t batch = 0;
  std::uint32_t sequence = 0;
  bool counter = false;
  [[nodiscard]] std::uint64_t word() const {
    return std::uint64_t{batch} << 32 | std::uint64_t{counter} << 31 | sequence;
  }
  [[nodiscard]] static Cookie of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word & 0x7FFFFFFF),
            (word >> 31 & 1) != 0};
  }
};

// Batches that stay at their rank, of those taken at a time: few, because the others wait for
// acknowledgements and for more meanwhile.
constexpr std::uint32_t kOwnAtATime = 2;

// For each buffer: dispatched messages by expert, source and slot, then combined results by token.
// No place is shared, so writes need no order among themselves.
std::size_t window_bytes(const ExpertProblem& problem) {
  const std::size_t message =
      sizeof(TokenHeader) + payload_bytes(problem.precision, problem.hidden);
  return 2 * (std::size_t{problem.experts} * problem.tokens * message +
              std::size_t{problem.tokens} * problem.topk * problem.hidden * 2);
}

}  // namespace

LowLatencyRank::LowLatencyRank(srd::Engine& engine, const ExpertSetup& setup)
    : ExpertRank(engine, setup, window_bytes(setup.problem)),
      windows_(std::size_t{4} * setup.problem.experts),
      arrivals_(std::size_t{4} * setup.problem.experts) {
  // What a rank gets where experts are alike, and some more. Pages that are not used cost nothing.
  const std::size_t average = std::size_t{problem().tokens} * problem().topk * message_bytes();
  taken_bytes_.reserve(average + average / 4);
}

// In the window: [buffer][expert of the rank][source][slot]
std::uint64_t LowLatencyRank::dispatch_offset(bool odd, std::uint32_t local, std::uint32_t source,
                                              std::uint32_t slot) const {
  const std::uint64_t groups = problem().experts;
  return (((odd ? groups : 0) + std::uint64_t{local} * problem().ranks + source) *
              problem().tokens +
          slot) *
         message_bytes();
}

// In the window, behind all of dispatch: [buffer][token][selection]
std::uint64_t LowLatencyRank::combine_offset(bool odd, Place place) const {
  return dispatch_offset(true, problem().experts_per_rank(), 0, 0) +
         ((std::uint64_t{odd ? problem().tokens : 0} + place.token) * problem().topk +
          place.selection) *
             result_bytes();
}

// Two buffers and two directions have states of their own: marks of the next section may arrive
// while this one is still running.
std::size_t LowLatencyRank::index_of(std::uint32_t rank, bool combine, bool odd,
                                     std::uint32_t group) const {
  const std::size_t kind = (combine ? 2U : 0U) + (odd ? 1U : 0U);
  return (rank * std::size_t{4} + kind) * problem().experts_per_rank() + group;
}

void LowLatencyRank::prepare_dispatch(std::uint32_t round) {
  tokens_.resize(problem().tokens * (message_bytes() - sizeof(TokenHeader)));
  headers_.resize(route().size());
  by_expert_.assign(problem().experts, {});
  batches_.assign(problem().experts, {});
  for (std::uint32_t expert = 0; expert < problem().experts; ++expert) {
    batches_[expert].rank = problem().owner_of(expert);
    batches_[expert].group = expert % problem().experts_per_rank();
  }
  const auto payload = static_cast<std::uint32_t>(message_bytes() - sizeof(TokenHeader));
  for (std::uint32_t i = 0; i < route().size(); ++i) {
    const Place place{i / problem().topk, i % problem().topk};
    std::byte* const data = tokens_.data() + std::size_t{place.token} * payload;
    if (place.selection == 0) {
      write_token(problem(), setup().rank, round, place.token, {data, payload});
    }
    headers_[i] = {place.token, setup().rank, place.selection, round};
    Batch& batch = batches_[route()[i].expert];
    const auto slot = static_cast<std::uint32_t>(batch.writes.size());
    Outbox::Item item{.rank = batch.rank};
    item.segments[0] = {reinterpret_cast<std::byte*>(&headers_[i]), sizeof(TokenHeader)};
    item.segments[1] = {data, payload};
    item.offset = dispatch_offset(round % 2 != 0, batch.group, setup().rank, slot);
    batch.writes.push_back(item);
    by_expert_[route()[i].expert].push_back(place);
  }
}

void LowLatencyRank::prepare_combine(std::uint32_t round) {
  std::size_t messages = 0;
  for (const Taken& one : taken_) {
    messages += one.count;
  }
  results_.resize(messages * result_bytes());
  batches_.assign(problem().experts, {});
  for (std::uint32_t i = 0; i < problem().experts; ++i) {
    batches_[i].rank = i / problem().experts_per_rank();
    batches_[i].group = i % problem().experts_per_rank();
  }
  std::vector<float> columns(problem().hidden);
  std::byte* result = results_.data();
  for (const Taken& one : taken_) {
    Batch& batch = batches_[one.source * problem().experts_per_rank() + one.local];
    const float factor = factor_of(setup().rank * problem().experts_per_rank() + one.local);
    for (std::uint32_t i = 0; i < one.count; ++i) {
      const std::byte* const message = taken_bytes_.data() + one.offset + i * message_bytes();
      TokenHeader header;
      std::memcpy(&header, message, sizeof header);
      if (header.token >= problem().tokens || header.selection >= problem().topk) {
        // What came from the network is used as an index only after this check.
        continue;  // counted as wrong before
      }
      std::fill(columns.begin(), columns.end(), 0.0F);
      add_token(problem().precision, {message + sizeof header, message_bytes() - sizeof header},
                factor, columns);
      write_result(columns, {result, result_bytes()});
      Outbox::Item item{.rank = one.source};
      item.segments[0] = {result, static_cast<std::uint32_t>(result_bytes())};
      item.offset = combine_offset(round % 2 != 0, {header.token, header.selection});
      batch.writes.push_back(item);
      result += result_bytes();
    }
  }
}

void LowLatencyRank::start(TimePoint now) {
  own_left_ = problem().experts_per_rank();
  left_ = problem().experts - own_left_;  // of all sources, or of all experts
  taken_.clear();
  taken_bytes_.clear();
  // Each rank begins with the one after it, so that not all send to the same one at first.
  const std::uint32_t next = first_own() + problem().experts_per_rank();
  for (std::uint32_t i = 0; i < problem().experts - problem().experts_per_rank(); ++i) {
    (void)runnable_.push((next + i) % problem().experts);
  }
  // The early marks are those of this section: nobody can be two sections ahead.
  const std::vector<EarlyMark> early = std::exchange(early_, {});
  for (const EarlyMark& one : early) {
    believe(now, one.source, one.mark);
  }
  post_all(now);
}

// `strong` holds the counter until all writes are acknowledged; `sequence` needs a free number.
bool LowLatencyRank::can_post(const Batch& batch) const {
  if (batch.posted > batch.writes.size()) {
    return false;  // its counter, too, has been posted
  }
  const bool counter = batch.posted == batch.writes.size();
  if (setup().ordering == Ordering::strong && counter) {
    return batch.acknowledged == batch.writes.size();
  }
  return setup().ordering != Ordering::sequence ||
         windows_[index_of(batch.rank, combining(), round() % 2 != 0, batch.group)].has_room();
}

void LowLatencyRank::post_all(TimePoint now) {
  post_writes();
  take_own(now);
}

// One request of each batch in turn: no destination gets all of its own at once.
void LowLatencyRank::post_writes() {
  while (!runnable_.empty()) {
    const std::uint32_t index = runnable_.front();
    if (can_post(batches_[index])) {
      if (!post_next(index)) {
        return;
      }
      if (can_post(batches_[index])) {
        (void)runnable_.push(index);
      }
    }
    runnable_.pop();
  }
}

bool LowLatencyRank::post_next(std::uint32_t index) {
  Batch& batch = batches_[index];
  Mark mark{.combine = combining(), .odd = round() % 2 != 0, .group = batch.group};
  if (batch.posted < batch.writes.size()) {
    return post_one(index, batch.writes[batch.posted], mark);
  }
  mark.counter = true;
  mark.value = static_cast<std::uint32_t>(batch.writes.size());
  return post_one(index, {.rank = batch.rank}, mark);
}

// A batch's numbers are only used up once the engine has taken the request: a refused request is
// posted again and must get the same one.
bool LowLatencyRank::post_one(std::uint32_t index, Outbox::Item item, Mark mark) {
  Batch& batch = batches_[index];
  const bool marks =
      mark.counter || setup().ordering == Ordering::count || setup().ordering == Ordering::sequence;
  SequenceWindow& window = windows_[index_of(batch.rank, mark.combine, mark.odd, mark.group)];
  SequenceWindow after = window;
  mark.sequence = setup().ordering == Ordering::sequence ? after.take() : 0;
  item.cookie = Cookie{index, mark.sequence, mark.counter}.word();
  if (marks) {
    item.immediate = mark.word();
  }
  if (!outbox().post(item)) {
    return false;
  }
  window = after;
  ++batch.posted;
  ++outstanding_;
  return true;
}

// Completions of what is outstanding bring us here again; without any, or when only this is left,
// the rest is taken at once.
void LowLatencyRank::take_own(TimePoint now) {
  const bool waits = outstanding_ != 0 && left_ != 0;
  for (std::uint32_t i = 0; own_left_ != 0 && !(waits && i == kOwnAtATime); ++i) {
    take_own_batch(batches_[first_own() + problem().experts_per_rank() - own_left_]);
    --own_left_;
    note_if_all_taken(now);
  }
}

// Nothing of a rank's own is sent, and nothing can overtake it: tokens are copied to where others'
// go from the window, results to the window.
void LowLatencyRank::take_own_batch(const Batch& batch) {
  const auto count = static_cast<std::uint32_t>(batch.writes.size());
  if (!combining()) {
    taken_.push_back({setup().rank, batch.group, count, taken_bytes_.size()});
    for (const Outbox::Item& item : batch.writes) {
      for (const srd::Segment& segment : item.segments) {
        taken_bytes_.insert(taken_bytes_.end(), segment.data, segment.data + segment.length);
      }
    }
    return;
  }
  for (const Outbox::Item& item : batch.writes) {
    std::memcpy(window() + item.offset, item.segments[0].data, item.segments[0].length);
  }
  take_combined(setup().rank, batch.group, count);
}

// With `sequence`, acknowledgements are of this section, because a section is not over while a
// request is outstanding.
void LowLatencyRank::on_completion(TimePoint now, const srd::Completion& completion) {
  const std::uint32_t rank = outbox().rank_of(completion.peer);
  if (completion.kind == srd::Completion::Kind::receive_write_imm) {
    const Mark mark = Mark::of(completion.immediate);
    if (rank == Outbox::kNobody || mark.group >= problem().experts_per_rank()) {
      ++account().ordering.stray;
      return;
    }
    on_mark(now, rank, mark);
    return;
  }
  --outstanding_;
  if (completion.status != srd::Status::ok) {
    fail_at(rank, completion.status);
    return;
  }
  const Cookie cookie = Cookie::of(completion.cookie);
  Batch& batch = batches_[cookie.batch];
  const bool could = can_post(batch);
  ++batch.acknowledged;
  if (setup().ordering == Ordering::sequence) {
    windows_[index_of(batch.rank, combining(), round() % 2 != 0, batch.group)].acknowledge(
        cookie.sequence);
  }
  if (!could && can_post(batch)) {
    (void)runnable_.push(cookie.batch);
  }
}

void LowLatencyRank::on_mark(TimePoint now, std::uint32_t source, const Mark& mark) {
  GroupArrivals& group = arrivals_[index_of(source, mark.combine, mark.odd, mark.group)];
  if (const auto value = group.take(setup().ordering, mark, account().ordering, waiting_now_)) {
    Mark believed = mark;
    believed.value = *value;
    believe(now, source, believed);
  }
}

// A counter is believed. The data are read at this moment, as a GPU kernel that waits for the
// counter would read them: bytes that have not arrived by now count as wrong.
void LowLatencyRank::believe(TimePoint now, std::uint32_t source, const Mark& mark) {
  const bool due =
      has_begun() && left_ != 0 && mark.combine == combining() && mark.odd == (round() % 2 != 0);
  if (!due) {
    if (early_.size() < problem().experts) {  // no rank is more than one section ahead
      early_.push_back({source, mark});
    } else {
      ++account().ordering.stray;
    }
    return;
  }
  mark.combine ? take_combined(source, mark.group, mark.value)
               : take_dispatched(source, mark.group, mark.value);
  --left_;
  note_if_all_taken(now);
}

void LowLatencyRank::note_if_all_taken(TimePoint now) {
  if (left_ == 0 && own_left_ == 0) {
    note_time(now, route().size() * (combining() ? result_bytes() : message_bytes()));
  }
}

void LowLatencyRank::take_dispatched(std::uint32_t source, std::uint32_t local,
                                     std::uint32_t count) {
  if (count > problem().tokens) {
    ++account().wrong;
    count = 0;
  }
  const std::byte* const first = window() + dispatch_offset(round() % 2 != 0, local, source, 0);
  taken_.push_back({source, local, count, taken_bytes_.size()});
  taken_bytes_.insert(taken_bytes_.end(), first, first + count * message_bytes());
}

// Only our own record of what was sent says which places hold results; the counter is only
// compared.
void LowLatencyRank::take_combined(std::uint32_t source, std::uint32_t local, std::uint32_t count) {
  const std::uint32_t expert = source * problem().experts_per_rank() + local;
  account().wrong += by_expert_[expert].size() == count ? 0U : 1U;
  for (const Place place : by_expert_[expert]) {
    const std::byte* const result = window() + combine_offset(round() % 2 != 0, place);
    add_token(Precision::bf16, {result, result_bytes()},
              route_of(place.token)[place.selection].weight, sum_of(place.token));
  }
}

// Every message of every source for every expert of ours, once, in the order of its tokens.
void LowLatencyRank::check_dispatched() {
  std::vector<std::vector<Selection>> routes;
  for (std::uint32_t rank = 0; rank < problem().ranks; ++rank) {
    routes.push_back(router().route(rank, round()));
  }
  for (const Taken& one : taken_) {
    check_taken(one, routes[one.source]);
  }
}

void LowLatencyRank::check_taken(const Taken& taken, std::span<const Selection> route) {
  const std::uint32_t expert = setup().rank * problem().experts_per_rank() + taken.local;
  std::vector<std::byte> right(message_bytes());
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < route.size(); ++i) {
    if (route[i].expert != expert) {
      continue;
    }
    const TokenHeader header{i / problem().topk, taken.source, i % problem().topk, round()};
    std::memcpy(right.data(), &header, sizeof header);
    write_token(problem(), taken.source, round(), header.token,
                std::span(right).subspan(sizeof header));
    ++account().checked;
    const bool same =
        found < taken.count &&
        std::memcmp(right.data(), taken_bytes_.data() + taken.offset + found * right.size(),
                    right.size()) == 0;
    account().wrong += same ? 0U : 1U;
    ++found;
  }
  account().wrong += taken.count > found ? taken.count - found : 0;
}

}  // namespace weft::workloads
