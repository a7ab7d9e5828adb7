// Owns the validation of the headers that arrive.
#include "srd/message/header.hpp"

#include <cstring>

#include "srd/engine/engine.hpp"

namespace weft::srd::message {

std::optional<Header> parse_header(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) {
    return std::nullopt;
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::size_t payload = bytes.size() - sizeof header;
  if (header.version != kMessageVersion || (header.flags & ~(kHasImmediate | kUnordered)) != 0) {
    return std::nullopt;
  }
  switch (static_cast<Kind>(header.kind)) {
    case Kind::eager:
      return header.length.value() == payload ? std::optional{header} : std::nullopt;
    case Kind::request:
      return payload == 0 && header.length.value() <= kMaxTransfer ? std::optional{header}
                                                                   : std::nullopt;
    case Kind::finished:
      return payload == 0 && header.status <= static_cast<std::uint8_t>(Status::local_protection)
                 ? std::optional{header}
                 : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace weft::srd::message
