// Fuzzes the readers of network files that people write or fetch: topologies in YAML, and htsim's
// topologies and traffic matrices. The first byte of an input chooses the reader.
#include <cstddef>
#include <cstdint>
#include <string>

#include "emu/fabric/htsim_topo.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "emu/fabric/traffic_matrix.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Larger inputs find the same places, more slowly.
  if (size == 0 || size > 4096) {
    return 0;
  }
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      if (const auto matrix = weft::fabric::read_htsim_matrix("m.cm", text)) {
        (void)weft::fabric::validate(*matrix, 1024);
      }
      break;
    case 1:
      (void)weft::fabric::read_htsim_topology("t.topo", text, {});
      break;
    default:
      // In a folder that does not exist, so that a file's name in the input opens nothing.
      (void)weft::fabric::read_topology("t.yaml", text, "/nonexistent");
  }
  return 0;
}
