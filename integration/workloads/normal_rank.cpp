// Owns the normal way: filling rings, taking out of them, and saying so.
//
// Nothing waits for a whole section here: a chunk is copied out as soon as its counter is believed,
// its place is given back at once, and the next chunk goes as soon as there is a place for it.
#include "integration/workloads/normal_rank.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::workloads {
namespace {

// Groups of marks that are no places.
constexpr std::uint32_t kTotalGroup = kMaxRingPlaces;
constexpr std::uint32_t kHeadGroup = kMaxRingPlaces + 1;
static_assert(kHeadGroup < Mark::kMaxGroup);

// A request's cookie: to whom, which place it filled (kNoPlace: none), its number in the sequence
// (kNoNumber: none).
struct Cookie {
  static constexpr std::uint32_t kNoPlace = 0xFFFF;
  static constexpr std::uint32_t kNoNumber = 0xFF;
  std::uint32_t rank = 0;
  std::uint32_t place = kNoPlace;
  std::uint32_t number = kNoNumber;
  [[nodiscard]] std::uint64_t word() const {
    return std::uint64_t{rank} << 32 | std::uint64_t{place} << 8 | number;
  }
  [[nodiscard]] static Cookie of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word >> 8) & 0xFFFF,
            static_cast<std::uint32_t>(word) & 0xFF};
  }
};

std::size_t dispatch_bytes(const ExpertProblem& problem) {
  return sizeof(TokenHeader) + std::size_t{problem.topk} * sizeof(Selection) +
         payload_bytes(problem.precision, problem.hidden);
}
std::size_t combine_bytes(const ExpertProblem& problem) { return std::size_t{problem.hidden} * 2; }

// [direction][source][place]
std::size_t window_bytes(const ExpertSetup& setup) {
  return std::size_t{setup.problem.ranks} * setup.ring *
         (dispatch_bytes(setup.problem) + combine_bytes(setup.problem));
}
std::size_t staging_bytes(const ExpertSetup& setup) {
  return std::size_t{setup.problem.ranks} * setup.ring *
         std::max(dispatch_bytes(setup.problem), combine_bytes(setup.problem));
}

}  // namespace

NormalRank::NormalRank(srd::Engine& engine, const ExpertSetup& setup)
    : ExpertRank(engine, setup, window_bytes(setup)),
      channels_(std::size_t{2} * setup.problem.ranks, Channel(setup.ring / setup.chunk)),
      is_runnable_(setup.problem.ranks),
      staging_(staging_bytes(setup)),
      routed_(setup.problem.ranks),
      received_(setup.problem.ranks),
      results_(setup.problem.ranks) {}

std::size_t NormalRank::message_bytes(bool combine) const {
  return combine ? combine_bytes(problem()) : dispatch_bytes(problem());
}

std::uint64_t NormalRank::place_offset(bool combine, std::uint32_t rank,
                                       std::uint32_t place) const {
  return (std::uint64_t{rank} * setup().ring + std::uint64_t{place} * setup().chunk) *
         message_bytes(combine);
}

// What the others have said of a section before it began here, their totals and chunks, is kept: so
// only what is this rank's own begins anew.
void NormalRank::prepare_channels(bool combine) {
  for (std::uint32_t rank = 0; rank < problem().ranks; ++rank) {
    Channel& one = channel(combine, rank);
    one.to_send = static_cast<std::uint32_t>(combine ? received_[rank].size() / message_bytes(false)
                                                     : routed_[rank].size());
    one.sent = 0;
    one.total_told = false;
    one.taken = 0;
  }
}

void NormalRank::prepare_dispatch(std::uint32_t round) {
  const std::size_t payload = payload_bytes(problem().precision, problem().hidden);
  tokens_.resize(problem().tokens * payload);
  for (std::vector<std::uint32_t>& list : routed_) {
    list.clear();
  }
  for (std::vector<std::byte>& list : received_) {
    list.clear();
  }
  for (std::uint32_t token = 0; token < problem().tokens; ++token) {
    write_token(problem(), setup().rank, round, token,
                std::span(tokens_).subspan(token * payload, payload));
    for (const Selection& one : route_of(token)) {
      std::vector<std::uint32_t>& list = routed_[problem().owner_of(one.expert)];
      if (list.empty() || list.back() != token) {
        list.push_back(token);
      }
    }
  }
  prepare_channels(false);
}

