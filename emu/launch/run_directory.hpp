// Owns what a run leaves behind: a directory with its configuration, events and results.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {

// All writing is best effort, but for create(): a full disk costs the record of a run, never the
// run.
class RunDirectory {
 public:
  using Files = std::map<std::string, std::string>;  // contents by name

  // Exactly `wish` if given. Otherwise <time>-<seed>-<pid> below $WEFT_RUNS, or below
  // weft-runs-<uid> in the directory for temporary files, where the latest twenty are kept. `files`
  // are written at once. A file in `wish` that no run has written is never replaced or removed: if
  // it is in the way, that is an error, unless it already says what a run would write into it.
  [[nodiscard]] static Result<RunDirectory> create(const std::string& wish, std::uint64_t seed,
                                                   const Files& files);

  // Removes what runs have left in that directory, and the directory if nothing else is in it; does
  // nothing while a run goes on there.
  static void forget(const std::string& directory);

  [[nodiscard]] const std::string& path() const { return path_; }
  // Writes a whole file of that name, one of those that runs leave.
  void write(const std::string& name, const std::string& text) const;
  // Appends to events.jsonl; the time is seconds since create().
  void event(const std::string& what, nlohmann::ordered_json details = {}) const;
  [[nodiscard]] double seconds() const;

 private:
  RunDirectory() = default;
  [[nodiscard]] Result<void> claim(const Files& files);

  std::string path_;
  srd::UniqueFd directory_;
  srd::UniqueFd mark_;  // locked until the run ends
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace weft::launch
