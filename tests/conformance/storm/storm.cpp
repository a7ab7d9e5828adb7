// Owns the storm: many processes send to one, which answers them and has few receives posted, while
// some of them are killed, stopped and started again. `storm PEERS ROUNDS SEED [calm] [impatient]`:
// calm leaves everybody alone; the impatient try again only once when the target is not ready.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <random>
#include <system_error>

#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {
namespace {

using Clock = std::chrono::steady_clock;

// What peers send: every byte follows from the first three fields.
struct Message {
  std::uint32_t peer;
  std::uint32_t life;
  std::uint64_t sequence;
  std::uint8_t rest[240];
  void fill() { std::memset(rest, static_cast<int>(pattern()), sizeof rest); }
  [[nodiscard]] std::uint8_t pattern() const {
    return static_cast<std::uint8_t>(peer * 37 + life * 11 + sequence * 7);
  }
  [[nodiscard]] bool whole() const {
    for (const std::uint8_t byte : rest) {
      if (byte != pattern()) {
        return false;
      }
    }
    return true;
  }
};

// Shared by all processes of the storm.
struct Peer {
  std::atomic<std::uint32_t> qpn;  // 0: not up yet
  std::atomic<std::uint32_t> life;
  std::atomic<std::uint64_t> acknowledged;  // sends that the peer saw end well, in this life
  std::atomic<std::uint64_t> failures;
  std::atomic<std::uint64_t> not_ready;  // sends that the impatient gave up
};
// What the command line asks for.
struct Mode {
  bool calm = false;
  bool impatient = false;
};
struct Shared {
  Mode mode;
  std::atomic<std::uint32_t> target;
  std::atomic<bool> stop;
  Peer peers[256];
};
Shared* shared = nullptr;

constexpr std::uint32_t kNotReady = 10;
constexpr std::uint32_t kPeerSlots = 8;
// Far fewer than senders' messages: receivers are not ready.
constexpr std::uint32_t kTargetSlots = 32;

// The body of a peer process: sends batches to the target until the end, and answers nothing. A
// life that is killed leaves its account half written, so the next one begins a new one.
void be_peer(std::uint32_t index, std::uint32_t life) {
  // Whatever happens to the storm, no process stays behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(120);
  {
    QueuePair queue(kPeerSlots, sizeof(Message), QueuePair::Calls::hooked, QueuePair::Events::off,
                    shared->mode.impatient ? 1 : kForEver);
    Peer& self = shared->peers[index];
    for (std::uint32_t slot = 0; slot < kPeerSlots; ++slot) {
      queue.post_receive(slot);
    }
    // The number is told last: from then on the target sends to this life, and expects its account
    // to be in order.
    self.acknowledged = 0;
    self.life = life;
    self.qpn = queue.number();
    std::uint64_t sequence = 0;
    std::uint32_t open = 0;
    ibv_wc done{};
    while (!shared->stop.load() || open > 0) {
      while (open < kPeerSlots && !shared->stop.load()) {
        Message message{index, life, ++sequence, {}};
        message.fill();
        std::memcpy(queue.send_slot(sequence % kPeerSlots), &message, sizeof message);
        demand(queue.post_send(sequence % kPeerSlots, 1000 + sequence, shared->target), "no room");
        ++open;
        if (open == kPeerSlots) {
          break;
        }
      }
      // All of a batch end before the next one begins: their memory is used again.
      for (bool idle = true; open > 0; idle = true) {
        while (queue.poll(done)) {
          idle = false;
          if (done.wr_id < 1000) {
            demand(done.status == IBV_WC_SUCCESS, "a receive failed");
            queue.post_receive(done.wr_id);
          } else {
            --open;
            const bool gave_up = shared->mode.impatient && done.vendor_err == kNotReady;
            ++(done.status == IBV_WC_SUCCESS ? self.acknowledged
               : gave_up                     ? self.not_ready
                                             : self.failures);
          }
        }
        if (idle) {
          usleep(50);
        }
      }
    }
  }
  std::_Exit(0);
}

// The process that all send to, parent of the others. It keeps the account of what has come,
// disturbs its children, and asks them (ping) whether they live.
class Target {
 public:
  Target(std::uint32_t peers, std::uint64_t seed) : random_(seed), seen_(peers), pids_(peers) {}

