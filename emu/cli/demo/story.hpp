// Owns what `weft demo` shows: the live view, the lines of the story, the table, and the report.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emu/launch/run_directory.hpp"

namespace weft::cli {

inline constexpr std::size_t kDemoSpines = 4;

// The state at one moment, and rates since the sample before.
struct DemoSample {
  double at = 0;  // seconds since the transfer began
  std::array<double, kDemoSpines> spine_gbps{};
  double goodput_gbps = 0;  // of checked bytes
  double lost_per_s = 0;
  std::uint64_t verified = 0;  // bytes so far
  std::uint64_t retransmitted = 0;
};

// What the whole transfer came to; a negative time means that it did not happen.
struct DemoResult {
  bool passed = false;
  std::uint64_t seed = 0;
  double seconds = 0;
  std::uint64_t verified_bytes = 0;
  std::uint64_t wrong_blocks = 0;
  std::uint64_t failed_requests = 0;
  std::uint64_t packets = 0;
  std::uint64_t retransmitted = 0;
  std::uint64_t lost_in_network = 0;  // frames that the dead spine swallowed
  std::vector<std::uint64_t> path_packets;
  std::size_t paths_abandoned = 0;
  std::size_t paths_recovered = 0;
  double detected_ms = -1;  // from the death to the first packet taken for lost
  double avoided_ms = -1;   // from the death to the last path given up
  double goodput_before = 0, goodput_during = 0, goodput_after = 0;  // Gb/s
  double longest_gap_ms = 0;  // without a block that was checked

  [[nodiscard]] std::size_t paths_used() const;
  [[nodiscard]] nlohmann::ordered_json json() const;
};

// Tells a run of the demo. Keeps every line and sample for the report, also if nothing is shown.
// Used by one thread. `run` has to outlive it.
class DemoStory {
 public:
  // Draws over itself on a terminal, prints lines elsewhere, and nothing if `quiet`.
  DemoStory(const launch::RunDirectory& run, bool terminal, bool quiet, double spine_limit_gbps);

  // A line of the story, also for the event log of the run.
  void tell(double at, const std::string& text);
  void show(const DemoSample& sample, int dead_spine);  // 0: all live
  // The last picture stays on the screen; what follows is printed below it.
  void finish_live();
  // What the stock program was and printed, for the report.
  void program(const std::string& note, const std::string& output);
  // When the spine was dead, for the charts.
  void marks(double from, double to) { dead_from_ = from, dead_to_ = to; }

  void print_table(const DemoResult& result) const;
  // Writes report.html and result.json.
  void write_report(const DemoResult& result) const;
  [[nodiscard]] const std::vector<DemoSample>& samples() const { return samples_; }

 private:
  struct Line {
    double at = 0;
    std::string text;
  };
  void erase();
  void draw(const DemoSample& sample, int dead_spine);

  const launch::RunDirectory& run_;
  bool terminal_;
  bool quiet_;
  double limit_;           // Gb/s of a full bar
  int drawn_ = 0;          // lines of the live view on the screen
  double next_plain_ = 0;  // without a terminal: when the next line is due, one a second
  double dead_from_ = 0, dead_to_ = 0;
  std::vector<DemoSample> samples_;
  std::vector<Line> lines_;
  std::string program_note_;
  std::string program_output_;
};

}  // namespace weft::cli
