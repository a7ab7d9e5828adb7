// Owns directories that are removed when this program ends, or by the next one if it was killed.
#pragma once

#include <string>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {

// Only this user can enter it. It is removed with this object; if the program is killed before, the
// next one that makes such a directory removes it.
class TemporaryDirectory {
 public:
  [[nodiscard]] static Result<TemporaryDirectory> create();

  TemporaryDirectory(TemporaryDirectory&& other) noexcept;
  TemporaryDirectory& operator=(TemporaryDirectory&& other) = delete;
  ~TemporaryDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  TemporaryDirectory() = default;
  std::string path_;
  srd::UniqueFd owner_;  // a lock file in it: locked as long as the directory is in use
};

// Where sockets and such directories live: $XDG_RUNTIME_DIR if it is this user's own, else /tmp.
[[nodiscard]] std::string runtime_directory();

// Whether `path` is a directory, no link to one, that belongs to this user and that no other user
// may write to.
[[nodiscard]] bool is_own_directory(const std::string& path);

}  // namespace weft::launch
