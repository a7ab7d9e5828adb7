// Owns what follows from the options of `weft perf`.
#include "emu/cli/perf/options.hpp"

#include <stdexcept>

#include "emu/launch/cores.hpp"

namespace weft::cli {
namespace {

PerfOperation parse_operation(const std::string& name) {
  for (const auto operation : {PerfOperation::send, PerfOperation::write, PerfOperation::read}) {
    if (name == to_string(operation)) {
      return operation;
    }
  }
  throw std::runtime_error("there is no operation '" + name + "'");
}

}  // namespace

std::vector<PerfCase> cases_of(const PerfOptions& options) {
  std::vector<PerfCase> cases;
  for (const std::string& name : options.operations) {
    for (const std::uint32_t size : options.sizes) {
      PerfCase one;
      one.operation = parse_operation(name);
      if (one.operation == PerfOperation::send && size > 4096) {
        continue;  // a send is at most one packet
      }
      one.size = size;
      one.duration = Duration{static_cast<std::int64_t>(options.seconds * 1e9)};
      // Many small requests, whose cost is each one's own; of large ones a few keep the way full.
      one.window = options.window != 0 ? options.window
                   : size <= 4096      ? 256
                   : size <= 65536     ? 64
                                       : 8;
      cases.push_back(one);
    }
  }
  return cases;
}

bool passes_weftd(const PerfOptions& options) {
  return launch::passes_weftd(options.through_weftd, options.topology, options.faults);
}

// Of three processes on two cores one is in the way of the others, unless it is told where to be.
bool is_pinned(const PerfOptions& options) {
  return options.pin > 0 ||
         (options.pin == 0 && options.io == "ring" && options.pairs == 1 && passes_weftd(options));
}

std::size_t core_of_side(std::size_t pair, std::size_t side, bool with_weftd, std::size_t cores) {
  if (!with_weftd) {
    return (2 * pair + side) % cores;
  }
  const std::size_t core = pair % (cores - 1);
  return core < kCoreOfWeftd ? core : core + 1;
}

}  // namespace weft::cli