  int run(int rounds) {
    queue_ = std::make_unique<QueuePair>(kTargetSlots, sizeof(Message));
    for (std::uint32_t slot = 0; slot < kTargetSlots; ++slot) {
      queue_->post_receive(slot);
    }
    shared->target = queue_->number();
    for (std::uint32_t i = 0; i < pids_.size(); ++i) {
      start(i);
    }
    for (int round = 0; round < rounds; ++round) {
      disturb();
      work_for(std::chrono::milliseconds(20));
    }
    for (const pid_t pid : stopped_) {
      kill(pid, SIGCONT);
    }
    // The rest keeps going: every process that lives gets on.
    std::vector<std::uint64_t> before(pids_.size());
    for (std::uint32_t i = 0; i < pids_.size(); ++i) {
      wait_until([&] { return up(i); }, "a peer does not come up");
      before[i] = shared->peers[i].acknowledged;
    }
    for (std::uint32_t i = 0; i < pids_.size(); ++i) {
      wait_until([&] { return shared->peers[i].acknowledged > before[i] + kPeerSlots; },
                 "a peer that lives does not get on");
    }
    shared->stop = true;
    wait_until([&] { return pings_open_ == 0; }, "requests without an end");
    for (const pid_t pid : pids_) {
      wait_until([&] { return ended(pid); }, "a peer does not end");
    }
    for (const Peer& peer : shared->peers) {
      demand(peer.failures == 0, "work of a living peer failed");
    }
    queue_.reset();
    std::printf("%llu messages, %llu pings answered, %llu to the dead, %d killed, %d stopped\n",
                static_cast<unsigned long long>(messages_),
                static_cast<unsigned long long>(pings_good_),
                static_cast<unsigned long long>(pings_bad_), killed_, halted_);
    return 0;
  }

