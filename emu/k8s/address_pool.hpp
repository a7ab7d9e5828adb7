// Owns addresses as IPAM plugins hand them out: ranges of IPv4 and IPv6 with gaps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::k8s {

// An address as a number; of IPv4 the lower 32 bits.
struct IpAddress {
  unsigned __int128 number = 0;
  bool is_v6 = false;

  auto operator<=>(const IpAddress&) const = default;
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] std::optional<IpAddress> parse_address(std::string_view text);

// "ADDRESS/LENGTH".
struct Subnet {
  IpAddress first;  // the network's own
  IpAddress last;
  unsigned length = 0;
};
[[nodiscard]] std::optional<Subnet> parse_subnet(std::string_view text);

// Hands out the addresses of a range in order, each once; none comes back. Excluded ranges may
// overlap, and must be known before the first take().
class AddressPool {
 public:
  // All addresses of a subnet that hosts may have, from `start` to `end` if they are given.
  [[nodiscard]] static Result<AddressPool> of(const Subnet& subnet,
                                              const std::optional<IpAddress>& start,
                                              const std::optional<IpAddress>& end);

  void exclude(const IpAddress& first, const IpAddress& last);
  // The next free address, with the subnet's length: "10.0.0.1/24".
  [[nodiscard]] std::optional<std::string> take();
  // How many there are, given and free; at most `limit`.
  [[nodiscard]] std::uint64_t size(std::uint64_t limit) const;

  [[nodiscard]] const IpAddress& first() const { return first_; }
  [[nodiscard]] const IpAddress& last() const { return last_; }
  [[nodiscard]] bool overlaps(const AddressPool& other) const {
    return first_.is_v6 == other.first_.is_v6 && first_ <= other.last_ && other.first_ <= last_;
  }

 private:
  AddressPool(IpAddress first, IpAddress last, unsigned length)
      : first_(first), last_(last), next_(first), length_(length) {}
  // The first address from this one on that is not excluded; behind the last one if there is none.
  [[nodiscard]] IpAddress free_from(IpAddress address) const;

  IpAddress first_;
  IpAddress last_;
  IpAddress next_;
  unsigned length_;
  // First and last address of each, sorted.
  std::vector<std::pair<IpAddress, IpAddress>> excluded_;
};

}  // namespace weft::k8s
