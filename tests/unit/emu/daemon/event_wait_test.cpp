// Owns the tests of weftd's sleep where a sandbox or an old kernel refuses the call that it is made
// of, epoll_pwait2(): it must be as exact, by a timer, and never turn into polling.
#include "emu/daemon/event_wait.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>

#include "srd/run/clock.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"

namespace weft::daemon {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// From now on, for this process and its children, a filter of the kernel answers the call with
// `error`: ENOSYS as an old kernel does, EPERM as some sandboxes. False: there is no such filter
// here.
bool refuse_pwait2(int error) {
  std::array<sock_filter, 4> program{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// 0: EventWait does what it says. Else the number of what it does not, to be returned by a process.
// It has to sleep for as long as it was asked to, and once at least no more than ten times that; to
// hear of an event with any limit of time; and of nothing that was removed.
int check_wait() {
  EventWait wait;
  const auto bell = srd::create_event_fd();
  if (!wait.open() || !bell || !wait.add(bell->get(), EPOLLIN | EPOLLET)) {
    return 1;
  }
  std::array<epoll_event, 4> events;
  Duration shortest = Duration::max();
  for (int i = 0; i < 100; ++i) {
    const TimePoint before = srd::monotonic_now();
    const int count = wait.wait(events, nanoseconds(microseconds{100}));
    const Duration slept = srd::monotonic_now() - before;
    if (slept < microseconds{100}) {
      return 2;
    }
    if (std::any_of(events.begin(), events.begin() + count,
                    [&](const epoll_event& event) { return event.data.fd == bell->get(); })) {
      return 3;
    }
    shortest = std::min(shortest, slept);
  }
  if (shortest >= milliseconds{1}) {
    return 4;  // a sleep that is rounded up to milliseconds
  }
  srd::signal_event_fd(bell->get());
  // No limit, no sleep at all, and more than a count of milliseconds holds.
  for (const std::int64_t patience : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 62}) {
    srd::clear_event_fd(bell->get());
    srd::signal_event_fd(bell->get());
    if (wait.wait(events, patience) < 1) {
      return 5;
    }
  }
  if (wait.wait(events, 0) != 0) {
    return 6;  // an edge is told once
  }
  wait.remove(bell->get());
  srd::clear_event_fd(bell->get());
  srd::signal_event_fd(bell->get());
  return wait.wait(events, 0) == 0 ? 0 : 7;
}

int result_in_a_child(const std::function<int()>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(check());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(EventWait, SleepsAsLongAsItShouldWithOrWithoutTheCall) {
  EXPECT_EQ(check_wait(), 0);
  for (const int error : {ENOSYS, EPERM}) {
    EXPECT_EQ(result_in_a_child([&] { return refuse_pwait2(error) ? check_wait() : 100; }), 0)
        << error;
  }
}

// Between two hosts a packet is 200 ms on its way, in which weftd has nothing to do. A sleep that
// failed at once would make its rounds follow each other without a pause, and take a whole core.
class InASandbox : public DaemonTest, public ::testing::WithParamInterface<int> {};

TEST_P(InASandbox, WeftdForwardsAndSleepsInBetween) {
  fabric::Topology topology;
  const fabric::NodeId middle = topology.add_switch("sw");
  for (const char* name : {"h1", "h2"}) {
    topology.connect(topology.add_host(name), middle,
                     {.rate = Rate::gbps(100), .delay = milliseconds{100}, .buffer = 1 << 20});
  }
  DaemonOptions options;
  options.directory = directory_;
  options.topology = topology;
  // A daemon without the filter would pass the test for nothing: it ends, and nobody can join.
  weftd_ = std::make_unique<Weftd>(options, [] {
    if (!refuse_pwait2(GetParam())) {
      ::_exit(1);
    }
  });
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  const auto rounds = [&] {
    const std::string text = ask({{"v", 1}, {"cmd", "metrics"}})["metrics"];
    const std::string name = "\nweft_forwarding_rounds_total ";
    return std::stoull(text.substr(text.find(name) + name.size()));
  };
  const auto before = rounds();
  for (std::uint32_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(passes(*a, *b, i));
  }
  // Before it sleeps it yields for 100 us, of 0.1 us a round at the least, and each packet
  // interrupts its sleep four times at the most. Without sleep it would be several 100000.
  EXPECT_LT(rounds() - before, 5U * 4 * 1000);
}

INSTANTIATE_TEST_SUITE_P(Refusals, InASandbox, ::testing::Values(ENOSYS, EPERM));

}  // namespace
}  // namespace weft::daemon
