// Owns the count of bytes that writes with immediate data still miss at their receiver.
#pragma once

#include <array>
#include <cstdint>

#include "srd/base/serial.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

// One entry for each message of more than one packet that has begun to arrive and is not complete.
// A sender cuts the messages of a size class up one after the other, so few are under way at a
// time. What it gave up is found out when room is needed; no more than one message of each class is
// dead and cannot be told from one whose next packet is late.
class ImmediateTable {
 public:
  struct Entry {
    std::uint32_t message = 0;
    std::uint32_t missing = 0;
    Psn first_seen;  // lowest sequence number of it that has arrived
    std::uint8_t size_class = 0;
    bool used = false;
  };

  // The message's entry, made if it is new. nullptr: no room, the packet must be put off.
  // Everything before `settled` is.
  [[nodiscard]] Entry* find(std::uint32_t message, std::uint32_t length, Psn psn, Psn settled) {
    Entry* spare = nullptr;
    for (Entry& entry : entries_) {
      if (entry.used && entry.message == message) {
        if (psn.before(entry.first_seen)) {
          entry.first_seen = psn;
        }
        return &entry;
      }
      if (!entry.used && spare == nullptr) {
        spare = &entry;  // the first: so that those in use are found at the front
      }
    }
    if (spare == nullptr) {
      spare = abandoned(settled);
    }
    if (spare != nullptr) {
      *spare = {message, length, psn, static_cast<std::uint8_t>(wire::size_class(length)), true};
    }
    return spare;
  }

 private:
  static constexpr std::size_t kEntries = 32;
  static_assert(kEntries > wire::kSizeClasses);

  // A message is given up if a later one of its class began at a number before which everything is
  // settled: all packets of the earlier one left before, and have had their turn.
  [[nodiscard]] Entry* abandoned(Psn settled) {
    if (mutated(Mutation::immediate_table_unfair)) {
      return nullptr;
    }
    for (Entry& entry : entries_) {
      for (const Entry& later : entries_) {
        if (later.size_class == entry.size_class &&
            static_cast<std::int32_t>(later.message - entry.message) > 0 &&
            later.first_seen.before(settled)) {
          return &entry;
        }
      }
    }
    return nullptr;
  }

  std::array<Entry, kEntries> entries_{};
};

}  // namespace weft::srd
