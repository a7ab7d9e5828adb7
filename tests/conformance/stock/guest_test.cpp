// Owns the tests of what a library in other people's programs must stand: exits, forks and
// cancelled threads at bad moments, programs that close everything, fault handlers, odd paths.
//
// Each test runs cases of the guest program (tests/conformance/guest) under `weft run`. What a case
// does, and what it demands, is said there (cases.hpp); it ends with 0 when all was well.
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

// One rank, on an EFA device. A case that hangs is ended by `timeout`, whose code is not 0.
Outcome alone(const std::string& guest_case, const std::string& environment = "") {
  return run_shell(environment + " timeout 60 " WEFT_PROGRAM " run -q --no-prefix -- " WEFT_GUEST +
                   " " + guest_case);
}

// Processes one after the other, in one run: for cases that fail only at an unlucky moment.
Outcome repeated(const std::string& guest_case, int times) {
  return run_shell("timeout 100 " WEFT_PROGRAM " run -q --no-prefix -- sh -c 'for i in $(seq " +
                   std::to_string(times) + "); do timeout 10 " WEFT_GUEST " " + guest_case +
                   " || exit 1; done'");
}

// Two ranks on one host, which find each other by files.
Outcome pair(const std::string& command) {
  return run_shell(
      "dir=$(mktemp -d) && chmod 777 $dir && WEFT_CASE_DIR=$dir timeout 100 " WEFT_PROGRAM
      " run -q --no-prefix --per-host 2 -n 2 -- " +
      command + "; code=$?; rm -r $dir; exit $code");
}

// exit() runs destructors that close the device whose lock the interrupted code may hold.
TEST(Ends, ExitFromASignalHandlerInTheMidstOfProgress) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = repeated("exit_in_handler", 20);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// Files of rdma_cm, which only soft-RoCE devices have, and whoever waits there for events. And
// cases of every kind of device file.
class Connections : public ::testing::TestWithParam<const char*> {};

TEST_P(Connections, Succeed) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = run_shell("ulimit -n 1024; timeout 60 " WEFT_PROGRAM
                                    " run -q --no-prefix --device rxe -- " WEFT_GUEST " " +
                                    std::string(GetParam()));
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Guest, Connections,
                         ::testing::Values("cancelled_waiter", "cancelled_waiters", "closed_waiter",
                                           "restarted_waiter", "closed_duplicate", "late_handler",
                                           "late_handler_of_a_full_process", "closed_while_written",
                                           "written_in_a_full_process", "duplicated_onto_itself",
                                           "replaced_while_used", "duplicated_while_closed",
                                           "ioctls_of_any_file", "flags_of_open", "lowest_number"),
                         [](const auto& test) { return std::string(test.param); });

// The wrappers open files themselves, and open() is a point of cancellation: calls that are none
// must not become one by that.
TEST(Ends, AThreadThatIsToBeCancelledIsAnswered) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  for (const char* const device : {"efa", "rxe"}) {
    const Outcome outcome =
        run_weft(std::string("-n 1 --device ") + device + " -- " WEFT_GUEST " cancelled_questions");
    EXPECT_EQ(outcome.code, 0) << device << ": " << outcome.output;
  }
}

// The sender waits for its completions. A receiver that took its last acknowledgement with it would
// leave it waiting.
TEST(Ends, WhoLeavesAtOnceHasAcknowledgedWhatItGot) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = pair(
      "sh -c 'for i in 1 2 3 4 5 6 7 8; do mkdir -p $WEFT_CASE_DIR/$i && "
      "WEFT_CASE_DIR=$WEFT_CASE_DIR/$i timeout 20 " WEFT_GUEST " exit_at_once || exit 1; done'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// Constructors of libraries run under the loader's lock. Here they wait for threads that make calls
// which we wrap: a wrapper that asked the loader for anything then would never return.
class Loader : public ::testing::TestWithParam<const char*> {};

TEST_P(Loader, IsNotAskedUnderItsOwnLock) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = alone(GetParam());
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Guest, Loader,
                         ::testing::Values("first_calls_while_loading", "verbs_while_loading",
                                           "libraries_that_come_and_go"),
                         [](const auto& test) { return std::string(test.param); });

// Cases that need nothing but themselves. Those about paths start at folders of sysfs that the
// kernel has, which some containers leave out.
class Alone : public ::testing::TestWithParam<const char*> {};

TEST_P(Alone, Succeeds) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const std::string name = GetParam();
  if ((name == "relative_paths" || name == "steps_back" || name == "own_links" ||
       name == "listings" || name == "whereabouts") &&
      run_shell("test -d /sys/class").code != 0) {
    GTEST_SKIP() << "no /sys is mounted here, for the emulated files to stand beside";
  }
  const Outcome outcome = alone(GetParam());
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  if (name == "device_names") {
    EXPECT_EQ(outcome.output, "") << "to look for a device that is not there is no error to report";
  }
}

INSTANTIATE_TEST_SUITE_P(Guest, Alone,
                         ::testing::Values("exit_cancelled", "cancelled_poller", "forks",
                                           "forked_channels", "children_past_fork", "small_stacks",
                                           "device_names", "listings", "whereabouts", "positions",
                                           "first_use", "close_all", "failed_dup", "numbers",
                                           "channels", "open_without_malloc", "relative_paths",
                                           "steps_back", "bad_pointers", "own_links", "other_names",
                                           "past_us", "few_numbers", "netlink_sockets",
                                           "sandboxed"),
                         [](const auto& test) { return std::string(test.param); });

