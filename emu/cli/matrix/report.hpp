// Owns how a matrix is told: to people, to CI systems, to programs.
#pragma once

#include <string>
#include <vector>

#include "emu/cli/matrix/cell.hpp"

namespace weft::cli {

// Conditions one below the other, devices and seeds side by side: seconds, or what failed.
[[nodiscard]] std::string matrix_table(const std::vector<CellResult>& results);
// For each red cell: why, where it waited, the command that repeats it, the end of its output.
[[nodiscard]] std::string matrix_failures(const std::vector<CellResult>& results);
// The same for a page, as job summaries take it.
[[nodiscard]] std::string matrix_markdown(const std::vector<CellResult>& results);
// A test for each cell.
[[nodiscard]] std::string matrix_junit(const std::vector<CellResult>& results);
// An object for each cell, and one for all.
[[nodiscard]] std::string matrix_json(const std::vector<CellResult>& results);

// What a cell of a table says.
[[nodiscard]] std::string matrix_word(const CellResult& result);

}  // namespace weft::cli
