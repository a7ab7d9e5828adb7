// Owns asking a debugger, where there is one, in which functions the threads of programs are.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "emu/cli/matrix/processes.hpp"

namespace weft::cli {

// Asks for one program after the other, and stops each meanwhile.
class Stacks {
 public:
  // What the debugger says goes into `file`.
  Stacks(std::vector<Wait> programs, std::string file);
  ~Stacks();  // ends the debugger
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // True: there is no more to come. Does not wait.
  [[nodiscard]] bool look();
  // The lines of the file that name threads and functions, so many at most.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  void ask(const Wait& program);

  std::vector<Wait> programs_;
  std::size_t next_ = 0;
  std::string file_;
  std::string debugger_;  // its path
  pid_t pid_ = -1;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace weft::cli
