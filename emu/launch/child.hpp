// Owns a program that ends with this one, however this one ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::launch {

struct ChildOptions {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment{};  // beside our own
  int in = -1;                                                     // its standard streams; -1: ours
  int out = -1;
  int errors = -1;
  std::vector<int> keep{};  // descriptors that it inherits under their numbers
  int death_signal = 9;     // which it gets if we are killed
};

// One thread at a time: the child ends with the thread that started it.
class Child {
 public:
  // The program is looked for in PATH. One that cannot be run ends with 127.
  [[nodiscard]] static Result<Child> start(const ChildOptions& options);

  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), death_signal_(other.death_signal_) {}
  Child& operator=(Child&& other) = delete;
  ~Child() { end(); }

  // Its exit code, or 128 + signal, once it has ended.
  [[nodiscard]] std::optional<int> ended();
  // The death signal, and SIGKILL if that does not end it within some seconds.
  void end();

 private:
  Child(pid_t pid, int death_signal) : pid_(pid), death_signal_(death_signal) {}
  pid_t pid_;
  int death_signal_;
  std::optional<int> code_{};
};

}  // namespace weft::launch
