// Owns the counters of an emulated NIC: a file that all processes on it count into, alive or dead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "srd/base/result.hpp"
#include "srd/engine/counters.hpp"

namespace weft::kernel {

// Names are those of the kernel's EFA driver, which exporters read.
#define WEFT_DEVICE_COUNTERS(X) \
  X(submitted_cmds)             \
  X(completed_cmds)             \
  X(cmds_err)                   \
  X(no_completion_cmds)         \
  X(keep_alive_rcvd)            \
  X(alloc_pd_err)               \
  X(create_qp_err)              \
  X(create_cq_err)              \
  X(reg_mr_err)                 \
  X(alloc_ucontext_err)         \
  X(create_ah_err)              \
  X(mmap_err)

struct DeviceCounters {
#define WEFT_DEVICE_COUNTER_FIELD(name) std::uint64_t name = 0;
  WEFT_DEVICE_COUNTERS(WEFT_DEVICE_COUNTER_FIELD)
#undef WEFT_DEVICE_COUNTER_FIELD
};

// What one process has of a NIC at the moment.
struct LiveObjects {
  std::uint64_t process = 0;  // its number; of a sum it means nothing
  std::uint64_t contexts = 0;
  std::uint64_t pds = 0;
  std::uint64_t mrs = 0;
  std::uint64_t ahs = 0;
  std::uint64_t cqs = 0;
  std::uint64_t qps = 0;
  std::uint64_t srqs = 0;
};

// What one process counts. Written by the threads that drive its device; other processes may read
// it at any time.
struct Statistics {
  srd::Counters transport;
  DeviceCounters device;
  LiveObjects live;
};

// Where the counters of the NIC of that name are, below the folder of write_device_tree().
[[nodiscard]] std::string statistics_path(const std::string& root, std::string_view nic);
[[nodiscard]] Result<void> make_statistics_file(const std::string& path);

// A place of one's own in the file, for as long as the process lives; what it holds stays counted
// after that. Null: there is no such file, or no place left.
[[nodiscard]] Statistics* claim_statistics(const std::string& path);

// The sum over all processes; of what is alive, over those that live.
[[nodiscard]] Result<Statistics> read_statistics(const std::string& path);

using VisitCounter = std::function<void(const char* name, std::uint64_t value)>;
// The files of ports/1/hw_counters.
void visit_port_counters(const Statistics& statistics, const VisitCounter& visit);
// The files of hw_counters of the device.
void visit_device_counters(const Statistics& statistics, const VisitCounter& visit);

// Brings the text files up to date when `path`, of a file or folder of the tree at `root`, shows
// counters. Costs one search in a path for all others.
void refresh_counter_files(const std::string& root, const char* path);

}  // namespace weft::kernel
