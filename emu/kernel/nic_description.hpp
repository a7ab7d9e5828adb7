// Owns what one emulated NIC is: its identity and the abilities of its profile, as flat text that a
// preloaded library can read without any parser's help.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/engine/types.hpp"

namespace weft::emu::kernel {

struct NicDescription {
  // Identity.
  std::string name = "efa_0";
  std::string kind = "efa";
  std::string profile = "custom";
  std::string address = "127.0.0.1";  // of the NIC on the emulated network; IPv4 or IPv6
  std::uint32_t index = 0;            // N of uverbsN; the rail
  std::uint32_t part_id = 0xEFA1;
  std::uint32_t numa_node = 0xFFFFFFFF;  // as sysfs says -1
  std::uint32_t gbps = 100;

  // Abilities.
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

  friend bool operator==(const NicDescription&, const NicDescription&) = default;
};

// Whether the stock libraries and this device can live with it; the message names the field, what
// it says, and what is allowed.
[[nodiscard]] Result<void> validate(const NicDescription& description);
// The names of all fields that are not a NIC's identity: what a profile is made of.
[[nodiscard]] std::vector<std::string> profile_fields();

// One "key value" per line.
[[nodiscard]] std::string to_text(const NicDescription& description);
// Keys it does not name keep their defaults; an unknown key or a bad value is an error that names
// the line.
[[nodiscard]] Result<NicDescription> nic_from_text(std::string_view text);

[[nodiscard]] Result<srd::Address> parse_address(const std::string& text);

// An EFA port has one, link-local, GID. That of an IPv4 address is made like a MAC's, so that an
// address handle leads to the NIC without any directory.
[[nodiscard]] srd::Address gid_of(const srd::Address& address);
[[nodiscard]] srd::Address address_of(const srd::Address& gid);

}  // namespace weft::emu::kernel
