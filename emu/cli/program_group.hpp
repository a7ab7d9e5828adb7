// Owns programs that run side by side: their output, the signals meant for them, and how they end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "emu/cli/host_environment.hpp"
#include "emu/cli/host_network.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {

struct Program {
  std::string label;  // before every line of its output; empty: the output is passed on as it is
  std::vector<std::string> words;
  Environment environment;
  const HostNetwork* network = nullptr;  // to run in, if it is not ours
};

struct ProgramEnd {
  std::string label;
  int code = 0;  // exit code, or 128 + signal, as shells say
  double seconds = 0;
};

class ProgramGroup {
 public:
  ProgramGroup();
  ~ProgramGroup();  // ends what still runs
  ProgramGroup(const ProgramGroup&) = delete;
  ProgramGroup& operator=(const ProgramGroup&) = delete;

  [[nodiscard]] Result<void> start(const Program& program);
  // Passes output on until ready() or that program's end, at most so long.
  void wait_until(const std::function<bool()>& ready, std::chrono::milliseconds limit);
  // Until all have ended. When one fails the others get `grace`, then SIGTERM, then SIGKILL.
  [[nodiscard]] std::vector<ProgramEnd> finish(std::chrono::milliseconds grace);
  // True if the most recently started program listens on a TCP socket, or has ended.
  [[nodiscard]] bool latest_is_serving() const;

 private:
  struct Running {
    std::string label;
    pid_t pid = -1;
    srd::UniqueFd output[2];
    std::string pending[2];
    std::chrono::steady_clock::time_point started;
    bool ended = false;
    ProgramEnd end;
  };

  void turn(std::chrono::milliseconds wait);
  void pass_on(Running& program, int stream);
  void flush(Running& program, int stream, bool all);
  void handle_signals();
  void reap();
  void signal_all(int signal);

  std::vector<Running> programs_;
  srd::UniqueFd signals_;
};

}  // namespace weft::cli
