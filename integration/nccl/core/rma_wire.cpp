// Owns the validation of messages for remote memory access that arrive.
#include "integration/nccl/core/rma_wire.hpp"

#include <cstring>

namespace weft::nccl {

std::optional<RmaMessage> parse_rma(std::span<const std::byte> bytes) {
  RmaMessage message;
  if (bytes.size() != sizeof message) {
    return std::nullopt;
  }
  std::memcpy(&message, bytes.data(), sizeof message);
  const auto kind = static_cast<RmaKind>(message.kind);
  const std::uint8_t known_flags = kind == RmaKind::window ? kNoMemory : 0;
  if (message.version != kRmaVersion || kind < RmaKind::join || kind > RmaKind::alive ||
      (message.flags & ~known_flags) != 0 || message.reserved != 0) {
    return std::nullopt;
  }
  return message;
}

}  // namespace weft::nccl
