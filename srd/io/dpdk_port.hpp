// Owns access to DPDK: a module that is loaded when the first port is opened.
//
// Programs that use no DPDK device neither link nor load its libraries. The module (srd/io/dpdk)
// exports one function, kDpdkEntry; what it returns is an ordinary FrameIo.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/base/time.hpp"
#include "srd/io/frame_io.hpp"

namespace weft::srd {

struct DpdkConfig {
  // As EAL takes them: "0000:3b:00.0", "net_memif0,role=server,socket=/run/a.sock", ...
  std::string devargs;
  std::size_t max_frame = 9216;  // less if the device carries less
  // Arguments for EAL itself; they replace ours of the same kind. EAL starts once per process, with
  // the arguments of the first port that is opened.
  std::vector<std::string> eal;
  Duration patience = std::chrono::milliseconds{30};  // with a device that takes nothing
};

// Call it from one thread at a time; the port then belongs to one thread at a time. The process at
// the other end of memif, vhost or virtio_user is trusted: these drivers do not check what they
// read from shared memory.
[[nodiscard]] Result<std::unique_ptr<FrameIo>> open_dpdk_port(const DpdkConfig& config);

// What the module exports, under this name. On failure it returns null, and the reason in `why`.
using OpenDpdkPort = FrameIo* (*)(const DpdkConfig& config, std::string& why);
inline constexpr const char* kDpdkEntry = "weft_open_dpdk_port";

}  // namespace weft::srd
