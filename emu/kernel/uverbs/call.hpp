// Owns reading a command's body, writing its reply, and looking up handles, for the files of
// UverbsFile.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <type_traits>

#include "emu/kernel/uverbs/file.hpp"
#include "srd/base/check.hpp"

namespace weft::kernel {

// Runs a handler. A program that limits its memory has asked for more of it than it allows itself:
// that is the program's error to hear, and no reason to end it.
template <class Handler>
[[nodiscard]] int error_of(Handler&& handler) {
  try {
    const Outcome<void> outcome = handler();
    return outcome ? 0 : outcome.error();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

inline constexpr std::uint8_t kOnlyPort = 1;

// Whether the device-specific part is empty or zero. For commands for which no device's library has
// words of its own: anything else would be meant for a device that this is not.
inline bool says_nothing_more(const Udata& udata) {
  return std::all_of(udata.in.begin(), udata.in.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

template <class T>
T UverbsFile::Call::read(std::size_t offset) const {
  static_assert(std::is_trivially_copyable_v<T>);
  WEFT_CHECK(offset + sizeof(T) <= body.size());  // the table of commands says how long a body is
  T value;
  std::memcpy(&value, body.data() + offset, sizeof value);
  return value;
}

template <class T>
void UverbsFile::Call::answer(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  reply.insert(reply.end(), bytes, bytes + sizeof value);
}

// Null: no such handle, or an object of another kind.
template <class T>
T* UverbsFile::find(std::uint32_t handle, ObjectKind kind) {
  if (handle >= objects_.size() || objects_[handle] == nullptr ||
      objects_[handle]->kind() != kind) {
    return nullptr;
  }
  return static_cast<T*>(objects_[handle].get());
}

}  // namespace weft::kernel
