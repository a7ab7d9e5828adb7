// Owns the proof that a process that stands still does so, and goes on.
#include "integration/collectives/stand_still.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::collectives {
namespace {

TEST(StandStill, IsStopped) {
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    stand_still(3600);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(sleeper, &status, WUNTRACED), sleeper);
  EXPECT_TRUE(WIFSTOPPED(status));
  ::kill(sleeper, SIGKILL);
  EXPECT_EQ(::waitpid(sleeper, &status, 0), sleeper);
}

// However short it is, it begins before it ends.
TEST(StandStill, GoesOnEachTime) {
  constexpr int kTimes = 200;
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    for (int i = 0; i < kTimes; ++i) {
      stand_still(0);
    }
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(sleeper, &status, 0), sleeper);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace weft::collectives
