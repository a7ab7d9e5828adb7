// Owns the proof that no run lasts for ever, and that ranks that hang are told of. Ranks are real
// processes (or threads), forked from the test; what they are told to do here is to wait, to hang
// or to die.
#include "integration/collectives/rank_processes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace weft::collectives {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As in the commands: one board in memory that children inherit.
class SharedBoard {
 public:
  explicit SharedBoard(std::uint32_t ranks)
      : size_(Board::bytes(ranks, 1)),
        memory_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        board_(Board::create(memory_, ranks, 1)) {}
  ~SharedBoard() { ::munmap(memory_, size_); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  [[nodiscard]] Board& operator*() { return board_; }
  [[nodiscard]] Board* operator->() { return &board_; }

 private:
  std::size_t size_;
  void* memory_;
  Board& board_;
};

struct Complaints {
  std::vector<std::string> all;
  [[nodiscard]] RankProcesses::Watch watch() {
    // Short, because each test with a rank that hangs waits for as long as this.
    return {.patience = 100ms, .closing = 100ms, .complain = [this](const std::string& text) {
              all.push_back(text);
            }};
  }
};

TEST(RankProcesses, AllEndWell) {
  SharedBoard board(3);
  Complaints complaints;
  RankProcesses ranks(*board, {.run = [&](std::uint32_t rank) {
    board->barrier(rank);
    return 0;
  }});
  EXPECT_TRUE(ranks.wait(complaints.watch()));
  EXPECT_THAT(complaints.all, IsEmpty());
}

TEST(RankProcesses, WhoHangsIsToldOfWithWhatItWaitsForAndEnded) {
  SharedBoard board(3);
  Complaints complaints;
  RankProcesses ranks(*board, {.run = [&](std::uint32_t rank) {
    if (rank == 0) {
      return 0;
    }
    if (rank == 1) {
      board->where(1).enter(Call::accept);
      while (true) {
        ::pause();
      }
    }
    board->barrier(rank);
    return 0;
  }});
  // No patience runs out before both are there.
  while (board->where(1).text().find("accept") == std::string::npos ||
         board->where(2).text().find("barrier") == std::string::npos) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_FALSE(ranks.wait(complaints.watch()));
  EXPECT_THAT(complaints.all,
              ElementsAre(AllOf(HasSubstr("rank 1 hangs"), HasSubstr("in a call of accept")),
                          AllOf(HasSubstr("rank 2 hangs"), HasSubstr("barrier"))));
}

// What this process and its children write to standard error meanwhile.
class StandardError {
 public:
  StandardError() { ::dup2(::fileno(file_.get()), STDERR_FILENO); }
  ~StandardError() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;
  [[nodiscard]] std::string text() {
    std::string all;
    std::rewind(file_.get());
    for (int letter = std::fgetc(file_.get()); letter != EOF; letter = std::fgetc(file_.get())) {
      all += static_cast<char>(letter);
    }
    return all;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_{std::tmpfile()};
  int before_ = ::dup(STDERR_FILENO);
};

TEST(RankProcesses, EachThreadThatHangsShowsItsOwnStack) {
  SharedBoard board(3);
  Complaints complaints;
  StandardError error;
  RankProcesses ranks(*board, {.run =
                                   [&](std::uint32_t rank) {
                                     sigset_t none;
                                     ::sigemptyset(&none);
                                     while (rank != 1) {
                                       // Two ways to wait, to tell the two stacks apart by.
                                       (void)(rank == 0 ? ::pause() : ::sigsuspend(&none));
                                     }
                                     return 0;
                                   },
                               .threads = 3});
  EXPECT_FALSE(ranks.wait(complaints.watch()));
  EXPECT_THAT(complaints.all, ElementsAre(HasSubstr("rank 0 hangs"), HasSubstr("rank 2 hangs")))
      << "rank 1 has ended";
  EXPECT_THAT(error.text(), AllOf(HasSubstr("pause"), HasSubstr("sigsuspend")));
}

TEST(RankProcesses, WhoComputesIsNotHanging) {
  SharedBoard board(2);
  Complaints complaints;
  RankProcesses ranks(*board, {.run = [&](std::uint32_t rank) {
    if (rank == 0) {
      board->where(0).computes(true);
      const timespec longer_than_patience{1, 0};
      ::nanosleep(&longer_than_patience, nullptr);
      board->where(0).computes(false);
    }
    board->barrier(rank);
    return 0;
  }});
  EXPECT_TRUE(ranks.wait(complaints.watch()));
  EXPECT_THAT(complaints.all, IsEmpty());
}

TEST(RankProcesses, WhoWaitsAtABarrierForADeadRankIsToldSo) {
  for (const bool expected : {true, false}) {
    SharedBoard board(2);
    Complaints complaints;
    RankProcesses ranks(*board, {.run = [&](std::uint32_t rank) {
      if (rank == 1) {
        (void)::raise(SIGKILL);
      }
      try {
        board->barrier(rank);
      } catch (const std::exception& error) {
        board->give_up(error.what());
        return 3;
      }
      return 0;
    }});
    auto watch = complaints.watch();
    // So that it is the death that is told of, and not that somebody waits for long.
    watch.patience = 1h;
    watch.victim = expected ? std::optional<std::uint32_t>(1) : std::nullopt;
    EXPECT_FALSE(ranks.wait(watch));
    EXPECT_THAT(complaints.all, ElementsAre("rank 1 was ended by signal 9"));
    EXPECT_THAT(board->reason(), HasSubstr(expected ? "rank 1 is gone" : "signal 9"));
  }
}

}  // namespace
}  // namespace weft::collectives
