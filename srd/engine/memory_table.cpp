// Owns the checks that stand between a packet and the memory of the application.
#include "srd/engine/memory_table.hpp"

#include <limits>
#include <string>

namespace weft::srd {

Result<RegionKey> MemoryTable::insert(const Region& region) {
  if (region.length != 0 && region.data == nullptr && region.placement != Placement::phantom) {
    return fail(ErrorCode::invalid_argument,
                "a memory region needs memory: pass its first byte, or make it a phantom");
  }
  if (region.length != 0 &&
      region.address > std::numeric_limits<std::uint64_t>::max() - (region.length - 1)) {
    return fail(ErrorCode::invalid_argument,
                "the memory region of " + std::to_string(region.length) + " bytes at address " +
                    std::to_string(region.address) +
                    " goes beyond the 64-bit address space: give it a lower address");
  }
  std::uint32_t index = 0;
  if (entries_.size() < kMaxRegions && free_.size() < kResting) {
    index = static_cast<std::uint32_t>(entries_.size());
    const std::uint64_t first = mix64(salt_ + index + 1);
    entries_.emplace_back().generation = static_cast<std::uint8_t>(1 + first % kGenerations);
  } else if (!free_.empty()) {
    index = free_.front();
    free_.pop();
  } else {
    return fail(ErrorCode::out_of_resources,
                "all " + std::to_string(kMaxRegions) + " memory regions are in use: erase some");
  }
  Entry& entry = entries_[index];
  entry.region = region;
  entry.used = true;
  ++used_;
  return RegionKey{std::uint32_t{entry.generation} << kIndexBits | (index ^ mask_)};
}

bool MemoryTable::erase(RegionKey key) {
  if (find(key) == nullptr) {
    return false;
  }
  Entry& entry = entries_[index_of(key)];
  entry.used = false;
  entry.generation = static_cast<std::uint8_t>(entry.generation % kGenerations + 1);
  (void)free_.push(index_of(key));
  --used_;
  return true;
}

}  // namespace weft::srd
