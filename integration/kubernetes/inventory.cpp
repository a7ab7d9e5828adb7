// Everything that the kubelet asks for is checked here: it is another program, with a record of its
// own of which device is whose, and the two may differ after a restart.
#include "integration/kubernetes/inventory.hpp"

#include <algorithm>

namespace weft::kubernetes {

Inventory::Inventory(std::vector<std::size_t> nics, std::size_t shares) {
  // Ids must not depend on the order in which weftd tells of its NICs.
  std::ranges::sort(nics);
  for (std::size_t i = 0; i < shares; ++i) {
    entries_.push_back({"share" + std::to_string(i), nics});
  }
  for (std::size_t i = 0; shares == 0 && i < nics.size(); ++i) {
    entries_.push_back({"nic" + std::to_string(nics[i]), {nics[i]}});
  }
}

bool Inventory::is_healthy(const Entry& entry) const {
  return std::ranges::none_of(entry.nics, [&](std::size_t nic) { return broken_.contains(nic); });
}

const Inventory::Entry* Inventory::find(const std::string& id) const {
  const auto found = std::ranges::find(entries_, id, &Entry::id);
  return found == entries_.end() ? nullptr : &*found;
}

std::vector<Inventory::Device> Inventory::devices() const {
  std::vector<Device> devices;
  for (const Entry& entry : entries_) {
    devices.push_back({entry.id, is_healthy(entry)});
  }
  return devices;
}

// A NIC of which nothing is known is not healthy.
bool Inventory::set_health(const std::map<std::size_t, bool>& healthy_nics) {
  std::set<std::size_t> broken;
  for (const Entry& entry : entries_) {
    for (const std::size_t nic : entry.nics) {
      const auto known = healthy_nics.find(nic);
      if (known == healthy_nics.end() || !known->second) {
        broken.insert(nic);
      }
    }
  }
  // The kubelet is told only of changes.
  return std::exchange(broken_, broken) != broken;
}

Result<std::vector<std::size_t>> Inventory::nics_of(const std::vector<std::string>& ids) const {
  std::set<std::size_t> nics;
  std::set<std::string> seen;
  for (const std::string& id : ids) {
    const Entry* const entry = find(id);
    if (entry == nullptr) {
      // It may be anything, and the kubelet's log gets the message.
      return fail(ErrorCode::not_found, "there is no device '" + id.substr(0, 100) + "'");
    }
    if (!seen.insert(id).second) {
      return fail(ErrorCode::invalid_argument, "device '" + id + "' is asked for twice");
    }
    if (!is_healthy(*entry)) {
      return fail(ErrorCode::wrong_state, "device '" + id + "' is not healthy");
    }
    // Two shares of the same NICs give each of them once.
    nics.insert(entry->nics.begin(), entry->nics.end());
  }
  if (nics.empty()) {
    return fail(ErrorCode::invalid_argument, "no device is asked for");
  }
  return std::vector<std::size_t>(nics.begin(), nics.end());
}

// Ids that are not ours, or that come twice, are passed over and not refused: this is an advice,
// and nics_of() checks what the kubelet makes of it.
std::vector<std::string> Inventory::prefer(const std::vector<std::string>& available,
                                           const std::vector<std::string>& must_include,
                                           std::size_t count) const {
  std::vector<std::string> chosen;
  const auto choose = [&](const std::string& id) {
    if (chosen.size() < count && find(id) != nullptr &&
        std::ranges::find(chosen, id) == chosen.end()) {
      chosen.push_back(id);
    }
  };
  std::ranges::for_each(must_include, choose);
  // Unhealthy ones come last, but they come: the choice is the kubelet's.
  for (const bool healthy : {true, false}) {
    for (const Entry& entry : entries_) {
      if (is_healthy(entry) == healthy &&
          std::ranges::find(available, entry.id) != available.end()) {
        choose(entry.id);
      }
    }
  }
  return chosen;
}

}  // namespace weft::kubernetes
