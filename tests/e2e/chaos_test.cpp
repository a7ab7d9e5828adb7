// Owns chaos: processes on a weftd's network that are killed, stopped and started again, and a
// weftd that is, while the others work. Each process is forked from the test and runs an engine of
// its own, without a stock program in between; what they tell each other (addresses, keys, counts)
// stands on a board in shared memory. WEFT_CHAOS_ROUNDS and WEFT_CHAOS_SEED choose more than the
// default.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "emu/attach/client.hpp"
#include "emu/daemon/daemon.hpp"
#include "srd/base/rng.hpp"
#include "srd/engine/engine.hpp"
#include "srd/engine/process_config.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/host.hpp"
#include "srd/run/idle.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Three, so that with any one of them gone there are two that must go on.
constexpr int kEnds = 3;
constexpr std::size_t kSlots = 32;  // requests of a process under way
constexpr std::uint32_t kSize = 8192;
constexpr std::uint32_t kQkey = 0xC4A05;
constexpr std::uint32_t kDomain = 1;
constexpr int kBroken = 17;  // exit code of a process that saw a rule broken
// Only ends a test that hangs. Dead peers are given up after 1.5 s (see Worker).
constexpr auto kPatience = seconds{40};

// What the processes and the test share. Of each place on the network there is one at a time.
struct Board {
  struct End {
    std::atomic<std::uint32_t> life{0};  // 0: no process is there (yet)
    std::atomic<std::uint32_t> attachment{0}, qpn{0}, key{0};
    std::atomic<std::uint64_t> buffer{0};
    std::array<std::byte, 16> address{};
    std::atomic<std::uint64_t> posted{0}, ended{0};  // of the present life
    // The round of the test that the counts below are of. Each end clears them itself when it sees
    // a new round: what ended well before the event does not count for after it.
    std::atomic<std::uint64_t> round{0}, well_in_round{0};
    std::array<std::atomic<std::uint32_t>, kEnds> met{};  // life with which a request went well
    std::atomic<bool> quiet{false};  // it was told to finish, and nothing is open
    std::atomic<int> fds{0};
  };
  std::array<End, kEnds> ends;
  std::atomic<std::uint64_t> round{0};
  std::atomic<bool> finish{false};
};

// For leaks of weftd: each process that comes and goes brings descriptors.
int count_fds(pid_t pid) {
  std::error_code error;
  int count = 0;
  for ([[maybe_unused]] const auto& fd :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    ++count;
  }
  return count;
}

long resident_kib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) {
      return std::atol(line.c_str() + 6);
    }
  }
  return 0;
}

// One process: writes to and reads from all others for ever, and keeps the books.
class Worker {
 public:
  Worker(Board& board, int place, const std::string& socket)
      : board_(board), place_(place), memory_(kSlots * kSize), target_(kSlots * kSize) {
    const attach::AttachOptions options{.socket = socket, .host = "h" + std::to_string(place + 1)};
    auto attached = attach::attach(options);
    for (const auto patience = Clock::now() + kPatience;
         !attached && Clock::now() < patience;) {  // weftd itself may be on its way back
      std::this_thread::sleep_for(milliseconds{1});
      attached = attach::attach(options);
    }
    check(attached.has_value(), attached ? "" : attached.error().message.c_str());
    auto config = srd::process_config(attached->io->capabilities(), attached->id, attached->life);
    // Instead of ten seconds, for the sake of the test: each killed process costs the others this
    // long. It is still several times the longest nap of a process that is only stopped.
    config.peer_timeout = milliseconds{1500};
    qpn_ = srd::Qpn{attached->first_qpn + 1};
    auto& own = board_.ends[static_cast<std::size_t>(place)];
    own.address = attached->address.bytes;
    host_ = std::move(*srd::Host<srd::Engine>::create(std::make_unique<srd::Engine>(config),
                                                      std::move(attached->io)));
    host_->with([&](srd::Engine& engine, TimePoint) {
      check(engine.open_endpoint(qpn_, {.qkey = kQkey, .domain = kDomain}).has_value(), "endpoint");
      const auto key =
          engine.memory().insert({.data = target_.data(),
                                  .address = std::bit_cast<std::uint64_t>(target_.data()),
                                  .length = target_.size(),
                                  .access = srd::Access::local_write | srd::Access::remote_write |
                                            srd::Access::remote_read,
                                  .domain = kDomain});
      check(key.has_value(), "region");
      own.key = key->value();
    });
    own.attachment = attached->id.value();
    own.qpn = qpn_.value();
    own.buffer = std::bit_cast<std::uint64_t>(target_.data());
    own.posted = 0;
    own.ended = 0;
    own.round = 0;
    for (auto& met : own.met) {
      met = 0;
    }
    own.quiet = false;
    // Last, and with release: whoever reads this life finds the fields above filled in.
    own.life.store(attached->life.value(), std::memory_order_release);
  }

