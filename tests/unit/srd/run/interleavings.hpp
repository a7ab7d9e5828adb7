// Owns trying every interleaving of a few threads whose steps are known: a small model checker.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace weft::testing {

// The code under test runs in fibers, which stop before each step that others can see. A run is
// repeated from its beginning for each way to go on; a state that was seen before ends it. States
// are recognised by a hash of what is shared, and of what each fiber has seen since its script's
// last mark().
class Interleavings {
 public:
  // How a fiber can go on: one entry per way, which stop() then returns.
  using Ways = std::vector<int>;

  // What is tried. Made anew for each run.
  class Model {
   public:
    virtual ~Model() = default;
    [[nodiscard]] virtual std::size_t fibers() const = 0;
    virtual void run(std::size_t fiber) = 0;
    [[nodiscard]] virtual std::uint64_t hash() const = 0;
    // The ways of a fiber that stopped for `reason`; none: it has to wait.
    [[nodiscard]] virtual Ways ways(std::size_t fiber, int reason) const = 0;
    // Asked in each state that the fibers do not leave by steps of their own (`finished[i]`: the
    // script has ended). Not empty: what is wrong with that.
    [[nodiscard]] virtual std::string judge(const std::vector<bool>& finished) const = 0;
    // The fiber waits for nothing but time: it does not count as a step of its own.
    [[nodiscard]] virtual bool only_waits(std::size_t fiber, int reason) const = 0;
  };
  struct Result {
    std::string wrong;               // empty: all interleavings are right
    std::vector<std::string> story;  // the run that is wrong, step by step
    std::size_t states = 0;
    std::size_t runs = 0;
  };

  [[nodiscard]] static Result explore(const std::function<std::unique_ptr<Model>()>& make) {
    Interleavings self;
    return self.explore_all(make);
  }

  // --- For the code under test, in a fiber.
  static constexpr int kStep = 0;
  // Stops; returns the way that was chosen.
  static int stop(int reason, const char* what) {
    Interleavings& self = *current_;
    Fiber& fiber = self.fibers_[self.running_];
    fiber.reason = reason;
    fiber.what = what;
    self.leave(fiber);
    fiber.history = mix(fiber.history, static_cast<std::uint64_t>(fiber.way) + 17);
    return fiber.way;
  }
  static void step(const char* what) { (void)stop(kStep, what); }
  // What the step has shown.
  static void saw(std::uint64_t value) {
    Fiber& fiber = current_->fibers_[current_->running_];
    fiber.history = mix(fiber.history, value);
  }
  // The fiber's script stands at `place`, and remembers nothing else.
  static void mark(std::uint64_t place) {
    Fiber& fiber = current_->fibers_[current_->running_];
    fiber.history = fiber.marked = place;
  }
  // The same at a place of a loop, of which there is one after each mark().
  static void mark_loop() {
    Fiber& fiber = current_->fibers_[current_->running_];
    fiber.history = mix(fiber.marked, 1);
  }
  // What the fiber has seen so far, for one that comes back to where it was.
  [[nodiscard]] static std::uint64_t history() {
    return current_->fibers_[current_->running_].history;
  }
  static void forget_since(std::uint64_t history) {
    current_->fibers_[current_->running_].history = history;
  }
  [[nodiscard]] static std::size_t fiber() { return current_->running_; }

