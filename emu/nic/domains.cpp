// Owns counting what uses a protection domain.
#include "emu/nic/domains.hpp"

#include <algorithm>

#include "srd/base/check.hpp"

namespace weft::nic {

Outcome<std::uint32_t> Domains::allocate() {
  const auto unused = std::find_if(domains_.begin(), domains_.end(),
                                   [](const Domain& domain) { return !domain.used; });
  const auto index = static_cast<std::uint32_t>(unused - domains_.begin());
  if (unused == domains_.end()) {
    if (domains_.size() >= max_domains_) {
      return refuse(ENOMEM);
    }
    domains_.emplace_back();
  }
  domains_[index].used = true;
  return index;
}

Outcome<void> Domains::free(std::uint32_t domain) {
  if (!has(domain)) {
    return refuse(EINVAL);
  }
  if (domains_[domain].holders > 0) {
    return refuse(EBUSY);
  }
  domains_[domain] = Domain{};
  return {};
}

void Domains::release(std::uint32_t domain) {
  WEFT_CHECK(has(domain) && domains_[domain].holders > 0);
  --domains_[domain].holders;
}

Outcome<srd::RegionKey> Domains::register_memory(const srd::Region& region) {
  if (!has(region.domain)) {
    return refuse(EINVAL);
  }
  const auto key = table_.insert(region);
  if (!key) {
    return refuse(ENOMEM);
  }
  hold(region.domain);
  return *key;
}

Outcome<void> Domains::deregister(srd::RegionKey key) {
  const srd::Region* const region = table_.find(key);
  if (region == nullptr) {
    return refuse(EINVAL);
  }
  release(region->domain);
  table_.erase(key);
  return {};
}

}  // namespace weft::nic