// It shares memory with its parent, so that a device it opened would be opened in the parent as
// well.
TEST(Ends, AGrandchildByVforkIsNotTakenForItsParent) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = alone("grandchildren_by_vfork");
  if (outcome.code == 77) {
    GTEST_SKIP() << "needs a kernel that says who shares memory (kcmp)";
  }
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(Interfaces, AreThoseOfTheHostAndOfSoftRoce) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  for (const char* const device : {"rxe", "efa"}) {
    const Outcome outcome =
        run_weft(std::string("-n 1 --device ") + device + " -- " WEFT_GUEST " interfaces");
    EXPECT_EQ(outcome.code, 0) << device << ": " << outcome.output;
  }
}

// The case forbids itself most system calls (seccomp): one for each message would cost as much as
// all the rest of the message.
TEST(Kernel, IsNotAskedForAMessage) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  for (const char* const device : {"rxe", "efa"}) {
    const Outcome outcome =
        run_weft(std::string("-n 1 --device ") + device + " -- " WEFT_GUEST " without_the_kernel");
    EXPECT_EQ(outcome.code, 0) << device << ": " << outcome.output;
  }
}

TEST(Kernel, ChildrenPastForkDoNotPost) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = run_weft("-n 1 --device rxe -- " WEFT_GUEST " posts_past_fork");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(Kernel, PostsAtBadPointersAreRefused) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = run_weft("-n 1 --device rxe -- " WEFT_GUEST " bad_posts");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// The runtime directory, below which the emulated files really lie, is itself reached by a link.
// Relative paths and `..` in the emulated tree must lead to the same files all the same.
TEST(Paths, OfATreeBehindALink) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  if (run_shell("test -d /sys/class").code != 0) {
    GTEST_SKIP() << "no /sys is mounted here, for the emulated files to stand beside";
  }
  const Outcome outcome = run_shell(
      "dir=$(mktemp -d) && mkdir -p -m 700 $dir/real/own && ln -s real $dir/link && "
      "XDG_RUNTIME_DIR=$dir/link/own timeout 60 " WEFT_PROGRAM
      " run -q --no-prefix -- sh -c 'echo at $WEFT_SOCKET && " WEFT_GUEST
      " relative_paths && " WEFT_GUEST " steps_back'; code=$?; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("/link/own/")) << "the network is elsewhere\n" << outcome.output;
}

// A device takes upper numbers, from 512 on, or fewer where the limit is low. With 12 it has none
// to take, and must say so instead of hanging or crashing.
TEST(Descriptors, AreFewAndSayIt) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  // The limit is set inside of the run, so that it is the guest's alone: weft and weftd need
  // descriptors of their own. First the case must pass where there are enough, or a failure would
  // say nothing of the limit.
  const auto limited = [](const char* most) {
    return alone("few_numbers", "ulimit -n 4096;").code == 0
               ? run_shell(std::string("timeout 60 " WEFT_PROGRAM
                                       " run -q --no-prefix -- sh -c 'ulimit -n ") +
                           most + "; " WEFT_GUEST " few_numbers'")
               : Outcome{};
  };
  for (const char* const enough : {"64", "256", "600"}) {
    const Outcome outcome = limited(enough);
    EXPECT_EQ(outcome.code, 0) << enough << ": " << outcome.output;
  }
  const Outcome outcome = limited("12");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(outcome.says("weft: ") && outcome.says("ulimit -n")) << outcome.output;
}

// The page of a doorbell is write-protected. When its queue pair is gone the program may map other
// memory there, whose rights must stay what the program made them.
TEST(Trap, ForgetsAQueuePairThatIsGone) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = alone("trap_forgets", "WEFT_DOORBELL_TRAP=1");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// A program may set a handler for SIGSEGV after the device was opened: it must see its own faults,
// and no doorbell's.
TEST(Trap, StandsBeforeTheProgramsOwnHandler) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = alone("trap_with_handler", "WEFT_DOORBELL_TRAP=1");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// Faults at registered buffers that the program has taken away are the device's to survive. All
// others are the program's, which must find its handlers, masks and ends as it would without us.
class Faults : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Faults, AreWhoseTheyAre) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const auto& [guest_case, environment] = GetParam();
  const Outcome outcome = alone(guest_case, environment);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Guest, Faults,
                         ::testing::Combine(::testing::Values("gone_buffers", "gone_everywhere",
                                                              "own_faults", "masked_faults",
                                                              "own_deaths", "vfork_actions"),
                                            ::testing::Values("", "WEFT_DOORBELL_TRAP=1")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) +
                                  (*std::get<1>(test.param) ? "_trapped" : "");
                         });

// UCX replaces mmap() and its relatives as well. Both must go on working, whoever came first.
TEST(Memory, WithTheHooksOfUcx) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = alone("hooked_memory");
  if (outcome.code == 77) {
    GTEST_SKIP() << "this machine has no libucx0; install it to run this test";
  }
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// Two ranks that wait by looking at a byte of their memory. While they wait no call of theirs
// enters our code, so the device's background thread has to receive. The times that the cases
// measure depend on the machine: asked for is only that every turn ends.
class Spinning : public ::testing::TestWithParam<const char*> {};

TEST_P(Spinning, GetsEveryMessage) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = pair(std::string("env SPIN_TURNS=300 ") + WEFT_GUEST + " " + GetParam());
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("median")) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Guest, Spinning,
                         ::testing::Values("spin_calls", "spin_stores", "spin_writes"),
                         [](const auto& test) { return std::string(test.param); });

// Both ranks arm and sleep in every turn: one wake-up that got lost would end the run by time-out.
TEST(Events, WhoSleepsOnAChannelIsWoken) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = pair(WEFT_GUEST " event_latency");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("median")) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
