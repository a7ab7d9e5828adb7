// Owns the program: one rank of one case.
#include <cstdio>
#include <cstring>

#include "tests/conformance/libfabric/cases.hpp"

int main(int argc, char** argv) {
  for (const auto& one : weft::conformance::all_cases()) {
    if (argc == 2 && std::strcmp(argv[1], one.name) == 0) {
      one.run();
      return 0;
    }
  }
  std::fprintf(stderr, "usage: weft_fabric_peer CASE\n");
  return 2;
}
