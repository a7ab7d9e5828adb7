// Owns a Machine with its PacketIo in a real process: its clock, the lock around it, and threads
// that sleep until it has something to do.
//
// Progress is made by the thread that calls:
// - A thread that polls receives, serves timers and sends: poll(). As long as its last poll is
//   recent, no other thread needs to look.
// - A thread that posted work sends it: push() if some thread polls, push_unpolled() if none does,
//   with() around a call of the Machine itself.
// - A thread that polled and now waits outside of this class, for instance by reading a byte of its
//   own memory, hands over: from then on the carrier wakes sleepers. linger() polls for a moment
//   before it does so.
// - BackgroundThread does all of it while no thread polls: watch(). It sleeps lightly while the
//   application polls, deeply otherwise; kick() wakes it.
// There is one lock. Pollers only try it: a thread that finds it taken leaves a mark, and the
// holder makes a round for that thread before it releases the lock. So no thread waits for another
// one's progress, and no packet or deadline is missed between the last look at the carrier and the
// sleep that follows. shared_progress.hpp has the protocol, sleep_state.hpp what it knows of the
// sleepers, and shared_progress_model_test tries all their interleavings.
// A signal handler may interrupt the thread that holds the lock: held_here() says so. There only
// poll() and push() are allowed, because they leave a mark instead of waiting.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "srd/io/posix.hpp"
#include "srd/net/packet_io.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/poller.hpp"
#include "srd/run/shared_progress.hpp"
#include "srd/run/spin_rule.hpp"
#include "srd/run/try_lock.hpp"

namespace weft::srd {

// After a fork the child must call abandon() before anything else and may then only destroy the
// Host: rings have one consumer.
template <class M>
class Host {
 public:
  Host(std::unique_ptr<M> machine, std::unique_ptr<PacketIo> io, UniqueFd bell)
      : machine_(std::move(machine)),
        io_(std::move(io)),
        bell_(std::move(bell)),
        poller_(*machine_, *io_),
        world_{*this},
        progress_(world_) {}

  [[nodiscard]] static Result<std::unique_ptr<Host>> create(std::unique_ptr<M> machine,
                                                            std::unique_ptr<PacketIo> io) {
    auto bell = create_event_fd();
    if (!bell) {
      return tl::unexpected(bell.error());
    }
    return std::make_unique<Host>(std::move(machine), std::move(io), std::move(*bell));
  }

  // One round of progress; returns how many packets moved. If another thread holds the lock, that
  // thread makes this round as well, and 0 is returned here.
  std::size_t poll() {
    return poll([](M&, TimePoint) {});
  }
  // The same with f(machine, now) between receiving and sending: f takes completions and posts
  // answers, which are sent in the same round.
  template <class F>
  std::size_t poll(F&& f) {
    return progress_.make(Caller::polling, [&] { return poll_locked(f); });
  }
  // Within such an f: the round before this one may have left something to send.
  [[nodiscard]] bool left_unsent() const { return poller_.left_unsent(); }
  // The same for the background thread: it does not count as a poll of the application.
  std::size_t watch() {
    return progress_.make(Caller::passing, [this] { return watch_locked(); });
  }

  // Sends what was just posted and does not receive. That is cheaper than poll(), and the next poll
  // then finds more at once. Some thread has to poll as well. True: the program seems to wait for
  // answers by reading its own memory, and should linger().
  bool push() {
    bool lingers = false;
    (void)progress_.make(Caller::polling, [&] {
      if (!abandoned_) {
        lingers = note_post();
        note_events();
        (void)poller_.transmit(note_poll());
      }
      return std::size_t{0};
    });
    return lingers;
  }
  // push() for a program that tells of its work by a command: `fetch(machine)` takes it first.
  // Waits for the lock. Not from where held_here().
  template <class F>
  bool post(F&& fetch) {
    Held held(progress_.enter());
    bool lingers = false;
    if (!abandoned_) {
      lingers = note_post();
      note_events();
      std::forward<F>(fetch)(*machine_);
      (void)poller_.transmit(note_poll());
    }
    progress_.leave(held);
    return lingers;
  }
  // push() for a program that never polls through this class: waits for the lock, and does not
  // count as a poll. Not where held_here().
  bool push_unpolled() {
    Held held(progress_.enter());
    const bool lingers = !abandoned_ && note_post();
    send();
    progress_.leave(held);
    return lingers;
  }

