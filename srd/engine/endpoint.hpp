// Owns the engine's endpoints (queue pairs): whether they take packets, and the receives posted
// there.
#pragma once

#include <cstdint>
#include <vector>

#include "srd/base/flat_map.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/engine/work.hpp"

namespace weft::srd {

struct Endpoint {
  Endpoint(Qpn number, const EndpointConfig& settings)
      : qpn(number), config(settings), receives(settings.receive_depth) {}

  Qpn qpn;
  EndpointConfig config;
  RingQueue<ReceiveRequest> receives;
  EndpointWorks works;  // requests that were posted here
};

class EndpointTable {
 public:
  // nullptr if there is none.
  [[nodiscard]] Endpoint* find(Qpn qpn) {
    if (latest_ != FlatMap<Qpn>::kAbsent && endpoints_[latest_].qpn == qpn) {
      return &endpoints_[latest_];
    }
    latest_ = by_qpn_.find(qpn);
    return latest_ == FlatMap<Qpn>::kAbsent ? nullptr : &endpoints_[latest_];
  }
  // find() will be called soon.
  void prefetch() const { __builtin_prefetch(endpoints_.data()); }
  // The number must be unused.
  void insert(Qpn qpn, const EndpointConfig& config) {
    if (free_.empty()) {
      by_qpn_.insert(qpn, static_cast<std::uint32_t>(endpoints_.size()));
      endpoints_.emplace_back(qpn, config);
      return;
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    endpoints_[index] = Endpoint{qpn, config};
    by_qpn_.insert(qpn, index);
  }
  // All there are, and those that were: they have no receives.
  [[nodiscard]] auto begin() { return endpoints_.begin(); }
  [[nodiscard]] auto end() { return endpoints_.end(); }
  void erase(Qpn qpn) {
    latest_ = FlatMap<Qpn>::kAbsent;
    free_.push_back(by_qpn_.find(qpn));
    by_qpn_.erase(qpn);
  }

 private:
  std::vector<Endpoint> endpoints_;
  std::vector<std::uint32_t> free_;
  FlatMap<Qpn> by_qpn_;
  std::uint32_t latest_ = FlatMap<Qpn>::kAbsent;  // that was found: few are in use at a time
};

}  // namespace weft::srd
