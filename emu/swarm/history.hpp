// Owns the record of what happened to hosts and network during a run. The judge asks it whether the
// outcome of a request has an explanation: "unresponsive", for instance, only after a long silence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "srd/base/time.hpp"

namespace weft::swarm {

// For each key, whether a condition holds now, and when it last ended.
template <class Key>
class Episodes {
 public:
  void begin(const Key& key) { now_.insert(key); }
  void end(TimePoint now, const Key& key) {
    if (now_.erase(key) != 0) {
      last_[key] = now;
    }
  }
  // Whether the condition has held at any time since then.
  [[nodiscard]] bool was(const Key& key, TimePoint since) const {
    const auto last = last_.find(key);
    return now_.contains(key) || (last != last_.end() && last->second >= since);
  }

 private:
  std::set<Key> now_;
  std::map<Key, TimePoint> last_;  // its end
};

// Filled by the Run as it carries out steps and sees packets; asked by the Judge. All times are
// those at which the event happened, not those at which an application learned of it, except where
// receives() says otherwise.
class History {
 public:
  explicit History(std::uint32_t hosts) : hosts_(hosts), silences_(std::size_t{hosts} * hosts) {}

  // --- Endpoints
  void endpoint_unavailable(std::uint32_t host, std::uint32_t endpoint) {
    unavailable_.begin({host, endpoint});
  }
  void endpoint_available(TimePoint now, std::uint32_t host, std::uint32_t endpoint) {
    unavailable_.end(now, {host, endpoint});
  }
  [[nodiscard]] bool was_unavailable(std::uint32_t host, std::uint32_t endpoint,
                                     TimePoint since) const {
    return unavailable_.was({host, endpoint}, since);
  }
  // The number of posted receives, as the application knows it: it learns of a used one only when
  // it polls, so the true number may be lower.
  void receives(TimePoint now, std::uint32_t host, std::uint32_t endpoint, std::uint32_t posted) {
    if (posted == 0) {
      without_receives_.begin({host, endpoint});
    } else {
      without_receives_.end(now, {host, endpoint});
    }
  }
  [[nodiscard]] bool was_without_receives(std::uint32_t host, std::uint32_t endpoint,
                                          TimePoint since) const {
    return without_receives_.was({host, endpoint}, since);
  }
  // The application cancels what the endpoint has under way to `peer`.
  void flushed(TimePoint now, std::uint32_t host, std::uint32_t endpoint, std::uint32_t peer) {
    last_flush_[{host, endpoint, peer}] = now;
  }
  [[nodiscard]] bool was_flushed(std::uint32_t host, std::uint32_t endpoint, std::uint32_t peer,
                                 TimePoint since) const {
    const auto last = last_flush_.find({host, endpoint, peer});
    return last != last_flush_.end() && last->second >= since;
  }
  // Closing an endpoint flushes its requests to every peer, and is recorded for the host itself as
  // well: that entry stands for the closing.
  [[nodiscard]] bool was_closed(std::uint32_t host, std::uint32_t endpoint, TimePoint since) const {
    return was_flushed(host, endpoint, host, since);
  }

  // --- Silence between two hosts: at least one direction does not work.
  void cut(TimePoint now, std::uint32_t a, std::uint32_t b, bool is_cut);
  // The host is down, paused, or has no live path. Each reason is counted: as many calls with false
  // as with true end the silence.
  void mute(TimePoint now, std::uint32_t host, bool is_mute);
  // Whether the two were apart for `at_least` without a break, in a stretch that ends after
  // `since`.
  [[nodiscard]] bool were_apart(TimePoint now, std::uint32_t a, std::uint32_t b, TimePoint since,
                                Duration at_least) const;
  // The same for a stretch that reaches up to now, where breaks of up to `between_tries` do not
  // count: a sender that tries so rarely may have missed them.
  [[nodiscard]] bool seemed_apart(TimePoint now, std::uint32_t a, std::uint32_t b,
                                  Duration between_tries, Duration at_least) const;
  // All cuts and mutes end at once, however many reasons there were.
  void heal(TimePoint now);

