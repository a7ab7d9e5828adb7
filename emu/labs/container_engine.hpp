// Owns running the program of a container engine, podman or docker.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emu/labs/container_words.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

// What one call of the engine came to.
struct EngineAnswer {
  int code = 0;  // its exit code, or 128 + signal
  std::string out;
  std::string errors;

  // The end of its error output in one line, or its exit code if it said nothing.
  [[nodiscard]] std::string complaint() const;
};

// Whether a signal to end (emu/launch/interrupt.hpp) breaks calls off, or waits for their end: what
// is being cleared away has to be cleared away.
enum class Interrupts : std::uint8_t { heed, defer };

// The program podman or docker, found once. Calls of it block until the engine has ended.
class ContainerEngine {
 public:
  // `asked`: podman, docker, or the path of a program that is one of them; empty: the first of the
  // two that is there.
  [[nodiscard]] static Result<ContainerEngine> find(const std::string& asked);

  [[nodiscard]] EngineKind kind() const { return kind_; }
  [[nodiscard]] const std::string& program() const { return program_; }

  // Runs these commands, some at a time, and returns their answers once all have ended. After each
  // end `go_on` is told how many there were; if it says no, nothing more is started, and what was
  // not started has no answer. What is broken off gets SIGTERM.
  [[nodiscard]] Result<std::vector<std::optional<EngineAnswer>>> run_all(
      const std::vector<Words>& commands, Interrupts interrupts,
      const std::function<bool(std::size_t ended, const EngineAnswer& answer)>& go_on) const;
  // One command. Its standard output, or an error with the command and its complaint.
  [[nodiscard]] Result<std::string> ask(const Words& command, Interrupts interrupts) const;

 private:
  ContainerEngine(std::string program, EngineKind kind)
      : program_(std::move(program)), kind_(kind) {}
  std::string program_;
  EngineKind kind_;
};

// The lab's containers, those that have ended among them.
[[nodiscard]] Result<std::vector<ContainerState>> containers_of(const ContainerEngine& engine,
                                                                const LabIdentity& lab);

// The lines of a text that are not empty.
[[nodiscard]] Words lines_of(const std::string& text);

}  // namespace weft::labs
