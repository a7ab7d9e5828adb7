// Owns memory regions and memory windows of both types: their keys, bounds, rights and states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emu/roce/engine/types.hpp"

namespace weft::roce {

// Memory of the application; the table does not own it.
struct MemoryRegion {
  std::byte* data = nullptr;
  std::uint64_t address = 0;  // what peers call the first byte
  std::uint64_t length = 0;
  std::uint32_t access = 0;
  std::uint32_t domain = 0;
};

// A key is an index above eight bits that differ each time the index is used, so that a key of
// something that is gone opens nothing new. The local key of a region is its remote key. Regions
// and windows have index ranges of their own. Pointers that are returned hold until the next change
// of the table.
class KeyTable {
 public:
  explicit KeyTable(std::uint64_t salt) : salt_(salt) {}

  // 0: there is no room.
  [[nodiscard]] std::uint32_t register_region(const MemoryRegion& region);
  // An errno: EINVAL for an unknown key, EBUSY while a window is bound to the region.
  [[nodiscard]] int deregister(std::uint32_t key);
  // Null: there is no such region. Its rights and its domain may be changed.
  [[nodiscard]] MemoryRegion* find_region(std::uint32_t key);
  // Windows are bound to the region.
  [[nodiscard]] bool has_windows(std::uint32_t key) const;
  // `type` is 1 or 2. 0: there is no room.
  [[nodiscard]] std::uint32_t allocate_window(unsigned type, std::uint32_t domain);
  [[nodiscard]] int free_window(std::uint32_t rkey);
  // By any key that it ever had: binding changes the low byte.
  void free_window_at(std::uint32_t rkey);

  // For segments of work requests. Null: the key, the domain, the bounds or the rights are wrong.
  [[nodiscard]] std::byte* local(const Sge& sge, std::uint32_t access, std::uint32_t domain) const;
  // For what a peer asks of the queue pair `qpn`. Null as above.
  [[nodiscard]] std::byte* remote(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                                  std::uint32_t access, std::uint32_t domain,
                                  std::uint32_t qpn) const;

  // The specification's rules of binding (10.6.7.2). False: nothing has changed.
  [[nodiscard]] bool bind(const WorkRequest& request, std::uint32_t domain, std::uint32_t qpn);
  // By a request of the queue pair, or of its peer. Only a bound window of type 2 can be.
  [[nodiscard]] bool invalidate(std::uint32_t rkey, std::uint32_t qpn);

 private:
  static constexpr std::uint32_t kFirstWindow = 1U << 19;
  static constexpr std::uint32_t kMaxEntries = kFirstWindow - 1;

  struct Region {
    MemoryRegion memory;
    std::uint32_t key = 0;
    std::uint32_t windows = 0;
    bool used = false;
  };
  struct Window {
    std::uint32_t rkey = 0;
    std::uint32_t domain = 0;
    std::uint32_t region = 0;  // index
    std::uint32_t qpn = 0;     // type 2: the only one that may use it
    std::uint32_t access = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    unsigned type = 1;
    bool used = false;
    bool bound = false;
  };

  [[nodiscard]] std::uint32_t first_variant(std::uint32_t index) const;
  [[nodiscard]] const Region* region(std::uint32_t key) const;
  [[nodiscard]] Window* window(std::uint32_t rkey);
  [[nodiscard]] const Window* window(std::uint32_t rkey) const;
  void unbind(Window& window);

  std::uint64_t salt_;
  std::vector<Region> regions_;
  std::vector<Window> windows_;
  std::vector<std::uint32_t> free_regions_;
  std::vector<std::uint32_t> free_windows_;
};

}  // namespace weft::roce
