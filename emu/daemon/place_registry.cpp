// Owns the rules by which places are given out.
//
// A place is a number on a NIC. Its life must be later than that of any former owner, or packets
// for that one could reach the new one. Numbers are given out in turn, so that one that was given
// back stays unused for as long as possible. After a restart weftd reads from its file which places
// had owners, and keeps those free that a living process may come back for.
#include "emu/daemon/place_registry.hpp"

#include <signal.h>

#include <cerrno>

namespace weft::daemon {
namespace {

// Lives are tenths of seconds since 1970. They run ahead of the calendar where a place changes
// hands more often than every tenth, but never by this much (nine days).
constexpr std::uint32_t kLivesAhead = 1 << 23;

bool still_runs(std::int32_t process) {
  return process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
}

}  // namespace

PlaceRegistry::PlaceRegistry(const Plant& plant) : nics_(plant.nics().size()) {}

Result<void> PlaceRegistry::remember(const std::string& file) {
  auto places = Places::open(file, nics_.size() * kSlotsPerNic);
  if (!places) {
    return tl::unexpected(places.error());
  }
  places_ = std::move(*places);
  for (std::size_t nic = 0; nic < nics_.size(); ++nic) {
    srd::Life latest;
    for (std::size_t id = 1; id < kSlotsPerNic; ++id) {
      const srd::Life life{places_.get(nic * kSlotsPerNic + id).life};
      nics_[nic].lives[id] = life;
      if (life.value() != 0 && (latest.value() == 0 || latest.before(life))) {
        latest = life;
        nics_[nic].next = static_cast<std::uint16_t>(id % (kSlotsPerNic - 1) + 1);
      }
    }
  }
  return {};
}

bool PlaceRegistry::is_waited_for(const PlantNic& nic, std::size_t id) const {
  const std::int32_t process = places_.get(index_of(nic, id)).process;
  return process == Places::kUnknown ? keep_unknown_ : still_runs(process);
}

// The place must be free, the life the last one given out there, and its owner this process or one
// that has ended.
bool PlaceRegistry::may_return(const PlantNic& nic, const Wish& wish, std::uint32_t now_life,
                               std::int32_t process) const {
  const NicPlaces& places = nics_[nic.port];
  const srd::Life life{wish.life};
  if (wish.attachment >= kSlotsPerNic || places.taken[wish.attachment] || life.value() == 0) {
    return false;
  }
  const srd::Life given = places.lives[wish.attachment];
  if (given.value() == 0) {  // nothing is remembered; but no life lies in the future
    return life.before(srd::Life{now_life}.plus(kLivesAhead));
  }
  const std::int32_t owner = places_.get(index_of(nic, wish.attachment)).process;
  return life == given && (owner == process || !still_runs(owner));
}

std::uint16_t PlaceRegistry::free_place(const PlantNic& nic, NicPlaces& places) {
  for (std::size_t tried = 1; tried < kSlotsPerNic; ++tried) {
    const std::uint16_t id = places.next;
    places.next = static_cast<std::uint16_t>(id % (kSlotsPerNic - 1) + 1);
    ++looked_at_;
    if (!places.taken[id] && !is_waited_for(nic, id)) {
      return id;
    }
  }
  return 0;
}

Result<PlaceRegistry::Place> PlaceRegistry::occupy(PlantNic& nic, const Wish& wish,
                                                   std::uint32_t now_life, std::int32_t process) {
  NicPlaces& places = nics_[nic.port];
  Place place{.nic = &nic, .id = 0, .life = srd::Life{wish.life}};
  if (wish.attachment != 0) {
    if (!may_return(nic, wish, now_life, process)) {
      return fail(ErrorCode::already_exists, "the place on the NIC was given to somebody else");
    }
    place.id = static_cast<std::uint16_t>(wish.attachment);
  } else {
    place.id = free_place(nic, places);
    if (place.id == 0) {
      return fail(ErrorCode::out_of_resources,
                  "all " + std::to_string(kSlotsPerNic - 1) + " places on this NIC are taken");
    }
    place.life = srd::Life{now_life};
    if (places.lives[place.id].value() != 0 && !places.lives[place.id].before(place.life)) {
      place.life = places.lives[place.id].plus(1);
    }
    if (place.life.value() == 0) {
      ++place.life;
    }
  }
  places.taken[place.id] = true;
  places.lives[place.id] = place.life;
  places_.set(index_of(nic, place.id),
              {.life = place.life.value(), .process = process > 0 ? process : Places::kUnknown});
  return place;
}

void PlaceRegistry::vacate(const Place& place) {
  nics_[place.nic->port].taken[place.id] = false;
  places_.set(index_of(*place.nic, place.id), {.life = place.life.value(), .process = 0});
}

}  // namespace weft::daemon
