// Owns what a generation of EFA devices can do: abilities, limits and habits, which profiles
// choose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::devices::efa {

inline constexpr std::uint32_t kMaxDescriptors = 32768;  // of a queue: doorbells count modulo 2^16

// Profiles say every field; the defaults serve tests that set a few.
struct Abilities {
  std::uint32_t part_id = 0xEFA1;
  std::uint32_t gbps = 100;
  bool rdma_read = true;
  bool rdma_write = true;
  bool rnr_retry = true;
  bool cq_notifications = true;
  bool cq_with_sgid = true;
  bool unsolicited_write = true;
  bool request_id_64 = false;
  bool completion_counters = false;

  // Limits.
  std::uint32_t mtu = 8928;  // bytes of the largest send
  std::uint32_t max_rdma_size = 1U << 30;
  std::uint32_t inline_size = 32;
  std::uint32_t inline_size_wide = 80;  // 0: no wide work requests
  std::uint32_t max_sq_wr = 2048;
  std::uint32_t max_rq_wr = 4096;
  std::uint32_t max_sq_sge = 2;
  std::uint32_t max_rq_sge = 3;
  std::uint32_t max_qp = 256;
  std::uint32_t max_cq = 512;
  std::uint32_t max_cqe = 32768;
  std::uint32_t max_mr = 65536;
  std::uint32_t max_pd = 256;
  std::uint32_t max_ah = 4096;

  // Behaviour.
  std::uint32_t forced_reorder = 0;  // packets that may be held back at a time
  bool rdma_needs_ah = true;         // a peer without an address handle here is refused
  bool loopback = true;              // false: packets to the own address are lost
  std::uint32_t paths = 64;          // entropies per peer

  friend bool operator==(const Abilities&, const Abilities&) = default;
};

// Whether the stock libraries and this device can live with it; the message names the field, what
// it says, and what is allowed.
[[nodiscard]] Result<void> validate(const Abilities& abilities);
// The names of all fields: what a profile is made of.
[[nodiscard]] std::vector<std::string> field_names();

// One "key value" per line.
[[nodiscard]] std::string to_text(const Abilities& abilities);
// Keys it does not name keep their defaults; an unknown key or a bad value is an error that names
// the line. Not validated.
[[nodiscard]] Result<Abilities> abilities_from_text(std::string_view text);

}  // namespace weft::devices::efa
