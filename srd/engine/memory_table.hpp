// Owns the registered memory regions: keys, bounds, access rights, protection domains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/base/rng.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

enum class Access : std::uint8_t {
  none = 0,
  local_write = 1,
  remote_read = 2,
  remote_write = 4,
};
[[nodiscard]] constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
[[nodiscard]] constexpr bool allows(Access granted, Access wanted) {
  return (static_cast<unsigned>(granted) & static_cast<unsigned>(wanted)) ==
         static_cast<unsigned>(wanted);
}

// How the bytes of a write get into a region.
enum class Placement : std::uint8_t {
  plain,
  lines,    // as copy_lines() does, for readers that do not wait for a completion
  phantom,  // not at all: simulated bulk, checked like any other region, never touched
};

struct Region {
  std::byte* data = nullptr;
  std::uint64_t address =
      0;  // what the peer calls the first byte; the pointer's value or anything else
  std::uint64_t length = 0;
  Access access = Access::none;
  std::uint32_t domain = 0;
  Placement placement = Placement::plain;
};

// A key holds an index and a generation. The key of a region that is gone stays invalid for the
// next 65280 regions: an index rests before it is used again, and each use has another generation.
// `salt` determines the order of the indices and the first generation of each, so the key of a
// process that is gone opens nothing in the one that follows, but for one chance in 2^24.
class MemoryTable {
 public:
  static constexpr std::uint32_t kMaxRegions = 1U << 16;

  explicit MemoryTable(std::uint64_t salt = 0)
      : salt_(mutated(Mutation::regular_keys) ? 0 : salt),
        mask_(static_cast<std::uint32_t>(mix64(salt_)) & (kMaxRegions - 1)) {}

  // Of all regions that there are at a time, no two have the same; small while there are few.
  [[nodiscard]] std::uint32_t index_of(RegionKey key) const {
    return (key.value() ^ mask_) & (kMaxRegions - 1);
  }

  [[nodiscard]] Result<RegionKey> insert(const Region& region);
  // False if there is no such region.
  bool erase(RegionKey key);
  // Valid until the next insert().
  [[nodiscard]] const Region* find(RegionKey key) const;
  [[nodiscard]] std::size_t size() const { return used_; }

  struct Lookup {
    Status status = Status::bad_key;
    std::byte* data = nullptr;
    Placement placement = Placement::plain;
  };
  // Resolves [address, address + length) for an access by `domain`. A length of 0 needs a valid key
  // and rights, but may name any address. The bytes of a phantom have no address: data is null.
  [[nodiscard]] Lookup resolve(RegionKey key, std::uint64_t address, std::uint64_t length,
                               Access wanted, std::uint32_t domain) const;

 private:
  static constexpr std::uint32_t kIndexBits = 16;
  static constexpr std::uint32_t kGenerations = 255;  // 0 is none, so that no key is 0
  static constexpr std::uint32_t kResting = 256;      // indices that were used, at least

  static constexpr std::uint32_t generation_of(RegionKey key) { return key.value() >> kIndexBits; }

  struct Entry {
    Region region;
    std::uint8_t generation = 0;
    bool used = false;
  };
  std::uint64_t salt_;
  std::uint32_t mask_;  // exclusive or: from the number in a key to the index of its entry
  std::vector<Entry> entries_;
  RingQueue<std::uint32_t> free_;  // the index that has rested longest first
  std::size_t used_ = 0;
};

// Inline, because every write asks.
inline const Region* MemoryTable::find(RegionKey key) const {
  const std::uint32_t index = index_of(key);
  if (index >= entries_.size()) {
    return nullptr;
  }
  const Entry& entry = entries_[index];
  return entry.used &&
                 (entry.generation == generation_of(key) || mutated(Mutation::skip_key_generation))
             ? &entry.region
             : nullptr;
}

inline MemoryTable::Lookup MemoryTable::resolve(RegionKey key, std::uint64_t address,
                                                std::uint64_t length, Access wanted,
                                                std::uint32_t domain) const {
  const Region* const region = find(key);
  if (region == nullptr || (region->domain != domain && !mutated(Mutation::skip_domain))) {
    return {.status = Status::bad_key};
  }
  if (!allows(region->access, wanted) && !mutated(Mutation::skip_access)) {
    return {.status = Status::access_denied};
  }
  if (length == 0) {
    return {.status = Status::ok,
            .data = region->placement == Placement::phantom ? nullptr : region->data,
            .placement = region->placement};
  }
  // An address before the region wraps around to an offset behind its end.
  const std::uint64_t offset = address - region->address;
  const std::uint64_t end = region->length + (mutated(Mutation::loose_bounds) ? 8 : 0);
  if (offset >= end || length > end - offset) {
    return {.status = Status::out_of_bounds};
  }
  return {.status = Status::ok,
          .data = region->placement == Placement::phantom ? nullptr : region->data + offset,
          .placement = region->placement};
}

}  // namespace weft::srd