  // Until it is killed. It polls as a program does that spins for a while and then sleeps: both
  // ways of waiting must notice what becomes of the others.
  [[noreturn]] void run() {
    auto& own = board_.ends[static_cast<std::size_t>(place_)];
    srd::Idler idler;
    std::array<srd::Completion, 64> completions;
    while (true) {
      const std::size_t work = host_->poll([&](srd::Engine& engine, TimePoint) {
        const std::size_t count = engine.poll(completions);
        for (std::size_t i = 0; i < count; ++i) {
          take(completions[i]);
        }
        if (!board_.finish) {
          post(engine);
        }
      });
      if (board_.finish && open_ == 0 && !own.quiet) {
        own.fds = count_fds(::getpid());
        own.quiet = true;
      }
      if (work != 0) {
        idler.worked();
      } else if (idler.pause(host_->last_poll())) {
        host_->sleep(host_->last_poll() + milliseconds{2});
      }
    }
  }

 private:
  struct Slot {
    // A cookie is never used twice, and leads back to its slot: cookie % kSlots.
    std::uint64_t cookie = 0;  // 0: free
    int to = 0;
    std::uint32_t life = 0;  // of the other when it was posted
  };

  static void check(bool right, const char* what) {
    if (!right) {
      std::fprintf(stderr, "chaos: a rule is broken: %s\n", what);
      ::_exit(kBroken);
    }
  }

  // The rule of every completion: it is of a request that is open, once. Which life of the peer it
  // went to well is what the test waits for.
  void take(const srd::Completion& completion) {
    Slot& slot = slots_[completion.cookie % kSlots];
    check(slot.cookie == completion.cookie && slot.cookie != 0,
          "a request ended twice, or never began");
    auto& own = board_.ends[static_cast<std::size_t>(place_)];
    ++own.ended;
    if (completion.status == srd::Status::ok) {
      if (const std::uint64_t round = board_.round; own.round != round) {
        own.well_in_round = 0;
        own.round = round;
        for (auto& met : own.met) {
          met = 0;
        }
      }
      ++own.well_in_round;
      own.met[static_cast<std::size_t>(slot.to)] = slot.life;
    }
    slot.cookie = 0;
    --open_;
  }

