// Owns CRC32C (Castagnoli), by instruction where the processor has it and by table elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

// Continues a checksum: start with 0, feed pieces in order. crc32c(0, "123456789") == 0xE3069283.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes);

// One way to compute it. crc32c() uses the best that the processor offers; tests and benchmarks use
// each.
struct Crc32cMethod {
  const char* name;
  std::uint32_t (*update)(std::uint32_t crc, std::span<const std::byte> bytes);
};

// The methods that this processor can run, best first; the last one is the table.
[[nodiscard]] std::span<const Crc32cMethod> crc32c_methods();

}  // namespace weft
