// Owns the engine's endpoints (queue pairs): who may be written to, and the receives posted there.
#pragma once

#include <cstdint>
#include <vector>

#include "srd/base/flat_map.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/engine/requests.hpp"

namespace weft::srd {

struct Endpoint {
  Endpoint(Qpn number, const EndpointConfig& settings)
      : qpn(number), config(settings), receives(settings.receive_depth) {}

  Qpn qpn;
  EndpointConfig config;
  RingQueue<ReceiveRequest> receives;
};

class EndpointTable {
 public:
  // nullptr if there is none.
  [[nodiscard]] Endpoint* find(Qpn qpn) {
    const std::uint32_t index = by_qpn_.find(qpn);
    return index == FlatMap<Qpn>::kAbsent ? nullptr : &endpoints_[index];
  }
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
  void erase(Qpn qpn) {
    free_.push_back(by_qpn_.find(qpn));
    by_qpn_.erase(qpn);
  }

 private:
  std::vector<Endpoint> endpoints_;
  std::vector<std::uint32_t> free_;
  FlatMap<Qpn> by_qpn_;
};

}  // namespace weft::srd
