// Owns the secret that two joined networks share: a file that no other user can read.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "srd/base/result.hpp"

namespace weft::srd {

// Two halves, one for frames and one for the messages between both ends (tunnel_session.hpp).
struct JoinKey {
  static constexpr std::size_t kBytes = 32;
  std::array<std::byte, kBytes> bytes{};
};

// The file must be ours, of mode 0600 or less, and hold exactly the key's bytes.
[[nodiscard]] Result<JoinKey> read_join_key(const std::string& path);
// Makes a new key from the system's random numbers; never overwrites a file.
[[nodiscard]] Result<void> create_join_key(const std::string& path);

}  // namespace weft::srd
