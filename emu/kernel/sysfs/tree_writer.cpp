// Owns writing the emulated /sys and /dev.
#include "emu/kernel/sysfs/tree_writer.hpp"

#include <fstream>
#include <system_error>

namespace weft::kernel {

namespace fs = std::filesystem;

void TreeWriter::file(const fs::path& path, const std::string& line) {
  std::error_code error;
  fs::create_directories((root_ / path).parent_path(), error);
  std::ofstream out(root_ / path, std::ios::trunc);
  out << line << '\n';
  out.close();  // a full disk says so when it is given the bytes
  note(path, !out.good());
}

void TreeWriter::link(const fs::path& path, const fs::path& target) {
  std::error_code error;
  fs::create_directories((root_ / path).parent_path(), error);
  fs::remove(root_ / path, error);
  fs::create_symlink(target.lexically_relative(path.parent_path()), root_ / path, error);
  note(path, static_cast<bool>(error));
}

void TreeWriter::folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(root_ / path, error);
  note(path, static_cast<bool>(error));
}

void TreeWriter::note(const fs::path& path, bool bad) {
  if (bad && failed_.empty()) {
    failed_ = (root_ / path).string();
  }
}

std::string byte_pairs(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    text += format("%s%02x%02x", i == 0 ? "" : ":", static_cast<unsigned>(bytes[i]),
                   static_cast<unsigned>(bytes[i + 1]));
  }
  return text;
}

}  // namespace weft::kernel
