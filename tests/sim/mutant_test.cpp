// Owns the proof that the tests notice bugs: one rule of the engine is broken at a time, and a
// story or a few seeds of the swarm must fail. The engine in this program is compiled with its
// deliberate bugs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "emu/swarm/run.hpp"
#include "srd/engine/mutation.hpp"
#include "tests/sim/mutant_stories.hpp"
#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

using srd::Mutation;

// The time after which a child is killed and counts as failed, which for a mutant is success. On a
// machine that is so busy that 2500 seeds take longer, the control at the end of this file fails.
#ifdef __SANITIZE_ADDRESS__
constexpr unsigned kMaxSeconds = 500;
#else
constexpr unsigned kMaxSeconds = 120;
#endif
constexpr std::uint64_t kSeeds = 2500;

// Whether `passes` fails in a process of its own, since a broken engine may crash, abort by one of
// its own checks, or not end: each of these counts, as returning false does. A child that cannot
// silence its output passes, so that the test fails rather than proves nothing.
bool fails(const std::function<bool()>& passes) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMaxSeconds);
    if (std::freopen("/dev/null", "w", stdout) == nullptr ||
        std::freopen("/dev/null", "w", stderr) == nullptr) {
      _exit(0);
    }
    const bool passed = passes() && !::testing::Test::HasFailure();
    _exit(passed ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

bool swarm_passes() {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (!swarm::carry_out(swarm::make_plan(seed)).failure.empty()) {
      return false;
    }
  }
  return true;
}

// --- Stories, for rules whose breach the swarm cannot tell from bad luck.

// Each returns whether the engine behaves: true without a bug, and false with the one that it is
// about.
bool bounds_story() {
  Pair pair;
  std::vector<std::byte> bytes(8192);
  const auto key = pair.b.engine()
                       .memory()
                       .insert({.data = bytes.data(),
                                .address = 0,
                                .length = 4096,
                                .access = srd::Access::local_write | srd::Access::remote_write,
                                .domain = kDomain})
                       .value();
  const auto write = pair.a.write(pair.b, 0, "beyond", {.key = key, .address = 4093});
  return pair.run_until_idle() && pair.a.status(write) == Status::out_of_bounds &&
         bytes[4096] == std::byte{0};
}

bool retry_story() {
  Pair pair;
  const auto send = pair.a.send(pair.b, "please", {.rnr_retry = 2});
  pair.run_for(50ms);
  return pair.a.status(send) == Status::receiver_not_ready;
}

bool close_story() {
  Pair pair;
  const auto send = pair.a.send(pair.b, "never mind");
  pair.a.close(kEndpoint);
  return pair.a.status(send) == Status::flushed;
}

bool dead_path_story() {
  LabConfig config = lab_config();
  config.link.rate = config.engine.line_rate = Rate::gbps(10);
  Pair pair(config);
  pair.a.write(pair.b, 0, pattern(1'000'000));
  pair.run_for(100us);
  pair.network().kill_path(0, 5);
  return pair.run_until([&] { return pair.a.outstanding() == 0; }) &&
         pair.a.engine().counters().paths_abandoned == 1;
}

bool other_path_story() {
  Pair pair;
  pair.b.receive();
  std::vector<std::uint16_t> used;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    if (event == world::NetworkEvent::sent && world::kind_of(packet.bytes) == Packet::send) {
      used.push_back(packet.path.value());
    }
  });
  pair.network().lose_next(Packet::send);
  pair.a.send(pair.b, "again");
  return pair.run_until_idle() && used.size() == 2 && used[0] != used[1];
}

bool copies_story() {
  Pair pair;
  pair.b.receive(2);
  pair.network().lose_next(Packet::ack, 1);
  pair.network().duplicate_next(Packet::write, 3);
  pair.network().add(
      {.kind = Packet::write, .action = Action::delay, .skip = 3, .count = 2, .delay = 400us});
  const std::string bytes = pattern(5 * 1024);
  pair.a.write(pair.b, 0, bytes, {.immediate = 1});
  return pair.run_until([&] { return !pair.b.inbox().empty(); }) &&
         pair.b.memory(0, bytes.size()) == bytes;
}

