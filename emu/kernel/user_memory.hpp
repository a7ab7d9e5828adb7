// Owns access to memory that the program's pointers name: a bad pointer is EFAULT, as with a real
// kernel, not a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::kernel {

// Copies all or fails; after a failure part of it may have been copied.
[[nodiscard]] bool copy_from_user(std::span<std::byte> to, std::uint64_t from);
[[nodiscard]] bool copy_to_user(std::uint64_t to, std::span<const std::byte> from);

// Whether all of [address, address + length) can be read (and written, if asked). Changes no byte
// of it.
[[nodiscard]] bool user_range_ok(std::uint64_t address, std::uint64_t length, bool writable);

}  // namespace weft::kernel
