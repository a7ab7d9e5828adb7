// Owns the program: one rank of one case, over and over until the network has troubled it enough.
//
// WEFT_CASE_SECONDS: at least that long. WEFT_CASE_UNTIL: until that counter of the device moves.
#include <poll.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/conformance/libfabric/cases.hpp"
#include "tests/conformance/libfabric/endpoint.hpp"

namespace weft::conformance {
namespace {

using Clock = std::chrono::steady_clock;
// If the counter has not moved by then the case ends well, and the test finds that the network did
// nothing (expect_trouble()).
constexpr std::chrono::seconds kMax{40};

std::string setting(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// Of the first device that is there.
std::uint64_t counter(const std::string& name) {
  std::uint64_t count = 0;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband")) {
    std::ifstream(device.path() / "ports/1/hw_counters" / name) >> count;
    break;
  }
  return count;
}

bool enough(Clock::time_point start) {
  const std::string seconds = setting("WEFT_CASE_SECONDS");
  const std::string moves = setting("WEFT_CASE_UNTIL");
  const auto spent = Clock::now() - start;
  return spent > kMax ||
         ((seconds.empty() || spent > std::chrono::duration<double>(std::stod(seconds))) &&
          (moves.empty() || counter(moves) > 0));
}

// Rank 0 decides for all.
bool is_last(Clock::time_point start) {
  const std::string path = setting("WEFT_CASE_DIR") + "/verdict" + std::to_string(Endpoint::round);
  if (Endpoint::rank() == 0) {
    const bool last = enough(start);
    std::ofstream(path + ".part") << (last ? "last" : "more");
    std::filesystem::rename(path + ".part", path);
    return last;
  }
  for (const auto limit = Clock::now() + kMax; Clock::now() < limit; ::poll(nullptr, 0, 1)) {
    std::string verdict;
    if (std::ifstream(path) >> verdict) {
      return verdict == "last";
    }
  }
  give_up("rank 0 does not say whether that was all");
}

int run(const Case& one) {
  const auto start = Clock::now();
  const std::string round = setting("WEFT_CASE_ROUND");
  Endpoint::round = round.empty() ? 0 : std::stoi(round);
  for (one.run(); !is_last(start); one.run()) {
    ++Endpoint::round;
  }
  return 0;
}

}  // namespace
}  // namespace weft::conformance

int main(int argc, char** argv) {
  using namespace weft::conformance;
  for (const auto cases : {message_cases(), remote_cases(), atomic_cases(), endpoint_cases()}) {
    for (const Case& one : cases) {
      if (argc == 2 && std::strcmp(argv[1], one.name) == 0) {
        return run(one);
      }
    }
  }
  std::fprintf(stderr, "usage: weft_fabric_peer CASE\n");
  return 2;
}
