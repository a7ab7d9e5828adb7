// Owns the checks behind each use of a key.
//
// A key is an index into a table and, in its low eight bits, a variant that differs from one owner
// of the index to the next, so that a key of the former owner is refused. Windows have indices of
// their own range; each refers to the region under it and is limited to its bytes and rights.
//
// Keys are all that protects memory from a peer: whatever a packet asks for goes through remote(),
// for each packet again, because regions and windows may go while a message is under way.
#include "emu/roce/engine/keys.hpp"

#include <cerrno>

#include "srd/base/rng.hpp"

namespace weft::roce {
namespace {

constexpr std::uint32_t kVariant = 0xFF;
constexpr unsigned kIndexShift = 8;
constexpr std::uint32_t kRemoteChanges = kRemoteWrite | kRemoteAtomic;

// [address, address + length) within [start, start + size); any address if the length is 0.
bool within(std::uint64_t address, std::uint64_t length, std::uint64_t start, std::uint64_t size) {
  const std::uint64_t offset = address - start;
  return length == 0 || (offset < size && length <= size - offset);
}

// Access to no bytes is always right, wherever it points; the pointer is then only not null.
std::byte* place_in(const MemoryRegion& memory, std::uint64_t address, std::uint64_t length) {
  return length == 0 ? memory.data : memory.data + (address - memory.address);
}

// The index of a free entry, or `limit`.
template <class Entry>
std::uint32_t next_index(std::vector<Entry>& entries, std::vector<std::uint32_t>& free,
                         std::uint32_t limit) {
  if (!free.empty()) {
    const std::uint32_t index = free.back();
    free.pop_back();
    return index;
  }
  if (entries.size() < limit) {
    entries.emplace_back();
    return static_cast<std::uint32_t>(entries.size() - 1);
  }
  return limit;
}

}  // namespace

// Salted, so that peers cannot guess the first key of a process.
std::uint32_t KeyTable::first_variant(std::uint32_t index) const {
  return static_cast<std::uint32_t>(mix64(salt_ + index)) & kVariant;
}

std::uint32_t KeyTable::register_region(const MemoryRegion& memory) {
  const std::uint32_t index = next_index(regions_, free_regions_, kMaxEntries);
  if (index == kMaxEntries) {
    return 0;
  }
  Region& region = regions_[index];
  const std::uint32_t variant = region.key == 0 ? first_variant(index) : region.key + 1;
  region = {memory, (index + 1) << kIndexShift | (variant & kVariant), 0, true};
  return region.key;
}

const KeyTable::Region* KeyTable::region(std::uint32_t key) const {
  const std::uint32_t index = (key >> kIndexShift) - 1;
  return index < regions_.size() && regions_[index].used && regions_[index].key == key
             ? &regions_[index]
             : nullptr;
}

// A region goes at once; with a window on it it has to stay, or the window would open freed memory.
int KeyTable::deregister(std::uint32_t key) {
  const Region* const found = region(key);
  if (found == nullptr) {
    return EINVAL;
  }
  if (found->windows != 0) {
    return EBUSY;
  }
  const auto index = static_cast<std::uint32_t>(found - regions_.data());
  regions_[index].used = false;
  free_regions_.push_back(index);
  return 0;
}

MemoryRegion* KeyTable::find_region(std::uint32_t key) {
  const Region* const found = region(key);
  return found == nullptr ? nullptr
                          : &regions_[static_cast<std::size_t>(found - regions_.data())].memory;
}

bool KeyTable::has_windows(std::uint32_t key) const {
  const Region* const found = region(key);
  return found != nullptr && found->windows != 0;
}

std::uint32_t KeyTable::allocate_window(unsigned type, std::uint32_t domain) {
  const std::uint32_t index = next_index(windows_, free_windows_, kMaxEntries);
  if (index == kMaxEntries) {
    return 0;
  }
  Window& window = windows_[index];
  const std::uint32_t variant = window.rkey == 0 ? first_variant(~index) : window.rkey + 1;
  window = Window{};
  window.rkey = (kFirstWindow + index) << kIndexShift | (variant & kVariant);
  window.domain = domain;
  window.type = type;
  window.used = true;
  return window.rkey;
}

const KeyTable::Window* KeyTable::window(std::uint32_t rkey) const {
  const std::uint32_t index = (rkey >> kIndexShift) - kFirstWindow;
  return index < windows_.size() && windows_[index].used && windows_[index].rkey == rkey
             ? &windows_[index]
             : nullptr;
}
KeyTable::Window* KeyTable::window(std::uint32_t rkey) {
  return const_cast<Window*>(static_cast<const KeyTable*>(this)->window(rkey));
}

void KeyTable::unbind(Window& window) {
  if (window.bound) {
    --regions_[window.region].windows;
    window.bound = false;
  }
}

int KeyTable::free_window(std::uint32_t rkey) {
  Window* const found = window(rkey);
  if (found == nullptr) {
    return EINVAL;
  }
  unbind(*found);
  found->used = false;
  free_windows_.push_back(static_cast<std::uint32_t>(found - windows_.data()));
  return 0;
}

void KeyTable::free_window_at(std::uint32_t rkey) {
  const std::uint32_t index = (rkey >> kIndexShift) - kFirstWindow;
  if (index < windows_.size() && windows_[index].used) {
    (void)free_window(windows_[index].rkey);
  }
}

std::byte* KeyTable::local(const Sge& sge, std::uint32_t access, std::uint32_t domain) const {
  const Region* const found = region(sge.lkey);
  if (found == nullptr || found->memory.domain != domain ||
      (found->memory.access & access) != access ||
      !within(sge.address, sge.length, found->memory.address, found->memory.length)) {
    return nullptr;
  }
  return place_in(found->memory, sge.address, sge.length);
}

std::byte* KeyTable::remote(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                            std::uint32_t access, std::uint32_t domain, std::uint32_t qpn) const {
  if ((rkey >> kIndexShift) < kFirstWindow) {
    const Region* const found = region(rkey);
    return found != nullptr && found->memory.domain == domain &&
                   (found->memory.access & access) == access &&
                   within(address, length, found->memory.address, found->memory.length)
               ? place_in(found->memory, address, length)
               : nullptr;
  }
  const Window* const found = window(rkey);
  if (found == nullptr || !found->bound || found->domain != domain ||
      (found->type == 2 && found->qpn != qpn) || (found->access & access) != access) {
    return nullptr;
  }
  const std::uint64_t start = (found->access & kZeroBased) != 0 ? 0 : found->address;
  if (!within(address, length, start, found->length)) {
    return nullptr;
  }
  const MemoryRegion& memory = regions_[found->region].memory;
  return place_in(memory, found->address + (address - start), length);
}

// A window of type 1 is bound anew without being invalidated, one of type 2 must be unbound before.
bool KeyTable::bind(const WorkRequest& request, std::uint32_t domain, std::uint32_t qpn) {
  Window* const found = window(request.window);
  if (found == nullptr || found->domain != domain || (found->type == 2 && found->bound)) {
    return false;
  }
  if (request.bind_length == 0) {  // of type 1 only: the window opens nothing
    if (found->type == 2) {
      return false;
    }
    unbind(*found);
    found->rkey = (found->rkey & ~kVariant) | (request.new_rkey & kVariant);
    return true;
  }
  const Region* const target = region(request.bind_lkey);
  if (target == nullptr || target->memory.domain != domain ||
      (target->memory.access & kWindowBind) == 0 ||
      ((request.bind_access & kRemoteChanges) != 0 && (target->memory.access & kLocalWrite) == 0) ||
      (found->type == 1 && (request.bind_access & kZeroBased) != 0) ||
      !within(request.bind_address, request.bind_length, target->memory.address,
              target->memory.length)) {
    return false;
  }
  unbind(*found);
  found->region = static_cast<std::uint32_t>(target - regions_.data());
  ++regions_[found->region].windows;
  found->rkey = (found->rkey & ~kVariant) | (request.new_rkey & kVariant);
  found->qpn = qpn;
  found->access = request.bind_access;
  found->address = request.bind_address;
  found->length = request.bind_length;
  found->bound = true;
  return true;
}

bool KeyTable::invalidate(std::uint32_t rkey, std::uint32_t qpn) {
  Window* const found = window(rkey);
  if (found == nullptr || found->type != 2 || !found->bound || found->qpn != qpn) {
    return false;
  }
  unbind(*found);
  return true;
}

}  // namespace weft::roce
