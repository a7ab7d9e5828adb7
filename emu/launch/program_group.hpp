// Owns programs that run side by side: their output, the signals meant for them, and how they end.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emu/launch/host_environment.hpp"
#include "emu/launch/host_network.hpp"
#include "emu/launch/stream_writer.hpp"
#include "emu/launch/terminal.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {

// A signal to a program and all that it has started, so long after its start.
struct TimedSignal {
  int signal = 0;
  std::chrono::milliseconds after{};
};

struct Program {
  std::string name;   // for reports
  std::string label;  // before every line of its output; empty: the output is passed on as it is
  std::vector<std::string> words;
  Environment environment;
  const HostNetwork* network = nullptr;  // to run in, if it is not ours
  // It runs alone and may have our terminal. Otherwise a program that reads from a terminal finds
  // its end at once.
  bool takes_terminal = false;
  std::optional<std::size_t> avoid_core = {};
  // What happens to it while it runs. How a program ends after a SIGKILL of these is no failure.
  std::vector<TimedSignal> signals = {};
};

// How one program ended.
struct ProgramEnd {
  std::string name;
  int code = 0;    // exit code, or 128 + signal, as shells say
  int signal = 0;  // that ended it; 0: it ended by itself
  double seconds = 0;
  std::size_t place = 0;  // how many had ended before
  bool killed = false;    // by one of its own signals
  bool stopped = false;   // for a while, by one of them

  [[nodiscard]] bool failed() const { return code != 0 && !killed; }
};

// While it exists, the signals that it forwards are blocked in this thread and read from a
// descriptor: make it before there are other threads, and only one. No member function blocks for
// longer than its argument says, whatever programs, terminals and readers do.
class ProgramGroup {
 public:
  ProgramGroup();
  ~ProgramGroup();  // ends what still runs
  ProgramGroup(const ProgramGroup&) = delete;
  ProgramGroup& operator=(const ProgramGroup&) = delete;

  [[nodiscard]] Result<void> start(const Program& program);
  // Passes output on until ready(), for `limit` at the most.
  void wait_until(const std::function<bool()>& ready, std::chrono::milliseconds limit);
  // Until all have ended. When one fails the others get `grace`, then SIGTERM, then SIGKILL.
  // `limit` counts as a failure of all that still run then. What the programs have started and left
  // in their process groups ends with the last of them.
  [[nodiscard]] std::vector<ProgramEnd> finish(
      std::chrono::milliseconds grace,
      std::chrono::milliseconds limit = std::chrono::milliseconds::max());
  // Whole lines with their labels go there instead of to this program's own output.
  using Output = std::function<void(std::size_t stream, const std::string& text)>;
  void set_output(Output output) { output_ = std::move(output); }
  // Whether that program, in the order of start(), or one that it started itself listens on a TCP
  // socket or a port of rdma_cm. True also if it has ended: then there is nothing to wait for.
  [[nodiscard]] bool is_serving(std::size_t index) const;
  // The latest signal that asked us to end, or 0.
  [[nodiscard]] int interrupt() const { return interrupt_; }
  // Why output of programs was lost, an errno, or 0: a full disk does not end them.
  [[nodiscard]] int output_failure() const;

 private:
  struct Running {
    std::string name;
    std::string label;
    pid_t pid = -1;
    srd::UniqueFd output[2];
    std::string pending[2];
    std::chrono::steady_clock::time_point started;
    bool has_terminal = false;
    bool stopped = false;
    bool ended = false;
    // Members of its process group outlive it. Until they end, no other group can get that number.
    bool left_others = false;
    std::vector<TimedSignal> signals;  // that are still to come, the next one last
    bool paused = false;               // by one of them
    ProgramEnd end;
  };

  // One round: waits up to `wait`, then passes output on and handles signals.
  void turn(std::chrono::milliseconds wait);
  // Reads what a program has written so far, as long as its reader keeps up.
  void pass_on(Running& program, std::size_t stream);
  void flush(Running& program, std::size_t stream, bool all);
  void write_out();
  [[nodiscard]] std::size_t pending_output() const;
  [[nodiscard]] bool have_left_others();
  void end_leftovers();
  // After the end of all programs: passes the rest of their output on.
  void drain();
  void handle_signals();
  void look_at_programs();
  // Sends what is due of the programs' own signals.
  void send_timed_signals();
  [[nodiscard]] std::chrono::milliseconds until_next_signal() const;
  // A program was stopped by that signal.
  void note_stop(Running& program, int signal);
  // Returns when this process is continued.
  void stop_ourselves(int signal);
  void signal_all(int signal);

  std::vector<Running> programs_;
  std::size_t ended_ = 0;
  int interrupt_ = 0;
  int interrupts_ = 0;  // signals that asked us to end
  srd::UniqueFd signals_;
  sigset_t mask_before_{};
  Terminal terminal_;
  std::array<StreamWriter, 2> writers_;
  Output output_;
};

}  // namespace weft::launch