  // To all others in turn, with as many requests under way as there are slots.
  void post(srd::Engine& engine) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      if (slots_[i].cookie != 0) {
        continue;
      }
      const int to = (place_ + 1 + static_cast<int>(next_ % (kEnds - 1))) % kEnds;
      const auto& other = board_.ends[static_cast<std::size_t>(to)];
      const std::uint32_t life = other.life.load(std::memory_order_acquire);
      ++next_;
      if (life == 0) {
        continue;
      }
      srd::Address address;
      address.bytes = other.address;
      const auto peer = engine.peer(
          address, srd::AttachmentId{static_cast<std::uint16_t>(other.attachment.load())});
      if (!peer) {
        continue;
      }
      const std::uint64_t cookie = (next_ * kSlots) + i;
      if (send(engine, *peer, other, i, cookie) == srd::PostResult::accepted) {
        slots_[i] = {cookie, to, life};
        ++board_.ends[static_cast<std::size_t>(place_)].posted;
        ++open_;
      }
    }
  }

  srd::PostResult send(srd::Engine& engine, srd::PeerId peer, const Board::End& other,
                       std::size_t slot, std::uint64_t cookie) {
    const auto fill = [&](auto request) {
      request.peer = peer;
      request.source = qpn_;
      request.destination = srd::Qpn{other.qpn};
      request.qkey = kQkey;
      request.cookie = cookie;
      request.segments[0] = {memory_.data() + slot * kSize, kSize};
      request.remote_address = other.buffer + slot * kSize;
      request.remote_key = srd::RegionKey{other.key};
      return request;
    };
    // A quarter are reads: their answers come from a process that may just have died.
    return next_ % 4 == 0 ? engine.post(fill(srd::ReadRequest{}))
                          : engine.post(fill(srd::WriteRequest{}));
  }

  Board& board_;
  int place_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> target_;
  std::unique_ptr<srd::Host<srd::Engine>> host_;
  srd::Qpn qpn_;
  std::array<Slot, kSlots> slots_{};
  std::uint64_t next_ = 0;
  std::size_t open_ = 0;
};

