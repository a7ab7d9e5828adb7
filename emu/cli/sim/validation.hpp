// Owns checking files that people write for weft, without running anything.
#pragma once

#include <string>

#include "emu/fabric/topology.hpp"
#include "srd/base/result.hpp"

namespace weft::cli {

// `automatic`: guessed from the name and the keys.
enum class FileKind { automatic, scenario, topology, faults, profile, matrix, htsim_topology };

[[nodiscard]] Result<FileKind> parse_file_kind(const std::string& name);
[[nodiscard]] const char* to_string(FileKind kind);

struct Valid {
  FileKind kind = FileKind::automatic;
  std::string summary;  // what the file describes, in a few words
};

// Errors begin with the file and, where there is one, the line. Faults name links: with a network
// they are checked against it.
[[nodiscard]] Result<Valid> validate_file(const std::string& path, FileKind kind,
                                          const fabric::Topology* network);

}  // namespace weft::cli
