// Owns scenarios: a network, traffic, a transport, faults and what is expected, as people write
// them in YAML.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emu/fabric/fabric.hpp"
#include "emu/fabric/traffic_matrix.hpp"
#include "emu/sim/ideal_time.hpp"
#include "emu/sim/one_path.hpp"
#include "emu/sim/simulation.hpp"
#include "srd/engine/config.hpp"

namespace weft::sim {

// What hosts run. Only the configuration that `kind` calls for is used when the run is built; both
// are filled from the network, because reports take payload and round trip from them.
struct TransportSpec {
  enum class Kind : std::uint8_t { srd, rc, rc_dcqcn, tcp_reno, dctcp };
  Kind kind = Kind::srd;
  srd::EngineConfig engine;  // srd
  OnePathConfig one_path;    // the others
};

// Limits on results, upper ones but for least_jain; a result without limit is only reported.
struct Bounds {
  std::optional<double> tail_fct_us;
  std::optional<double> ratio;
  std::optional<double> least_jain;
  std::optional<double> retransmitted_per_new;
  std::optional<double> path_abandoned_us;  // from a fault until traffic has left the broken place
  std::optional<double> reference_p50_us;
  std::optional<double> reference_p99_us;
  std::optional<double> reference_us;  // tail FCT of the reference that this must come close to ...
  double reference_within = 0.10;      // ... by this share
};

// A named change of settings, with its own expectation.
struct Variant {
  std::string name;
  std::vector<std::pair<std::string, std::string>> set;
  Bounds bounds;
};

struct Scenario {
  std::string name;
  std::string title;
  std::string reference;  // where the figure to compare with comes from
  std::uint64_t seed = 13;
  fabric::Topology topology;
  fabric::TrafficMatrix traffic;
  TransportSpec transport;
  std::vector<fabric::Fault> faults;
  Bounds bounds;
  std::optional<double> ideal_us;                        // given, instead of the computed one
  IdealTimes ideal;                                      // computed
  std::vector<std::vector<fabric::LinkId>> fault_links;  // what each of the faults touches
  SimulationOptions options;
  std::vector<Variant> variants;
  std::vector<std::string> warnings;  // what the reader should know, though nothing is wrong
  unsigned hops = 0;                  // links on the longest path of a flow, as far as looked at
};

using Settings = std::vector<std::pair<std::string, std::string>>;

// `settings` replace values by their dotted path ("transport.paths", "faults.0.loss") before
// anything is interpreted; a later one wins. `file_name` is for messages; names of other files in
// the scenario are relative to `directory`. The transport's defaults come from the network: line
// rate, round trip, and whether frames are trimmed.
[[nodiscard]] Result<Scenario> read_scenario(const std::string& file_name, const std::string& text,
                                             const Settings& settings,
                                             const std::string& directory);

// The best that any transport could do, in microseconds (docs/experiments.md, "Ideal times").
[[nodiscard]] inline double ideal_us(const Scenario& scenario) {
  return scenario.ideal_us.value_or(scenario.ideal.all_us);
}

// Makes a transport for each host, with the line rate of that host's uplink. The scenario has to
// outlive the function. Each factory has a table of region keys that its hosts share: use one
// factory per Simulation.
[[nodiscard]] Simulation::MakeTransport transport_factory(const Scenario& scenario);

}  // namespace weft::sim