bool former_life_story() {
  Pair pair;
  pair.b.receive(3);
  pair.a.send(pair.b, "hello");
  (void)pair.run_until_idle();
  pair.network().delay_next(Packet::send, 5ms);
  pair.a.send(pair.b, "from the grave");
  pair.run_for(1us);
  pair.restart(pair.a);
  pair.a.send(pair.b, "alive");
  pair.run_for(20ms);
  return pair.b.inbox().size() == 2;
}

bool stale_key_story() {
  Pair pair;
  std::vector<std::byte> bytes(64);
  const srd::Region region{.data = bytes.data(),
                           .address = 0,
                           .length = 64,
                           .access = srd::Access::local_write | srd::Access::remote_write,
                           .domain = kDomain};
  const auto gone = pair.b.engine().memory().insert(region).value();
  pair.b.engine().memory().erase(gone);
  // The entry of a key that is gone rests before it is used again.
  const auto entry_of = [](srd::RegionKey key) { return key.value() & 0xFFFF; };
  for (auto key = pair.b.engine().memory().insert(region).value(); entry_of(key) != entry_of(gone);
       key = pair.b.engine().memory().insert(region).value()) {
    pair.b.engine().memory().erase(key);
  }
  const auto write = pair.a.write(pair.b, 0, "late", {.key = gone, .address = 0});
  return pair.run_until_idle() && pair.a.status(write) == Status::bad_key &&
         bytes[0] == std::byte{0};
}

bool first_probe_story() {
  LabConfig config = lab_config();
  config.engine.first_psn = Psn{0xFFFFFFFD};
  Pair pair(config);
  pair.b.receive(8);
  pair.network().lose_next(Packet::send, 24);
  for (int i = 0; i < 8; ++i) {
    pair.a.send(pair.b, "message");
  }
  return pair.run_until_idle() && pair.b.inbox().size() == 8;
}

