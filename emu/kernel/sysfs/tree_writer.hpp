// Owns writing files and links of the emulated /sys and /dev below a folder of the run.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace weft::kernel {

// Paths are those of a machine without their first slash: "sys/class/infiniband". Folders on the
// way are made. Errors are remembered, not returned: look at failed() at the end.
class TreeWriter {
 public:
  explicit TreeWriter(std::filesystem::path root) : root_(std::move(root)) {}

  void file(const std::filesystem::path& path, const std::string& line);
  // A relative link: the tree may be moved.
  void link(const std::filesystem::path& path, const std::filesystem::path& target);
  void folder(const std::filesystem::path& path);
  // The first path that could not be written; empty: all could.
  [[nodiscard]] const std::string& failed() const { return failed_; }

 private:
  void note(const std::filesystem::path& path, bool bad);

  std::filesystem::path root_;
  std::string failed_;
};

// As snprintf(); what is longer than 127 characters is cut.
template <class... Args>
[[nodiscard]] std::string format(const char* pattern, Args... args) {
  char text[128];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

// As sysfs shows GIDs and GUIDs: groups of two bytes.
[[nodiscard]] std::string byte_pairs(std::span<const std::byte> bytes);

}  // namespace weft::kernel
