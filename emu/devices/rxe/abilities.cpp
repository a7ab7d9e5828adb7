// Owns the text form of a soft-RoCE device's abilities, and what they may say: the limits of the
// stock library and of this device.
#include "emu/devices/rxe/abilities.hpp"

#include <bit>

#include "emu/devices/rxe/wqe.hpp"
#include "emu/kernel/key_table.hpp"

namespace weft::devices::rxe {
namespace {

using D = Abilities;

const kernel::Key<D> kKeys[] = {
    {"gbps", &D::gbps},
    {"mtu", &D::mtu},
    {"congestion_control", &D::congestion_control},
    {"max_qp", &D::max_qp},
    {"max_qp_wr", &D::max_qp_wr},
    {"max_sge", &D::max_sge},
    {"max_inline", &D::max_inline},
    {"max_rd_atomic", &D::max_rd_atomic},
    {"max_cq", &D::max_cq},
    {"max_cqe", &D::max_cqe},
    {"max_mr", &D::max_mr},
    {"max_mw", &D::max_mw},
    {"max_pd", &D::max_pd},
    {"max_ah", &D::max_ah},
    {"max_srq", &D::max_srq},
    {"max_srq_wr", &D::max_srq_wr},
};

// A field and what it may say, for messages with the reason.
struct Range {
  const char* name;
  std::uint32_t D::*member;
  std::uint32_t least;
  std::uint32_t most;
  const char* why;
};

// Twenty bits of a key are its index; regions and windows have one half of these each.
constexpr std::uint32_t kMaxKeys = (1U << 19) - 1;
constexpr std::uint32_t kMaxEntries = 1U << 20;

const Range kRanges[] = {
    {"gbps", &D::gbps, 1, 100'000, "the rate in Gb/s"},
    {"max_qp", &D::max_qp, 1, 65536, "the numbers that a process has"},
    {"max_qp_wr", &D::max_qp_wr, 1, kMaxEntries, "memory is taken for all of them"},
    {"max_sge", &D::max_sge, 1, roce::kMaxSge, "what the device gathers"},
    {"max_inline", &D::max_inline, 0, kMaxInline, "the room of 32 segments"},
    {"max_rd_atomic", &D::max_rd_atomic, 0, 128, "what a responder keeps for replay"},
    {"max_cq", &D::max_cq, 1, kMaxEntries, "a table of them"},
    {"max_cqe", &D::max_cqe, 1, kMaxEntries, "memory is taken for all of them"},
    {"max_mr", &D::max_mr, 1, kMaxKeys, "half of the keys' 20 bits"},
    {"max_mw", &D::max_mw, 1, kMaxKeys, "half of the keys' 20 bits"},
    {"max_pd", &D::max_pd, 1, kMaxEntries, "a table of them"},
    {"max_ah", &D::max_ah, 1, kMaxEntries, "a table of them"},
    {"max_srq", &D::max_srq, 1, kMaxEntries, "a table of them"},
    {"max_srq_wr", &D::max_srq_wr, 1, kMaxEntries, "memory is taken for all of them"},
};

tl::unexpected<Error> wrong(const std::string& message) {
  return fail(ErrorCode::invalid_argument, message);
}

}  // namespace

std::uint8_t mtu_number(std::uint32_t bytes) {
  constexpr int kBitsOf128 = 7;
  return static_cast<std::uint8_t>(std::bit_width(bytes) - 1 - kBitsOf128);
}

Result<void> validate(const Abilities& d) {
  for (const Range& range : kRanges) {
    const std::uint32_t value = d.*range.member;
    if (value < range.least || value > range.most) {
      return wrong("field " + std::string(range.name) + " is " + std::to_string(value) +
                   "; allowed are " + std::to_string(range.least) + " to " +
                   std::to_string(range.most) + " (" + range.why + ")");
    }
  }
  if (!std::has_single_bit(d.mtu) || d.mtu < 256 || d.mtu > 4096) {
    return wrong("field mtu is " + std::to_string(d.mtu) +
                 "; allowed are 256, 512, 1024, 2048 and 4096");
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

Result<Abilities> abilities_from_text(std::string_view text) {
  Abilities abilities;
  Result<void> good;
  kernel::for_each_line(text, [&](std::size_t number, std::string_view line) {
    if (kernel::take_line(abilities, kKeys, line) != kernel::Taken::yes) {
      good = fail(ErrorCode::parse_error, "abilities of a soft-RoCE device, line " +
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

}  // namespace weft::devices::rxe
