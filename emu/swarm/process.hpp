// Owns one process of a swarm run: its life, the regions that it registered, its endpoints.
//
// A host that restarts gets a new Process with the next incarnation; the old one stays, because
// late packets must not change its memory, and the judge checks that at the end.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "emu/swarm/canvas.hpp"
#include "emu/swarm/plan.hpp"
#include "srd/engine/engine.hpp"

namespace weft::swarm {

// Every process registers one region of each kind.
enum class RegionKind : std::uint8_t {
  writable,
  readable,      // constant; what reads must return
  local_only,    // no remote access at all
  other_domain,  // writable, but of a protection domain that no endpoint is in
  phantom,
  replaceable,  // writable, and deregistered while requests to it are under way
};
inline constexpr std::size_t kRegionKinds = 6;
inline constexpr std::uint32_t kDomain = 5;
inline constexpr std::uint32_t kOtherDomain = 6;

[[nodiscard]] std::uint64_t region_address(RegionKind kind);
[[nodiscard]] std::uint64_t region_size(RegionKind kind);

// Its regions and endpoints live in the engine that set_up() was given; the Process outlives that
// engine and never touches it on its own account. A `std::deque<Region>` keeps the memory where the
// engine and the judge point to.
class Process {
 public:
  struct Region {
    explicit Region(RegionKind what) : kind(what), slots(region_size(what)) {}

    RegionKind kind;
    srd::RegionKey key;
    GuardedBuffer memory;
    SlotMap slots;  // which message was assigned which place
    bool registered = false;
    std::vector<std::byte> frozen;  // what it held when it was deregistered
  };

  Process(const HostPlan& plan, std::uint32_t host, std::uint32_t incarnation, TimePoint born);

  [[nodiscard]] std::uint32_t incarnation() const { return incarnation_; }
  [[nodiscard]] TimePoint born() const { return born_; }
  [[nodiscard]] srd::EngineConfig engine_config() const;
  // Opens the endpoints and registers the regions of a new engine; returns an error text or
  // nothing.
  [[nodiscard]] std::string set_up(srd::Engine& engine);
  [[nodiscard]] std::string open_endpoint(srd::Engine& engine, std::uint32_t index);
  // Deregisters the replaceable region, keeps what it held for the judge, and registers a new one
  // of that kind.
  [[nodiscard]] std::string replace_region(srd::Engine& engine);

  [[nodiscard]] Region& region(RegionKind kind) {
    return regions_[current_[static_cast<std::size_t>(kind)]];
  }
  // Every region that there ever was, for the checks.
  [[nodiscard]] const std::deque<Region>& regions() const { return regions_; }
  // Keys of replaced regions; no memory must be reachable with them.
  [[nodiscard]] const std::vector<srd::RegionKey>& stale_keys() const { return stale_keys_; }
  [[nodiscard]] std::uint64_t content_key() const { return content_key_; }

  // --- Endpoints that are open now.
  std::vector<bool> open;
  std::vector<bool> receiving;
  std::vector<std::uint32_t> receives_posted;
  bool alive = true;
  TimePoint died = kNever;

 private:
  [[nodiscard]] std::string register_region(srd::Engine& engine, RegionKind kind);

  const HostPlan& plan_;
  std::uint32_t incarnation_;
  TimePoint born_;
  std::uint64_t content_key_;
  std::deque<Region> regions_;
  std::size_t current_[kRegionKinds]{};
  std::vector<srd::RegionKey> stale_keys_;
};

// The life of the n-th process on a host: lives count up from the configured one, and skip 0, which
// means "not known" on the wire.
[[nodiscard]] srd::Life life_of(const HostPlan& plan, std::uint32_t incarnation);

}  // namespace weft::swarm