// With direct rings, or with every packet through weftd.
class ChaosTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    void* memory =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board;
  }
  void TearDown() override {
    for (const pid_t pid : workers_) {
      end(pid);
    }
    end(weftd_);
    ::munmap(board_, sizeof(Board));
  }

  template <class Body>
  static pid_t start(const Body& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      // Nothing of this outlives a test that crashes.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
      ::_exit(1);
    }
    return pid;
  }
  static void end(pid_t pid) {
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  void start_weftd() {
    weftd_ = start([&] {
      daemon::DaemonOptions options;
      options.directory = directory_;
      options.plant.hosts = {"h1", "h2", "h3"};
      options.direct_rings = GetParam();
      auto daemon = daemon::Daemon::create(options);
      ::_exit(daemon && (*daemon)->run() ? 0 : 1);
    });
  }
  // The life is cleared first: nobody counts a request to the dead one as one to its successor.
  void start_worker(int place) {
    const auto at = static_cast<std::size_t>(place);
    board_->ends[at].life = 0;
    workers_[at] = start([&] { Worker(*board_, place, directory_ + "/attach.sock").run(); });
  }
  // Whether all that should run still do.
  ::testing::AssertionResult all_alive() {
    for (std::size_t i = 0; i < kEnds; ++i) {
      int status = 0;
      if (workers_[i] > 0 && ::waitpid(workers_[i], &status, WNOHANG) != 0) {
        workers_[i] = -1;
        return ::testing::AssertionFailure() << "process " << i << " ended with status " << status;
      }
    }
    if (::waitpid(weftd_, nullptr, WNOHANG) != 0) {
      weftd_ = -1;
      return ::testing::AssertionFailure() << "weftd ended";
    }
    return ::testing::AssertionSuccess();
  }
  // What a failed wait needs to be understood: who lacks what of whom.
  [[nodiscard]] std::string books() const {
    std::string text;
    for (std::size_t i = 0; i < kEnds; ++i) {
      const auto& end = board_->ends[i];
      text += "\nprocess " + std::to_string(i) + ": life " + std::to_string(end.life) +
              ", posted " + std::to_string(end.posted) + ", ended " + std::to_string(end.ended) +
              ", well in round " + std::to_string(end.round) + ": " +
              std::to_string(end.well_in_round) + ", met";
      for (const auto& met : end.met) {
        text += " " + std::to_string(met);
      }
    }
    return text;
  }
  template <class Done>
  ::testing::AssertionResult wait_for(const Done& done, const std::string& what) {
    const auto patience = Clock::now() + kPatience;
    while (!done()) {
      if (auto alive = all_alive(); !alive) {
        return alive;
      }
      if (Clock::now() > patience) {
        return ::testing::AssertionFailure() << "in vain waited until " << what << books();
      }
      std::this_thread::sleep_for(milliseconds{1});
    }
    return ::testing::AssertionSuccess();
  }
  // Every process ends `count` more requests well, with each of the present lives of the others.
  ::testing::AssertionResult progress(std::uint64_t count) {
    const std::uint64_t asked = ++board_->round;
    return wait_for(
        [&] {
          for (std::size_t i = 0; i < kEnds; ++i) {
            const auto& end = board_->ends[i];
            if (end.life == 0 || end.round != asked || end.well_in_round < count || !knows_all(i)) {
              return false;
            }
          }
          return true;
        },
        "everybody makes progress with everybody");
  }
  [[nodiscard]] bool knows_all(std::size_t self) const {
    for (std::size_t other = 0; other < kEnds; ++other) {
      if (other != self && board_->ends[self].met[other] != board_->ends[other].life) {
        return false;
      }
    }
    return true;
  }

  testing::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
  Board* board_ = nullptr;
  pid_t weftd_ = -1;
  std::array<pid_t, kEnds> workers_{-1, -1, -1};
};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = ::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// After each event everybody must make progress with everybody in their present lives; that takes
// as long as it takes. Memory is compared from round 4 on, when caches and pools have grown to
// their size.
TEST_P(ChaosTest, SurvivorsGoOnAndTheDeadComeBack) {
  const std::uint64_t rounds = from_environment("WEFT_CHAOS_ROUNDS", 10);
  const std::uint64_t seed = from_environment("WEFT_CHAOS_SEED", 1);
  SCOPED_TRACE("WEFT_CHAOS_SEED=" + std::to_string(seed));
  std::printf("chaos: seed %llu, %llu rounds\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(rounds));
  Rng rng(seed);
  start_weftd();
  for (int i = 0; i < kEnds; ++i) {
    start_worker(i);
  }
  ASSERT_TRUE(progress(20));
  const int fds_before = count_fds(weftd_);
  long memory_before = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const int victim = static_cast<int>(rng.below(kEnds));
    const auto at = static_cast<std::size_t>(victim);
    const std::uint32_t what = rng.below(4);
    constexpr std::array kNames{"kill", "stop", "kill weftd", "stop weftd"};
    SCOPED_TRACE("round " + std::to_string(round) + ": " + kNames[what] + " " +
                 std::to_string(victim));
    // At any point of what the others are just doing.
    std::this_thread::sleep_for(std::chrono::microseconds{rng.below(5000)});
    const auto nap = milliseconds{20 + rng.below(200)};
    switch (what) {
      case 0:
        end(workers_[at]);
        workers_[at] = -1;
        board_->ends[at].life = 0;
        std::this_thread::sleep_for(nap / 4);
        start_worker(victim);
        break;
      case 1:
        ::kill(workers_[at], SIGSTOP);
        std::this_thread::sleep_for(nap);
        ::kill(workers_[at], SIGCONT);
        break;
      case 2:
        end(weftd_);
        start_weftd();
        break;
      default:
        ::kill(weftd_, SIGSTOP);
        std::this_thread::sleep_for(nap);
        ::kill(weftd_, SIGCONT);
    }
    ASSERT_TRUE(progress(20));
    if (round == 4) {
      memory_before = resident_kib(weftd_);
    }
  }
  // Books are closed: everything that began has ended, once.
  board_->finish = true;
  ASSERT_TRUE(wait_for(
      [&] {
        return std::all_of(board_->ends.begin(), board_->ends.end(),
                           [](const auto& end) { return end.quiet.load(); });
      },
      "nothing is open any more"));
  for (const auto& end : board_->ends) {
    EXPECT_EQ(end.posted, end.ended);
    // Descriptors and memory would grow with each round if something were kept of the dead: none of
    // these bounds depends on how many rounds there were.
    EXPECT_LT(end.fds, 64);
  }
  EXPECT_LE(count_fds(weftd_), fds_before + 2);
  if (memory_before != 0) {
    EXPECT_LT(resident_kib(weftd_), memory_before + 16 * 1024);
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, ChaosTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Direct" : "ThroughWeftd"; });

}  // namespace
}  // namespace weft
