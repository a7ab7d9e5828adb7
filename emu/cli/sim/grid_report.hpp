// Owns how the results of a grid are told: a page with a heat map, and a document.
#pragma once

#include <string>

#include "emu/cli/sim/grid_verdict.hpp"

namespace weft::cli {

// One square per cell, rows by workload and point, columns by topology and condition: how many
// times the best policy's metric the judged one's is. With `titles` a pointer on a square tells
// more.
[[nodiscard]] std::string grid_heat_map(const sim::Grid& grid, const GridJudgement& judgement,
                                        bool titles);
// A page that needs nothing else.
[[nodiscard]] std::string grid_page(const sim::Grid& grid, const GridJudgement& judgement);
// The same as Markdown, which shows the heat map grid.svg beside it. `command` made the results.
[[nodiscard]] std::string grid_document(const sim::Grid& grid, const GridJudgement& judgement,
                                        const std::string& command);

}  // namespace weft::cli
