// Owns assigning places on NICs: attachment numbers and lives.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emu/daemon/places.hpp"
#include "emu/daemon/plant.hpp"
#include "srd/base/result.hpp"
#include "srd/net/address.hpp"

namespace weft::daemon {

// Belongs to the control thread. A place is taken from occupy() to vacate(); its life stays known
// after that, so that the next owner gets a later one.
class PlaceRegistry {
 public:
  explicit PlaceRegistry(const Plant& plant);

  struct Place {
    PlantNic* nic = nullptr;
    std::uint16_t id = 0;
    srd::Life life;
  };
  // What a process had before weftd came back. Attachment 0: a new place.
  struct Wish {
    std::uint32_t attachment = 0;
    std::uint32_t life = 0;
  };
  // Assigns a place. Numbers are used in turn, so that late packets for a process that is gone
  // rarely meet a new one; if they do, the life shows it. A wish is fulfilled exactly or not at
  // all: peers would take a process with another one's place and life for that one.
  [[nodiscard]] Result<Place> occupy(PlantNic& nic, const Wish& wish, std::uint32_t now_life,
                                     std::int32_t process);
  void vacate(const Place& place);

  // From now on the file remembers which process has which place. What it holds already is obeyed:
  // no life is given twice, and a place stays free for the process that had it as long as that runs
  // (or, if that cannot be known, until keep_unknown(false)).
  [[nodiscard]] Result<void> remember(const std::string& file);
  void keep_unknown(bool keep) { keep_unknown_ = keep; }

  // Places that occupy() has looked at so far: a measure of its cost, for tests.
  [[nodiscard]] std::uint64_t looked_at() const { return looked_at_; }

 private:
  struct NicPlaces {
    std::array<bool, kSlotsPerNic> taken{};
    std::array<srd::Life, kSlotsPerNic> lives{};  // the latest given out
    std::uint16_t next = 1;
  };

  [[nodiscard]] static std::size_t index_of(const PlantNic& nic, std::size_t id) {
    return nic.port * kSlotsPerNic + id;
  }
  // Its process attached to an earlier weftd, still runs, and will ask for it.
  [[nodiscard]] bool is_waited_for(const PlantNic& nic, std::size_t id) const;
  [[nodiscard]] bool may_return(const PlantNic& nic, const Wish& wish, std::uint32_t now_life,
                                std::int32_t process) const;
  [[nodiscard]] std::uint16_t free_place(const PlantNic& nic, NicPlaces& places);

  Places places_;
  bool keep_unknown_ = true;
  std::vector<NicPlaces> nics_;
  std::uint64_t looked_at_ = 0;
};

}  // namespace weft::daemon
