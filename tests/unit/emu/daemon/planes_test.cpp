// Owns the tests of what weftd's two threads promise each other: what control asks is bounded work
// between two rounds of forwarding (RoundCalls), what forwarding tells is a bounded queue
// (Notices), and forwarding waits for no client.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "emu/daemon/notices.hpp"
#include "emu/daemon/round_calls.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"

namespace weft::daemon {
namespace {

bool is_readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 0) == 1;
}

// While weftd is being set up there is one thread, which would wait for itself.
TEST(RoundCalls, BeforeAnybodyForwardsTheyAreExecutedAtOnce) {
  RoundCalls calls;
  ASSERT_TRUE(calls.open());
  EXPECT_EQ(calls.run([] { return 7; }), 7);
  EXPECT_FALSE(calls.serve());
}

// The test is the forwarding thread. The last call throws, and the thread that called has to get
// it.
TEST(RoundCalls, EachIsExecutedByOneServeAndItsResultReturns) {
  RoundCalls calls;
  ASSERT_TRUE(calls.open());
  calls.begin();
  constexpr int kCalls = 2000;
  std::vector<int> results;
  std::thread control([&] {
    for (int i = 0; i < kCalls; ++i) {
      results.push_back(calls.run([i] { return i; }));
    }
    EXPECT_THROW(calls.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  });
  for (int served = 0; served < kCalls + 1;) {
    served += calls.serve() ? 1 : 0;
  }
  control.join();
  EXPECT_FALSE(calls.serve());
  ASSERT_EQ(results.size(), static_cast<std::size_t>(kCalls));
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(results[static_cast<std::size_t>(i)], i);
  }
}

// Each call comes while the other side sleeps, or is just about to. One that came between its last
// look and its sleep would be heard by nobody.
TEST(RoundCalls, ASleeperIsWokenForEachCall) {
  RoundCalls calls;
  ASSERT_TRUE(calls.open());
  calls.begin();
  constexpr int kCalls = 500;
  std::atomic<bool> done{false};
  std::thread control([&] {
    for (int i = 0; i < kCalls; ++i) {
      calls.run([] {});
    }
    done = true;
  });
  for (int served = 0; served < kCalls;) {
    if (calls.serve()) {
      ++served;
    } else if (calls.arm()) {
      pollfd ready{calls.wait_fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&ready, 1, 20'000), 1) << "call " << served << " woke nobody";
      srd::clear_event_fd(calls.wait_fd());
      calls.disarm();
    }
  }
  control.join();
  EXPECT_TRUE(done);
}

// They are filled up without a reader, and the bell rings when flush() says so and not before. The
// first one taken makes room for another.
TEST(Notices, AreBoundedInOrderAndRingOnce) {
  Notices notices;
  ASSERT_TRUE(notices.open());
  std::uint32_t pushed = 0;
  while (notices.push({.kind = Notice::Kind::link, .slot = {.nic = pushed, .id = 0, .life = {}}})) {
    ASSERT_LT(++pushed, 100'000U);
  }
  EXPECT_FALSE(is_readable(notices.wait_fd()));
  notices.flush();
  EXPECT_TRUE(is_readable(notices.wait_fd()));
  notices.clear_bell();
  notices.flush();  // nothing was added since
  EXPECT_FALSE(is_readable(notices.wait_fd()));
  Notice notice;
  ASSERT_TRUE(notices.pop(notice));
  EXPECT_TRUE(
      notices.push({.kind = Notice::Kind::link, .slot = {.nic = pushed, .id = 0, .life = {}}}));
  for (std::uint32_t i = 1; i <= pushed; ++i) {
    ASSERT_TRUE(notices.pop(notice));
    EXPECT_EQ(notice.slot.nic, i);
  }
  EXPECT_FALSE(notices.pop(notice));
  notices.flush();
  EXPECT_TRUE(is_readable(notices.wait_fd()));
}

// What clients of the control side cost the forwarding thread, in calls between its rounds.
class ControlPlaneTest : public DaemonTest {
 protected:
  [[nodiscard]] std::uint64_t calls() const {
    const std::string text = ask({{"v", 1}, {"cmd", "metrics"}})["metrics"];
    const std::string name = "\nweft_forwarding_calls_total ";
    return std::stoull(text.substr(text.find(name) + name.size()));
  }
};

// Requests cut off in the middle, of the wrong protocol, or none, on all three sockets. Whatever
// they cost the control thread, forwarding must not hear of them.
TEST_F(ControlPlaneTest, AThousandClientsThatSayNothingUsefulCostNoCall) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  const std::uint64_t before = calls();
  std::vector<srd::UniqueFd> clients;
  for (int i = 0; i < 1000; ++i) {
    if (i % 2 == 0) {
      auto newcomer = attach::connect_seqpacket(weftd_->attach_socket());
      ASSERT_TRUE(newcomer);
      [[maybe_unused]] const bool sent =
          attach::send_message(newcomer->get(), std::as_bytes(std::span("nonsense")));
      clients.push_back(std::move(*newcomer));
    } else {
      clients.push_back(weftd_->talk(i % 4 == 1 ? "/control.sock" : "/metrics.sock"));
      const std::string text = i % 8 < 4 ? "{\"v\":1}\n{\"v\":1,\"cm" : "GET / HTTP/9.9\r\n\r\n";
      [[maybe_unused]] const auto sent =
          ::send(clients.back().get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    // Meanwhile frames pass, and not only afterwards.
    if (i % 50 == 0) {
      ASSERT_TRUE(passes(*a, *b, static_cast<std::uint32_t>(i + 1)));
    }
  }
  clients.clear();
  EXPECT_TRUE(eventually([&] { return ask({{"v", 1}, {"cmd", "status"}}).is_object(); }));
  EXPECT_LE(calls() - before, 20U);  // those of the test's own questions
}

// Its slot is added, retired, and taken out when its ring is empty: three calls, also among a
// hundred other processes.
TEST_F(ControlPlaneTest, AProcessThatComesAndGoesCostsAFewCallsHoweverManyThereAre) {
  start(false);
  std::vector<attach::Attachment> others;
  const auto cost_of = [&](int times) {
    const std::uint64_t before = calls();
    for (int i = 0; i < times; ++i) {
      EXPECT_TRUE(join("h2"));
    }
    std::uint64_t asked = 1;  // each question of the test's is a call, too
    EXPECT_TRUE(eventually([&] {
      ++asked;
      return status()["nics"][2]["processes"].empty();
    }));
    return calls() - before - asked;
  };
  const std::uint64_t alone = cost_of(50);
  for (int i = 0; i < 100; ++i) {
    auto other = join("h1", i % 2 == 0 ? 0 : 1);
    ASSERT_TRUE(other);
    others.push_back(std::move(*other));
  }
  const std::uint64_t among_many = cost_of(50);
  EXPECT_LE(alone, 50U * 3 + 5);
  EXPECT_LE(among_many, 50U * 3 + 5);
}

// A client that finds a socket takes weftd for running. The last thing that is opened fails here,
// and no socket must have been there before.
TEST_F(ControlPlaneTest, NobodyCanConnectBeforeEverythingIsThere) {
  DaemonOptions options;
  options.directory = directory_;
  options.ports = {"dgram:/nonexistent/one,/nonexistent/two"};  // opened after all the rest
  ASSERT_FALSE(Daemon::create(options));
  for (const char* name : {"/attach.sock", "/control.sock", "/metrics.sock"}) {
    EXPECT_FALSE(std::filesystem::exists(directory_ + name)) << name;
  }
}

}  // namespace
}  // namespace weft::daemon
