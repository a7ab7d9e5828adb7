// Owns the text form of a NIC.
#include "emu/kernel/nic_description.hpp"

#include "emu/kernel/key_table.hpp"

namespace weft::kernel {
namespace {

constexpr std::size_t kMaxShown = 200;  // of a line that is wrong

using D = NicDescription;
const Key<D> kKeys[] = {
    {"name", &D::name},       {"kind", &D::kind},   {"profile", &D::profile},
    {"address", &D::address}, {"index", &D::index}, {"numa_node", &D::numa_node},
};

}  // namespace

std::string to_text(const NicDescription& description) {
  return to_text(description, kKeys) + description.abilities;
}

Result<NicDescription> nic_from_text(std::string_view text) {
  NicDescription description;
  Result<void> good;
  for_each_line(text, [&](std::size_t number, std::string_view line) {
    const Taken taken = take_line(description, kKeys, line);
    if (taken == Taken::unknown_key) {
      description.abilities.append(line).append("\n");
    } else if (taken == Taken::bad_value) {
      good = fail(ErrorCode::parse_error, "NIC description, line " + std::to_string(number) +
                                              ": cannot use \"" +
                                              std::string(line.substr(0, kMaxShown)) + "\"");
    }
    return good.has_value();
  });
  if (!good) {
    return tl::unexpected(good.error());
  }
  return description;
}

}  // namespace weft::kernel