bool vanishing_region_story() {
  LabConfig config = lab_config();
  config.link.rate = Rate::gbps(1);
  Pair pair(config);
  const auto read = pair.a.read(pair.b, 0, 500'000);
  pair.run_for(500us);
  pair.b.engine().memory().erase(pair.b.key());
  return pair.run_until_idle() && pair.a.status(read) == Status::bad_key;
}

struct Mutant {
  const char* name;
  Mutation mutation;
  bool (*passes)();
};

class Mutants : public ::testing::TestWithParam<Mutant> {};

TEST_P(Mutants, AreNoticed) {
  srd::active_mutation = GetParam().mutation;
  // Set in the parent: the child inherits it.
  EXPECT_TRUE(fails(GetParam().passes)) << "nothing notices " << GetParam().name;
  srd::active_mutation = Mutation::none;
}

#define WEFT_MUTANT(name, passes) \
  Mutant { #name, Mutation::name, passes }

constexpr Mutant kMutants[] = {
    WEFT_MUTANT(deliver_copies, swarm_passes),
    WEFT_MUTANT(ignore_copies, swarm_passes),
    WEFT_MUTANT(forget_source_life, former_life_story),
    WEFT_MUTANT(forget_destination_life, swarm_passes),
    WEFT_MUTANT(keep_window_of_former_life, swarm_passes),
    WEFT_MUTANT(keep_work_for_new_life, swarm_passes),
    WEFT_MUTANT(one_sided_survives_restart, one_sided_work_ends_with_its_life),
    WEFT_MUTANT(regular_keys, keys_end_with_their_life),
    WEFT_MUTANT(reuse_read_numbers, late_answers_land_nowhere),
    WEFT_MUTANT(hide_cancelled_reads, cancelled_reads_end_at_their_responder),
    WEFT_MUTANT(shared_completion_budget, both_ends_full_make_progress),
    WEFT_MUTANT(reads_behind_bulk, small_reads_do_not_wait_behind_bulk),
    WEFT_MUTANT(immediate_table_unfair, refused_immediates_hold_up_nobody),
    WEFT_MUTANT(edge_finds_no_place, oldest_packet_finds_a_place),
    WEFT_MUTANT(refusals_show_nothing, refusals_show_losses),
    WEFT_MUTANT(omit_completes, refused_immediates_complete_in_the_end),
    WEFT_MUTANT(marks_in_bursts_count_once, marks_of_a_burst_are_heard),
    WEFT_MUTANT(runs_come_back_whole, swarm_passes),
    WEFT_MUTANT(notice_to_known_life, swarm_passes),
    WEFT_MUTANT(loose_bounds, bounds_story),
    WEFT_MUTANT(skip_access, swarm_passes),
    WEFT_MUTANT(skip_domain, swarm_passes),
    WEFT_MUTANT(skip_key_generation, stale_key_story),
    WEFT_MUTANT(skip_qkey, swarm_passes),
    WEFT_MUTANT(accept_damage, swarm_passes),
    WEFT_MUTANT(complete_twice, swarm_passes),
    WEFT_MUTANT(lose_status, swarm_passes),
    WEFT_MUTANT(retry_without_end, retry_story),
    WEFT_MUTANT(back_off_without_end, swarm_passes),
    WEFT_MUTANT(acknowledge_too_much, swarm_passes),
    WEFT_MUTANT(acknowledge_without_window, first_probe_story),
    WEFT_MUTANT(acknowledge_unplaced, swarm_passes),
    WEFT_MUTANT(misplace, swarm_passes),
    WEFT_MUTANT(settle_lost, swarm_passes),
    WEFT_MUTANT(forget_flush, close_story),
    WEFT_MUTANT(count_copies, copies_story),
    WEFT_MUTANT(announce_early, swarm_passes),
    WEFT_MUTANT(lose_immediate, swarm_passes),
    WEFT_MUTANT(count_reads_twice, swarm_passes),
    WEFT_MUTANT(ignore_read_failure, vanishing_region_story),
    WEFT_MUTANT(never_abandon_paths, dead_path_story),
    WEFT_MUTANT(retransmit_on_same_path, other_path_story),
    WEFT_MUTANT(reuse_buffers, swarm_passes),
    WEFT_MUTANT(place_copies, swarm_passes),
    WEFT_MUTANT(spill_message, swarm_passes),
    WEFT_MUTANT(refusal_takes_receive, swarm_passes),
    WEFT_MUTANT(doubt_receives, swarm_passes),
    WEFT_MUTANT(blame_restart, swarm_passes),
    WEFT_MUTANT(blame_keys, swarm_passes),
    WEFT_MUTANT(wait_for_one, swarm_passes),
    WEFT_MUTANT(ask_for_nothing, swarm_passes),
    WEFT_MUTANT(wrong_sender, swarm_passes),
    WEFT_MUTANT(remember_strangers, swarm_passes),
    WEFT_MUTANT(trimmed_life_counts, swarm_passes),
    WEFT_MUTANT(answer_one_probe, swarm_passes),
    WEFT_MUTANT(shortest_bulk_first, swarm_passes),
    WEFT_MUTANT(starve_bulk, swarm_passes),
    WEFT_MUTANT(endless_turn, swarm_passes),
    WEFT_MUTANT(favour_one_endpoint, swarm_passes),
    WEFT_MUTANT(impatient, swarm_passes),
    WEFT_MUTANT(refuse_while_unpolled, swarm_passes),
    WEFT_MUTANT(refuse_early, swarm_passes),
    WEFT_MUTANT(complete_without_bound, swarm_passes),
    WEFT_MUTANT(keep_deadlines, swarm_passes),
    WEFT_MUTANT(lose_uncounted, swarm_passes),
    WEFT_MUTANT(explain_everything, swarm_passes),
};
static_assert(std::size(kMutants) + 1 == static_cast<std::size_t>(Mutation::count),
              "every mutation has its line here");

INSTANTIATE_TEST_SUITE_P(, Mutants, ::testing::ValuesIn(kMutants),
                         [](const auto& mutant) { return std::string{mutant.param.name}; });

// What has a story of its own is found by the swarm as well.
class SwarmFinds : public ::testing::TestWithParam<Mutant> {};

TEST_P(SwarmFinds, WithoutAStory) {
  srd::active_mutation = GetParam().mutation;
  EXPECT_TRUE(fails(GetParam().passes)) << "no seed notices " << GetParam().name;
  srd::active_mutation = Mutation::none;
}

constexpr Mutant kFoundBySwarm[] = {
    WEFT_MUTANT(one_sided_survives_restart, swarm_passes),
    WEFT_MUTANT(regular_keys, swarm_passes),
    WEFT_MUTANT(reuse_read_numbers, swarm_passes),
    WEFT_MUTANT(shared_completion_budget, swarm_passes),
    WEFT_MUTANT(immediate_table_unfair, swarm_passes),
    WEFT_MUTANT(omit_completes, swarm_passes),
    WEFT_MUTANT(reads_behind_bulk, swarm_passes),
};

INSTANTIATE_TEST_SUITE_P(, SwarmFinds, ::testing::ValuesIn(kFoundBySwarm),
                         [](const auto& mutant) { return std::string{mutant.param.name}; });

// What the first seed that notices says of it: the rule that is to find a mutant has to be the one
// that does. Of the driver of the swarm (emu/swarm/run.cpp), and of turns, each rule is here that
// no story without an engine shows.
struct Verdict {
  const char* name;
  Mutation mutation;
  const char* text;  // a part of it
};

// Nothing from a child that crashes, or finds nothing.
std::string verdict_of_swarm() {
  // The text comes back through a pipe; a verdict is shorter than what a pipe holds.
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) {
    return {};
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMaxSeconds);
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const std::string failure = swarm::carry_out(swarm::make_plan(seed)).failure;
      if (!failure.empty()) {
        _exit(write(ends[1], failure.data(), failure.size()) < 0 ? 1 : 0);
      }
    }
    _exit(1);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(ends[0], text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  close(ends[0]);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return text;
}

class SwarmSays : public ::testing::TestWithParam<Verdict> {};

TEST_P(SwarmSays, WhatIsWrong) {
  srd::active_mutation = GetParam().mutation;
  EXPECT_THAT(verdict_of_swarm(), ::testing::HasSubstr(GetParam().text));
  srd::active_mutation = Mutation::none;
}

constexpr Verdict kVerdicts[] = {
    {"marks_in_bursts_count_once", Mutation::marks_in_bursts_count_once, "is taken again although"},
    {"runs_come_back_whole", Mutation::runs_come_back_whole, "is taken again although"},
    {"refuse_early", Mutation::refuse_early, "refuses work although only"},
    {"complete_without_bound", Mutation::complete_without_bound,
     "more completions wait than the configuration allows"},
    {"keep_deadlines", Mutation::keep_deadlines, "keeps a deadline that has passed"},
    {"lose_uncounted", Mutation::lose_uncounted, "the network has lost count of its packets"},
    {"explain_everything", Mutation::explain_everything, "after everything has healed, "},
};

INSTANTIATE_TEST_SUITE_P(, SwarmSays, ::testing::ValuesIn(kVerdicts),
                         [](const auto& verdict) { return std::string{verdict.param.name}; });

// The same stories and seeds, without a bug, find nothing.
TEST(MutantControl, TheEngineAsItIsPasses) {
  std::vector<bool> failed;  // judged at the end: a child inherits the failures of this test
  for (const auto passes : {swarm_passes,
                            bounds_story,
                            retry_story,
                            close_story,
                            dead_path_story,
                            other_path_story,
                            copies_story,
                            former_life_story,
                            stale_key_story,
                            first_probe_story,
                            vanishing_region_story,
                            one_sided_work_ends_with_its_life,
                            keys_end_with_their_life,
                            late_answers_land_nowhere,
                            cancelled_reads_end_at_their_responder,
                            both_ends_full_make_progress,
                            small_reads_do_not_wait_behind_bulk,
                            refused_immediates_hold_up_nobody,
                            refused_immediates_complete_in_the_end,
                            oldest_packet_finds_a_place,
                            refusals_show_losses,
                            marks_of_a_burst_are_heard}) {
    failed.push_back(fails(passes));
  }
  EXPECT_THAT(failed, ::testing::Each(false));
}

}  // namespace
}  // namespace weft::testing
