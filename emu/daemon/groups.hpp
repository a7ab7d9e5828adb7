// Owns which processes are members of which multicast groups, as a switch knows it that listens to
// IGMP and MLD.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "srd/net/address.hpp"

namespace weft::daemon {

struct Slot;

// The forwarding thread's. Members do not move while they are in it.
class Groups {
 public:
  static constexpr std::size_t kMaxOfAProcess = 8192;  // as many as its device has

  // False: the process is in too many.
  [[nodiscard]] bool join(const srd::Address& group, Slot& slot) {
    std::vector<srd::Address>& own = of_process_[&slot];
    if (std::ranges::find(own, group) != own.end()) {
      return true;
    }
    if (own.size() >= kMaxOfAProcess) {
      return false;
    }
    own.push_back(group);
    members_[group].push_back(&slot);
    return true;
  }
  void leave(const srd::Address& group, Slot& slot) {
    const auto own = of_process_.find(&slot);
    if (own != of_process_.end() && std::erase(own->second, group) != 0) {
      drop(group, slot);
    }
  }
  // The process has gone.
  void forget(Slot& slot) {
    const auto own = of_process_.find(&slot);
    if (own == of_process_.end()) {
      return;
    }
    for (const srd::Address& group : own->second) {
      drop(group, slot);
    }
    of_process_.erase(own);
  }
  [[nodiscard]] std::span<Slot* const> members(const srd::Address& group) const {
    const auto found = members_.find(group);
    return found == members_.end() ? std::span<Slot* const>{} : std::span(found->second);
  }

 private:
  void drop(const srd::Address& group, Slot& slot) {
    const auto found = members_.find(group);
    std::erase(found->second, &slot);
    if (found->second.empty()) {
      members_.erase(found);
    }
  }

  std::unordered_map<srd::Address, std::vector<Slot*>> members_;
  std::unordered_map<Slot*, std::vector<srd::Address>> of_process_;
};

}  // namespace weft::daemon
