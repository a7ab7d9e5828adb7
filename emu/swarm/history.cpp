// Owns the record of silences, and of which life each process has heard of.
#include "emu/swarm/history.hpp"

#include <algorithm>

namespace weft::swarm {
namespace {

// A shorter wait explains nothing: no plan has a peer_timeout below 10 ms.
constexpr Duration kLongWait = std::chrono::milliseconds{1};

}  // namespace

void History::refresh(TimePoint now, std::uint32_t a, std::uint32_t b) {
  Line& line = lines_[std::minmax(a, b)];
  const auto is_mute = [this](std::uint32_t host) {
    const auto found = mutes_.find(host);
    return found != mutes_.end() && found->second > 0;
  };
  const bool apart = cuts_.contains({a, b}) || cuts_.contains({b, a}) || is_mute(a) || is_mute(b);
  if (apart == line.apart) {
    return;
  }
  if (apart) {
    line.since = now;
  } else {
    line.past.push_back({line.since, now});
  }
  line.apart = apart;
}

void History::cut(TimePoint now, std::uint32_t a, std::uint32_t b, bool is_cut) {
  if (is_cut) {
    cuts_.insert({a, b});
  } else {
    cuts_.erase({a, b});
  }
  refresh(now, a, b);
}

void History::mute(TimePoint now, std::uint32_t host, bool is_mute) {
  std::uint32_t& reasons = mutes_[host];
  reasons = is_mute ? reasons + 1 : reasons - (reasons > 0 ? 1 : 0);
  for (std::uint32_t other = 0; other < hosts_; ++other) {
    refresh(now, host, other);
  }
}

void History::heal(TimePoint now) {
  cuts_.clear();
  mutes_.clear();
  for (std::uint32_t a = 0; a < hosts_; ++a) {
    for (std::uint32_t b = a; b < hosts_; ++b) {
      refresh(now, a, b);
    }
  }
}

bool History::were_apart(TimePoint now, std::uint32_t a, std::uint32_t b, TimePoint since,
                         Duration at_least) const {
  const auto found = lines_.find(std::minmax(a, b));
  if (found == lines_.end()) {
    return false;
  }
  const Line& line = found->second;
  if (line.apart && now - line.since >= at_least) {
    return true;
  }
  return std::any_of(line.past.begin(), line.past.end(), [&](const Interval& i) {
    return i.end >= since && i.end - i.begin >= at_least;
  });
}

// Goes back from now over all stretches between which the line worked only for `between_tries`.
bool History::seemed_apart(TimePoint now, std::uint32_t a, std::uint32_t b, Duration between_tries,
                           Duration at_least) const {
  const auto found = lines_.find(std::minmax(a, b));
  if (found == lines_.end()) {
    return false;
  }
  const Line& line = found->second;
  TimePoint begin = line.apart ? line.since : now;
  for (auto i = line.past.rbegin(); i != line.past.rend(); ++i) {
    if (begin - i->end > between_tries) {
      break;
    }
    begin = i->begin;
  }
  return now - begin >= at_least;
}

// Counts for both ends: the receiver hears nothing, and the sender no answer.
void History::lost(std::uint32_t from, std::uint32_t to, std::uint16_t path) {
  silences_[from * hosts_ + to].lost_on.insert({from, path});
  silences_[to * hosts_ + from].lost_on.insert({from, path});
}

void History::arrived(TimePoint now, std::uint32_t from, std::uint32_t to) {
  Silence& silence = silences_[to * hosts_ + from];
  silence.since = now;
  silence.lost_on.clear();
}

bool History::everything_was_lost(TimePoint now, std::uint32_t host, std::uint32_t peer,
                                  Duration at_least) const {
  const Silence& silence = silences_[host * hosts_ + peer];
  return silence.lost_on.size() > 1 && now - silence.since >= at_least;
}

void History::ended(std::uint32_t host) {
  for (auto& [who, wait] : waits_) {
    if (who.first == host) {
      wait = Wait{};
    }
  }
}

bool History::waited(TimePoint now, std::uint32_t host, std::uint32_t peer, TimePoint since,
                     Duration at_least) const {
  const auto found = waits_.find({host, peer});
  if (found == waits_.end()) {
    return false;
  }
  const Wait& wait = found->second;
  return (wait.since && now - *wait.since >= at_least) ||
         std::ranges::any_of(wait.past, [&](const Interval& i) {
           return i.end >= since && i.end - i.begin >= at_least;
         });
}

void History::heard(TimePoint now, std::uint32_t host, std::uint32_t incarnation,
                    std::uint32_t from, std::uint32_t from_incarnation, bool ack) {
  const auto [entry, is_new] = heard_.try_emplace({host, incarnation, from});
  Heard& heard = entry->second;
  if (is_new || from_incarnation < heard.earliest) {
    heard.earliest = from_incarnation;
  }
  // `since` is when the latest life was first heard of, so a repetition does not move it.
  if (is_new || from_incarnation > heard.incarnation) {
    heard.incarnation = from_incarnation;
    heard.since = now;
  }
  heard.ack |= ack;
  // An acknowledgement by a former life is none.
  Wait& wait = waits_[{host, from}];
  if (ack && from_incarnation == std::max(heard.incarnation, heard.told) && wait.since) {
    if (now - *wait.since >= kLongWait) {
      wait.past.push_back({*wait.since, now});
    }
    wait.since.reset();
  }
}

void History::told_of_life(std::uint32_t host, std::uint32_t incarnation, std::uint32_t from,
                           std::uint32_t from_incarnation) {
  const auto found = heard_.find({host, incarnation, from});
  if (found != heard_.end()) {
    found->second.told = std::max(found->second.told, from_incarnation);
  }
}

const History::Heard* History::heard(std::uint32_t host, std::uint32_t incarnation,
                                     std::uint32_t from) const {
  const auto found = heard_.find({host, incarnation, from});
  return found == heard_.end() ? nullptr : &found->second;
}

}  // namespace weft::swarm
