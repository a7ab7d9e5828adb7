// Owns the loop that looks at containers, and decides about each that has ended.
//
// The engine's own restart policies are not used: they know nothing of a Job's number of attempts,
// and say nothing when they begin a container again.
#include "emu/labs/pod_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "emu/launch/interrupt.hpp"

namespace weft::labs {
namespace {

using Clock = std::chrono::steady_clock;
using State = PodOutcome::State;

// An engine takes a core for some 50 ms to answer.
constexpr std::chrono::milliseconds kBetweenLooks{500};
constexpr std::chrono::milliseconds kNap{20};
// The kubelet waits ten seconds, and longer each time. A rehearsal is in more of a hurry.
constexpr std::chrono::seconds kBeforeRestart{1};

// Watches the containers of a lab until all that are meant to end have ended. Used once.
class Watch {
 public:
  Watch(const RunningLab& lab, const std::vector<PodProcess>& processes,
        const PodWatchOptions& options)
      : lab_(lab), options_(options) {
    for (const PodProcess& process : processes) {
      entries_.push_back({{process}, {}, false});
    }
  }

  Result<std::vector<PodOutcome>> run() {
    const auto begin = Clock::now();
    while (!all_have_ended()) {
      if (auto looked = look(); !looked) {
        return tl::unexpected(looked.error());
      }
      const auto now = Clock::now();
      if (options_.patience.count() != 0 && now - begin >= options_.patience) {
        give_up();
        break;
      }
      for (const auto until = now + kBetweenLooks; !all_have_ended() && Clock::now() < until;) {
        launch::check_interrupt();
        std::this_thread::sleep_for(kNap);
      }
    }
    std::vector<PodOutcome> outcomes;
    for (const Entry& entry : entries_) {
      if (entry.outcome.state == State::running) {
        tell(entry);
      }
      outcomes.push_back(entry.outcome);
    }
    return outcomes;
  }

 private:
  struct Entry {
    PodOutcome outcome;
    Clock::time_point ended{};  // of the last time
    bool is_down = false;       // it has ended, and will begin again
  };

  static bool is_meant_to_end(const Entry& entry) {
    return entry.outcome.process.restart != k8s::PodRestart::always;
  }
  // False if nothing is meant to end, too: then only the user ends the watch.
  bool all_have_ended() const {
    return std::ranges::any_of(entries_, is_meant_to_end) &&
           std::ranges::none_of(entries_, [](const Entry& entry) {
             return is_meant_to_end(entry) && entry.outcome.state == State::running;
           });
  }

  Result<void> look() {
    const auto states = lab_.states();
    if (!states) {
      return tl::unexpected(states.error());
    }
    for (Entry& entry : entries_) {
      if (entry.outcome.state != State::running) {
        continue;
      }
      const auto state =
          std::ranges::find(*states, entry.outcome.process.node, &ContainerState::node);
      if (state == states->end() || state->state == "missing") {
        end(entry, State::failed, -1, "is gone");
      } else if (state->state == "exited" || state->state == "stopped" || state->state == "dead") {
        if (auto done = decide(entry, state->exit_code); !done) {
          return done;
        }
      } else {
        entry.is_down = false;
      }
    }
    return {};
  }

  // What becomes of a container that has ended: it is done, it has failed for good, or it is
  // started again after a moment.
  Result<void> decide(Entry& entry, int code) {
    const PodProcess& process = entry.outcome.process;
    const bool is_again = process.restart == k8s::PodRestart::always ||
                          (process.restart == k8s::PodRestart::on_failure && code != 0);
    if (!is_again) {
      end(entry, code == 0 ? State::succeeded : State::failed, code,
          code == 0 ? "has ended" : fmt::format("has failed with exit code {}", code));
      return {};
    }
    // The first run is an attempt as well, but no restart.
    if (process.attempts != 0 && entry.outcome.restarts + 1 >= process.attempts) {
      end(entry, State::failed, code,
          fmt::format("has failed with exit code {}, {} times", code, process.attempts));
      return {};
    }
    const auto now = Clock::now();
    if (!std::exchange(entry.is_down, true)) {
      entry.ended = now;
    }
    if (now - entry.ended < kBeforeRestart) {
      return {};
    }
    entry.is_down = false;
    ++entry.outcome.restarts;
    entry.outcome.exit_code = code;
    options_.event(
        fmt::format("{} has ended with exit code {}: it begins again", process.node, code));
    return lab_.engine.ask({"start", lab_.identity.container(process.node)}, Interrupts::heed)
        .map([](const std::string&) {});
  }

  void end(Entry& entry, State state, int code, const std::string& how) {
    entry.outcome.state = state;
    entry.outcome.exit_code = code;
    options_.event(entry.outcome.process.node + " " + how);
    tell(entry);
  }

  void give_up() {
    for (Entry& entry : entries_) {
      if (is_meant_to_end(entry) && entry.outcome.state == State::running) {
        end(entry, State::failed, -1,
            fmt::format("has not ended in {} seconds", options_.patience.count()));
      }
    }
  }

  // Passes on the output of the container. A log that cannot be read changes nothing of how the pod
  // came out.
  void tell(const Entry& entry) const {
    const std::string& node = entry.outcome.process.node;
    const auto answers =
        lab_.engine.run_all({{"logs", lab_.identity.container(node)}}, Interrupts::heed, {});
    if (!answers || !answers->front()) {
      return;
    }
    for (const std::string* text : {&answers->front()->out, &answers->front()->errors}) {
      for (const std::string& line : lines_of(*text)) {
        options_.line(node, line);
      }
    }
  }

  const RunningLab& lab_;
  const PodWatchOptions& options_;
  std::vector<Entry> entries_;
};

}  // namespace

Result<std::vector<PodOutcome>> watch_pods(const RunningLab& lab,
                                           const std::vector<PodProcess>& processes,
                                           const PodWatchOptions& options) {
  return Watch(lab, processes, options).run();
}

}  // namespace weft::labs
