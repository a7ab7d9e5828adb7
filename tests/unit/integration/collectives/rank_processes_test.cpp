// Owns the proof that no run lasts for ever, and that those who hang are told of.
#include "integration/collectives/rank_processes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

namespace weft::collectives {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  EXPECT_FALSE(ranks.wait(complaints.watch()));
  EXPECT_THAT(complaints.all,
              ElementsAre(AllOf(HasSubstr("rank 1 hangs"), HasSubstr("in a call of accept")),
                          AllOf(HasSubstr("rank 2 hangs"), HasSubstr("barrier"))));
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
    watch.patience = 1h;
    watch.victim = expected ? std::optional<std::uint32_t>(1) : std::nullopt;
    EXPECT_FALSE(ranks.wait(watch));
    EXPECT_THAT(complaints.all, ElementsAre("rank 1 was ended by signal 9"));
    EXPECT_THAT(board->reason(), HasSubstr(expected ? "rank 1 is gone" : "signal 9"));
  }
}

}  // namespace
}  // namespace weft::collectives
