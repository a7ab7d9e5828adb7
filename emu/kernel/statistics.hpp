// Owns the counters of an emulated NIC: a file shared by all processes that use the NIC, in which
// the counts of ended processes stay.
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

// The objects that one process has on a NIC now.
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

// The counters of one process. Written by the threads that drive its device; other processes may
// read them at any time.
struct Statistics {
  srd::Counters transport;
  DeviceCounters device;
  LiveObjects live;
};

// Where the counters of the NIC of that name are, below the folder of write_device_tree().
[[nodiscard]] std::string statistics_path(const std::string& root, std::string_view nic);
// An empty file, which every user may write to.
[[nodiscard]] Result<void> make_statistics_file(const std::string& path);

// Takes a slot of the file for this process, and keeps it mapped until the process ends. Its counts
// stay in the sum after that. Null: there is no such file, or no slot left; then the NIC works
// without being counted.
[[nodiscard]] Statistics* claim_statistics(const std::string& path);

// The sum over all processes; live objects only of processes that still run.
[[nodiscard]] Result<Statistics> read_statistics(const std::string& path);

using VisitCounter = std::function<void(const char* name, std::uint64_t value)>;
// The files of ports/1/hw_counters.
void visit_port_counters(const Statistics& statistics, const VisitCounter& visit);
// The files of hw_counters of the device.
void visit_device_counters(const Statistics& statistics, const VisitCounter& visit);

// If `path`, a file or folder of the tree at `root`, belongs to counters, brings their text files
// up to date. For all other paths it costs one search in the text.
void refresh_counter_files(const std::string& root, const char* path);

}  // namespace weft::kernel
