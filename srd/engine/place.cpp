// Owns the page that stands for simulated bulk.
#include "srd/engine/place.hpp"

namespace weft::srd {
namespace {

constexpr std::array<std::byte, kPhantomPageSize> kPhantomPage{};

}  // namespace

std::span<const std::byte> phantom_payload(std::size_t length) {
  return std::span(kPhantomPage).first(length);
}

}  // namespace weft::srd
