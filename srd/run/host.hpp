// Owns a Machine with its PacketIo in a real process: who makes progress, the lock around it, and
// sleeping.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "srd/io/packet_io.hpp"
#include "srd/io/posix.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/idle.hpp"
#include "srd/run/poller.hpp"
#include "srd/run/try_lock.hpp"

namespace weft::srd {

// Progress is made in the threads that call; BackgroundThread takes over while nobody does. After a
// fork the child must call abandon() before anything else and may then only destroy the Host: rings
// have one consumer.
template <class M>
class Host {
 public:
  Host(std::unique_ptr<M> machine, std::unique_ptr<PacketIo> io, UniqueFd kick)
      : machine_(std::move(machine)),
        io_(std::move(io)),
        kick_(std::move(kick)),
        poller_(*machine_, *io_) {}

  [[nodiscard]] static Result<std::unique_ptr<Host>> create(std::unique_ptr<M> machine,
                                                            std::unique_ptr<PacketIo> io) {
    auto kick = create_doorbell();
    if (!kick) {
      return tl::unexpected(kick.error());
    }
    return std::make_unique<Host>(std::move(machine), std::move(io), std::move(*kick));
  }

  // Progress if nobody else is at it. Returns how many packets moved. The one that finds the lock
  // taken leaves a mark, so that what it came for is looked at before the holder goes away.
  std::size_t poll() {
    return poll([](M&, TimePoint) {});
  }
  // The same with f(machine, now) between receiving and sending: completions are taken, answers
  // posted, and leave in the same round.
  template <class F>
  std::size_t poll(F&& f) {
    if (!lock_.try_lock_or_mark()) {
      return 0;
    }
    Held held(lock_);
    const std::size_t work = poll_locked(f);
    return work + leave(held, [&] { return poll_locked(f); });
  }

  // Lets what was just posted leave, and does not look for what has arrived: cheaper than poll(),
  // and who posts often gets more done per poll. Somebody has to poll as well.
  void push() {
    if (!lock_.try_lock_or_mark()) {
      return;
    }
    Held held(lock_);
    push_locked();
    leave(held);
  }

  // Runs f(machine, now) with the machine to itself, then sends what that made ready. Not from
  // where held_here().
  template <class F>
  decltype(auto) with(F&& f) {
    lock_.lock();
    const TimePoint now = monotonic_now();
    struct SendAfter {
      Host& host;
      TimePoint now;
      Held held;
      ~SendAfter() {
        host.send_after(now);
        host.leave(held);
      }
    } after{*this, now, Held(lock_)};
    return std::forward<F>(f)(*machine_, now);
  }
  // The same without sending: for taking completions.
  template <class F>
  decltype(auto) look(F&& f) {
    lock_.lock();
    struct LeaveAfter {
      Host& host;
      Held held;
      ~LeaveAfter() { host.leave(held); }
    } after{*this, Held(lock_)};
    return std::forward<F>(f)(*machine_);
  }
  // This thread is in one of these already, below a signal handler.
  [[nodiscard]] bool held_here() const { return lock_.held_here(); }

  // Polls until done() says so, sleeping when that takes long. False: `until` passed first.
  template <class Done>
  bool run_until(Done&& done, TimePoint until) {
    Idler idler(idle_limits_);
    while (!done()) {
      const std::size_t work = poll();
      const TimePoint now = monotonic_now();
      if (now >= until) {
        return done();
      }
      if (work != 0) {
        idler.worked();
      } else if (idler.pause(now)) {
        sleep(until);
      }
    }
    return true;
  }

  // Blocks until a packet arrives, a timer is due, somebody kicks, or `until`.
  void sleep(TimePoint until) {
    const TimePoint now = monotonic_now();
    lock_.lock();
    if (abandoned_) {
      lock_.unlock();
      return;
    }
    const TimePoint wake =
        std::min({until, poller_.next_timeout(), poller_.blocked() ? now + kBlockedSleep : kNever,
                  io_->wait_fd() < 0 ? now + kBlindSleep : kNever});
    const bool asleep = wake > now && io_->arm();
    Duration remaining{};
    armed_ = armed_ || asleep;
    sleeper_wakes_ = wake;
    if (!lock_.unlock_unless_marked()) {  // somebody came meanwhile: poll instead
      if (std::exchange(armed_, false)) {
        io_->disarm();
      }
      lock_.unlock();
      return;
    }
    if (!asleep) {
      return;
    }
    wait(io_->wait_fd(), wake == kNever ? nullptr : &(remaining = wake - now));
    lock_.lock();
    Held held(lock_);
    if (std::exchange(armed_, false)) {
      io_->disarm();
    }
    leave(held);
  }
  // Sleeps deaf to packets: while another thread polls.
  void sleep_deaf(Duration time) { wait(-1, &time); }
  // Wakes whoever sleeps here.
  void kick() { ring_doorbell(kick_.get()); }

