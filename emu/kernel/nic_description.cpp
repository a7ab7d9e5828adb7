// Owns the text form of a NIC, and the mapping between network addresses and GIDs.
#include "emu/kernel/nic_description.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <variant>

namespace weft::emu::kernel {
namespace {

using Member = std::variant<std::string NicDescription::*, std::uint32_t NicDescription::*,
                            bool NicDescription::*>;

struct Key {
  std::string_view name;
  Member member;
};

using D = NicDescription;
const Key kKeys[] = {
    {"name", &D::name},
    {"kind", &D::kind},
    {"profile", &D::profile},
    {"address", &D::address},
    {"index", &D::index},
    {"part_id", &D::part_id},
    {"numa_node", &D::numa_node},
    {"gbps", &D::gbps},
    {"rdma_read", &D::rdma_read},
    {"rdma_write", &D::rdma_write},
    {"rnr_retry", &D::rnr_retry},
    {"cq_notifications", &D::cq_notifications},
    {"cq_with_sgid", &D::cq_with_sgid},
    {"unsolicited_write", &D::unsolicited_write},
    {"request_id_64", &D::request_id_64},
    {"completion_counters", &D::completion_counters},
    {"mtu", &D::mtu},
    {"max_rdma_size", &D::max_rdma_size},
    {"inline_size", &D::inline_size},
    {"inline_size_wide", &D::inline_size_wide},
    {"max_sq_wr", &D::max_sq_wr},
    {"max_rq_wr", &D::max_rq_wr},
    {"max_sq_sge", &D::max_sq_sge},
    {"max_rq_sge", &D::max_rq_sge},
    {"max_qp", &D::max_qp},
    {"max_cq", &D::max_cq},
    {"max_cqe", &D::max_cqe},
    {"max_mr", &D::max_mr},
    {"max_pd", &D::max_pd},
    {"max_ah", &D::max_ah},
    {"forced_reorder", &D::forced_reorder},
    {"rdma_needs_ah", &D::rdma_needs_ah},
    {"loopback", &D::loopback},
    {"paths", &D::paths},
};

struct Printer {
  const NicDescription& from;
  std::string operator()(std::string D::*member) const { return from.*member; }
  std::string operator()(std::uint32_t D::*member) const { return std::to_string(from.*member); }
  std::string operator()(bool D::*member) const { return from.*member ? "true" : "false"; }
};

struct Parser {
  NicDescription& to;
  std::string_view value;
  bool operator()(std::string D::*member) const {
    to.*member = value;
    return !value.empty();
  }
  bool operator()(std::uint32_t D::*member) const {
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), to.*member);
    return error == std::errc{} && end == value.data() + value.size();
  }
  bool operator()(bool D::*member) const {
    to.*member = value == "true";
    return value == "true" || value == "false";
  }
};

}  // namespace

std::string to_text(const NicDescription& description) {
  std::string text;
  for (const Key& key : kKeys) {
    text.append(key.name).append(" ");
    text.append(std::visit(Printer{description}, key.member)).append("\n");
  }
  return text;
}

Result<NicDescription> nic_from_text(std::string_view text) {
  NicDescription description;
  std::size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) {
      continue;
    }
    const std::size_t space = line.find(' ');
    const std::string_view name = line.substr(0, space);
    const std::string_view value =
        space == std::string_view::npos ? std::string_view{} : line.substr(space + 1);
    bool good = false;
    for (const Key& key : kKeys) {
      if (key.name == name) {
        good = std::visit(Parser{description, value}, key.member);
      }
    }
    if (!good) {
      return fail(ErrorCode::parse_error, "NIC description, line " + std::to_string(line_number) +
                                              ": cannot use \"" + std::string(line) + "\"");
    }
  }
  return description;
}

std::vector<std::string> profile_fields() {
  constexpr std::string_view kIdentity[] = {"name",    "kind",  "profile",
                                            "address", "index", "numa_node"};
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (std::find(std::begin(kIdentity), std::end(kIdentity), key.name) == std::end(kIdentity)) {
      names.emplace_back(key.name);
    }
  }
  return names;
}

Result<srd::Address> parse_address(const std::string& text) {
  srd::Address address;
  if (inet_pton(AF_INET, text.c_str(), &address.bytes[12]) == 1) {
    address.bytes[10] = address.bytes[11] = std::byte{0xFF};
    return address;
  }
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) {
    return address;
  }
  return fail(ErrorCode::invalid_argument, "\"" + text + "\" is no IPv4 or IPv6 address of a NIC");
}

namespace {

constexpr std::array<std::byte, 12> kMapped = {
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},    std::byte{0},
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0xFF}, std::byte{0xFF}};

// fe80::02aa:00ff:febb:ccdd stands for aa.bb.cc.dd (in hexadecimal).
constexpr std::array<std::byte, 9> kGidHead = {std::byte{0xFE}, std::byte{0x80}, std::byte{0},
                                               std::byte{0},    std::byte{0},    std::byte{0},
                                               std::byte{0},    std::byte{0},    std::byte{0x02}};
constexpr std::array<std::byte, 3> kGidMiddle = {std::byte{0}, std::byte{0xFF}, std::byte{0xFE}};

}  // namespace

srd::Address gid_of(const srd::Address& address) {
  if (std::memcmp(address.bytes.data(), kMapped.data(), kMapped.size()) != 0) {
    return address;
  }
  srd::Address gid;
  std::memcpy(gid.bytes.data(), kGidHead.data(), kGidHead.size());
  gid.bytes[9] = address.bytes[12];
  std::memcpy(&gid.bytes[10], kGidMiddle.data(), kGidMiddle.size());
  std::memcpy(&gid.bytes[13], &address.bytes[13], 3);
  return gid;
}

srd::Address address_of(const srd::Address& gid) {
  if (std::memcmp(gid.bytes.data(), kGidHead.data(), kGidHead.size()) != 0 ||
      std::memcmp(&gid.bytes[10], kGidMiddle.data(), kGidMiddle.size()) != 0) {
    return gid;
  }
  srd::Address address;
  std::memcpy(address.bytes.data(), kMapped.data(), kMapped.size());
  address.bytes[12] = gid.bytes[9];
  std::memcpy(&address.bytes[13], &gid.bytes[13], 3);
  return address;
}

}  // namespace weft::emu::kernel
