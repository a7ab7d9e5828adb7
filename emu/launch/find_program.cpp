// Owns what counts as found: a file, and one that this user may execute.
#include "emu/launch/find_program.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <system_error>

namespace weft::launch {

std::string find_program(const std::string& name) {
  const char* const path = ::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    std::error_code error;  // a folder is executable, too
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0 &&
        std::filesystem::is_regular_file(file, error)) {
      return file;
    }
  }
  return {};
}

std::string find_provider(const std::string& kind) {
  // libibverbs looks into a folder that it was built with; these are those of Debian and Fedora.
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib64/libibverbs", "/usr/lib/libibverbs"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      std::string name = entry.path().filename().string();
      if (name.starts_with("lib" + kind + "-")) {
        return name;
      }
    }
  }
  return {};
}

}  // namespace weft::launch
