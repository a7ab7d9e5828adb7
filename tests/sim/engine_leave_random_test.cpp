// Owns random stories of processes that send, leave, go on, leave again, restart and end.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "srd/base/rng.hpp"
#include "tests/support/leaving.hpp"

namespace weft::testing {
namespace {

constexpr Duration kLongest = 100ms;

struct World {
  double loss = 0;
  std::uint32_t nodes = 3;
  bool restarts = true;
  bool credits = false;
};

// What came of the stories of many seeds.
struct Verdict {
  Duration slowest{};  // end of a process
  int judged = 0;      // requests that a process had accepted when it began to leave for good
  int failed = 0;      // of these
  std::string trouble;
};

class Story {
 public:
  Story(std::uint64_t seed, const World& world, Verdict& verdict)
      : world_(world), verdict_(verdict), rng_(seed), seed_(seed), lab_(world.nodes, config()) {
    states_.resize(world.nodes);
    for (std::uint32_t i = 0; i < world.nodes; ++i) {
      prepare(i);
    }
  }
  void run() {
    const TimePoint end = lab_.now() + 30ms;
    while (lab_.now() < end) {
      lab_.run_for(std::chrono::microseconds{1 + pick(40)});
      for (std::uint32_t i = 0; i < world_.nodes; ++i) {
        act(i);
      }
    }
    end_all();
  }

 private:
  struct Sent {
    std::uint64_t cookie;
    std::uint32_t to;
    std::uint32_t number;
    std::uint32_t life;  // of the receiver's process
    bool wanted = true;  // not posted before its own sender began to leave
  };
  struct State {
    bool alive = true;
    bool leaves = false;
    bool for_good = false;
    TimePoint begun{};
    TimePoint ask_at{};
    Duration wait{};
    std::uint32_t life = 0;
    std::vector<Sent> sent;
    std::set<std::uint32_t> accepted;  // when it began to leave
    Qpn extra;
  };

  std::uint32_t pick(std::uint32_t n) { return static_cast<std::uint32_t>(rng_.below(n)); }
  bool chance(std::uint32_t percent) { return pick(100) < percent; }
  LabConfig config() {
    LabConfig config = lab_config();
    config.seed = seed_;
    config.engine.receiver_credits = world_.credits;
    config.engine.first_psn = Psn{chance(50) ? 0U - pick(20) : pick(1000)};
    config.engine.peer_timeout = 2s;
    config.link.path_skew = chance(50) ? 1us : 0us;
    config.link.duplicate = chance(50) ? 0.2 : 0;
    config.link.reorder = chance(50) ? 0.3 : 0;
    config.link.reorder_delay = 100us;
    config.link.trim = chance(40) ? 0.2 : 0;
    config.link.mark = chance(30) ? 0.2 : 0;
    config.link.loss = world_.loss;
    return config;
  }
  void prepare(std::uint32_t i) {
    lab_[i].receive(2000);
    open_extra(i);
  }
  // Each time another number: what is closed stays closed.
  void open_extra(std::uint32_t i) {
    states_[i].extra = Qpn{200 + next_extra_++};
    lab_[i].open(states_[i].extra, {.qkey = kQkey, .domain = kDomain, .receive_depth = 64});
  }
  std::set<std::uint32_t> inbox_of(std::uint32_t i) {
    std::set<std::uint32_t> numbers;
    for (const Message& message : lab_[i].inbox()) {
      numbers.insert(message.completion.immediate);
    }
    return numbers;
  }
  // An acknowledgement, and with it a word, is for a life that is known.
  bool knows(std::uint32_t i, std::uint32_t j) {
    const auto history = lab_[i].engine().history_of(lab_[i].peer(lab_[j]));
    return history && history->life_known;
  }
  bool knows_all(std::uint32_t i) {
    for (std::uint32_t j = 0; j < world_.nodes; ++j) {
      if (j != i && !knows(i, j)) {
        return false;
      }
    }
    return true;
  }

  void act(std::uint32_t i) {
    make_round(i);
    State& state = states_[i];
    if (!state.alive) {
      return;
    }
    const std::uint32_t other = (i + 1 + pick(world_.nodes - 1)) % world_.nodes;
    const std::uint32_t what = pick(100);
    if (what < 20 && (!state.leaves || knows(i, other))) {
      begin_work(i, other, what);
    } else if (what < 23 && !state.leaves) {
      begin_to_leave(i, chance(20) && knows_all(i));
    }
  }
  void begin_work(std::uint32_t i, std::uint32_t other, std::uint32_t what) {
    Node& node = lab_[i];
    State& state = states_[i];
    if (what < 12) {
      const std::uint32_t number = ++last_number_;
      const How how{.immediate = number};
      const auto cookie =
          chance(60) ? node.try_send(lab_[other], std::string(1 + pick(900), 's'), how)
                     : node.try_write(lab_[other], 0, std::string(1 + pick(6000), 'w'), how);
      if (cookie) {
        state.sent.push_back({*cookie, other, number, states_[other].life, !state.leaves});
      }
    } else if (what < 15) {
      (void)node.try_read(lab_[other], 0, 1 + pick(5000));
    } else if (what < 17) {
      (void)node.try_send(lab_[other], "taken back", {.source = state.extra});
    } else if (what < 18) {
      node.close(state.extra);
      open_extra(i);
    } else if (what < 19) {
      (void)node.try_send(lab_[other], "refused", {.qkey = 1});
    } else {
      (void)node.try_send(lab_[other], "finds no receive", {.destination = states_[other].extra});
    }
  }

