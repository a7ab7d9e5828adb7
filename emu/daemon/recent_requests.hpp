// Owns which process of a NIC the latest requests for connections have gone to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "srd/net/address.hpp"

namespace weft::daemon {

// Who takes a request back that was not answered knows no number of the other side to name; he
// names his own, as in the request. Nobody but the sender of a request is found by it.
class RecentRequests {
 public:
  // More than wait at the servers of a NIC as a rule. One that is forgotten ends by a time-out.
  static constexpr std::size_t kMax = 4096;

  // The request may be a repeated one, and its service another process's by now.
  void note(const srd::Address& from, std::uint32_t id, std::uint16_t attachment) {
    const Key key{from.words(), id};
    if (const auto [found, is_new] = attachments_.insert_or_assign(key, attachment); !is_new) {
      return;
    }
    order_.push_back(key);
    if (order_.size() > kMax) {
      attachments_.erase(order_.front());
      order_.pop_front();
    }
  }
  // 0: none is remembered.
  [[nodiscard]] std::uint16_t attachment_of(const srd::Address& from, std::uint32_t id) const {
    const auto found = attachments_.find({from.words(), id});
    return found == attachments_.end() ? std::uint16_t{0} : found->second;
  }

 private:
  using Key = std::pair<std::array<std::uint64_t, 2>, std::uint32_t>;

  std::map<Key, std::uint16_t> attachments_;
  std::deque<Key> order_;  // in which they came
};

}  // namespace weft::daemon
