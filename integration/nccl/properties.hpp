// Owns what NCCL is told of a device, for the tables of all versions: `requires` finds which
// members a version's struct has.
#pragma once

#include <cstdint>

#include "integration/nccl/plugin.hpp"

namespace weft::nccl {

inline constexpr const char* kPluginName = "weft";

// Members not named here stay 0: no PCI path, memory registered per connection, no forced flush.
template <class P>
abi::Result properties(int index, P* out) {
  const DeviceDescription* const device = plugin::device(index);
  if (device == nullptr) {
    return abi::kInvalidArgument;
  }
  *out = {};
  out->name = const_cast<char*>(device->name.c_str());
  out->guid = device->guid;
  // pciPath stays null: the NIC has no place among the machine's PCI devices.
  out->ptrSupport = abi::kHostMemory;
  out->speed = device->speed;
  out->port = 1;
  out->latency = device->latency;
  // Numbers of connections have 16 bits (Core::kMaxConnections).
  out->maxComms = 65536;
  out->maxRecvs = static_cast<int>(kMaxGroup);
  if constexpr (requires { out->netDeviceType; }) {
    out->netDeviceType = abi::kHostDevice;
  }
  if constexpr (requires { out->vProps; }) {
    out->vProps.ndevs = 1;
    out->vProps.devs[0] = index;
    out->maxP2pBytes = srd::kMaxTransfer;
    out->maxCollBytes = srd::kMaxTransfer;
  }
  if constexpr (requires { out->maxMultiRequestSize; }) {
    // NCCL may not join requests.
    out->maxMultiRequestSize = 1;
  }
  if constexpr (requires { out->railId; }) {
    out->railId = static_cast<std::int16_t>(index);
    out->planeId = abi::kUndefined;
  }
  return abi::kSuccess;
}

}  // namespace weft::nccl
