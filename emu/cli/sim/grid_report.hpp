// Owns how the results of a grid are told: a page with a heat map, and a document.
#pragma once

#include <string>

#include "emu/cli/sim/grid_verdict.hpp"

namespace weft::cli {

// An SVG picture. One square per cell, rows by workload and point, columns by topology and
// condition; the colour says how many times the best policy's metric that of the judged policy is.
// With `titles` each square shows its figures under the pointer.
[[nodiscard]] std::string grid_heat_map(const sim::Grid& grid, const GridJudgement& judgement,
                                        bool titles);
// An HTML page that loads nothing else.
[[nodiscard]] std::string grid_page(const sim::Grid& grid, const GridJudgement& judgement);
// The same as Markdown, which shows the heat map grid.svg beside it. `command` made the results.
[[nodiscard]] std::string grid_document(const sim::Grid& grid, const GridJudgement& judgement,
                                        const std::string& command);

}  // namespace weft::cli
