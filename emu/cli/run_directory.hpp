// Owns what a run leaves behind: a directory with its configuration, events and results.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "srd/base/result.hpp"

namespace weft::cli {

class RunDirectory {
 public:
  // Exactly `wish` if given. Otherwise <time>-<seed> below $WEFT_RUNS, or below weft-runs-<uid> in
  // the directory for temporary files, where the latest twenty are kept.
  [[nodiscard]] static Result<RunDirectory> create(const std::string& wish, std::uint64_t seed);

  [[nodiscard]] const std::string& path() const { return path_; }
  // Writes a whole file of that name.
  void write(const std::string& name, const std::string& text) const;
  // Appends to events.jsonl; the time is seconds since create().
  void event(const std::string& what, nlohmann::ordered_json details = {}) const;
  [[nodiscard]] double seconds() const;

 private:
  RunDirectory() = default;
  std::string path_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace weft::cli
