// Owns the protection domains and the registered memory of one NIC of SRD in this process. All its
// queue pairs share them, so a region is registered once and has one key.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/nic/outcome.hpp"
#include "srd/engine/memory_table.hpp"

namespace weft::nic {

// A domain cannot go while an address handle, a queue pair or a region is in it: each holds it.
// Numbers of domains and indices of regions are used again. Under the device's lock, like all of
// this folder.
class Domains {
 public:
  // `salt` decides about the keys of memory regions, see srd::MemoryTable.
  Domains(std::uint32_t max_domains, std::uint64_t salt)
      : max_domains_(max_domains), table_(salt) {}

  [[nodiscard]] Outcome<std::uint32_t> allocate();
  // EBUSY while it is held.
  [[nodiscard]] Outcome<void> free(std::uint32_t domain);
  [[nodiscard]] bool has(std::uint32_t domain) const {
    return domain < domains_.size() && domains_[domain].used;
  }
  // By an object that is made in the domain, until it goes.
  void hold(std::uint32_t domain) { ++domains_[domain].holders; }
  void release(std::uint32_t domain);

  // A region holds its domain.
  [[nodiscard]] Outcome<srd::RegionKey> register_memory(const srd::Region& region);
  [[nodiscard]] Outcome<void> deregister(srd::RegionKey key);

  // Where protocols look keys up. Regions come and go only by the calls above.
  [[nodiscard]] srd::MemoryTable& table() { return table_; }
  [[nodiscard]] const srd::MemoryTable& table() const { return table_; }

 private:
  struct Domain {
    bool used = false;
    std::uint32_t holders = 0;
  };
  std::uint32_t max_domains_;
  std::vector<Domain> domains_;
  srd::MemoryTable table_;
};

}  // namespace weft::nic
