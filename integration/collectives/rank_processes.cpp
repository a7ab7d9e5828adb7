// Owns starting ranks, waiting for them, and reporting those that hang.
//
// The parent looks at the board a hundred times a second. As long as any rank has moved something
// lately, all have time. If none has for as long as `Watch::patience` allows, the parent prints
// what each rank waits for, makes it print its stack by a signal, and kills them all.
#include "integration/collectives/rank_processes.hpp"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "integration/collectives/clock.hpp"
#include "srd/base/death_signal.hpp"

namespace weft::collectives {
namespace {

constexpr int kShowStack = SIGUSR2;
constexpr Duration kLookEvery = std::chrono::milliseconds{10};
constexpr Duration kTimeToShow = std::chrono::milliseconds{300};  // a stack

void nap(Duration duration) {
  const timespec time{duration / std::chrono::seconds{1},
                      (duration % std::chrono::seconds{1}) / std::chrono::nanoseconds{1}};
  ::nanosleep(&time, nullptr);
}

// Prints the stack of the thread on standard error, within a signal handler: symbols go straight to
// the descriptor, without memory from the heap.
void show_stack(int) {
  std::array<void*, 48> frames{};
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), STDERR_FILENO);
}

// Returns the worst exit code. The first rank runs on the main thread: with one rank per process
// there is no other thread.
int run_all(std::uint32_t first, std::uint32_t end, Board& board,
            const std::function<int(std::uint32_t rank)>& run) {
  std::vector<std::thread> others;
  std::vector<int> codes(end - first);
  const auto run_one = [&](std::uint32_t rank) {
    board.where(rank).begin();
    codes[rank - first] = run(rank);
    board.where(rank).end();
  };
  for (std::uint32_t rank = first + 1; rank < end; ++rank) {
    others.emplace_back(run_one, rank);
  }
  run_one(first);
  for (std::thread& one : others) {
    one.join();
  }
  return *std::max_element(codes.begin(), codes.end());
}

}  // namespace

RankProcesses::RankProcesses(Board& board, const Bodies& bodies) : board_(board) {
  (void)std::fflush(nullptr);
  try {
    for (std::uint32_t rank = 0; rank < board.ranks(); rank += bodies.threads) {
      start(rank, bodies);
    }
  } catch (...) {
    end_all();
    throw;
  }
}

RankProcesses::~RankProcesses() { end_all(); }

// Processes are forked before any thread exists here. They leave by _exit(), since what this
// process would do at its end (flush, destructors, its own children) is not theirs to do.
void RankProcesses::start(std::uint32_t first, const Bodies& bodies) {
  const std::uint32_t end = std::min(first + bodies.threads, board_.ranks());
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    die_with(self, SIGKILL);
    std::array<void*, 1> unused{};  // what backtrace() loads it loads now, not in the handler
    (void)::backtrace(unused.data(), unused.size());
    ::signal(kShowStack, show_stack);
    bodies.prepare(first / bodies.threads);
    const int code = run_all(first, end, board_, bodies.run);
    (void)std::fflush(stdout);
    ::_exit(code);
  }
  if (pid < 0) {
    throw std::runtime_error(std::string("starting a process: ") + std::strerror(errno));
  }
  running_.push_back({first, end, pid});
}

void RankProcesses::end_all() {
  for (const Process& one : running_) {
    ::kill(one.pid, SIGKILL);
  }
  for (const Process& one : running_) {
    ::waitpid(one.pid, nullptr, 0);
  }
  running_.clear();
}

// Takes note of processes that have ended. Returns whether those did so well.
bool RankProcesses::reap(const Watch& watch) {
  bool good = true;
  std::erase_if(running_, [&](const Process& one) {
    int status = 0;
    if (::waitpid(one.pid, &status, WNOHANG) != one.pid) {
      return false;
    }
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (WIFSIGNALED(status)) {
      const bool alone = one.end - one.first == 1;
      const std::string what =
          (alone ? "rank " + std::to_string(one.first)
                 : "ranks " + std::to_string(one.first) + " to " + std::to_string(one.end - 1)) +
          (alone ? " was" : " were") + " ended by signal " + std::to_string(WTERMSIG(status));
      watch.complain(what);
      // The death that was asked for is no reason to give up: the others must notice it by
      // themselves.
      if (watch.victim && *watch.victim >= one.first && *watch.victim < one.end) {
        board_.is_gone(*watch.victim);
      } else {
        board_.give_up(what);
      }
    }
    return true;
  });
  return good;
}

bool RankProcesses::wait(const Watch& watch) {
  bool good = true;
  std::uint64_t moves_before = 0;
  TimePoint since = now();
  while (true) {
    const std::size_t before = running_.size();
    good = reap(watch) && good;
    if (running_.empty()) {
      return good;
    }
    std::uint64_t moves = 0;
    bool computing = false;
    for (const Process& one : running_) {
      for (std::uint32_t rank = one.first; rank < one.end; ++rank) {
        moves += board_.where(rank).moves();
        computing = computing || board_.where(rank).is_computing();
      }
    }
    const TimePoint time = now();
    if (moves != moves_before || computing || running_.size() != before) {
      moves_before = moves;
      since = time;
    } else if (time - since > watch.patience + watch.closing) {
      give_up(watch, time - since);
      return false;
    }
    watch.look();
    nap(kLookEvery);
  }
}

// One rank after the other, with time for each to write its stack: they share standard error.
void RankProcesses::give_up(const Watch& watch, Duration silence) {
  for (const Process& one : running_) {
    for (std::uint32_t rank = one.first; rank < one.end; ++rank) {
      const RankActivity& where = board_.where(rank);
      const pid_t thread = where.thread();
      if (thread == 0) {
        continue;  // it has ended, and its process waits for the others
      }
      watch.complain("rank " + std::to_string(rank) + " hangs, nothing has moved for " +
                     std::to_string(silence / std::chrono::seconds{1}) + " s: " + where.text() +
                     ". Its stack:");
      (void)::syscall(SYS_tgkill, one.pid, thread, kShowStack);
      nap(kTimeToShow);
    }
  }
  end_all();
}

}  // namespace weft::collectives