  // Somebody is about to sleep until the machine wakes it, M::awaits_events(). Until that has
  // happened a background thread does not rely on polls, which may be the last.
  void expect_events() {
    lock_.lock();
    Held held(lock_);
    expected_.store(nanoseconds(monotonic_now()), std::memory_order_relaxed);
    awaits_.store(true, std::memory_order_relaxed);
    note_events();
    leave(held);
  }
  enum class Awaited : std::uint8_t { nothing, soon, late };
  // Late: it goes on polling for so long that it may not sleep at all.
  [[nodiscard]] Awaited awaited(TimePoint now) const {
    if (!awaits_.load(std::memory_order_relaxed)) {
      return Awaited::nothing;
    }
    return now - time_at(Duration{expected_.load(std::memory_order_relaxed)}) < kSoon
               ? Awaited::soon
               : Awaited::late;
  }

  // When somebody polled last; a background thread stays away while that is fresh.
  [[nodiscard]] TimePoint last_poll() const {
    return time_at(Duration{last_poll_.load(std::memory_order_relaxed)});
  }
  void abandon() { abandoned_ = true; }
  [[nodiscard]] PacketIo& io() { return *io_; }
  void set_idle_limits(const IdleLimits& limits) { idle_limits_ = limits; }

 private:
  static constexpr Duration kBlockedSleep = std::chrono::microseconds{50};
  static constexpr Duration kBlindSleep = std::chrono::microseconds{50};
  static constexpr Duration kSoon = std::chrono::milliseconds{1};
  static constexpr int kMostRounds = 8;  // for others who keep coming; they poll, then

  // The lock, which this thread has already. It must not outlive an unwinding either: a cancelled
  // thread would take the machine along.
  class Held {
   public:
    explicit Held(TryLock& lock) : lock_(&lock) {}
    ~Held() {
      if (lock_ != nullptr) {
        lock_->unlock();
      }
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    [[nodiscard]] bool let_go() {
      if (lock_->unlock_unless_marked()) {
        lock_ = nullptr;
      }
      return lock_ == nullptr;
    }

   private:
    TryLock* lock_;
  };

  // Leaves when nobody has come in vain; rounds for those who have come first.
  template <class Round>
  std::size_t leave(Held& held, Round&& round) {
    std::size_t work = 0;
    for (int rounds = 0; !held.let_go() && rounds < kMostRounds; ++rounds) {
      work += round();
    }
    return work;
  }
  void leave(Held& held) {
    leave(held, [this] { return abandoned_ ? 0 : poller_.poll(monotonic_now()); });
  }

  void send_after(TimePoint now) {
    if (abandoned_) {
      return;
    }
    poller_.transmit(now);
    if (armed_ && poller_.next_timeout() < sleeper_wakes_) {
      kick();  // the sleeper does not know of this deadline
    }
  }
  void push_locked() {
    if (abandoned_) {
      return;
    }
    rouse_sleeper();
    const TimePoint now = monotonic_now();
    last_poll_.store(nanoseconds(now), std::memory_order_relaxed);
    poller_.transmit(now);
  }
  void note_events() {
    if constexpr (requires { machine_->awaits_events(); }) {
      awaits_.store(machine_->awaits_events(), std::memory_order_relaxed);
    } else {
      awaits_.store(false, std::memory_order_relaxed);
    }
  }
  void rouse_sleeper() {
    if (awaits_.load(std::memory_order_relaxed)) [[unlikely]] {
      note_events();
    }
    if (armed_) {  // somebody else sleeps on this: it shall see
                   // that we are here now, and watch
                   // over us
      armed_ = false;
      io_->disarm();
      kick();
    }
  }
  template <class F>
  std::size_t poll_locked(F& f) {
    if (abandoned_) {
      return 0;
    }
    rouse_sleeper();
    const TimePoint now = monotonic_now();
    last_poll_.store(nanoseconds(now), std::memory_order_relaxed);
    const std::size_t received = poller_.receive(now);
    f(*machine_, now);
    return received + poller_.transmit(now);
  }
  void wait(int packets_fd, const Duration* time) {
    pollfd fds[2] = {{kick_.get(), POLLIN, 0}, {packets_fd, POLLIN, 0}};
    timespec timeout{};
    if (time != nullptr) {
      timeout.tv_sec = nanoseconds(*time) / 1'000'000'000;
      timeout.tv_nsec = nanoseconds(*time) % 1'000'000'000;
    }
    const int ready =
        ::ppoll(fds, packets_fd < 0 ? 1 : 2, time == nullptr ? nullptr : &timeout, nullptr);
    if (ready > 0 && fds[0].revents != 0) {
      clear_doorbell(kick_.get());
    }
  }

  std::unique_ptr<M> machine_;
  std::unique_ptr<PacketIo> io_;
  UniqueFd kick_;
  TryLock lock_;
  std::atomic<bool> abandoned_{false};
  std::atomic<std::int64_t> last_poll_{0};
  std::atomic<bool> awaits_{false};
  std::atomic<std::int64_t> expected_{0};
  bool armed_ = false;  // somebody sleeps on the packets
  TimePoint sleeper_wakes_ = kNever;
  IdleLimits idle_limits_;
  Poller<M> poller_;
};

}  // namespace weft::srd