  // Runs f(machine, now) under the lock, then sends what f made ready. Not where held_here(). The
  // lock is released by a destructor, so that it is also released when the thread is cancelled.
  template <class F>
  decltype(auto) with(F&& f) {
    struct SendAfter {
      Host& host;
      Held held;
      ~SendAfter() {
        host.send();
        host.progress_.leave(held);
      }
    } after{*this, Held(progress_.enter())};
    return std::forward<F>(f)(*machine_, now());
  }
  // The same without sending: for taking completions.
  template <class F>
  decltype(auto) look(F&& f) {
    struct LeaveAfter {
      Host& host;
      Held held;
      ~LeaveAfter() { host.progress_.leave(held); }
    } after{*this, Held(progress_.enter())};
    return std::forward<F>(f)(*machine_);
  }
  // This thread is inside one of the calls above: a signal handler has interrupted it there.
  [[nodiscard]] bool held_here() const { return progress_.lock().held_here(); }

  // Blocks until a packet arrives, a timer is due, another thread calls kick(), or `until`. It may
  // return early; the caller polls then. `unless()` is evaluated under the lock: a thread that
  // changes its condition and then calls kick() is not missed.
  template <class Unless>
  void sleep(TimePoint until, Unless&& unless) {
    progress_.sleep(until, Depth::deep, [&] { return abandoned_ || unless(); });
  }
  void sleep(TimePoint until) {
    sleep(until, [] { return false; });
  }
  // The same while another thread polls: packets and timers are that thread's, until it hands over.
  template <class Unless>
  void sleep_lightly(TimePoint until, Unless&& unless) {
    progress_.sleep(until, Depth::light, [&] { return abandoned_ || handed_over_ || unless(); });
  }
  // Wakes all threads that sleep here.
  void kick() { progress_.rouse_all(); }

  // For a program that has posted and waits for the answer by reading its own memory: polls until a
  // peer's data have been placed and nothing is due within kOwed, for kLinger at the most, and
  // hands over.
  void linger() {
    const TimePoint begin = monotonic_now();
    bool placed = false;
    for (TimePoint now = begin; now - begin < kLinger; now = monotonic_now()) {
      bool settled = false;
      const std::size_t work = progress_.make(Caller::lingering, [&] {
        const std::size_t moved = abandoned_ ? 0 : poller_.poll(this->now());
        placed = note_placed() || rule_.unseen() || placed;
        settled = poller_.next_timeout() > last_now_ + kOwed;
        return moved;
      });
      if (placed && settled && work == 0) {
        break;
      }
      if (now - begin >= kYieldAfter) {
        give_way();  // the peer may need this core
      } else if (work == 0) {
        __builtin_ia32_pause();
      }
    }
    hand_over([&] {
      rule_.lingered(/*in_vain=*/!placed);
      return false;
    });
  }
  // For one that knows that it will not poll for a while.
  void hand_over() {
    hand_over([] { return false; });
  }
  // The program has taken completions, `receives`: one of a receive among them, by which it knows
  // of data that came, whoever placed them; learning that waits for no other thread. If it is one
  // that waits by reading its own memory, and nothing of its own is outstanding, it will not poll
  // any more: hand over now.
  void took_completions(bool receives) {
    if (receives && (watcher_placed_.load(std::memory_order_relaxed) ||
                     spun_.load(std::memory_order_relaxed) != 0)) [[unlikely]] {
      bool noted = false;
      (void)progress_.make(Caller::passing, [this, &noted] {
        if (std::exchange(noted, true)) {
          return watch_locked();  // a round for a thread that found the lock taken by this one
        }
        rule_.takes_receive();
        watcher_placed_.store(false, std::memory_order_relaxed);
        if (!rule_.spins()) {
          spun_.store(0, std::memory_order_relaxed);
        }
        return std::size_t{0};
      });
    }
    if (spun_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      hand_over([this] { return !idle(); });
    }
  }
  // The program waits in that way at present: its last post that showed it is recent.
  [[nodiscard]] bool program_spins(TimePoint now) const {
    constexpr Duration kPresent = std::chrono::milliseconds{100};
    return now - time_at(Duration{spun_.load(std::memory_order_relaxed)}) < kPresent;
  }

