// Owns the terminal's foreground, which is lent to one program while it runs.
#pragma once

#include <sys/types.h>

#include "srd/io/posix.hpp"

namespace weft::launch {

// Job control as shells do it: only the foreground process group of a terminal may read it; another
// one is stopped when it tries.
class Terminal {
 public:
  // Standard input, if that is a terminal.
  Terminal();
  ~Terminal() { take_back(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  [[nodiscard]] bool exists() const { return static_cast<bool>(fd_); }
  // Whether this process's group is in the foreground.
  [[nodiscard]] bool is_ours() const;
  // Only if it is ours, or if a child of that group may have claimed it meanwhile.
  void lend(pid_t group);
  void take_back();
  // In the child that will be the program, before it executes anything.
  static void claim_for_this_process();

 private:
  srd::UniqueFd fd_;
  bool lent_ = false;
};

}  // namespace weft::launch
