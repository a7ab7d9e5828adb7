// Owns what EFA's library asks for by ioctl: the interconnects of a region, and completion
// counters.
#include "emu/devices/efa/device.hpp"

namespace weft::devices::efa {
namespace {

using Kind = kernel::IoctlAttributeSpec::Kind;

constexpr std::uint16_t kFirst = abi::kFirstOwnIoctl;
constexpr std::uint16_t kQueryMr = kFirst;  // of the methods of a region
constexpr std::uint16_t kMrHandle = kFirst;
constexpr std::uint16_t kLastAnswer = kFirst + 4;
constexpr kernel::IoctlAttributeSpec kQueryMrAttributes[] = {{kMrHandle, Kind::object},
                                                             {kFirst + 1, Kind::out, 2},
                                                             {kFirst + 2, Kind::out, 2},
                                                             {kFirst + 3, Kind::out, 2},
                                                             {kLastAnswer, Kind::out, 2}};

// Which interconnect a region is reached through is not known of any emulated one: none is valid.
nic::Outcome<void> query_mr(kernel::IoctlCall& call, kernel::Object& /*mr*/) {
  for (std::uint16_t id = kMrHandle + 1; id <= kLastAnswer; ++id) {
    if (const auto told = call.answer(id, std::uint16_t{0}); !told) {
      return told;
    }
  }
  return {};
}

// UverbsFile looks them up beside its own methods, and checks attributes as the table says before
// it calls query_mr().
constexpr kernel::OwnIoctlMethod kMethods[] = {
    {abi::IoctlObject::mr, kQueryMr, kQueryMrAttributes, kMrHandle, kernel::ObjectKind::mr,
     query_mr},
};

}  // namespace

std::span<const kernel::OwnIoctlMethod> EfaDevice::own_ioctl_methods() const { return kMethods; }

// As reported of a device that has them.
kernel::CompletionCounterLimits EfaDevice::completion_counters() const {
  const Abilities& d = abilities_;
  if (!d.completion_counters) {
    return {};
  }
  return {.operations = kernel::kCountSends | kernel::kCountReceives |
                        (d.rdma_read ? kernel::kCountReads : 0U) |
                        (d.rdma_write ? kernel::kCountWrites : 0U),
          .max_counters = 512,
          .max_value = 0x7FFFFFFF};
}

}  // namespace weft::devices::efa
