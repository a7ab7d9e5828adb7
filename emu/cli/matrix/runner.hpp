// Owns running the cells of a matrix, some at a time.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "emu/cli/matrix/cell.hpp"
#include "emu/cli/matrix/shelf.hpp"

namespace weft::cli {

class MatrixRunner {
 public:
  MatrixRunner(MatrixPlan plan, const std::vector<Cell>& cells, std::size_t jobs,
               const Shelf& shelf);

  // Until all have ended, and says of each how; after an interrupt none is started any more. A cell
  // that cannot be started is red.
  [[nodiscard]] std::vector<CellResult> run();

 private:
  void start(std::size_t place);
  [[nodiscard]] bool finish(std::size_t place, RunningCell& cell);
  // Until a cell says something, or a while has passed.
  void wait() const;
  void say(const CellResult& result);

  MatrixPlan plan_;
  std::size_t jobs_;
  const Shelf& shelf_;
  std::vector<CellResult> results_;
  std::list<std::pair<std::size_t, std::unique_ptr<RunningCell>>> running_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
};

}  // namespace weft::cli
