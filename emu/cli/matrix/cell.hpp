// Owns one cell of the matrix: a `weft run` of the command under one condition, on one device.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emu/cli/matrix/cell_log.hpp"
#include "emu/cli/matrix/condition.hpp"
#include "emu/cli/matrix/judge.hpp"
#include "emu/cli/matrix/stacks.hpp"

namespace weft::cli {

// What all cells have in common.
struct MatrixPlan {
  std::vector<std::string> options{};  // for `weft run`: copies and their places
  std::vector<std::string> words{};    // what stands after the dashes
  std::size_t hosts = 1;
  std::chrono::seconds timeout{60};
  bool capture = false;  // into the folder of each cell's run
};

struct Cell {
  const Condition* condition = nullptr;
  std::string device;
  std::uint64_t seed = 1;

  // A name for files and tests.
  [[nodiscard]] std::string name() const;
};

struct CellResult {
  Cell cell;
  Verdict verdict = Verdict::not_run;
  double seconds = 0;
  std::string reason{};               // why it is not green; or what else is to be known
  std::vector<std::string> waits{};   // what each program waited for when its time was over
  std::vector<std::string> stacks{};  // and in which functions its threads were
  std::vector<std::string> tail{};    // the last lines of its output
  std::string command{};              // that does the same again
  std::string log{};                  // the file; empty: not kept
};

// What is in the folder of a cell.
struct CellFiles {
  static constexpr const char* kLog = "log";        // the output
  static constexpr const char* kRun = "run";        // a folder: what `weft run` leaves
  static constexpr const char* kStacks = "stacks";  // what a debugger said of a hang
  static constexpr const char* kTopology = "topology.yaml";
};

// A cell that runs. What belongs to it is in a folder of its own.
class RunningCell {
 public:
  // Starts it at once, with files in `folder`. Throws where it cannot.
  RunningCell(const MatrixPlan& plan, const Cell& cell, std::string folder);
  ~RunningCell();  // kills what still runs
  RunningCell(const RunningCell&) = delete;
  RunningCell& operator=(const RunningCell&) = delete;

  // True: it has ended. Ends it when its time is over, or when it has said too much. Does not wait.
  [[nodiscard]] bool look();
  // To be polled for input before the next look; -1: nothing comes any more.
  [[nodiscard]] int output() const { return log_.reader(); }
  // Asks it to end: the result says that it was interrupted.
  void interrupt();
  // After its end.
  [[nodiscard]] CellResult result() const;
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  using Clock = std::chrono::steady_clock;
  void write_command(const MatrixPlan& plan);
  void start(const MatrixPlan& plan);
  void end_when_due(Clock::time_point now);
  void signal_when_due(Clock::time_point now);

  std::chrono::seconds timeout_;
  Cell cell_;
  std::string folder_;
  std::vector<std::string> command_;
  CellLog log_;
  pid_t pid_ = -1;  // of its keeper
  int code_ = 0;
  bool ended_ = false;
  bool timed_out_ = false;
  bool said_too_much_ = false;
  bool interrupted_ = false;
  int signals_ = 0;  // sent to it
  std::vector<Wait> waits_;
  std::optional<Stacks> stacks_;  // while it is not ended because of them
  std::vector<std::string> stack_lines_;
  Clock::time_point begin_;
  Clock::time_point end_;
  Clock::time_point next_signal_ = Clock::time_point::max();
};

// As people type it into a shell: only words that need quotes have them.
[[nodiscard]] std::string shell_line(const std::vector<std::string>& words);

}  // namespace weft::cli