  // A thread of the program is about to sleep until the machine wakes it (M::awaits_events()).
  // Until that has happened the background thread does not rely on polls: each may be the last.
  void expect_events() {
    Held held(progress_.enter());
    expected_.store(nanoseconds(monotonic_now()), std::memory_order_relaxed);
    awaits_.store(true, std::memory_order_relaxed);
    note_events();
    progress_.leave(held);
  }
  enum class Awaited : std::uint8_t { nothing, soon, late };
  // Late: the program has gone on polling for longer than kSoon, and may not sleep at all.
  [[nodiscard]] Awaited awaited(TimePoint now) const {
    if (!awaits_.load(std::memory_order_relaxed)) {
      return Awaited::nothing;
    }
    return now - time_at(Duration{expected_.load(std::memory_order_relaxed)}) < kSoon
               ? Awaited::soon
               : Awaited::late;
  }

  // When a thread polled last.
  [[nodiscard]] TimePoint last_poll() const {
    return time_at(Duration{last_poll_.load(std::memory_order_relaxed)});
  }
  // That thread handed over: BackgroundThread takes over without waiting for kSilence.
  [[nodiscard]] bool handed_over() const { return handed_over_.load(std::memory_order_relaxed); }
  void abandon() { abandoned_ = true; }
  [[nodiscard]] PacketIo& io() { return *io_; }

 private:
  // How long to sleep between looks at a carrier that has no room, or no descriptor to wait on.
  static constexpr Duration kUnheard = std::chrono::microseconds{50};
  static constexpr Duration kSoon = std::chrono::milliseconds{1};
  // Over shared memory a peer that lingers as well answers within 1 to 2 us: spin for that long.
  // After that, yield: the peer may share our core. A peer that has to be woken takes 20 to 40 us;
  // linger for longer than that, or each side would have stopped looking when the other answers.
  static constexpr Duration kYieldAfter = std::chrono::microseconds{3};
  static constexpr Duration kLinger = std::chrono::microseconds{50};
  // A deadline this close (an acknowledgement that is owed) is served before handing over: leaving
  // it to a sleeper would cost a wake-up.
  static constexpr Duration kOwed = std::chrono::microseconds{5};

  struct World {
    using Lock = TryLock;
    Host& host;

    [[nodiscard]] TimePoint now() const { return host.now(); }
    [[nodiscard]] std::size_t round() const { return host.watch_locked(); }
    [[nodiscard]] TimePoint next_look() const { return host.next_look(); }
    [[nodiscard]] bool arm() const { return host.io_->arm(); }
    void disarm() const { host.io_->disarm(); }
    void ring_bell() const { signal_event_fd(host.bell_.get()); }
    void clear_bell() const { clear_event_fd(host.bell_.get()); }
    [[nodiscard]] bool wait(TimePoint until) const { return host.wait(until); }
    void make_way() const { give_way(); }
  };
  using Progress = SharedProgress<World>;
  using Held = typename Progress::Held;
  using Caller = typename Progress::Caller;
  using Depth = typename Progress::Depth;

