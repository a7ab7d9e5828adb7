// Owns the memory of who had which place on the network: a file that outlives weftd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// A weftd that was killed and started again must neither give a life twice nor give a place away
// whose process still runs and will ask for it. Without a file nothing is remembered.
class Places {
 public:
  struct Place {
    std::uint32_t life = 0;    // the latest given out; 0: none ever
    std::int32_t process = 0;  // who has it; 0: nobody, kUnknown: somebody
  };
  static constexpr std::int32_t kUnknown = -1;

  Places() = default;
  // What the file says of a network with another number of places is forgotten.
  [[nodiscard]] static Result<Places> open(const std::string& file, std::size_t places);

  [[nodiscard]] Place get(std::size_t place) const {
    return place < places_.size() ? places_[place] : Place{};
  }
  // Is in the file when it returns, unless there is no space for it.
  void set(std::size_t place, const Place& what);

 private:
  srd::UniqueFd file_;
  std::vector<Place> places_;
};

}  // namespace weft::daemon
