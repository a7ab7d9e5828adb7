// Owns who lives behind which port to the outside, as their own frames say, and who may say so.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "srd/base/time.hpp"

namespace weft::daemon {

// By any kind of address. One that has been seen at a port stays there for as long as it is alive:
// nobody at another port can draw its traffic away. A port that proves where its frames come from
// is believed before one that does not. Each port has room for so many, so that made-up addresses
// at one push out nobody at another.
template <class Key>
class Whereabouts {
 public:
  static constexpr std::size_t kMostPerPort = 2048;
  static constexpr Duration kAlive = std::chrono::seconds{30};

  // A frame says that `key` lives there. False: it lives elsewhere.
  [[nodiscard]] bool claim(TimePoint now, std::size_t port, bool proved, const Key& key) {
    if (ports_.size() <= port) {
      ports_.resize(port + 1);
    }
    const auto found = places_.find(key);
    if (found == places_.end()) {
      if (ports_[port].known >= kMostPerPort) {
        forget_idle(now, port);
      }
      if (ports_[port].known < kMostPerPort) {
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
  // Nobody lives there any more.
  void forget(std::size_t port) {
    if (port < ports_.size()) {
      std::erase_if(places_, [&](const auto& it) { return it.second.port == port; });
      ports_[port] = {};
    }
  }
  // -1: nobody knows.
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

  // Not with every frame: a flood of made-up addresses costs one look a second.
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
