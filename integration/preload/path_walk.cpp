// Owns the walk. A step may be a link, and ".." after it leads to the parent of the link's target,
// not to the folder that the link is in; so ".." cannot be resolved in the text of a path alone.
#include "integration/preload/path_walk.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace weft::preload {
namespace {

constexpr int kMaxLinks = 40;  // as in the kernel

// `to_` is the way so far, `rest_` what is still to be walked; a link that is followed puts its
// target in front of the rest.
class Walk {
 public:
  Walk(const char* root, LastLink last, PathSpace& space)
      : root_(root), last_(last), space_(space), to_(space.walked), rest_(space.rest) {
    to_[0] = '\0';
  }

  [[nodiscard]] bool touched() const { return touched_; }
  [[nodiscard]] bool follow(const char* path) {
    if (!put_in_front(path, "")) {
      return false;
    }
    while (const std::size_t step = next_step()) {
      const bool last = rest_[begin_ + step] == '\0';
      const char* const name = rest_ + begin_;
      begin_ += step;
      if (step == 2 && name[0] == '.' && name[1] == '.') {
        length_ = parent();
        to_[length_] = '\0';
      } else if ((step != 1 || name[0] != '.') && !take(name, step, last)) {
        return false;
      }
    }
    if (length_ == 0) {
      std::memcpy(to_, "/", 2);
    }
    return true;
  }

 private:
  // The length of the next name; 0: the walk is over.
  std::size_t next_step() {
    while (rest_[begin_] == '/') {
      ++begin_;
    }
    return std::strcspn(rest_ + begin_, "/");
  }
  [[nodiscard]] std::size_t parent() const {
    std::size_t at = length_;
    while (at > 0 && to_[--at] != '/') {
    }
    return at;
  }
  // The rest of the walk becomes `first`, followed by `then`.
  [[nodiscard]] bool put_in_front(const char* first, const char* then) {
    const std::size_t head = std::strlen(first);
    const std::size_t tail = std::strlen(then);
    if (head + tail + 1 >= sizeof rest_) {
      return false;
    }
    std::memmove(rest_ + head, then, tail + 1);
    std::memcpy(rest_, first, head);
    begin_ = 0;
    return true;
  }
  // Takes one more name. If it is a link that has to be followed, its target is put in front of the
  // rest.
  [[nodiscard]] bool take(const char* name, std::size_t step, bool last) {
    if (length_ + step + 2 > kMaxWalk) {
      return false;
    }
    to_[length_] = '/';
    std::memcpy(to_ + length_ + 1, name, step);
    length_ += step + 1;
    to_[length_] = '\0';
    touched_ = touched_ || is_emulated(to_);
    if (last && last_ == LastLink::stays) {
      return true;
    }
    char* const target = space_.target;
    const ssize_t size = ask();
    if (size <= 0) {
      return size == 0 || last;
    }
    target[size] = '\0';
    hide_root(target);
    if (++links_ > kMaxLinks) {
      return false;
    }
    length_ = target[0] == '/' ? 0 : parent();
    to_[length_] = '\0';
    return put_in_front(target, rest_ + begin_);
  }
  // Reads the target of a link, and returns its length. 0: it is no link but a folder; -1: neither.
  [[nodiscard]] ssize_t ask() const {
    const char* at = to_;
    if (is_emulated(to_)) {
      const std::size_t head = std::strlen(root_);
      char* const below = space_.below;
      if (head + length_ >= sizeof space_.below) {
        return -1;
      }
      std::memcpy(below, root_, head);
      std::memcpy(below + head, to_, length_ + 1);
      at = below;
    }
    const ssize_t size =
        syscall(SYS_readlinkat, AT_FDCWD, at, space_.target, sizeof space_.target - 1);
    struct stat status {};
    if (size > 0) {
      return size;
    }
    return syscall(SYS_newfstatat, AT_FDCWD, at, &status, 0) == 0 && S_ISDIR(status.st_mode) ? 0
                                                                                             : -1;
  }

  const char* root_;
  LastLink last_;
  PathSpace& space_;
  char (&to_)[kMaxWalk];  // the path so far, without links and ".."
  std::size_t length_ = 0;
  char (&rest_)[kMaxWalk];
  std::size_t begin_ = 0;
  int links_ = 0;
  bool touched_ = false;
};

}  // namespace

bool walk_path(const char* root, const char* path, LastLink last, PathSpace& space) {
  Walk walk(root, last, space);
  return walk.follow(path) && walk.touched();
}

}  // namespace weft::preload