  void begin_to_leave(std::uint32_t i, bool for_good) {
    State& state = states_[i];
    state.leaves = true;
    state.for_good = for_good;
    state.begun = lab_.now();
    state.wait = 1ms;
    state.ask_at = state.begun + state.wait;
    state.accepted = inbox_of(i);
    for (Sent& one : state.sent) {
      one.wanted = false;
    }
    lab_[i].engine().take_leave(lab_.now(), srd::Leave::begin);
    lab_.world().pump();
  }
  // Of the last ones of a process that leaves.
  void make_round(std::uint32_t i) {
    State& state = states_[i];
    if (!state.alive || !state.leaves) {
      return;
    }
    srd::Engine& engine = lab_[i].engine();
    const Duration took = lab_.now() - state.begun;
    if (lab_.now() >= state.ask_at) {
      state.wait *= 2;
      state.ask_at = lab_.now() + state.wait;
      engine.take_leave(lab_.now(), srd::Leave::ask_again);
    }
    if (took >= kLongest) {
      engine.stop_waiting();
    }
    const bool ends = !engine.is_awaited();
    if (ends) {
      engine.take_leave(lab_.now(), srd::Leave::end);
    }
    lab_.world().pump();
    if (ends) {
      verdict_.slowest = std::max(verdict_.slowest, took);
      state.leaves = false;
      look_for_drops(i);
      if (state.for_good) {
        end(i);
      }
    }
  }
  void end(std::uint32_t i) {
    lab_.crash(lab_[i]);
    states_[i].alive = false;
    lab_.run_for(400us);  // what has heard it will know by then
    judge(i);
    if (world_.restarts && chance(50)) {
      srd::EngineConfig config = lab_[i].config();
      config.life = config.life.plus(1);
      lab_.boot(lab_[i], config);
      const std::uint32_t life = states_[i].life + 1;
      states_[i] = State{};
      states_[i].life = life;
      prepare(i);
    }
  }
  // What it had accepted when it began to leave has succeeded, for those that go on.
  void judge(std::uint32_t i) {
    for (std::uint32_t j = 0; j < world_.nodes; ++j) {
      if (!states_[j].alive || states_[j].leaves) {
        continue;
      }
      for (const Sent& one : states_[j].sent) {
        if (one.to == i && one.wanted && one.life == states_[i].life &&
            states_[i].accepted.contains(one.number)) {
          ++verdict_.judged;
          if (lab_[j].status(one.cookie) != Status::ok) {
            ++verdict_.failed;
            verdict_.trouble += "seed " + std::to_string(seed_) + ": request " +
                                std::to_string(one.number) + " of " + std::to_string(j) + '\n';
          }
        }
      }
    }
  }
  // Well-behaved processes do not break the wire's rules.
  void look_for_drops(std::uint32_t i) {
    using Reason = srd::DropReason;
    const auto& drops = lab_[i].engine().counters().drops;
    for (const Reason reason :
         {Reason::too_short, Reason::bad_type, Reason::reserved_bits, Reason::bad_path,
          Reason::zero_life, Reason::bad_length, Reason::bad_message, Reason::bad_window,
          Reason::bad_sack, Reason::bad_result, Reason::not_for_us, Reason::ack_not_sent}) {
      if (drops[static_cast<std::size_t>(reason)] != 0) {
        verdict_.trouble += "seed " + std::to_string(seed_) + ": drop " +
                            std::to_string(static_cast<int>(reason)) + '\n';
      }
    }
  }
  // One after the other.
  void end_all() {
    const auto lives = [&] {
      return std::any_of(states_.begin(), states_.end(), [](const State& s) { return s.alive; });
    };
    for (int step = 0; lives() && step < 100'000; ++step) {
      for (std::uint32_t i = 0; i < world_.nodes; ++i) {
        if (states_[i].alive && !states_[i].leaves && chance(5) && (knows_all(i) || step > 2000)) {
          begin_to_leave(i, true);
        }
        make_round(i);
      }
      lab_.run_for(5us);
    }
  }

  const World& world_;
  Verdict& verdict_;
  Rng rng_;
  std::uint64_t seed_;
  std::uint32_t last_number_ = 0;
  std::uint32_t next_extra_ = 0;
  std::vector<State> states_;
  Lab lab_;
};

Verdict tell(const World& world, std::uint64_t seeds) {
  Verdict verdict;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Story(seed, world, verdict).run();
  }
  return verdict;
}

class EngineLeaveRandom : public ::testing::TestWithParam<World> {};
INSTANTIATE_TEST_SUITE_P(Lossless, EngineLeaveRandom,
                         ::testing::Values(World{}, World{.restarts = false}, World{.nodes = 2},
                                           World{.credits = true}));

// An end takes a round trip; where the answer is late, the next question.
TEST_P(EngineLeaveRandom, NoEndIsLongAndNothingIsMissed) {
  const Verdict verdict = tell(GetParam(), 200);
  EXPECT_LE(verdict.slowest, 5ms);
  EXPECT_GT(verdict.judged, 50);
  EXPECT_EQ(verdict.failed, 0);
  EXPECT_EQ(verdict.trouble, "");
}

TEST(EngineLeaveRandomLoss, NothingIsMissedWhereLinksLose) {
  const Verdict verdict = tell({.loss = 0.1, .restarts = false}, 200);
  EXPECT_GT(verdict.judged, 50);
  EXPECT_EQ(verdict.failed, 0);
  EXPECT_EQ(verdict.trouble, "");
}

}  // namespace
}  // namespace weft::testing
