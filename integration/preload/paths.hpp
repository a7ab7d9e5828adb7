// Owns the decision which paths belong to the emulation, and where they really lie.
#pragma once

#include <climits>
#include <cstddef>

namespace weft::preload {

// Where a path leads: to itself, or into the device tree of the run. Costs two compares for other
// paths.
class Redirected {
 public:
  explicit Redirected(const char* path);
  [[nodiscard]] const char* path() const { return path_; }
  // N of /dev/infiniband/uverbsN, or -1.
  [[nodiscard]] int uverbs() const { return uverbs_; }

 private:
  const char* path_;
  int uverbs_ = -1;
  char buffer_[PATH_MAX];
};

// The path as the program is to see it: the inverse. In place, as it only gets shorter.
void hide_root(char* path);

// Folder of the run, from the environment; null: nothing is emulated in this process.
[[nodiscard]] const char* tree_root();

}  // namespace weft::preload
