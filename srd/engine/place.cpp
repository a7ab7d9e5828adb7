// Owns the page that stands for simulated bulk, and the copy that few regions need.
#include "srd/engine/place.hpp"

#include "srd/base/line_copy.hpp"

namespace weft::srd {
namespace {

constexpr std::array<std::byte, kPhantomPageSize> kPhantomPage{};

}  // namespace

std::span<const std::byte> phantom_payload(std::size_t length) {
  return std::span(kPhantomPage).first(length);
}

bool PayloadReader::copy_lines_to(std::byte* to, std::size_t length) {
  return copy_with(to, length, copy_lines);
}

}  // namespace weft::srd
