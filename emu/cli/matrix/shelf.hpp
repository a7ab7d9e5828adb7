// Owns the folders of the cells: where they are, what of an earlier matrix goes, and what stays.
#pragma once

#include <cstddef>
#include <string>

#include "emu/cli/matrix/cell.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {

// In a place that the user named, the folders of all cells stay, and those of an earlier matrix are
// replaced. Without one there is a temporary place: the folders of red cells stay, and it goes if
// there are none. One whose matrix was killed goes with the next matrix.
class Shelf {
 public:
  // Throws where there cannot be one.
  explicit Shelf(const std::string& wish);
  ~Shelf();
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  // An empty folder for the cell of that number, from 1, among `of`. What a cell of an earlier
  // matrix left there is removed, and nothing else: throws if there is.
  [[nodiscard]] std::string make_place_for(const Cell& cell, std::size_t number,
                                           std::size_t of) const;
  // A cell is over.
  void put(CellResult& result, const std::string& folder) const;

 private:
  bool keeps_all_;
  std::string path_;
  srd::UniqueFd mark_;  // locked as long as the matrix goes on
};

}  // namespace weft::cli
