// Owns looking into a program for MPI.
#include "emu/cli/mpi_program.hpp"

#include <filesystem>
#include <fstream>

#include "emu/launch/find_program.hpp"

namespace weft::cli {

// The dynamic section has the names of needed libraries as plain text, so a search through the file
// is enough. A library that is loaded later, or linked statically, is not seen; this is only for a
// warning.
bool wants_mpi(const std::string& program) {
  const auto needs_it = [](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text(std::size_t{1} << 20, '\0');  // names stand near the beginning
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text.starts_with(
               "\x7F"
               "ELF") &&
           (text.find("libmpi.so") != std::string::npos ||
            text.find("libmpich.so") != std::string::npos ||
            text.find("libmpi_cxx.so") != std::string::npos);
  };
  const std::string path =
      program.find('/') == std::string::npos ? launch::find_program(program) : program;
  return !path.empty() && needs_it(path);
}

}  // namespace weft::cli