void NormalRank::prepare_combine(std::uint32_t) {
  prepare_channels(true);
  for (std::uint32_t source = 0; source < problem().ranks; ++source) {
    results_[source] = results_for(source);
    received_[source] = {};
  }
}

// One for each message that has come from there, in their order. What stands in a message came from
// the network: an expert in it that is none was counted as wrong before.
std::vector<std::byte> NormalRank::results_for(std::uint32_t source) const {
  const std::size_t bytes = message_bytes(false);
  const std::size_t head = sizeof(TokenHeader) + std::size_t{problem().topk} * sizeof(Selection);
  const std::vector<std::byte>& messages = received_[source];
  std::vector<std::byte> results(messages.size() / bytes * result_bytes());
  std::vector<float> columns(problem().hidden);
  for (std::size_t i = 0; i < messages.size() / bytes; ++i) {
    const std::byte* const message = messages.data() + i * bytes;
    float weight = 0;
    for (std::uint32_t k = 0; k < problem().topk; ++k) {
      Selection choice;
      std::memcpy(&choice, message + sizeof(TokenHeader) + k * sizeof choice, sizeof choice);
      weight += choice.weight * factor_of(choice.expert);
    }
    std::fill(columns.begin(), columns.end(), 0.0F);
    add_token(problem().precision, {message + head, bytes - head}, weight, columns);
    write_result(columns, std::span(results).subspan(i * result_bytes(), result_bytes()));
  }
  return results;
}

// Each rank begins with the one after it, so that not all send to the same one at first.
void NormalRank::start(TimePoint now) {
  left_to_take_ = problem().ranks;
  left_to_send_ = problem().ranks - 1;
  const std::uint32_t self = setup().rank;
  for (std::uint32_t i = 1; i < problem().ranks; ++i) {
    wake((self + i) % problem().ranks);
  }
  post_all(now);
  for (std::uint32_t rank = 0; rank < problem().ranks; ++rank) {
    if (rank != self) {
      take_what_is_there(now, rank);
    }
  }
  take_own();
  note_taken(now);
  post_all(now);
}

// What stays at its rank is not sent.
void NormalRank::take_own() {
  const std::uint32_t self = setup().rank;
  std::vector<std::byte> message(message_bytes(combining()));
  for (std::uint32_t i = 0; i < channel(combining(), self).to_send; ++i) {
    write_message(self, i, message.data());
    take_messages(self, message);
  }
}

// What the other rank waits for comes first: how much there will be, then the places that it can
// use again, then the counter of what it has, then more.
NormalRank::Request NormalRank::next_request(std::uint32_t rank) {
  const Channel& to = channel(combining(), rank);
  if (!to.total_told) {
    return Request::total;
  }
  if (to.head_due) {
    return Request::head;
  }
  const bool numbered = setup().ordering == Ordering::sequence;
  if (numbered && !to.numbers.has_room()) {
    return Request::nothing;
  }
  if (to.sender.may_tell(setup().ordering)) {
    return Request::tail;
  }
  return to.sent < to.to_send && to.sender.has_room() ? Request::chunk : Request::nothing;
}

void NormalRank::wake(std::uint32_t rank) {
  if (!is_runnable_[rank]) {
    is_runnable_[rank] = true;
    (void)runnable_.push(rank);
  }
}

// One request to each rank in turn.
void NormalRank::post_all(TimePoint) {
  while (!runnable_.empty()) {
    const std::uint32_t rank = runnable_.front();
    const Request request = next_request(rank);
    if (!post(rank, request)) {
      return;
    }
    runnable_.pop();
    is_runnable_[rank] = false;
    if (request != Request::nothing) {
      wake(rank);
    }
  }
}

