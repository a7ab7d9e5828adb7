// Owns how two programs of one run find each other: by files in WEFT_CASE_DIR.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {

inline int own_rank() { return std::atoi(std::getenv("WEFT_RANK")); }

// Leaves a number where the other finds it, and returns the other's. `what` names the occasion.
inline std::uint32_t exchange(const std::string& what, std::uint32_t number) {
  const std::string stem = std::string(std::getenv("WEFT_CASE_DIR")) + "/" + what + ".";
  const std::string own = stem + std::to_string(own_rank());
  std::ofstream(own + ".part") << number;
  std::filesystem::rename(own + ".part", own);
  for (int tries = 0; tries < 30000; ++tries) {
    std::ifstream other(stem + std::to_string(1 - own_rank()));
    std::uint32_t found = 0;
    if (other >> found) {
      return found;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  demand(false, "the other program does not come");
  return 0;
}

}  // namespace weft::conformance
