// Owns the processes of the ranks, and the watch over them: no run lasts for ever.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "integration/collectives/board.hpp"
#include "srd/base/time.hpp"

namespace weft::collectives {

// All ranks of a run, as processes of this one. They end with this object, and with this process.
class RankProcesses {
 public:
  struct Bodies {
    // In each process, before its ranks are: threads share its environment.
    std::function<void(std::uint32_t process)> prepare = [](std::uint32_t) {};
    std::function<int(std::uint32_t rank)> run;  // returns an exit code
    std::uint32_t threads = 1;                   // ranks of a process
  };
  // Forks them all.
  RankProcesses(Board& board, const Bodies& bodies);
  ~RankProcesses();  // ends those that are left
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  struct Watch {
    // With nothing moving in any rank. Ranks have the same patience, and after that `closing` to
    // close what they have: a rank that can still tell what it waits for does so before it is
    // killed.
    Duration patience = std::chrono::seconds{60};
    Duration closing = std::chrono::seconds{5};
    std::optional<std::uint32_t> victim = std::nullopt;  // its death is part of the run
    std::function<void()> look = [] {};                  // called all the time; it may throw
    std::function<void(const std::string&)> complain = [](const std::string&) {};
  };
  // Until all have ended. Returns whether all of them ended well.
  [[nodiscard]] bool wait(const Watch& watch);

 private:
  struct Process {
    std::uint32_t first = 0;  // rank
    std::uint32_t end = 0;
    pid_t pid = 0;
  };

  void start(std::uint32_t first, const Bodies& bodies);
  [[nodiscard]] bool reap(const Watch& watch);
  void give_up(const Watch& watch, Duration silence);
  void end_all();

  Board& board_;
  std::vector<Process> running_;
};

}  // namespace weft::collectives
