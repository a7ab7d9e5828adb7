// Owns the decision which paths belong to the emulation, and where they really lie.
#pragma once

#include <fcntl.h>

#include <climits>
#include <cstddef>

namespace weft::preload {

// Where a path leads: to itself, or into the device tree of the run. Looks at the first letters of
// other paths, and asks the kernel where it stands only when a relative path begins like a step to
// us.
class Redirected {
 public:
  explicit Redirected(const char* path) : Redirected(AT_FDCWD, path) {}
  // As in openat(): `folder` counts if the path is relative.
  Redirected(int folder, const char* path);
  // May be the caller's own, which is relative to the folder; else it is absolute.
  [[nodiscard]] const char* path() const { return path_; }
  // N of /dev/infiniband/uverbsN, or -1.
  [[nodiscard]] int uverbs() const { return uverbs_; }

 private:
  void redirect(const char* path);
  void redirect_walked(const char* root, const char* path);
  void lead_to(const char* root, const char* path);

  const char* path_;
  int uverbs_ = -1;
  char buffer_[PATH_MAX];
};

// The path as the program is to see it: the inverse. In place, as it only gets shorter.
void hide_root(char* path);

// Folder of the run, from the environment; null: nothing is emulated in this process.
[[nodiscard]] const char* tree_root();

}  // namespace weft::preload