// What the request uses up is noted once the engine has taken it.
bool NormalRank::post(std::uint32_t rank, Request request) {
  const bool combine = combining();
  Channel& to = channel(combine, rank);
  Outbox::Item item{.rank = rank};
  Cookie cookie{.rank = rank};
  Mark mark{.counter = true, .combine = combine};
  std::uint32_t count = 0;
  switch (request) {
    case Request::nothing:
      return true;
    case Request::total:
      mark.group = kTotalGroup;
      mark.value = to.to_send;
      break;
    case Request::head:
      mark.group = kHeadGroup;
      mark.value = to.receiver.head();
      break;
    case Request::tail:
      mark = to.sender.tail();
      mark.combine = combine;
      break;
    case Request::chunk: {
      count = std::min(setup().chunk, to.to_send - to.sent);
      cookie.place = to.sender.place();
      mark.counter = false;
      mark.group = cookie.place;
      std::byte* const data = staging_.data() + place_offset(combine, rank, cookie.place);
      fill_chunk(rank, to.sent, count, data);
      item.segments[0] = {data, static_cast<std::uint32_t>(count * message_bytes(combine))};
      item.offset =
          (combine ? std::uint64_t{problem().ranks} * setup().ring * message_bytes(false) : 0) +
          place_offset(combine, setup().rank, cookie.place);
      break;
    }
  }
  SequenceWindow numbers = to.numbers;
  const bool in_ring = request == Request::tail || request == Request::chunk;
  if (in_ring && setup().ordering == Ordering::sequence) {
    mark.sequence = numbers.take();
    cookie.number = mark.sequence;
  }
  if (mark.counter || setup().ordering == Ordering::count ||
      setup().ordering == Ordering::sequence) {
    item.immediate = mark.word();
  }
  item.cookie = cookie.word();
  if (!outbox().post(item)) {
    return false;
  }
  ++outstanding_;
  to.numbers = numbers;
  to.total_told = to.total_told || request == Request::total;
  to.head_due = to.head_due && request != Request::head;
  to.sent += count;
  if (request == Request::chunk) {
    to.sender.on_written();
  } else if (request == Request::tail) {
    to.sender.on_told();
  }
  if (request != Request::head && to.sent == to.to_send && to.sender.has_told_all()) {
    --left_to_send_;
  }
  return true;
}

void NormalRank::fill_chunk(std::uint32_t rank, std::uint32_t first, std::uint32_t count,
                            std::byte* to) const {
  for (std::uint32_t i = 0; i < count; ++i) {
    write_message(rank, first + i, to + i * message_bytes(combining()));
  }
}

// The message of this number to a rank. Of a result, the number says enough: the other rank knows
// which tokens it has sent.
void NormalRank::write_message(std::uint32_t rank, std::uint32_t number, std::byte* to) const {
  if (combining()) {
    std::memcpy(to, results_[rank].data() + number * result_bytes(), result_bytes());
    return;
  }
  const std::uint32_t token = routed_[rank][number];
  const std::span<std::byte> payload =
      write_head({.token = token, .rank = setup().rank, .round = round()}, route_of(token), rank,
                 {to, message_bytes(false)});
  std::memcpy(payload.data(), tokens_.data() + token * payload.size(), payload.size());
}

// What stands before a token's data in a dispatch to a rank: of its experts those of that rank, the
// others left empty. Returns the place of the data.
std::span<std::byte> NormalRank::write_head(const TokenHeader& header,
                                            std::span<const Selection> selections,
                                            std::uint32_t rank, std::span<std::byte> to) const {
  std::memcpy(to.data(), &header, sizeof header);
  to = to.subspan(sizeof header);
  for (const Selection& one : selections) {
    const bool there = problem().owner_of(one.expert) == rank;
    const Selection choice = there ? one : Selection{};
    std::memcpy(to.data(), &choice, sizeof choice);
    to = to.subspan(sizeof choice);
  }
  return to;
}

// Requests are of this section: a section is not over while one is outstanding.
void NormalRank::on_completion(TimePoint now, const srd::Completion& completion) {
  const std::uint32_t rank = outbox().rank_of(completion.peer);
  if (completion.kind == srd::Completion::Kind::receive_write_imm) {
    if (rank == Outbox::kNobody) {
      ++account().ordering.stray;
    } else {
      on_mark(now, rank, Mark::of(completion.immediate));
    }
    return;
  }
  --outstanding_;
  if (completion.status != srd::Status::ok) {
    fail_at(rank, completion.status);
    return;
  }
  const Cookie cookie = Cookie::of(completion.cookie);
  Channel& to = channel(combining(), cookie.rank);
  if (cookie.place != Cookie::kNoPlace) {
    to.sender.on_acknowledged(cookie.place);
  }
  if (cookie.number != Cookie::kNoNumber) {
    to.numbers.acknowledge(cookie.number);
  }
  wake(cookie.rank);
}

