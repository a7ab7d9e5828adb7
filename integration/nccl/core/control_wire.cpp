// Owns the validation of control messages that arrive.
#include "integration/nccl/core/control_wire.hpp"

#include <cstring>

#include "srd/engine/requests.hpp"

namespace weft::nccl {

std::optional<ControlHeader> parse_control(std::span<const std::byte> bytes) {
  ControlHeader header;
  if (bytes.size() < sizeof header) {
    return std::nullopt;
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto kind = static_cast<ControlKind>(header.kind);
  const unsigned flags = kind == ControlKind::goodbye ? kToSender : 0;
  if (header.version != kControlVersion || kind < ControlKind::hello || kind > ControlKind::eager ||
      (header.flags & ~flags) != 0) {
    return std::nullopt;
  }
  const bool announces = kind == ControlKind::announce;
  if (announces ? header.count == 0 || header.count > kMaxGroup : header.count != 0) {
    return std::nullopt;
  }
  if (kind == ControlKind::eager) {
    return bytes.size() >= sizeof(EagerHeader) && bytes.size() <= kMaxMessage
               ? std::optional(header)
               : std::nullopt;
  }
  // Exactly as long as its count says: what a later version might add has a version of its own.
  if (bytes.size() != sizeof header + header.count * sizeof(ControlEntry)) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < header.count; ++i) {
    if (entry_of(bytes, i).size.value() > srd::kMaxTransfer) {
      return std::nullopt;
    }
  }
  return header;
}

ControlEntry entry_of(std::span<const std::byte> bytes, std::size_t index) {
  ControlEntry entry;
  std::memcpy(&entry, bytes.data() + sizeof(ControlHeader) + index * sizeof entry, sizeof entry);
  return entry;
}

std::int64_t tag_of(std::span<const std::byte> bytes) {
  EagerHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.tag.value();
}

}  // namespace weft::nccl
