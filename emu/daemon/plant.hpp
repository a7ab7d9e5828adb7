// Owns what hangs on the network of one machine: hosts, their NICs, and which process sits in which
// NIC's slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emu/daemon/loans.hpp"
#include "emu/daemon/places.hpp"
#include "srd/base/result.hpp"
#include "srd/base/time.hpp"
#include "srd/engine/types.hpp"
#include "srd/io/ring_port.hpp"

namespace weft::emu {

inline constexpr std::size_t kSlotsPerNic = 256;  // number 0 is the NIC's own: management traffic

struct Nic;

struct SlotCounters {
  std::uint64_t frames_in = 0;  // from the process
  std::uint64_t bytes_in = 0;
  std::uint64_t frames_out = 0;
  std::uint64_t bytes_out = 0;
};

// A process on a NIC.
struct Slot {
  Nic* nic = nullptr;
  std::uint16_t id = 0;  // upper bits of its queue pair numbers
  srd::Life life;
  srd::RingPort port;
  std::size_t ring_bytes = 0;
  srd::UniqueFd socket;
  srd::UniqueFd doorbell;  // the process's, to hand to its peers
  srd::UniqueFd process;   // tells of its end even if a child keeps the socket open
  std::int32_t pid = 0;
  bool direct_rings = true;
  std::size_t direct_pairs = 0;  // that it is one of
  bool wants_management = false;
  bool doomed = false;  // to be detached after the current round
  SlotCounters counters;

  // Where its previous frame went: most go to the same place.
  srd::Address last_destination;
  std::uint32_t last_block = 0;
  Slot* last_target = nullptr;

  // The same for the NIC alone, which never goes away.
  const Nic* last_nic = nullptr;

  Loans loans;  // frames in its ring that are still inside of the network

  // While its ring is full. Frames wait for it a while, then they are dropped until it reads again.
  std::uint64_t full_at = 0;  // its consumer's position then
  TimePoint full_since = kNever;
};

struct Nic {
  std::string host;
  std::uint32_t index = 0;  // within its host
  std::uint32_t port = 0;   // of the network: its place among all NICs
  srd::Address address;
  bool link_up = true;  // in the modelled network, both directions
  std::array<std::unique_ptr<Slot>, kSlotsPerNic> slots;
  std::array<srd::Life, kSlotsPerNic> lives;  // the latest given out
  std::uint16_t next_slot = 1;
};

class Plant {
 public:
  struct Options {
    std::vector<std::string> hosts{"h1"};
    std::uint32_t nics_per_host = 1;
    std::vector<std::uint32_t> nics_of_host;      // if given: the number of NICs of each host
    std::uint32_t first_host = 1;                 // its number in addresses
    std::array<std::uint8_t, 2> prefix{127, 77};  // NIC n of the h-th host is prefix.h.(n + 1)
  };
  [[nodiscard]] static Result<Plant> make(const Options& options);

  // The host of that name, or the first one for an empty name. Where no host is called h<number>
  // (in topologies with names of their own) h<n> counts them, from first_host.
  [[nodiscard]] Result<std::vector<Nic*>> nics_of(const std::string& host);
  [[nodiscard]] Nic* find(const srd::Address& address) {
    const auto found = by_address_.find(address);
    return found == by_address_.end() ? nullptr : found->second;
  }

  // A place for one more process. Numbers go round, so that late packets meet no young process.
  // With a wish (a process that was there before weftd came back) exactly that place and life, or
  // an error.
  struct Wish {
    std::uint32_t attachment = 0;
    std::uint32_t life = 0;
  };
  [[nodiscard]] Result<Slot*> occupy(Nic& nic, const Wish& wish, std::uint32_t now_life,
                                     std::int32_t process);
  void vacate(Slot& slot);

  // From now on the file remembers who has which place. What it says already counts: no life is
  // given twice, and a place stays free for a process that had it and still runs (or of which
  // nothing is known, until keep_unknown(false)).
  [[nodiscard]] Result<void> remember(const std::string& file);
  void keep_unknown(bool keep) { keep_unknown_ = keep; }

  [[nodiscard]] const std::vector<Slot*>& slots() const { return occupied_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Nic>>& nics() const { return nics_; }
  [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  [[nodiscard]] static std::size_t place_of(const Nic& nic, std::size_t id) {
    return nic.port * kSlotsPerNic + id;
  }
  [[nodiscard]] bool is_waited_for(const Nic& nic, std::size_t id) const;

  Places places_;
  bool keep_unknown_ = true;
  bool counted_ = true;  // no host is called h<number>
  std::uint32_t first_host_ = 1;
  std::vector<std::string> hosts_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::unordered_map<srd::Address, Nic*> by_address_;
  std::vector<Slot*> occupied_;
};

[[nodiscard]] std::string to_text(const srd::Address& address);

}  // namespace weft::emu
