// Owns the count of bytes that writes with immediate data still miss at their receiver.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "srd/base/serial.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

// One entry for each message of more than one packet that has begun to arrive and is not complete.
// A sender cuts the messages of a size class up one after the other, so few are under way at a
// time. Nothing says that a sender has given a message up; the table finds it out when later
// messages of the same class have come. Until then a given-up message cannot be told from one whose
// next packet is late, which is true of at most one message of each class.
//
// Given-up messages keep their places until everything before their successors is settled, which
// waits for the oldest missing packet. So that one must never wait for a place itself: some are
// kept for it. When it opens a message, any earlier one of the same class is given up at once, so
// one place for each class is enough.
class ImmediateTable {
 public:
  struct Entry {
    std::uint32_t message = 0;
    std::uint32_t missing = 0;
    Psn passed_at;  // where a later message of its class was met first
    std::uint8_t size_class = 0;
    bool passed = false;
    bool used = false;
  };

  // The message's entry, made if it is new. nullptr: no room, the packet must be put off. Every
  // number before `settled` is settled, so that number itself is the oldest missing one.
  [[nodiscard]] Entry* find(std::uint32_t message, std::uint32_t length, Psn psn, Psn settled) {
    for (Entry& entry : entries_) {
      if (entry.used && entry.message == message) {
        return &entry;
      }
    }
    const auto size_class = static_cast<std::uint8_t>(wire::size_class(length));
    if (!mutated(Mutation::immediate_table_unfair)) {
      note_passed(message, size_class, psn);
      give_up(settled);
    }
    const bool oldest = psn == settled && !mutated(Mutation::edge_finds_no_place);
    const auto places = std::span(entries_).first(oldest ? entries_.size() : kSharedEntries);
    for (Entry& entry : places) {  // the first: so that those in use are found at the front
      if (!entry.used) {
        entry = {message, length, Psn{}, size_class, false, true};
        return &entry;
      }
    }
    return nullptr;
  }

 private:
  static constexpr std::size_t kSharedEntries = 32;
  static_assert(kSharedEntries > wire::kSizeClasses);

  // All packets of a message left before the first one of the next message of its class.
  void note_passed(std::uint32_t message, std::uint8_t size_class, Psn psn) {
    for (Entry& entry : entries_) {
      if (entry.used && !entry.passed && entry.size_class == size_class &&
          static_cast<std::int32_t>(message - entry.message) > 0) {
        entry.passed = true;
        entry.passed_at = psn;
      }
    }
  }
  // If every number before `passed_at` is settled and the message is not complete, its sender has
  // given it up. Its entry must not stay, because message numbers come round. [wire 4.6]
  void give_up(Psn settled) {
    for (Entry& entry : entries_) {
      entry.used = entry.used && !(entry.passed && !settled.before(entry.passed_at));
    }
  }

  std::array<Entry, kSharedEntries + wire::kSizeClasses> entries_{};
};

}  // namespace weft::srd
