// Owns the tests of what becomes of a job's output, with a QEMU that is a script.
//
// `weft softroce` runs a job in a Linux guest and passes its output on. Here the guest is a shell
// script that is found in PATH before the real QEMU; it writes to the same files that QEMU would
// write a guest's ports to.
#include "emu/softroce/guest.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "emu/launch/interrupt.hpp"
#include "srd/io/posix.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::softroce {
namespace {

// Exit codes by which the child below tells how run_guest() ended.
constexpr int kLostOutput = 3;
constexpr int kInterrupted = 4;

class GuestOutput : public ::testing::Test {
 protected:
  // A guest that comes up at once and then does as `script` says, with $out and $control.
  void become_guest(const std::string& script) {
    const auto qemu = std::filesystem::path(folder_.path()) / kQemu;
    std::ofstream(qemu) << "#!/bin/sh\n"
                           "for word; do\n"
                           "  case $word in\n"
                           "    file,id=out,*) out=${word##*path=} ;;\n"
                           "    file,id=control,*) control=${word##*path=} ;;\n"
                           "  esac\n"
                           "done\n"
                           "echo up >$control\n"
                        << script << "\n";
    std::filesystem::permissions(qemu, std::filesystem::perms::owner_all);
  }

  // A process that runs the guest and prints to `output`; the other end is ours alone.
  // In a process of its own, because signals and standard output belong to one.
  pid_t start(int output, int reader = -1) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      return pid;
    }
    ::close(reader);
    ::signal(SIGPIPE, SIG_IGN);
    ::setenv("PATH", (folder_.path() + ":" + ::getenv("PATH")).c_str(), 1);
    ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::close(output);
    const launch::Interruptible interruptible;
    try {
      const auto code = run_guest({.folder = folder_.path(),
                                   .image = "/image",
                                   .place = {.address = srd::Address::v4(10, 77, 3, 1),
                                             .own_socket = folder_.path() + "/guest.sock",
                                             .network_socket = folder_.path() + "/network.sock"},
                                   .job = "true"});
      ::_exit(code ? *code : kLostOutput);
    } catch (const launch::Interrupted&) {
      ::_exit(kInterrupted);
    }
  }

  static int code_of(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  testing::TemporaryFolder folder_;
};

// A megabyte through a pipe that holds 64 KiB, while the job's code arrives at once: the end may
// only be told when all has been passed on.
TEST_F(GuestOutput, ArrivesWholeThoughTheReaderIsSlow) {
  become_guest("head -c 1000000 /dev/zero >$out; echo 7 >$control; exec sleep 60");
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = start(ends[1], ends[0]);
  ::close(ends[1]);
  std::size_t all = 0;
  char piece[10000];
  for (ssize_t got = 0; (got = ::read(ends[0], piece, sizeof piece)) > 0;) {
    all += static_cast<std::size_t>(got);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  EXPECT_EQ(code_of(pid), 7);
  EXPECT_EQ(all, 1000000U);
  ::close(ends[0]);
}

// What looks for somebody who listens runs beside the job, and may outlive it.
TEST_F(GuestOutput, ASignOfListeningBehindTheCodeHidesItNot) {
  become_guest("printf '7\\nserving\\n' >$control");
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const pid_t pid = start(null);
  ::close(null);
  EXPECT_EQ(code_of(pid), 7);
}

// As `weft softroce ... | head` does. The code is that of a program that SIGPIPE has ended.
TEST_F(GuestOutput, WithoutAReaderEndsTheGuest) {
  become_guest("exec yes >$out");
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = start(ends[1], ends[0]);
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  EXPECT_EQ(code_of(pid), 128 + SIGPIPE);
}

// A reader that is there and does not read: the write must not block the signal out.
TEST_F(GuestOutput, ThatNobodyReadsDoesNotMakeItUnkillable) {
  become_guest("exec yes >$out");
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = start(ends[1], ends[0]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds{200});  // until the pipe is full
  ::kill(pid, SIGTERM);
  EXPECT_EQ(code_of(pid), kInterrupted);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(GuestOutput, ThatCannotBeWrittenIsAFailure) {
  become_guest("echo said >$out; echo 0 >$control; exec sleep 60");
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const pid_t pid = start(full);
  ::close(full);
  EXPECT_EQ(code_of(pid), kLostOutput);
}

}  // namespace
}  // namespace weft::softroce
