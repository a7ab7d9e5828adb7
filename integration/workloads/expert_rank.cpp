// Owns dispatch and combine of the low-latency way: posting, believing, and taking what has come.
//
// A section runs like this: prepare() makes all messages; begin() posts them in turns, for each
// batch its writes and then its counter; a counter that may be believed (ordering.hpp) says that
// the batch's data lie in the window, and they are copied out at once; when all counters are there
// the section's time is taken. The next prepare() checks what was copied, outside of the time that
// counts.
#include "integration/workloads/expert_rank.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "srd/base/rng.hpp"

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

double microseconds_between(TimePoint from, TimePoint to) {
  return static_cast<double>((to - from).count()) / 1e3;
}

// For each buffer: dispatched messages by expert, source and slot, then combined results by token.
// No place is shared, so writes need no order among themselves.
std::size_t window_bytes(const ExpertProblem& problem) {
  const std::size_t message =
      sizeof(TokenHeader) + payload_bytes(problem.precision, problem.hidden);
  return 2 * (std::size_t{problem.experts} * problem.tokens * message +
              std::size_t{problem.tokens} * problem.topk * problem.hidden * 2);
}

}  // namespace

void ExpertResult::add(const ExpertResult& other) {
  dispatch_us.insert(dispatch_us.end(), other.dispatch_us.begin(), other.dispatch_us.end());
  combine_us.insert(combine_us.end(), other.combine_us.begin(), other.combine_us.end());
  dispatch_bytes += other.dispatch_bytes;
  combine_bytes += other.combine_bytes;
  wrong += other.wrong;
  checked += other.checked;
  ordering.add(other.ordering);
  digest = mix64(digest ^ other.digest);
}

ExpertRank::ExpertRank(srd::Engine& engine, const ExpertSetup& setup)
    : engine_(engine),
      setup_(setup),
      router_(setup.problem),
      window_(window_bytes(setup.problem)),
      outbox_(engine, setup.place.qpn),
      windows_(std::size_t{4} * setup.problem.experts),
      arrivals_(std::size_t{4} * setup.problem.experts) {
  outbox_.open(setup_.place, {.data = window_.data(),
                              .address = reinterpret_cast<std::uintptr_t>(window_.data()),
                              .length = window_.size()});
}

// In the window: [buffer][expert of the rank][source][slot]
std::uint64_t ExpertRank::dispatch_offset(bool odd, std::uint32_t local, std::uint32_t source,
                                          std::uint32_t slot) const {
  const std::uint64_t groups = problem().experts;
  return (((odd ? groups : 0) + std::uint64_t{local} * problem().ranks + source) *
              problem().tokens +
          slot) *
         message_bytes();
}

// In the window, behind all of dispatch: [buffer][token][selection]
std::uint64_t ExpertRank::combine_offset(bool odd, Place place) const {
  return dispatch_offset(true, problem().experts_per_rank(), 0, 0) +
         ((std::uint64_t{odd ? problem().tokens : 0} + place.token) * problem().topk +
          place.selection) *
             result_bytes();
}

// Two buffers and two directions have states of their own: marks of the next section may arrive
// while this one is still running.
std::size_t ExpertRank::index_of(std::uint32_t rank, bool combine, bool odd,
                                 std::uint32_t group) const {
  const std::size_t kind = (combine ? 2U : 0U) + (odd ? 1U : 0U);
  return (rank * std::size_t{4} + kind) * problem().experts_per_rank() + group;
}

void ExpertRank::prepare() {
  if (section_ != 0) {
    combining() ? check_combined() : check_dispatched();
  }
  if (finished()) {
    return;
  }
  const std::uint32_t next = section_ + 1;
  next % 2 == 0 ? prepare_combine((next - 1) / 2) : prepare_dispatch((next - 1) / 2);
}

void ExpertRank::prepare_dispatch(std::uint32_t round) {
  route_ = router_.route(setup_.rank, round);
  tokens_.resize(problem().tokens * (message_bytes() - sizeof(TokenHeader)));
  headers_.resize(route_.size());
  by_expert_.assign(problem().experts, {});
  batches_.assign(problem().experts, {});
  for (std::uint32_t expert = 0; expert < problem().experts; ++expert) {
    batches_[expert].rank = problem().owner_of(expert);
    batches_[expert].group = expert % problem().experts_per_rank();
  }
  const auto payload = static_cast<std::uint32_t>(message_bytes() - sizeof(TokenHeader));
  for (std::uint32_t i = 0; i < route_.size(); ++i) {
    const Place place{i / problem().topk, i % problem().topk};
    std::byte* const data = tokens_.data() + std::size_t{place.token} * payload;
    if (place.selection == 0) {
      write_token(problem(), setup_.rank, round, place.token, {data, payload});
    }
    headers_[i] = {place.token, setup_.rank, place.selection, round};
    Batch& batch = batches_[route_[i].expert];
    const auto slot = static_cast<std::uint32_t>(batch.writes.size());
    Outbox::Item item{.rank = batch.rank};
    item.segments[0] = {reinterpret_cast<std::byte*>(&headers_[i]), sizeof(TokenHeader)};
    item.segments[1] = {data, payload};
    item.offset = dispatch_offset(round % 2 != 0, batch.group, setup_.rank, slot);
    batch.writes.push_back(item);
    by_expert_[route_[i].expert].push_back(place);
  }
}