  [[nodiscard]] static std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
    state ^= value + 0x9E3779B97F4A7C15ULL + (state << 6) + (state >> 2);
    state *= 0xBF58476D1CE4E5B9ULL;
    return state ^ state >> 29;
  }

 private:
  static constexpr std::size_t kMaxFibers = 5;
  static constexpr std::size_t kStack = 64 * 1024;
  struct Fiber {
    ucontext_t context{};
    jmp_buf place{};
    bool entered = false;
    std::vector<char> stack = std::vector<char>(kStack);
    std::uint64_t history = 0;
    std::uint64_t marked = 0;
    int reason = kStep;
    int way = 0;
    const char* what = "begins";
    bool finished = false;
  };
  struct Told {
    std::size_t fiber;
    int way;
    const char* what;
  };
  struct Choice {
    std::vector<std::pair<std::size_t, int>> ways;
    std::size_t next = 0;
  };

  static void enter() {
    Interleavings& self = *current_;
    self.model_->run(self.running_);
    self.fibers_[self.running_].finished = true;
    self.leave(self.fibers_[self.running_]);
  }
  // swapcontext() makes a system call each time; once a fiber has begun, jumps do as well.
  void leave(Fiber& fiber) {
    if (_setjmp(fiber.place) == 0) {
      _longjmp(main_place_, 1);
    }
  }
  void go_on(Fiber& fiber) {
    if (_setjmp(main_place_) != 0) {
      return;
    }
    if (std::exchange(fiber.entered, true)) {
      _longjmp(fiber.place, 1);
    }
    setcontext(&fiber.context);
  }

  Result explore_all(const std::function<std::unique_ptr<Model>()>& make) {
    current_ = this;
    Result result;
    do {
      ++result.runs;
      model_ = make();
      count_ = model_->fibers();
      for (std::size_t i = 0; i < count_; ++i) {
        begin(fibers_[i]);
      }
      result.wrong = run_once();
    } while (result.wrong.empty() && next_run());
    result.states = seen_.size();
    if (!result.wrong.empty()) {
      for (const Told& told : told_) {
        result.story.push_back(std::to_string(told.fiber) + ": " + told.what +
                               (told.way == 0 ? "" : " (" + std::to_string(told.way) + ")"));
      }
    }
    current_ = nullptr;
    return result;
  }

  void begin(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Interleavings::enter, 0);
    fiber.history = fiber.marked = 0;
    fiber.reason = kStep;
    fiber.way = 0;
    fiber.what = "begins";
    fiber.finished = false;
    fiber.entered = false;
  }

  [[nodiscard]] std::uint64_t hash() const {
    std::uint64_t state = model_->hash();
    for (std::size_t i = 0; i < count_; ++i) {
      const Fiber& fiber = fibers_[i];
      state = mix(state, fiber.finished ? 1 : fiber.history);
      state = mix(state, static_cast<std::uint64_t>(fiber.reason) * 2 + 3);
    }
    return state;
  }

  // From the beginning, along the choices made so far and then on, to an end or to a state that is
  // known.
  std::string run_once() {
    told_.clear();
    for (std::size_t depth = 0;; ++depth) {
      if (depth == choices_.size()) {
        if (!seen_.insert(hash()).second) {
          return {};
        }
        Choice choice;
        bool quiet = true;
        std::vector<bool> finished(count_);
        for (std::size_t i = 0; i < count_; ++i) {
          finished[i] = fibers_[i].finished;
          if (!finished[i]) {
            for (const int way : model_->ways(i, fibers_[i].reason)) {
              choice.ways.emplace_back(i, way);
            }
            quiet = quiet && model_->only_waits(i, fibers_[i].reason);
          }
        }
        if (quiet) {
          if (std::string wrong = model_->judge(finished); !wrong.empty()) {
            return wrong;
          }
        }
        if (choice.ways.empty()) {
          return {};
        }
        choices_.push_back(std::move(choice));
      }
      const auto [fiber, way] = choices_[depth].ways[choices_[depth].next];
      running_ = fiber;
      fibers_[fiber].way = way;
      told_.push_back({fiber, way, fibers_[fiber].what});
      go_on(fibers_[fiber]);
    }
  }

  bool next_run() {
    while (!choices_.empty() && choices_.back().next + 1 == choices_.back().ways.size()) {
      choices_.pop_back();
    }
    if (choices_.empty()) {
      return false;
    }
    ++choices_.back().next;
    return true;
  }

  static inline Interleavings* current_ = nullptr;
  std::unique_ptr<Model> model_;
  std::size_t count_ = 0;
  std::size_t running_ = 0;
  jmp_buf main_place_{};
  std::array<Fiber, kMaxFibers> fibers_;
  std::vector<Choice> choices_;
  std::unordered_set<std::uint64_t> seen_;
  std::vector<Told> told_;
};

}  // namespace weft::testing
