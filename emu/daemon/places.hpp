// Owns the record of which process has which place on the network: a file that outlives weftd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// A weftd that was killed and started again must neither give a life twice, nor give a place away
// whose process still runs and will ask for it. Each change is one pwrite(), in the page cache when
// it returns: it survives the death of weftd, though not of the machine. Without a file nothing is
// remembered.
class Places {
 public:
  // As it lies in the file.
  struct Place {
    std::uint32_t life = 0;    // the latest given out; 0: none ever
    std::int32_t process = 0;  // pid of its owner; 0: none, kUnknown: one without a pid here
  };
  static constexpr std::int32_t kUnknown = -1;

  Places() = default;
  // A file of a network with another number of places is emptied. In one that a weftd in another
  // pid namespace wrote, in a container that is gone, say, processes are unknown: their numbers
  // mean other processes here, or none.
  [[nodiscard]] static Result<Places> open(const std::string& file, std::size_t places);

  [[nodiscard]] Place get(std::size_t place) const {
    return place < places_.size() ? places_[place] : Place{};
  }
  // In the file when it returns, unless the disk is full.
  void set(std::size_t place, const Place& what);

 private:
  void forget_processes();

  srd::UniqueFd file_;
  std::vector<Place> places_;
};

}  // namespace weft::daemon