 private:
  [[nodiscard]] bool up(std::uint32_t i) const {
    return shared->peers[i].qpn != 0 && shared->peers[i].life == lives_[i];
  }
  [[nodiscard]] static bool ended(pid_t pid) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) != pid) {
      return false;
    }
    demand(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a peer crashed");
    return true;
  }
  // A new life of a peer. The account of the last one is closed: its late messages are not counted.
  void start(std::uint32_t i) {
    shared->peers[i].qpn = 0;
    const std::uint32_t life = ++lives_[i];
    seen_[i].clear();
    const pid_t pid = fork();
    if (pid == 0) {
      be_peer(i, life);
    }
    pids_[i] = pid;
  }
  // Kills, stops or wakes one of them, by lot.
  void disturb() {
    const auto i = static_cast<std::uint32_t>(random_() % pids_.size());
    const std::uint64_t what = shared->mode.calm ? 2 : random_() % 4;
    if (what == 0 && up(i)) {
      kill(pids_[i], SIGKILL);
      waitpid(pids_[i], nullptr, 0);
      std::erase(stopped_, pids_[i]);
      ++killed_;
      start(i);
    } else if (what == 1) {
      kill(pids_[i], SIGSTOP);
      stopped_.push_back(pids_[i]);
      stopped_since_ = stopped_.size() == 1 ? Clock::now() : stopped_since_;
      ++halted_;
    } else if (!stopped_.empty()) {
      wake_first();
    }
    ping(static_cast<std::uint32_t>(random_() % pids_.size()));
  }
  void wake_first() {
    kill(stopped_.front(), SIGCONT);
    stopped_.erase(stopped_.begin());
    stopped_since_ = Clock::now();
  }
  // The id of the request names the peer and its life: when the ping ends, that life may be over.
  void ping(std::uint32_t i) {
    if (!up(i) || pings_open_ >= kTargetSlots) {
      return;
    }
    Message message{i, lives_[i], ++pings_, {}};
    message.fill();
    const std::uint64_t slot = pings_ % kTargetSlots;
    std::memcpy(queue_->send_slot(slot), &message, sizeof message);
    if (queue_->post_send(slot, 1'000'000 + (std::uint64_t{i} << 32 | lives_[i]),
                          shared->peers[i].qpn)) {
      ++pings_open_;
    }
  }
  void take(const ibv_wc& done) {
    if (done.wr_id < kTargetSlots) {
      demand(done.status == IBV_WC_SUCCESS, "a receive of the target failed");
      Message message{};
      std::memcpy(&message, queue_->receive_slot(done.wr_id), sizeof message);
      queue_->post_receive(done.wr_id);
      demand(message.peer < pids_.size() && message.whole(), "a message is damaged");
      // A late message of a former life is no mistake, and there is no account to enter it in.
      if (message.life == lives_[message.peer]) {
        std::vector<bool>& seen = seen_[message.peer];
        seen.resize(std::max<std::size_t>(seen.size(), message.sequence + 1));
        demand(!seen[message.sequence], "a message came twice");
        seen[message.sequence] = true;
      }
      ++messages_;
      return;
    }
    --pings_open_;
    const auto i = static_cast<std::uint32_t>((done.wr_id - 1'000'000) >> 32);
    const auto life = static_cast<std::uint32_t>(done.wr_id - 1'000'000);
    if (done.status == IBV_WC_SUCCESS) {
      ++pings_good_;
      return;
    }
    ++pings_bad_;
    // bad queue pair, restarted, unresponsive or unreachable; and only of a peer that is dead.
    const std::uint32_t code = done.vendor_err;
    demand(code == 8 || code == 9 || code == 13 || code == 15, "a ping ended for another reason");
    demand(life != lives_[i] || shared->stop, "a ping to the living failed");
  }
  // One look at everything that may happen, with a short sleep if nothing did.
  void work_once() {
    // A process that is stopped for as long as dead ones are waited for would count as dead.
    while (!stopped_.empty() && Clock::now() - stopped_since_ > std::chrono::seconds(1)) {
      wake_first();
    }
    ibv_wc done{};
    bool idle = true;
    for (int i = 0; i < 64 && queue_->poll(done); ++i) {
      idle = false;
      take(done);
    }
    if (idle) {
      usleep(100);
    }
  }
  void work_for(std::chrono::milliseconds time) {
    for (const auto end = Clock::now() + time; Clock::now() < end;) {
      work_once();
    }
  }
  // Goes on working until done() or a minute has passed, which no healthy run needs.
  template <class Done>
  void wait_until(Done&& done, const char* otherwise) {
    const auto end = Clock::now() + std::chrono::seconds(60);
    while (!done()) {
      work_once();
      demand(Clock::now() < end, otherwise);
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<QueuePair> queue_;
  // By peer: the sequence numbers of its present life that have arrived.
  std::vector<std::vector<bool>> seen_;
  std::vector<pid_t> pids_;
  // By peer: the number of its present life, from 1.
  std::vector<std::uint32_t> lives_ = std::vector<std::uint32_t>(256);
  std::vector<pid_t> stopped_;
  Clock::time_point stopped_since_;  // the first of them
  std::uint64_t messages_ = 0;
  std::uint64_t pings_ = 0;
  std::uint64_t pings_open_ = 0;
  std::uint64_t pings_good_ = 0;
  std::uint64_t pings_bad_ = 0;
  int killed_ = 0;
  int halted_ = 0;
};

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

}  // namespace
}  // namespace weft::conformance

int main(int argc, char** argv) {
  using namespace weft::conformance;
  demand(argc >= 4, "usage: storm PEERS ROUNDS SEED [calm] [impatient]");
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared = new (memory) Shared{};
  for (int i = 4; i < argc; ++i) {
    (std::strcmp(argv[i], "calm") == 0 ? shared->mode.calm : shared->mode.impatient) = true;
  }
  // What the process keeps for good is there after a first device.
  { const QueuePair first(8, 64); }
  const std::ptrdiff_t before = open_descriptors();
  const auto peers = static_cast<std::uint32_t>(std::atoi(argv[1]));
  const int result =
      Target(peers, static_cast<std::uint64_t>(std::atoll(argv[3]))).run(std::atoi(argv[2]));
  std::uint64_t not_ready = 0;
  for (const Peer& peer : shared->peers) {
    not_ready += peer.not_ready;
  }
  std::printf("%llu sends met a target that was not ready\n",
              static_cast<unsigned long long>(not_ready));
  demand((not_ready > 0) == shared->mode.impatient, "the target was always ready");
  // Rings to processes that have ended go as soon as the device hears of it.
  std::ptrdiff_t after = open_descriptors();
  for (int i = 0; i < 1000 && after > before; ++i) {
    usleep(10'000);
    after = open_descriptors();
  }
  if (after > before) {
    std::fprintf(stderr, "%td descriptors before, %td after\n", before, after);
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      std::fprintf(stderr, "  %s\n", std::filesystem::read_symlink(entry, gone).c_str());
    }
  }
  demand(after <= before, "descriptors leak");
  return result;
}
