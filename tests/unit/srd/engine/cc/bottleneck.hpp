// Owns a toy network in virtual time: senders that share one FIFO queue with marking and trimming.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <vector>

#include "srd/base/rng.hpp"
#include "srd/engine/cc/congestion_control.hpp"

namespace weft::srd::testing {

// Sizes in bytes, times in nanoseconds. The queue is where the bytes are; links beside it only
// delay. The numbers are those of the reference network: a bandwidth-delay product of 42 packets,
// marking between 9 and 35 packets, room for 43.
struct BottleneckConfig {
  Rate rate = Rate::gbps(100);
  Duration base_rtt{14'023};
  Bytes mtu = 4150;
  Bytes mark_low = 37'350;
  Bytes mark_high = 145'250;
  Bytes limit = 178'450;     // beyond it packets are trimmed
  double random_loss = 0;    // of the packets, whatever the queue holds
  std::uint16_t paths = 64;  // all through the one queue
  std::uint64_t seed = 1;
};

// Congestion control alone, without the engine: each packet ends acknowledged, trimmed or lost, and
// the control hears of that when a real sender would. Runs of one seed are equal.
class Bottleneck {
 public:
  Bottleneck(BottleneckConfig config, std::string_view control, int senders)
      : config_(config), rng_(config.seed) {
    CcTuning tuning;
    tuning.line_rate = config.rate;
    tuning.base_rtt = config.base_rtt;
    tuning.mtu_wire = config.mtu;
    tuning.trimming = true;
    for (int i = 0; i < senders; ++i) {
      senders_.push_back({make_congestion_control(control, tuning).value()});
    }
  }

  // Lets the senders that are not stopped send all they may.
  void run(Duration time) {
    const TimePoint end = now_ + time;
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      send(i);
    }
    while (!events_.empty() && events_.top().at <= end) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      take(event);
    }
    now_ = end;
  }
  void stop(std::size_t sender) { senders_[sender].stopped = true; }

  // Counts since the last reset.
  void reset_counts() {
    for (Sender& s : senders_) {
      s.delivered = 0;
    }
    trimmed_ = packets_ = 0;
  }
  [[nodiscard]] Bytes delivered(std::size_t sender) const { return senders_[sender].delivered; }
  // Delivered bytes over what the queue serves in `over`, which has to be the time since the last
  // reset.
  [[nodiscard]] double goodput(Duration over) const {
    double sum = 0;
    for (const Sender& s : senders_) {
      sum += static_cast<double>(s.delivered);
    }
    return sum / static_cast<double>(config_.rate.bytes_in(over));
  }
  // Jain's index over what the senders delivered: 1 is perfectly fair.
  [[nodiscard]] double fairness() const {
    double sum = 0;
    double squares = 0;
    for (const Sender& s : senders_) {
      const auto x = static_cast<double>(s.delivered);
      sum += x;
      squares += x * x;
    }
    return sum * sum / squares / static_cast<double>(senders_.size());
  }
  [[nodiscard]] double trimmed_share() const {
    return static_cast<double>(trimmed_) /
           static_cast<double>(std::max<std::uint64_t>(packets_, 1));
  }
  [[nodiscard]] const CongestionControl& control(std::size_t sender) const {
    return senders_[sender].cc;
  }

 private:
  // One sender. `in_flight` and `delivered` in bytes; it is paced until `paced_until`, and
  // `waiting` while a wake event for that time is posted.
  struct Sender {
    CongestionControl cc;
    Bytes in_flight = 0;
    Bytes delivered = 0;
    TimePoint paced_until{};
    bool waiting = false;
    bool stopped = false;
    std::uint16_t path = 0;
  };
  enum class Kind : std::uint8_t { arrive, depart, ack, trimmed, lost, wake };
  struct Event {
    TimePoint at;
    // Ties are broken by age, so that runs can be repeated.
    std::uint64_t order;
    Kind kind;
    std::size_t sender;
    TimePoint sent;
    PathId path;
    bool marked;
    // Reversed: std::priority_queue gives the greatest first.
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  void post(Kind kind, TimePoint at, Event event) {
    event.kind = kind;
    event.at = at;
    event.order = order_++;
    events_.push(event);
  }

  // Sends as long as window and pacing allow. One packet is allowed whatever the window is, as in
  // the engine.
  void send(std::size_t i) {
    Sender& s = senders_[i];
    while (!s.stopped && s.in_flight + config_.mtu <= std::max(s.cc.window(), config_.mtu)) {
      if (now_ < s.paced_until) {
        if (!s.waiting) {
          s.waiting = true;
          post(Kind::wake, s.paced_until, {now_, 0, Kind::wake, i, now_, PathId{}, false});
        }
        return;
      }
      if (const Rate rate = s.cc.pacing_rate(); !rate.is_zero()) {
        s.paced_until = now_ + rate.time_for(config_.mtu);
      }
      s.in_flight += config_.mtu;
      s.path = static_cast<std::uint16_t>((s.path + 1) % config_.paths);
      // A little spread, as different cables give it, so that senders are not in step.
      const TimePoint arrival = now_ + config_.base_rtt / 2 + Duration{rng_.below(400)};
      post(Kind::arrive, arrival, {now_, 0, Kind::arrive, i, now_, PathId{s.path}, false});
    }
  }

  void take(Event event) {
    Sender& s = senders_[event.sender];
    const TimePoint back = now_ + config_.base_rtt / 2;
    switch (event.kind) {
      case Kind::arrive:
        ++packets_;
        if (rng_.chance(config_.random_loss)) {
          // A gap shows only when later packets have been acknowledged; of a trimmed packet the
          // header tells.
          post(Kind::lost, back + config_.base_rtt, event);
        } else if (queued_ + config_.mtu > config_.limit) {
          ++trimmed_;
          post(Kind::trimmed, back, event);
        } else {
          queued_ += config_.mtu;
          free_at_ = std::max(free_at_, now_) + config_.rate.time_for(config_.mtu);
          post(Kind::depart, free_at_, event);
        }
        return;
      case Kind::depart: {
        queued_ -= config_.mtu;
        const double over = static_cast<double>(queued_) - static_cast<double>(config_.mark_low);
        event.marked =
            rng_.chance(over / static_cast<double>(config_.mark_high - config_.mark_low));
        post(Kind::ack, back, event);
        return;
      }
      case Kind::ack: {
        s.in_flight -= config_.mtu;
        s.delivered += config_.mtu;
        AckSample sample;
        sample.now = now_;
        sample.acked = config_.mtu;
        sample.in_flight = s.in_flight;
        sample.rtt = now_ - event.sent;
        sample.rtt_valid = true;
        sample.congested = event.marked;
        sample.path = event.path;
        s.cc.on_ack(sample);
        break;
      }
      case Kind::trimmed:
      case Kind::lost:
        s.in_flight -= config_.mtu;
        s.cc.on_loss(now_, config_.mtu,
                     event.kind == Kind::trimmed ? LossKind::trimmed : LossKind::gap, event.path);
        break;
      case Kind::wake:
        s.waiting = false;
        break;
    }
    send(event.sender);
  }

  BottleneckConfig config_;
  Rng rng_;
  std::vector<Sender> senders_;
  std::priority_queue<Event> events_;
  TimePoint now_{};
  TimePoint free_at_{};
  Bytes queued_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t trimmed_ = 0;
  std::uint64_t packets_ = 0;
};

}  // namespace weft::srd::testing
