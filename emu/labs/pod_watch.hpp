// Owns waiting for pods as the kubelet does: what may begin again begins again.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "emu/labs/lab.hpp"
#include "emu/labs/pod_lab.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

// How a container of a pod came out.
struct PodOutcome {
  PodProcess process;
  enum class State : std::uint8_t { running, succeeded, failed } state = State::running;
  int exit_code = 0;
  unsigned restarts = 0;
};

struct PodWatchOptions {
  std::chrono::seconds patience{0};  // 0: without an end
  // What a container has said is passed on when it has ended for good, and at the end.
  std::function<void(const std::string& node, const std::string& line)> line;
  std::function<void(const std::string& text)> event;
};

// Until all have ended that are meant to (those of pods with `restartPolicy: Always` are not), the
// patience is over, or, where none is meant to end, a signal interrupts.
[[nodiscard]] Result<std::vector<PodOutcome>> watch_pods(const RunningLab& lab,
                                                         const std::vector<PodProcess>& processes,
                                                         const PodWatchOptions& options);

}  // namespace weft::labs
