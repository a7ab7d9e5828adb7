// Owns which address lives behind which port to the outside, and which frames may change that.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "srd/base/time.hpp"

namespace weft::daemon {

// A learning table for any kind of address, with three rules against theft. An address that was
// seen at a port stays there until it has been silent for kAlive, so a sender at another port
// cannot draw its traffic away. A port that proves its senders overrules one that does not. Each
// port has room for kMaxPerPort addresses, so made-up ones at one port displace none at another.
template <class Key>
class Whereabouts {
 public:
  static constexpr std::size_t kMaxPerPort = 2048;
  static constexpr Duration kAlive = std::chrono::seconds{30};

  // A frame from that port has the source `key`. False: that address lives behind another port, so
  // the frame is not to be believed. True also if there is no room to remember it: then frames for
  // it go to all ports.
  [[nodiscard]] bool claim(TimePoint now, std::size_t port, bool proved, const Key& key) {
    if (ports_.size() <= port) {
      ports_.resize(port + 1);
    }
    const auto found = places_.find(key);
    if (found == places_.end()) {
      if (ports_[port].known >= kMaxPerPort) {
        forget_idle(now, port);
      }
      if (ports_[port].known < kMaxPerPort) {
        places_.emplace(key, Place{.port = port, .proved = proved, .seen = now});
        ++ports_[port].known;
      }
      return true;
    }
    Place& place = found->second;
    if (place.port != port) {
      const bool outranked = proved && !place.proved;
      const bool gone = now - place.seen >= kAlive && proved == place.proved;
      if (!outranked && !gone) {
        return false;
      }
      --ports_[place.port].known;
      ++ports_[port].known;
      place.port = port;
    }
    place.proved = proved;
    place.seen = now;
    return true;
  }
  // The port is removed: forgets all addresses behind it.
  void forget(std::size_t port) {
    if (port < ports_.size()) {
      std::erase_if(places_, [&](const auto& it) { return it.second.port == port; });
      ports_[port] = {};
    }
  }
  // -1: not known.
  [[nodiscard]] int find(const Key& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? -1 : static_cast<int>(found->second.port);
  }

 private:
  struct Place {
    std::size_t port = 0;
    bool proved = false;
    TimePoint seen{};
  };
  struct Port {
    std::size_t known = 0;
    TimePoint look_again{};
  };

  // At most once a second, since it visits every entry: a flood of made-up addresses must not make
  // each frame expensive.
  void forget_idle(TimePoint now, std::size_t port) {
    if (now < ports_[port].look_again) {
      return;
    }
    ports_[port].look_again = now + std::chrono::seconds{1};
    ports_[port].known -= std::erase_if(places_, [&](const auto& it) {
      return it.second.port == port && now - it.second.seen >= kAlive;
    });
  }

  std::unordered_map<Key, Place> places_;
  std::vector<Port> ports_;
};

}  // namespace weft::daemon
