// Owns how results of `weft ep-perf` are shown.
#pragma once

#include <string>

#include "integration/workloads/expert_rank.hpp"

namespace weft::cli {

struct ExpertRow {
  workloads::ExpertSetup setup;
  workloads::ExpertResult all;  // of all ranks
  workloads::PacketCounters packets;
  std::string error;  // why the run broke off
};

// The head of the table, a line of it, and the same line as JSON (docs/json.md).
[[nodiscard]] std::string expert_head(const workloads::ExpertSetup& setup, bool real_time);
[[nodiscard]] std::string expert_line(const ExpertRow& row);
[[nodiscard]] std::string expert_json(const ExpertRow& row, bool real_time);

}  // namespace weft::cli
