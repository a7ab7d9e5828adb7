// Owns using up the numbers that a process may have for its files.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <vector>

namespace weft::conformance {

// No number is left as long as it lives, if wanted.
class FullProcess {
 public:
  explicit FullProcess(bool is_wanted) {
    for (int one = 0; is_wanted && (one = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0;) {
      numbers_.push_back(one);
    }
  }
  ~FullProcess() {
    for (const int one : numbers_) {
      close(one);
    }
  }
  FullProcess(const FullProcess&) = delete;
  FullProcess& operator=(const FullProcess&) = delete;

 private:
  std::vector<int> numbers_;
};

}  // namespace weft::conformance