// What belongs to the section that has not begun here is noted, and taken when it begins: nobody
// can be two sections ahead, as each waits for all totals of the one before.
void NormalRank::on_mark(TimePoint now, std::uint32_t source, const Mark& mark) {
  Channel& from = channel(mark.combine, source);
  OrderingCounters& totals = account().ordering;
  if (!mark.counter || mark.group < kTotalGroup) {
    from.receiver.take(setup().ordering, mark, totals, waiting_now_);
  } else if (mark.group == kTotalGroup) {
    if (from.total || mark.value > problem().tokens) {
      ++totals.stray;
      return;
    }
    from.total = mark.value;
  } else if (!from.sender.take_head(mark.value)) {
    ++totals.stray;
  }
  if (has_begun() && mark.combine == combining()) {
    take_what_is_there(now, source);
    wake(source);
  }
}

// A chunk is read at this moment, as a GPU kernel that waits for the counter would read it: bytes
// that have not arrived by now count as wrong.
void NormalRank::take_what_is_there(TimePoint now, std::uint32_t source) {
  Channel& from = channel(combining(), source);
  if (!from.total) {
    return;
  }
  const std::size_t bytes = message_bytes(combining());
  const std::byte* const ring =
      window() +
      (combining() ? std::size_t{problem().ranks} * setup().ring * message_bytes(false) : 0);
  while (from.taken < *from.total && from.receiver.ready()) {
    const std::uint32_t count = std::min(setup().chunk, *from.total - from.taken);
    take_messages(source,
                  {ring + place_offset(combining(), source, from.receiver.place()), count * bytes});
    from.receiver.on_taken();
    from.head_due = true;
    wake(source);
  }
  if (from.taken == *from.total) {
    from.total.reset();
    note_taken(now);
  }
}

void NormalRank::take_messages(std::uint32_t source, std::span<const std::byte> messages) {
  Channel& from = channel(combining(), source);
  const std::size_t bytes = message_bytes(combining());
  if (!combining()) {
    received_[source].insert(received_[source].end(), messages.begin(), messages.end());
    from.taken += static_cast<std::uint32_t>(messages.size() / bytes);
    return;
  }
  for (std::size_t at = 0; at < messages.size(); at += bytes) {
    take_result(source, from.taken++, messages.data() + at);
  }
}

// Our own record of what was sent says which token a result is of.
void NormalRank::take_result(std::uint32_t source, std::uint32_t number, const std::byte* message) {
  if (number >= routed_[source].size()) {
    ++account().wrong;
    return;
  }
  add_token(Precision::bf16, {message, result_bytes()}, 1, sum_of(routed_[source][number]));
}

// All that a rank had to send has been taken.
void NormalRank::note_taken(TimePoint now) {
  if (--left_to_take_ != 0) {
    return;
  }
  std::size_t messages = 0;
  for (const std::vector<std::uint32_t>& list : routed_) {
    messages += list.size();
  }
  note_time(now, messages * message_bytes(combining()));
}

// Every token of every source that has an expert of ours, once, in the order of the tokens.
void NormalRank::check_dispatched() {
  for (std::uint32_t rank = 0; rank < problem().ranks; ++rank) {
    check_from(rank, router().route(rank, round()));
  }
}

void NormalRank::check_from(std::uint32_t source, std::span<const Selection> route) {
  const std::vector<std::byte>& messages = received_[source];
  std::vector<std::byte> right(message_bytes(false));
  std::size_t found = 0;
  for (std::uint32_t token = 0; token < problem().tokens; ++token) {
    const auto selections = route.subspan(std::size_t{token} * problem().topk, problem().topk);
    const bool comes_here = std::ranges::any_of(selections, [&](const Selection& one) {
      return problem().owner_of(one.expert) == setup().rank;
    });
    if (!comes_here) {
      continue;
    }
    std::span<std::byte> rest = write_head({.token = token, .rank = source, .round = round()},
                                           selections, setup().rank, right);
    write_token(problem(), source, round(), token, rest);
    ++account().checked;
    const std::size_t at = found++ * right.size();
    const bool same =
        at < messages.size() && std::memcmp(right.data(), messages.data() + at, right.size()) == 0;
    account().wrong += same ? 0U : 1U;
  }
  const std::size_t came = messages.size() / right.size();
  account().wrong += came > found ? came - found : 0;
}

}  // namespace weft::workloads
