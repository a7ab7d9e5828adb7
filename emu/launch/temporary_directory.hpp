// Owns directories that go when this program does, however it ends.
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
  srd::UniqueFd owner_;  // a lock file: locked for as long as somebody wants the directory
};

// Where sockets and such directories live: $XDG_RUNTIME_DIR if it is this user's own, else /tmp.
[[nodiscard]] std::string runtime_directory();

// `path` is a directory that belongs to this user and that nobody else may write to; links do not
// count.
[[nodiscard]] bool is_own_directory(const std::string& path);

}  // namespace weft::launch
