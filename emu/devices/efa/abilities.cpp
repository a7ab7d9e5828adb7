// Owns the text form of an EFA device's abilities, and what they may say: the limits of the stock
// libraries and of this device. One table of keys (kernel/key_table.hpp) reads and writes them; a
// second one has the range of each with the reason, which becomes the error message.
#include "emu/devices/efa/abilities.hpp"

#include <bit>
#include <cstdio>

#include "emu/kernel/key_table.hpp"
#include "emu/nic/work.hpp"
#include "srd/engine/engine.hpp"

namespace weft::devices::efa {
namespace {

using D = Abilities;

const kernel::Key<D> kKeys[] = {
    {"part_id", &D::part_id},
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

// A field and what it may say, for messages with the reason.
struct Range {
  const char* name;
  std::uint32_t D::*member;
  std::uint32_t least;
  std::uint32_t most;
  const char* why;
};

const Range kRanges[] = {
    {"gbps", &D::gbps, 1, 100'000, "the rate in Gb/s"},
    {"mtu", &D::mtu, 256, 8928, "what a frame of 9000 bytes can carry"},
    {"max_rdma_size", &D::max_rdma_size, 1, srd::kMaxTransfer, "1 GiB, the transport's most"},
    {"inline_size", &D::inline_size, 0, 32, "what a work request of 64 bytes has room for"},
    {"inline_size_wide", &D::inline_size_wide, 0, nic::kMaxInline,
     "what a work request of 128 bytes has room for; 0: there are none"},
    {"max_sq_wr", &D::max_sq_wr, 1, kMaxDescriptors, "doorbells count in 16 bits"},
    {"max_rq_wr", &D::max_rq_wr, 1, kMaxDescriptors, "doorbells count in 16 bits"},
    {"max_sq_sge", &D::max_sq_sge, 1, nic::kMaxSges, "what a work request has room for"},
    {"max_rq_sge", &D::max_rq_sge, 1, nic::kMaxReceiveSges, "what the device scatters to"},
    {"max_qp", &D::max_qp, 1, 256, "the numbers that a process has"},
    {"max_cq", &D::max_cq, 1, 65535, "numbers of 16 bits"},
    {"max_cqe", &D::max_cqe, 1, 32768, "doorbells count in 16 bits"},
    {"max_mr", &D::max_mr, 1, srd::MemoryTable::kMaxRegions, "keys of 24 bits"},
    {"max_pd", &D::max_pd, 1, 65535, "numbers of 16 bits"},
    {"max_ah", &D::max_ah, 1, nic::kUnknownAh, "numbers of 16 bits, of which one means none"},
    {"forced_reorder", &D::forced_reorder, 0, 1024, "packets held back at a time"},
    {"paths", &D::paths, 1, srd::wire::kMaxPaths, "the transport's most"},
};

tl::unexpected<Error> wrong(const std::string& message) {
  return fail(ErrorCode::invalid_argument, message);
}

std::string hexadecimal(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", value);
  return text;
}

}  // namespace

Result<void> validate(const Abilities& d) {
  for (const Range& range : kRanges) {
    const std::uint32_t value = d.*range.member;
    if (value < range.least || value > range.most) {
      return wrong("field " + std::string(range.name) + " is " + std::to_string(value) +
                   "; allowed are " + std::to_string(range.least) + " to " +
                   std::to_string(range.most) + " (" + range.why + ")");
    }
  }
  if (d.part_id < 0xEFA0 || d.part_id > 0xEFA4) {
    return wrong("field part_id is " + hexadecimal(d.part_id) +
                 "; allowed are 0xefa0 to 0xefa4, which the stock libraries know");
  }
  if (!std::has_single_bit(d.max_sq_wr)) {
    return wrong("field max_sq_wr is " + std::to_string(d.max_sq_wr) +
                 "; allowed are powers of two: the library rounds up to one before it asks");
  }
  if (std::uint64_t{d.max_rq_wr} * d.max_rq_sge > kMaxDescriptors) {
    return wrong("fields max_rq_wr and max_rq_sge are " + std::to_string(d.max_rq_wr) + " and " +
                 std::to_string(d.max_rq_sge) + "; allowed is a product of " +
                 std::to_string(kMaxDescriptors) +
                 " at the most: a "
                 "receive queue has a descriptor for each piece and counts them in 16 bits");
  }
  if (d.inline_size_wide != 0 && d.inline_size_wide < d.inline_size) {
    return wrong("field inline_size_wide is " + std::to_string(d.inline_size_wide) +
                 "; allowed are 0 and what is not below inline_size, " +
                 std::to_string(d.inline_size));
  }
  if (d.unsolicited_write && !d.rdma_write) {
    return wrong("field unsolicited_write is true; that is allowed only with rdma_write");
  }
  if (!d.rdma_read && d.part_id > 0xEFA1) {
    return wrong("field rdma_read is false; with part_id " + hexadecimal(d.part_id) +
                 " only true is allowed: libfabric takes reads for granted from 0xefa2 on, and "
                 "ends the program without them");
  }
  return {};
}

std::vector<std::string> field_names() {
  std::vector<std::string> names;
  for (const auto& key : kKeys) {
    names.emplace_back(key.name);
  }
  return names;
}

std::string to_text(const Abilities& abilities) { return kernel::to_text(abilities, kKeys); }

Result<Abilities> abilities_from_text(std::string_view text) {
  Abilities abilities;
  Result<void> good;
  kernel::for_each_line(text, [&](std::size_t number, std::string_view line) {
    if (kernel::take_line(abilities, kKeys, line) != kernel::Taken::yes) {
      good = fail(ErrorCode::parse_error, "abilities of an EFA device, line " +
                                              std::to_string(number) + ": cannot use \"" +
                                              std::string(line) + "\"");
    }
    return good.has_value();
  });
  if (!good) {
    return tl::unexpected(good.error());
  }
  return abilities;
}

}  // namespace weft::devices::efa
