// Owns the hash of addresses.
#include "srd/wire/address.hpp"

#include <cstring>

#include "srd/base/rng.hpp"

std::size_t std::hash<weft::srd::Address>::operator()(
    const weft::srd::Address& address) const noexcept {
  std::uint64_t halves[2];
  std::memcpy(halves, address.bytes.data(), sizeof halves);
  return static_cast<std::size_t>(weft::mix64(halves[0] ^ weft::mix64(halves[1])));
}
