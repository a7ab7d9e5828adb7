// Owns the decision which paths belong to the emulation, and where their files really lie.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <type_traits>

#include "integration/preload/path_space.hpp"

namespace weft::preload {

// Whether a link at the end of a path is meant itself, or its target.
enum class LastLink { stays, followed };

// Where a path leads: to itself, or into the device tree of the run. For most paths it looks at the
// first letters only; it asks the kernel for the working directory only when a relative path begins
// like one that could lead there. It keeps a pointer to the path that it was made from. It is
// small, as is the stack that it needs: a PathLease has the text, of those paths only that need
// one.
class Redirected {
 public:
  explicit Redirected(const char* path) : Redirected(AT_FDCWD, path) {}
  // As in openat(): `folder` counts if the path is relative.
  Redirected(int folder, const char* path);
  // For a path that the kernel did not find: a link of the program's own may lead into the tree.
  // True: it does, and path() has changed.
  [[nodiscard]] bool follow_links(int folder, LastLink last);
  // Either the caller's own path, which may be relative to the folder, or an absolute one.
  [[nodiscard]] const char* path() const { return path_; }
  // The number of a device file, as FdTable has it: N of /dev/infiniband/uverbsN,
  // FdTable::kConnections, or FdTable::kDatagrams and N of umadN. -1: it is none.
  [[nodiscard]] int device() const { return device_; }

 private:
  void redirect(const char* path);
  void redirect_relative(int folder, const char* path);
  void redirect_walked(const char* root, const char* path, LastLink last);
  void lead_to(const char* root, const char* path);

  const char* path_;
  int device_ = -1;
  bool may_follow_ = false;  // it is a path, and there is a tree
  PathLease space_;
};

// The stock function's answer about the path, or about where its links lead. `call` is given a
// Redirected.
template <class Call>
auto redirected(int folder, const char* path, LastLink last, Call&& call) {
  Redirected to(folder, path);
  const auto result = call(to);
  if constexpr (std::is_pointer_v<decltype(call(to))>) {
    return result == nullptr && errno == ENOENT && to.follow_links(folder, last) ? call(to)
                                                                                 : result;
  } else {
    return result < 0 && errno == ENOENT && to.follow_links(folder, last) ? call(to) : result;
  }
}
// Where there is no folder, and the last link is followed.
template <class Call>
auto redirected(const char* path, Call&& call) {
  return redirected(AT_FDCWD, path, LastLink::followed,
                    [&](const Redirected& to) { return call(to.path()); });
}

// The inverse: the path that the program may see, which is the end of one in the tree.
[[nodiscard]] const char* visible(const char* path);
// The same in place.
void hide_root(char* path);

// Folder of the run, from the environment; null: nothing is emulated in this process.
[[nodiscard]] const char* tree_root();

}  // namespace weft::preload
