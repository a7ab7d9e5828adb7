// Owns reading a command's body and writing its reply, for the files of CmFile.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "emu/kernel/ucma/file.hpp"

namespace weft::kernel {

// What a body is too short for is zero: an older library does not know it.
template <class T>
T CmFile::Call::read() const {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  std::memcpy(&value, body.data(), std::min(sizeof value, body.size()));
  return value;
}

template <class T>
void CmFile::Call::answer(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  reply.assign(bytes, bytes + sizeof value);
}

}  // namespace weft::kernel