void ExpertRank::prepare_combine(std::uint32_t round) {
  sums_.assign(std::size_t{problem().tokens} * problem().hidden, 0.0F);
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
    const float factor = factor_of(setup_.rank * problem().experts_per_rank() + one.local);
    for (std::uint32_t i = 0; i < one.count; ++i) {
      const std::byte* const message = one.messages.data() + i * message_bytes();
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

void ExpertRank::begin(TimePoint now) {
  ++section_;
  began_ = now;
  left_ = problem().experts;  // of all sources, or of all experts
  taken_.clear();
  // The early marks are those of this section: nobody can be two sections ahead.
  for (std::uint32_t i = 0; i < batches_.size(); ++i) {
    // Each rank begins with the one after it, so that not all send to the same one at first.
    const std::uint32_t first = (setup_.rank + 1) * problem().experts_per_rank();
    (void)runnable_.push((first + i) % problem().experts);
  }
  const std::vector<EarlyMark> early = std::exchange(early_, {});
  for (const EarlyMark& one : early) {
    believe(now, one.source, one.mark);
  }
  post_all(now);
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

// `strong` holds the counter until all writes are acknowledged; `sequence` needs a free number.
bool ExpertRank::can_post(const Batch& batch) const {
  if (batch.posted > batch.writes.size()) {
    return false;  // its counter, too, has been posted
  }
  const bool counter = batch.posted == batch.writes.size();
  if (setup_.ordering == Ordering::strong && counter) {
    return batch.acknowledged == batch.writes.size();
  }
  return setup_.ordering != Ordering::sequence || batch.rank == setup_.rank ||
         windows_[index_of(batch.rank, combining(), round() % 2 != 0, batch.group)].has_room();
}

// One request of each batch in turn: no destination gets all of its own at once.
void ExpertRank::post_all(TimePoint now) {
  while (!runnable_.empty()) {
    const std::uint32_t index = runnable_.front();
    if (can_post(batches_[index])) {
      if (!post_next(now, index)) {
        return;
      }
      if (can_post(batches_[index])) {
        (void)runnable_.push(index);
      }
    }
    runnable_.pop();
  }
}

bool ExpertRank::post_next(TimePoint now, std::uint32_t index) {
  Batch& batch = batches_[index];
  Mark mark{.combine = combining(), .odd = round() % 2 != 0, .group = batch.group};
  if (batch.posted < batch.writes.size()) {
    return post_one(now, index, batch.writes[batch.posted], mark);
  }
  mark.counter = true;
  mark.value = static_cast<std::uint32_t>(batch.writes.size());
  return post_one(now, index, {.rank = batch.rank}, mark);
}

// A batch's numbers are only used up once the engine has taken the request: a refused request is
// posted again and must get the same one.
bool ExpertRank::post_one(TimePoint now, std::uint32_t index, Outbox::Item item, Mark mark) {
  Batch& batch = batches_[index];
  const bool marks =
      mark.counter || setup_.ordering == Ordering::count || setup_.ordering == Ordering::sequence;
  if (item.rank == setup_.rank) {  // a copy: nothing of a rank's own can overtake
    std::byte* to = window_.data() + item.offset;
    for (const srd::Segment& segment : item.segments) {
      if (segment.length != 0) {
        std::memcpy(to, segment.data, segment.length);
        to += segment.length;
      }
    }
    ++batch.posted;
    ++batch.acknowledged;
    if (mark.counter) {
      believe(now, setup_.rank, mark);
    }
    return true;
  }
  SequenceWindow& window = windows_[index_of(batch.rank, mark.combine, mark.odd, mark.group)];
  SequenceWindow after = window;
  mark.sequence = setup_.ordering == Ordering::sequence ? after.take() : 0;
  item.cookie = Cookie{index, mark.sequence, mark.counter}.word();
  if (marks) {
    item.immediate = mark.word();
  }
  if (!outbox_.post(item)) {
    return false;
  }
  window = after;
  ++batch.posted;
  ++outstanding_;
  return true;
}

// With `sequence`, acknowledgements are of this section, because a section is not over while a
// request is outstanding.
void ExpertRank::on_completion(TimePoint now, const srd::Completion& completion) {
  const std::uint32_t rank = outbox_.rank_of(completion.peer);
  if (completion.kind == srd::Completion::Kind::receive_write_imm) {
    const Mark mark = Mark::of(completion.immediate);
    if (rank == Outbox::kNobody || mark.group >= problem().experts_per_rank()) {
      ++result_.ordering.stray;
      return;
    }
    on_mark(now, rank, mark);
    return;
  }
  --outstanding_;
  if (completion.status != srd::Status::ok) {
    failure_ = "rank " + std::to_string(rank) + " does not answer: status " +
               std::to_string(static_cast<int>(completion.status));
    return;
  }
  const Cookie cookie = Cookie::of(completion.cookie);
  Batch& batch = batches_[cookie.batch];
  const bool could = can_post(batch);
  ++batch.acknowledged;
  if (setup_.ordering == Ordering::sequence) {
    windows_[index_of(batch.rank, combining(), round() % 2 != 0, batch.group)].acknowledge(
        cookie.sequence);
  }
  if (!could && can_post(batch)) {
    (void)runnable_.push(cookie.batch);
  }
}

void ExpertRank::on_mark(TimePoint now, std::uint32_t source, const Mark& mark) {
  GroupArrivals& group = arrivals_[index_of(source, mark.combine, mark.odd, mark.group)];
  if (const auto value = group.take(setup_.ordering, mark, result_.ordering, waiting_now_)) {
    Mark believed = mark;
    believed.value = *value;
    believe(now, source, believed);
  }
}

// A counter is believed. The data are read at this moment, as a GPU kernel that waits for the
// counter would read them: bytes that have not arrived by now count as wrong.
void ExpertRank::believe(TimePoint now, std::uint32_t source, const Mark& mark) {
  const bool due =
      section_ != 0 && left_ != 0 && mark.combine == combining() && mark.odd == (round() % 2 != 0);
  if (!due) {
    if (early_.size() < problem().experts) {  // no rank is more than one section ahead
      early_.push_back({source, mark});
    } else {
      ++result_.ordering.stray;
    }
    return;
  }
  mark.combine ? take_combined(source, mark.group, mark.value)
               : take_dispatched(source, mark.group, mark.value);
  if (--left_ != 0) {
    return;
  }
  if (counts()) {
    (combining() ? result_.combine_us : result_.dispatch_us)
        .push_back(microseconds_between(began_, now));
    (combining() ? result_.combine_bytes : result_.dispatch_bytes) +=
        route_.size() * (combining() ? result_bytes() : message_bytes());
  }
}

void ExpertRank::take_dispatched(std::uint32_t source, std::uint32_t local, std::uint32_t count) {
  if (count > problem().tokens) {
    ++result_.wrong;
    count = 0;
  }
  const std::byte* const first =
      window_.data() + dispatch_offset(round() % 2 != 0, local, source, 0);
  taken_.push_back({source, local, count, {first, first + count * message_bytes()}});
}

// Only our own record of what was sent says which places hold results; the counter is only
// compared.
void ExpertRank::take_combined(std::uint32_t source, std::uint32_t local, std::uint32_t count) {
  const std::uint32_t expert = source * problem().experts_per_rank() + local;
  result_.wrong += by_expert_[expert].size() == count ? 0U : 1U;
  for (const Place place : by_expert_[expert]) {
    const std::byte* const result = window_.data() + combine_offset(round() % 2 != 0, place);
    const float weight = route_[std::size_t{place.token} * problem().topk + place.selection].weight;
    add_token(
        Precision::bf16, {result, result_bytes()}, weight,
        std::span(sums_).subspan(std::size_t{place.token} * problem().hidden, problem().hidden));
  }
}

// Every message of every source for every expert of ours, once, in the order of its tokens.
void ExpertRank::check_dispatched() {
  std::vector<std::vector<Selection>> routes;
  for (std::uint32_t rank = 0; rank < problem().ranks; ++rank) {
    routes.push_back(router_.route(rank, round()));
  }
  for (const Taken& one : taken_) {
    check_taken(one, routes[one.source]);
  }
}

void ExpertRank::check_taken(const Taken& taken, std::span<const Selection> route) {
  const std::uint32_t expert = setup_.rank * problem().experts_per_rank() + taken.local;
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
    ++result_.checked;
    const bool same =
        found < taken.count &&
        std::memcmp(right.data(), taken.messages.data() + found * right.size(), right.size()) == 0;
    result_.wrong += same ? 0U : 1U;
    ++found;
  }
  result_.wrong += taken.count > found ? taken.count - found : 0;
}

// The digest tells whether two runs had the same results; it takes in every column.
void ExpertRank::check_combined() {
  for (std::uint32_t token = 0; token < problem().tokens; ++token) {
    const auto sum = std::span<const float>(sums_).subspan(std::size_t{token} * problem().hidden,
                                                           problem().hidden);
    const auto selections = std::span<const Selection>(route_).subspan(
        std::size_t{token} * problem().topk, problem().topk);
    const std::size_t wrong =
        count_wrong_columns(problem(), setup_.rank, round(), token, selections, sum);
    ++result_.checked;
    result_.wrong += wrong == 0 ? 0U : 1U;
    std::uint64_t digest = result_.digest;
    for (const float one : sum) {
      digest = digest * 31 + std::bit_cast<std::uint32_t>(one);
    }
    result_.digest = mix64(digest);
  }
}

}  // namespace weft::workloads
