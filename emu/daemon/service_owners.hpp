// Owns which process of a NIC answers to which service of management.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace weft::daemon {

// A service id is a port of rdma_cm with its port space, as REQ and SIDR_REQ carry it; or a method
// of another class of management (emu/roce/wire/mad_owners.hpp).
class ServiceOwners {
 public:
  static constexpr std::size_t kMaxOfAProcess = 1024;

  // False: another process has it already, or this one has too many.
  [[nodiscard]] bool claim(std::uint64_t service, std::uint16_t attachment) {
    const std::uint16_t before = owner(service);
    std::vector<std::uint64_t>& own = of_process_[attachment];
    if (before != 0 || own.size() >= kMaxOfAProcess) {
      return before == attachment;
    }
    owners_.emplace(service, attachment);
    own.push_back(service);
    return true;
  }
  void release(std::uint64_t service, std::uint16_t attachment) {
    if (owner(service) == attachment) {
      owners_.erase(service);
      std::erase(of_process_[attachment], service);
    }
  }
  // Releases all services of a process that has gone. The cost depends on what that process had,
  // not on what there is.
  void forget(std::uint16_t attachment) {
    const auto found = of_process_.find(attachment);
    if (found != of_process_.end()) {
      for (const std::uint64_t service : found->second) {
        owners_.erase(service);
      }
      of_process_.erase(found);
    }
  }
  // The attachment of the process that has claimed it; 0: none has.
  [[nodiscard]] std::uint16_t owner(std::uint64_t service) const {
    const auto found = owners_.find(service);
    return found == owners_.end() ? std::uint16_t{0} : found->second;
  }

 private:
  std::unordered_map<std::uint64_t, std::uint16_t> owners_;
  std::unordered_map<std::uint16_t, std::vector<std::uint64_t>> of_process_;
};

}  // namespace weft::daemon
