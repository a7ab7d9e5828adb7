// Owns the checks that stand between a packet and the memory of the application.
#include "srd/engine/memory_table.hpp"

#include <limits>
#include <string>

#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

constexpr std::uint32_t kIndexBits = 16;
constexpr std::uint32_t kIndexMask = MemoryTable::kMaxRegions - 1;

constexpr std::uint32_t index_of(RegionKey key) { return key.value() & kIndexMask; }
constexpr std::uint32_t generation_of(RegionKey key) { return key.value() >> kIndexBits; }

}  // namespace

Result<RegionKey> MemoryTable::insert(const Region& region) {
  if (region.length != 0 && region.data == nullptr && !region.phantom) {
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
  if (free_.empty()) {
    if (entries_.size() == kMaxRegions) {
      return fail(ErrorCode::out_of_resources,
                  "all " + std::to_string(kMaxRegions) + " memory regions are in use: erase some");
    }
    free_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Entry& entry = entries_[index];
  entry.region = region;
  entry.used = true;
  ++used_;
  return RegionKey{std::uint32_t{entry.generation} << kIndexBits | index};
}

bool MemoryTable::erase(RegionKey key) {
  if (find(key) == nullptr) {
    return false;
  }
  Entry& entry = entries_[index_of(key)];
  entry.used = false;
  ++entry.generation;
  if (entry.generation == 0) {  // so that 0 is never the key of anything
    entry.generation = 1;
  }
  free_.push_back(index_of(key));
  --used_;
  return true;
}

const Region* MemoryTable::find(RegionKey key) const {
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

MemoryTable::Lookup MemoryTable::resolve(RegionKey key, std::uint64_t address, std::uint64_t length,
                                         Access wanted, std::uint32_t domain) const {
  const Region* const region = find(key);
  if (region == nullptr || (region->domain != domain && !mutated(Mutation::skip_domain))) {
    return {.status = Status::bad_key};
  }
  if (!allows(region->access, wanted) && !mutated(Mutation::skip_access)) {
    return {.status = Status::access_denied};
  }
  if (length == 0) {
    return {.status = Status::ok,
            .data = region->phantom ? nullptr : region->data,
            .phantom = region->phantom};
  }
  // An address before the region wraps around to an offset behind its end.
  const std::uint64_t offset = address - region->address;
  const std::uint64_t end = region->length + (mutated(Mutation::loose_bounds) ? 8 : 0);
  if (offset >= end || length > end - offset) {
    return {.status = Status::out_of_bounds};
  }
  return {.status = Status::ok,
          .data = region->phantom ? nullptr : region->data + offset,
          .phantom = region->phantom};
}

}  // namespace weft::srd
