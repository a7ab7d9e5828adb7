// Owns the count of bytes that writes with immediate data still miss at their receiver.
#pragma once

#include <array>
#include <cstdint>

#include "srd/base/serial.hpp"
#include "srd/base/time.hpp"

namespace weft::srd {

// One entry for each message of more than one packet that has begun to arrive. A sender cuts such
// messages up one after the other, so few are under way at a time; those it gave up are found out
// when room is needed.
class ImmediateTable {
 public:
  struct Entry {
    std::uint32_t message = 0;
    std::uint32_t missing = 0;
    Psn first_seen;       // lowest sequence number of it that has arrived
    TimePoint touched{};  // when a packet of it came last
    bool used = false;
    bool awaits_receive =
        false;  // complete, but for a packet that found no receive and comes again
  };

  // Now, how far everything is settled, and the silence after which nobody comes back.
  struct Moment {
    TimePoint now;
    Psn settled;
    Duration patience;
  };

  // The message's entry, made if it is new. nullptr: no room, the packet must be put off.
  [[nodiscard]] Entry* find(std::uint32_t message, std::uint32_t length, Psn psn,
                            const Moment& moment) {
    Entry* spare = nullptr;
    for (Entry& entry : entries_) {
      if (entry.used && entry.message == message) {
        if (psn.before(entry.first_seen)) {
          entry.first_seen = psn;
        }
        entry.touched = moment.now;
        return &entry;
      }
      if (!entry.used && spare == nullptr) {
        spare = &entry;  // the first: so that those in use are found at the front
      }
    }
    if (spare == nullptr) {
      spare = abandoned(moment);
    }
    if (spare != nullptr) {
      *spare = {message, length, psn, moment.now, true, false};
    }
    return spare;
  }
  void clear() { entries_ = {}; }

 private:
  static constexpr std::size_t kEntries = 32;

  // A message is given up if a later one began at a number before which everything is settled, for
  // its own packets have all had their turn; but not while it waits for a receive to be posted:
  // then one of them will have another number.
  [[nodiscard]] Entry* abandoned(const Moment& moment) {
    for (Entry& entry : entries_) {
      if (moment.now - entry.touched >= moment.patience) {
        return &entry;
      }
      for (const Entry& later : entries_) {
        if (!entry.awaits_receive && static_cast<std::int32_t>(later.message - entry.message) > 0 &&
            later.first_seen.before(moment.settled)) {
          return &entry;
        }
      }
    }
    return nullptr;
  }

  std::array<Entry, kEntries> entries_{};
};

}  // namespace weft::srd
