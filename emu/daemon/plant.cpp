// Owns the names and addresses of NICs, and the table of slots.
//
// The address of a NIC says where it is: PREFIX.HOST.NIC, so two networks of one prefix need
// different hosts.
#include "emu/daemon/plant.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "emu/attach/protocol.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "srd/base/check.hpp"

namespace weft::daemon {
namespace {

constexpr std::size_t kMaxHosts = 254;

// The n of "h<n>".
std::optional<std::uint32_t> number_of(const std::string& host) {
  std::uint32_t number = 0;
  const char* end = host.data() + host.size();
  const bool digits = host.size() > 1 && host.size() < 6 && host[0] == 'h' &&
                      std::from_chars(host.data() + 1, end, number).ptr == end;
  return digits ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<Plant> Plant::make(const Options& options) {
  if (options.hosts.empty() || options.first_host == 0 ||
      options.hosts.size() + options.first_host - 1 > kMaxHosts) {
    return fail(ErrorCode::invalid_argument, std::to_string(options.hosts.size()) +
                                                 " hosts; give 1 to " + std::to_string(kMaxHosts));
  }
  if (options.nics_per_host == 0 || options.nics_per_host > attach::kMaxNicsPerHost) {
    return fail(ErrorCode::invalid_argument, std::to_string(options.nics_per_host) +
                                                 " NICs per host; give 1 to " +
                                                 std::to_string(attach::kMaxNicsPerHost));
  }
  Plant plant;
  for (std::size_t h = 0; h < options.hosts.size(); ++h) {
    const std::string& host = options.hosts[h];
    const std::uint32_t nics =
        h < options.nics_of_host.size() ? options.nics_of_host[h] : options.nics_per_host;
    if (nics == 0 || nics > attach::kMaxNicsPerHost) {
      return fail(ErrorCode::invalid_argument,
                  "host '" + host + "' has " + std::to_string(nics) + " links to the network; a " +
                      "host may have 1 to " + std::to_string(attach::kMaxNicsPerHost) + " NICs");
    }
    if (!fabric::is_node_name(host) || host.size() >= attach::kMaxHostName) {
      return fail(ErrorCode::invalid_argument,
                  "host name '" + host + "': " + fabric::kNodeNameRule +
                      ", and for a host at most " + std::to_string(attach::kMaxHostName - 1));
    }
    if (std::count(options.hosts.begin(), options.hosts.end(), host) != 1) {
      return fail(ErrorCode::invalid_argument, "host name '" + host + "' is not the only one");
    }
    for (std::uint32_t index = 0; index < nics; ++index) {
      auto nic = std::make_unique<PlantNic>();
      nic->host = host;
      nic->index = index;
      nic->port = static_cast<std::uint32_t>(plant.nics_.size());
      nic->address = srd::Address::v4(
          options.prefix[0], options.prefix[1],
          static_cast<unsigned>(options.first_host + plant.hosts_.size()), index + 1);
      plant.by_address_.emplace(nic->address, nic.get());
      plant.nics_.push_back(std::move(nic));
    }
    plant.hosts_.push_back(host);
    plant.counted_ = plant.counted_ && !number_of(host);
  }
  plant.first_host_ = options.first_host;
  return plant;
}

Result<std::vector<PlantNic*>> Plant::nics_of(const std::string& host) {
  std::string name = host.empty() ? hosts_.front() : host;
  // h1, h2, ... also count the hosts of a topology, unless its own names are of that kind.
  if (const auto number = number_of(name);
      counted_ && number && *number >= first_host_ && *number - first_host_ < hosts_.size()) {
    name = hosts_[*number - first_host_];
  }
  std::vector<PlantNic*> found;
  for (const auto& nic : nics_) {
    if (nic->host == name) {
      found.push_back(nic.get());
    }
  }
  if (found.empty()) {
    return fail(ErrorCode::not_found, "there is no host '" + name + "'; there are " +
                                          std::to_string(hosts_.size()) + ": " + hosts_.front() +
                                          (hosts_.size() > 1 ? " ... " + hosts_.back() : ""));
  }
  return found;
}

void Plant::put(std::unique_ptr<Slot> slot) {
  auto& place = slot->nic->slots[slot->id];
  WEFT_CHECK(place == nullptr);
  slot->nic->left.reset(slot->id);
  slot->place = occupied_.size();
  occupied_.push_back(slot.get());
  place = std::move(slot);
}

std::unique_ptr<Slot> Plant::take(Slot& slot) {
  occupied_[slot.place] = occupied_.back();
  occupied_[slot.place]->place = slot.place;
  occupied_.pop_back();
  slot.nic->services.forget(slot.id);
  slot.nic->left.set(slot.id);
  groups_.forget(slot);
  return std::move(slot.nic->slots[slot.id]);
}

}  // namespace weft::daemon