  // --- With the lock.
  // A Machine's time never goes backwards; the clock may, by a microsecond, from thread to thread.
  [[nodiscard]] TimePoint now() { return last_now_ = std::max(last_now_, monotonic_now()); }
  [[nodiscard]] TimePoint next_look() {
    const bool looks_itself = poller_.blocked() || io_->wait_fd() < 0;
    return looks_itself ? std::min(poller_.next_timeout(), now() + kUnheard)
                        : poller_.next_timeout();
  }
  template <class F>
  std::size_t poll_locked(F& f) {
    if (abandoned_) {
      return 0;
    }
    rule_.polls();
    note_events();
    const TimePoint now = note_poll();
    const std::size_t received = poller_.receive(now);
    if (received != 0 && note_placed()) {
      rule_.placed_by_poll();
    }
    f(*machine_, now);
    return received + poller_.transmit(now);
  }
  std::size_t watch_locked() {
    if (abandoned_) {
      return 0;
    }
    const std::size_t work = poller_.poll(now());
    if (work != 0 && note_placed()) {
      rule_.placed_by_watcher();
      watcher_placed_.store(true, std::memory_order_relaxed);
    }
    return work;
  }
  // Reads the clock again: the caller's f() may have taken long, and the sending time of a packet
  // starts its round-trip measurement.
  void send() {
    if (!abandoned_) {
      (void)poller_.transmit(now());
    }
  }
  TimePoint note_poll() {
    const TimePoint time = now();
    last_poll_.store(nanoseconds(time), std::memory_order_relaxed);
    handed_over_.store(false, std::memory_order_relaxed);
    return time;
  }
  [[nodiscard]] bool note_post() {
    const bool lingers = rule_.posts();
    if (rule_.spins()) [[unlikely]] {
      spun_.store(nanoseconds(now()), std::memory_order_relaxed);
    } else if (spun_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      spun_.store(0, std::memory_order_relaxed);
    }
    return lingers;
  }
  // Data of peers have been placed since the last call.
  [[nodiscard]] bool note_placed() {
    if constexpr (TellsOfMemory<M>) {
      const std::uint64_t bytes = machine_->placed_bytes();
      return std::exchange(placed_bytes_, bytes) != bytes;
    } else {
      return false;
    }
  }
  [[nodiscard]] bool idle() const {
    if constexpr (TellsOfMemory<M>) {
      return machine_->idle();
    } else {
      return false;
    }
  }
  void note_events() {
    if (awaits_.load(std::memory_order_relaxed)) [[unlikely]] {
      if constexpr (TellsOfEvents<M>) {
        awaits_.store(machine_->awaits_events(), std::memory_order_relaxed);
      } else {
        awaits_.store(false, std::memory_order_relaxed);
      }
    }
  }

  // --- Without it.
  template <class Unless>
  void hand_over(Unless&& unless) {
    progress_.hand_over([&] {
      if (abandoned_ || unless()) {
        return true;
      }
      handed_over_.store(true, std::memory_order_relaxed);
      return false;
    });
  }
  [[nodiscard]] bool wait(TimePoint until) {
    pollfd fds[2] = {{bell_.get(), POLLIN, 0}, {io_->wait_fd(), POLLIN, 0}};
    timespec timeout{};
    if (until != kNever) {
      const std::int64_t time = std::max(nanoseconds(until - monotonic_now()), std::int64_t{0});
      timeout.tv_sec = time / 1'000'000'000;
      timeout.tv_nsec = time % 1'000'000'000;
    }
    const int ready =
        ::ppoll(fds, fds[1].fd < 0 ? 1 : 2, until == kNever ? nullptr : &timeout, nullptr);
    return ready > 0 && fds[0].revents != 0;
  }

  std::unique_ptr<M> machine_;
  std::unique_ptr<PacketIo> io_;
  UniqueFd bell_;
  std::atomic<bool> abandoned_{false};
  std::atomic<std::int64_t> last_poll_{0};
  std::atomic<bool> handed_over_{false};
  std::atomic<std::int64_t> spun_{0};  // the last post of a program that spins
  // Data of peers that the program has not been seen to find: see took_completions().
  std::atomic<bool> watcher_placed_{false};
  std::atomic<bool> awaits_{false};
  std::atomic<std::int64_t> expected_{0};
  TimePoint last_now_{};
  std::uint64_t placed_bytes_ = 0;
  SpinRule rule_;
  Poller<M> poller_;
  World world_;
  Progress progress_;
};

}  // namespace weft::srd