  // --- Bad luck: both hosts are up, and by chance every packet between them is lost.
  void lost(std::uint32_t from, std::uint32_t to, std::uint16_t path);
  void arrived(TimePoint now, std::uint32_t from, std::uint32_t to);
  // Whether `host` has heard nothing of `peer` for `at_least`, and packets between them were lost
  // on more than one path: on a single path the transport is expected to leave it.
  [[nodiscard]] bool everything_was_lost(TimePoint now, std::uint32_t host, std::uint32_t peer,
                                         Duration at_least) const;

  // --- Waiting: what a host has sent and no peer acknowledges, whatever the reason. An
  // acknowledgement that reaches the host ends it: see heard(). The host sends something that is to
  // be acknowledged.
  void asked(TimePoint now, std::uint32_t host, std::uint32_t peer) {
    std::optional<TimePoint>& since = waits_[{host, peer}].since;
    since = since.value_or(now);
  }
  // The process of the host has ended, and waits for nothing.
  void ended(std::uint32_t host);
  // Whether the host has waited for `at_least`, in a stretch that ends after `since`.
  [[nodiscard]] bool waited(TimePoint now, std::uint32_t host, std::uint32_t peer, TimePoint since,
                            Duration at_least) const;

  // --- What a process has heard: packets that reached it intact and addressed to its life.
  struct Heard {
    // The first life heard of, by its number; a late packet may bring an older one.
    std::uint32_t earliest = 0;
    std::uint32_t incarnation = 0;  // the latest one heard of
    std::uint32_t told = 0;         // the latest one that a notice of a stale life has told of
    TimePoint since{};
    // Whether any acknowledgement came: without one the sender may not have known a path that
    // works.
    bool ack = false;
  };
  void heard(TimePoint now, std::uint32_t host, std::uint32_t incarnation, std::uint32_t from,
             std::uint32_t from_incarnation, bool ack);
  // A notice of a stale life has come. A host that knew the peer before knows now that what its
  // earlier lives say counts no more.
  void told_of_life(std::uint32_t host, std::uint32_t incarnation, std::uint32_t from,
                    std::uint32_t from_incarnation);
  [[nodiscard]] const Heard* heard(std::uint32_t host, std::uint32_t incarnation,
                                   std::uint32_t from) const;

  // --- First contact: data packets of a sender that did not know the receiver's life yet.
  void first_contact(std::uint32_t from, std::uint32_t from_incarnation, std::uint32_t to,
                     std::uint32_t to_incarnation) {
    first_contacts_.insert({from, from_incarnation, to, to_incarnation});
  }
  [[nodiscard]] bool had_first_contact(std::uint32_t from, std::uint32_t from_incarnation,
                                       std::uint32_t to, std::uint32_t to_incarnation) const {
    return first_contacts_.contains({from, from_incarnation, to, to_incarnation});
  }

 private:
  struct Interval {
    TimePoint begin;
    TimePoint end;
  };
  // Between two hosts, in both directions.
  struct Line {
    bool apart = false;
    TimePoint since{};           // if apart
    std::vector<Interval> past;  // when they were, the earliest first
  };
  struct Silence {
    TimePoint since{};                                          // the latest packet that came
    std::set<std::pair<std::uint32_t, std::uint16_t>> lost_on;  // sender, path
  };
  struct Wait {
    std::optional<TimePoint> since;
    std::vector<Interval> past;  // the long ones, the earliest first
  };
  // The cuts or mutes have changed: begins or ends the stretch of the line between the two.
  void refresh(TimePoint now, std::uint32_t a, std::uint32_t b);

  std::uint32_t hosts_;
  using EndpointOf = std::pair<std::uint32_t, std::uint32_t>;  // host, endpoint
  Episodes<EndpointOf> unavailable_;
  Episodes<EndpointOf> without_receives_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, TimePoint> last_flush_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> cuts_;
  std::map<std::uint32_t, std::uint32_t> mutes_;  // by host: for how many reasons at once
  std::map<std::pair<std::uint32_t, std::uint32_t>, Line> lines_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Wait> waits_;  // host, peer
  std::vector<Silence> silences_;  // of the second host, as the first one hears it
  // By host, its incarnation, and the host that it has heard of.
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Heard> heard_;
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> first_contacts_;
};

}  // namespace weft::swarm
