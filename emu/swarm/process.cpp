// Owns setting up a process: its regions, endpoints and life.
#include "emu/swarm/process.hpp"

namespace weft::swarm {
namespace {

srd::Access access_of(RegionKind kind) {
  using srd::Access;
  switch (kind) {
    case RegionKind::readable:
      return Access::remote_read;
    case RegionKind::local_only:
      return Access::local_write;
    default:
      return Access::local_write | Access::remote_write;
  }
}

}  // namespace

// 4 GiB apart: an address that is wrong by less than that is in no region.
std::uint64_t region_address(RegionKind kind) {
  return 0x100000000ULL * (1 + static_cast<std::uint64_t>(kind));
}

std::uint64_t region_size(RegionKind kind) {
  switch (kind) {
    case RegionKind::writable:
      return 256 * 1024;
    case RegionKind::readable:
      return 32 * 1024;
    case RegionKind::replaceable:
      return 64 * 1024;
    case RegionKind::phantom:
      return 1 << 30;
    default:
      return 4096;
  }
}

srd::Life life_of(const HostPlan& plan, std::uint32_t incarnation) {
  const std::uint32_t first = plan.engine.life.value();
  const std::uint32_t life = first + incarnation;
  return srd::Life{life < first ? life + 1 : life};
}

Process::Process(const HostPlan& plan, std::uint32_t host, std::uint32_t incarnation,
                 TimePoint born)
    : open(plan.endpoints.size(), false),
      receiving(plan.endpoints.size(), false),
      receives_posted(plan.endpoints.size(), 0),
      plan_(plan),
      incarnation_(incarnation),
      born_(born),
      content_key_(mix64((std::uint64_t{host} << 32) + incarnation)) {}

srd::EngineConfig Process::engine_config() const {
  srd::EngineConfig config = plan_.engine;
  config.life = life_of(plan_, incarnation_);
  config.seed = mix64(config.seed + incarnation_);
  // Each life begins with other numbers, so that a packet of a former life rarely fits by chance.
  config.first_psn = Psn{config.first_psn.value() + incarnation_ * 77};
  return config;
}

std::string Process::set_up(srd::Engine& engine) {
  for (std::size_t kind = 0; kind < kRegionKinds; ++kind) {
    if (std::string error = register_region(engine, static_cast<RegionKind>(kind));
        !error.empty()) {
      return error;
    }
  }
  for (std::uint32_t i = 0; i < plan_.endpoints.size(); ++i) {
    if (std::string error = open_endpoint(engine, i); !error.empty()) {
      return error;
    }
  }
  return {};
}

std::string Process::open_endpoint(srd::Engine& engine, std::uint32_t index) {
  const EndpointPlan& e = plan_.endpoints[index];
  const auto opened =
      engine.open_endpoint(e.qpn, {.qkey = e.qkey,
                                   .domain = kDomain,
                                   .receive_depth = e.receive_depth,
                                   .receiving = true,
                                   .unsolicited_immediate = e.unsolicited_immediate});
  open[index] = receiving[index] = true;
  receives_posted[index] = 0;
  return opened ? std::string{} : "an endpoint cannot be opened: " + opened.error().message;
}

std::string Process::register_region(srd::Engine& engine, RegionKind kind) {
  Region region{kind};
  if (kind != RegionKind::phantom) {
    region.memory = GuardedBuffer(region_size(kind));
  }
  if (kind == RegionKind::readable) {
    paint(region.memory.bytes(), content_key_);
  }
  const auto key = engine.memory().insert(
      {.data = kind == RegionKind::phantom ? nullptr : region.memory.bytes().data(),
       .address = region_address(kind),
       .length = region_size(kind),
       .access = access_of(kind),
       .domain = kind == RegionKind::other_domain ? kOtherDomain : kDomain,
       .placement = kind == RegionKind::phantom ? srd::Placement::phantom : srd::Placement::plain});
  if (!key) {
    return "a region cannot be registered: " + key.error().message;
  }
  region.key = *key;
  region.registered = true;
  current_[static_cast<std::size_t>(kind)] = regions_.size();
  regions_.push_back(std::move(region));
  return {};
}

std::string Process::replace_region(srd::Engine& engine) {
  Region& old = regions_[current_[static_cast<std::size_t>(RegionKind::replaceable)]];
  if (!engine.memory().erase(old.key)) {
    return "a registered region cannot be deregistered";
  }
  old.registered = false;
  const auto bytes = old.memory.bytes();
  old.frozen.assign(bytes.begin(), bytes.end());
  stale_keys_.push_back(old.key);
  return register_region(engine, RegionKind::replaceable);
}

}  // namespace weft::swarm
