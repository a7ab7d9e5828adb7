// Owns writing reports and traces: a file is complete, or the command fails.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace weft::cli {

// Throws std::runtime_error, which main() reports. A full disk shows only when the file is closed.
inline void write_file(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) {
    throw std::runtime_error(
        path + ": cannot be written; check that the directory exists and is writable");
  }
}

}  // namespace weft::cli
