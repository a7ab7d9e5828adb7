// Owns what a soft-RoCE device can do: limits and habits, which profiles choose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::devices::rxe {

// Profiles say every field; the defaults serve tests that set a few.
struct Abilities {
  std::uint32_t gbps = 100;
  std::uint32_t mtu = 4096;  // of the port: 256, 512, 1024, 2048 or 4096
  bool congestion_control = false;

  // Limits.
  std::uint32_t max_qp = 4096;
  std::uint32_t max_qp_wr = 16384;
  std::uint32_t max_sge = 32;
  std::uint32_t max_inline = 512;
  std::uint32_t max_rd_atomic = 128;
  std::uint32_t max_cq = 4096;
  std::uint32_t max_cqe = 32767;
  std::uint32_t max_mr = 524287;
  std::uint32_t max_mw = 524287;
  std::uint32_t max_pd = 65536;
  std::uint32_t max_ah = 32767;
  std::uint32_t max_srq = 4096;
  std::uint32_t max_srq_wr = 16384;

  friend bool operator==(const Abilities&, const Abilities&) = default;
};

// Whether the stock libraries and this device can live with it; the message names the field, what
// it says, and what is allowed.
[[nodiscard]] Result<void> validate(const Abilities& abilities);
// The names of all fields: what a profile is made of.
[[nodiscard]] std::vector<std::string> field_names();
// Of "key value" lines. Keys that are not named keep their defaults; an unknown key or a bad value
// is an error that names the line. Not validated.
[[nodiscard]] Result<Abilities> abilities_from_text(std::string_view text);

// As verbs number it: 1 is 256 bytes, 5 is 4096.
[[nodiscard]] std::uint8_t mtu_number(std::uint32_t bytes);

}  // namespace weft::devices::rxe
