// Owns the file in which users describe a matrix of their own: devices, seeds, conditions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emu/cli/matrix/condition.hpp"
#include "srd/base/result.hpp"

namespace weft::cli {

// What the file does not say is empty.
struct UserMatrix {
  std::vector<std::string> devices;
  std::vector<std::uint64_t> seeds;
  std::vector<Condition> conditions;
};

// docs/ci.md has the keys. `hosts`: how many the programs take; every network must have them. Paths
// in the file start at its folder. An error names file and line.
[[nodiscard]] Result<UserMatrix> read_user_matrix(const std::string& path, std::size_t hosts);

// The same of a file that has been read; `folder`: where its paths start.
[[nodiscard]] Result<UserMatrix> read_user_matrix(const std::string& name, const std::string& text,
                                                  const std::string& folder, std::size_t hosts);

}  // namespace weft::cli
