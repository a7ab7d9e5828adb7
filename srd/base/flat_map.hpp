// Owns a hash map from small keys to 32-bit indices: open addressing, linear probing, no
// tombstones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "srd/base/masked_array.hpp"
#include "srd/base/rng.hpp"

namespace weft {

// The default. Ids have small consecutive values, which would fill neighbouring places.
template <class Key>
struct MixedHash {
  [[nodiscard]] std::size_t operator()(const Key& key) const noexcept {
    return static_cast<std::size_t>(mix64(std::hash<Key>{}(key)));
  }
};

// Hash must spread keys over all bits of its result.
template <class Key, class Hash = MixedHash<Key>>
class FlatMap {
 public:
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF;

  [[nodiscard]] std::uint32_t find(const Key& key) const {
    if (entries_.empty()) {
      return kAbsent;
    }
    for (std::size_t at = home(key);; at = (at + 1) & entries_.mask()) {
      if (entries_[at].index == kAbsent || entries_[at].key == key) {
        return entries_[at].index;
      }
    }
  }

  // A hint: find() will be called soon.
  void prefetch(const Key& key) const {
    if (!entries_.empty()) {
      __builtin_prefetch(&entries_[home(key)]);
    }
  }

  // The key must be absent.
  void insert(const Key& key, std::uint32_t index) {
    if ((size_ + 1) * 2 > entries_.size()) {
      grow();
    }
    place({key, index});
    ++size_;
  }

  void erase(const Key& key) {
    if (entries_.empty()) {
      return;
    }
    std::size_t hole = home(key);
    while (!(entries_[hole].key == key) || entries_[hole].index == kAbsent) {
      if (entries_[hole].index == kAbsent) {
        return;
      }
      hole = (hole + 1) & entries_.mask();
    }
    // Close the gap: entries behind it that a search from their home could no longer reach move up.
    for (std::size_t at = (hole + 1) & entries_.mask(); entries_[at].index != kAbsent;
         at = (at + 1) & entries_.mask()) {
      const std::size_t from_home = (at - home(entries_[at].key)) & entries_.mask();
      const std::size_t from_hole = (at - hole) & entries_.mask();
      if (from_home >= from_hole) {
        entries_[hole] = entries_[at];
        hole = at;
      }
    }
    entries_[hole].index = kAbsent;
    --size_;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Entry {
    Key key{};
    std::uint32_t index = kAbsent;
  };

  [[nodiscard]] std::size_t home(const Key& key) const { return Hash{}(key)&entries_.mask(); }
  void place(const Entry& entry) {
    std::size_t at = home(entry.key);
    while (entries_[at].index != kAbsent) {
      at = (at + 1) & entries_.mask();
    }
    entries_[at] = entry;
  }
  [[gnu::cold, gnu::noinline]] void grow() {
    MaskedArray<Entry> old(entries_.next_size(16));
    old.swap(entries_);
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (old[i].index != kAbsent) {
        place(old[i]);
      }
    }
  }

  MaskedArray<Entry> entries_;
  std::size_t size_ = 0;
};

}  // namespace weft
