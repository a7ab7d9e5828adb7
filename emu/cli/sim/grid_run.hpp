// Owns running an evaluation grid: what is still to run, the file of results, what is said at the
// end.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct GridOptions {
  std::string spec;                   // a grid file; empty: the built-in one
  std::string half;                   // tune or held-out; empty: both
  std::string only;                   // pattern of cell names with * and ?; empty: all
  std::vector<std::string> policies;  // beside the judged one; empty: all
  std::string cells;                  // a number of cells, drawn by lot, or "all"
  std::string seed;                   // of the lot; empty: the grid's own
  std::string report;                 // directory for results; empty: none are kept
  unsigned jobs = 0;                  // processes at a time; 0: as many as cores
  bool json = false;
  bool list = false;  // only the names of the cells
};

// The exit code: kFailure if a run gave no result or a demand does not hold, kUsage if the file or
// an option is wrong.
[[nodiscard]] int run_grid(const GridOptions& options);

}  // namespace weft::cli
