// Owns the reading of grid files: cells are all combinations of their lists.
//
// A cell is assembled as text, a scenario file of its own: the texts of topology, traffic and
// faults, in which each $word is replaced by what the topology or the point says it stands for. So
// a cell is read, checked and reported exactly like a scenario that a person has written.
#include "emu/sim/grid.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "emu/fabric/topology_yaml.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "srd/base/rng.hpp"

namespace weft::sim {
namespace {

// What each word stands for, as YAML text. Text and not nodes: yaml-cpp nodes that are put together
// share one memory pool from then on, and thousands of cells would never release it.
using Words = std::map<std::string, std::string>;

// Makes the node print in flow style ("{a: 1}"), whatever style the file has: text_of() puts it
// behind "key: " on one line.
void make_flow(YAML::Node node) {
  if (node.IsSequence()) {
    node.SetStyle(YAML::EmitterStyle::Flow);
    for (const YAML::Node& item : node) {
      make_flow(item);
    }
  } else if (node.IsMap()) {
    node.SetStyle(YAML::EmitterStyle::Flow);
    for (const auto& pair : node) {
      make_flow(pair.second);
    }
  }
}

std::string flow_text(const YAML::Node& node) {
  make_flow(node);
  YAML::Emitter out;
  out << YAML::Flow << node;
  return out.c_str();
}

// The text, with each $word (lower-case letters and underscores) replaced by what it stands for.
// Adds words that are not known to `missing`.
std::string filled(const std::string& text, const Words& words, std::set<std::string>& missing) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (text[at] == '$' && end < text.size() &&
           (std::islower(text[end]) != 0 || text[end] == '_')) {
      ++end;
    }
    if (end == at + 1) {
      out += text[at++];
      continue;
    }
    const std::string name = text.substr(at + 1, end - at - 1);
    const auto it = words.find(name);
    if (it == words.end()) {
      missing.insert(name);
    } else {
      out += it->second;
    }
    at = end;
  }
  return out;
}

// Empty if the key is absent.
std::string text_of(fabric::YamlMap& map, const char* key) {
  const YAML::Node node = map.raw(key);
  return node.IsDefined() ? flow_text(node) : std::string();
}

Words read_words(fabric::YamlMap& map, const char* key) {
  Words words;
  map.each_pair(key, [&](const std::string& name, const YAML::Node& value, const std::string&) {
    words[name] = flow_text(value);
  });
  return words;
}

Settings read_set(fabric::YamlMap& map) {
  Settings set;
  map.each_pair("set", [&](const std::string& key, const YAML::Node& value, const std::string&) {
    set.emplace_back(key, flow_text(value));
  });
  return set;
}

struct GridPoint {
  std::string name;
  Words words;
};

struct GridWorkload {
  std::string name;
  // The file says `points: sizes`: the points are the sizes of each network, see sizes_of().
  bool sizes = false;
  std::vector<GridPoint> points;
  std::vector<std::string> metrics;
  bool small_flows = false;
  std::string traffic;  // as YAML, with words
};

struct GridNetwork {
  std::string name;
  std::string topology;
  Words words;
  std::vector<GridPoint> sizes;
};

struct GridCondition {
  std::string name;
  std::string faults;  // empty: none
  Settings set;
};

struct SizeAxis {
  std::uint64_t from = 1;
  double windows = 16;
};

// The names in a list have to differ, and are parts of a cell's name, which '/' separates.
void read_name(fabric::YamlMap& map, std::set<std::string>& known, std::string& name) {
  map.read_label("name", name);
  if (name.empty() || name.find('/') != std::string::npos) {
    map.fail("name", "expected a name without '/'");
  } else if (!known.insert(name).second) {
    map.fail("name", "there is another one called '" + name + "'");
  }
}

// Calls `read` with each element of the list `key` and its name; fails if the list is empty.
template <class Read>
void each_named(fabric::YamlMap& top, const char* key, const Read& read) {
  std::set<std::string> known;
  top.each(key, [&](const YAML::Node& node, const std::string& path) {
    fabric::YamlMap map(top.file(), node, path);
    std::string name;
    read_name(map, known, name);
    read(map, name);
    map.finish();
  });
  if (known.empty() && !top.file().failed()) {
    top.fail(key, "expected a list with at least one element");
  }
}

// A list of words; if `allowed` is not empty, each has to be one of them.
std::vector<std::string> read_list(fabric::YamlMap& map, const char* key,
                                   std::span<const char* const> allowed) {
  std::vector<std::string> list;
  map.each(key, [&](const YAML::Node& item, const std::string& path) {
    const std::string word = item.IsScalar() ? item.Scalar() : "";
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), word) == allowed.end()) {
      std::string names;
      for (const char* const name : allowed) {
        names += (names.empty() ? "" : ", ") + std::string(name);
      }
      map.file().fail_at(item, path, "expected one of " + names);
    }
    list.push_back(word);
  });
  return list;
}

GridWorkload read_workload(fabric::YamlMap& map, const std::string& name) {
  GridWorkload workload{
      .name = name, .points = {}, .metrics = {}, .traffic = text_of(map, "traffic")};
  workload.metrics = read_list(map, "metrics", kGridMetrics);
  map.read("small_flows", workload.small_flows);
  const YAML::Node points = map.raw("points");
  workload.sizes = points.IsScalar() && points.Scalar() == "sizes";
  if (!workload.sizes) {
    map.each_pair("points",
                  [&](const std::string& point, const YAML::Node& node, const std::string& path) {
                    GridPoint one{.name = point, .words = {}};
                    if (!node.IsMap() || point.find('/') != std::string::npos) {
                      map.file().fail_at(node, path, "expected a name without '/' and its words");
                      return;
                    }
                    for (const auto& pair : node) {
                      one.words[pair.first.Scalar()] = flow_text(pair.second);
                    }
                    workload.points.push_back(std::move(one));
                  });
  }
  if (workload.metrics.empty()) {
    map.fail("metrics", "expected at least one metric to compare by");
  }
  return workload;
}

// The sizes of flows to try on a network: powers of two times `from_packets`, up to a multiple of
// the window (what the longest round trip holds at line rate). Which round trip a network has is
// known only when a scenario on it is read, so a small one is read for that. A tornado is chosen
// because every host sends, half way round.
std::vector<GridPoint> sizes_of(fabric::YamlMap& map, const GridNetwork& network,
                                const SizeAxis& axis) {
  const auto scenario = read_scenario(
      map.file().name(), "topology: " + network.topology + "\ntraffic: {kind: tornado}\n", {}, "");
  if (!scenario) {
    map.fail("topology", scenario.error().message);
    return {};
  }
  const srd::EngineConfig& engine = scenario->transport.engine;
  const double window =
      static_cast<double>(engine.line_rate.bytes_in(engine.base_rtt)) / engine.mtu_payload;
  std::vector<GridPoint> points;
  for (std::uint64_t packets = axis.from;
       static_cast<double>(packets) <= axis.windows * window || points.empty(); packets *= 2) {
    points.push_back({std::to_string(packets) + (packets == 1 ? "-packet" : "-packets"),
                      {{"bytes", std::to_string(packets * engine.mtu_payload)}}});
  }
  return points;
}

std::vector<GridDemand> read_must(fabric::YamlMap& top) {
  std::vector<GridDemand> must;
  top.each("must", [&](const YAML::Node& node, const std::string& path) {
    fabric::YamlMap map(top.file(), node, path);
    GridDemand demand;
    map.read_label("what", demand.what);
    demand.measure = kGridMeasures[map.choice("measure", kGridMeasures, 0)];
    demand.conditions = read_list(map, "conditions", {});
    map.read("at_most", demand.at_most, 0, 1e12);
    map.read("in_share", demand.in_share, 0, 1);
    map.finish();
    must.push_back(std::move(demand));
  });
  return must;
}

// Reads the lists, then combines them. The lists are complete before the first cell is made: words
// of topologies and points meet only there.
class GridReader {
 public:
  explicit GridReader(const std::string& file_name) : file_(file_name) {}

  Result<Grid> read(const std::string& text) {
    const YAML::Node root = file_.load(text);
    if (!file_.failed() && !root.IsMap()) {
      file_.fail_at(root, "", "expected a grid: workloads, topologies, conditions, policies");
    }
    fabric::YamlMap top(file_, root, "");
    top.read("title", grid_.title);
    top.read("seed", grid_.seed, 0, INT64_MAX);
    Duration limit = std::chrono::seconds{1};
    top.read("time_limit", limit);
    time_limit_ = std::to_string(limit.count()) + "ns";
    SizeAxis axis;
    fabric::YamlMap sizes = top.map("sizes");
    sizes.read("from_packets", axis.from, 1, 1 << 20);
    sizes.read("to_windows", axis.windows, 0.01, 4096);
    sizes.finish();
    fabric::YamlMap halves = top.map("halves");
    half_of_[0] = kHalves[halves.choice("even", kHalves, 0)];
    half_of_[1] = kHalves[halves.choice("odd", kHalves, 1)];
    halves.finish();
    each_named(top, "policies", [&](fabric::YamlMap& map, const std::string& name) {
      grid_.policies.push_back({name, read_set(map)});
    });
    each_named(top, "workloads", [&](fabric::YamlMap& map, const std::string& name) {
      workloads_.push_back(read_workload(map, name));
    });
    each_named(top, "topologies", [&](fabric::YamlMap& map, const std::string& name) {
      GridNetwork network{
          .name = name, .topology = text_of(map, "topology"), .words = {}, .sizes = {}};
      network.words = read_words(map, "words");
      if (!file_.failed()) {
        network.sizes = sizes_of(map, network, axis);
      }
      networks_.push_back(std::move(network));
    });
    each_named(top, "conditions", [&](fabric::YamlMap& map, const std::string& name) {
      GridCondition condition{.name = name, .faults = text_of(map, "faults"), .set = {}};
      condition.set = read_set(map);
      conditions_.push_back(std::move(condition));
    });
    grid_.must = read_must(top);
    top.finish();
    if (file_.failed()) {
      return tl::unexpected<Error>(file_.error());
    }
    combine();
    return std::move(grid_);
  }

 private:
  void combine() {
    for (const GridWorkload& workload : workloads_) {
      for (const GridNetwork& network : networks_) {
        for (const GridPoint& point : workload.sizes ? network.sizes : workload.points) {
          for (const GridCondition& condition : conditions_) {
            add(workload, network, point, condition);
          }
        }
      }
    }
  }

  void add(const GridWorkload& workload, const GridNetwork& network, const GridPoint& point,
           const GridCondition& condition) {
    GridCell cell;
    cell.name = workload.name + "/" + point.name + "/" + network.name + "/" + condition.name;
    cell.workload = workload.name;
    cell.point = point.name;
    cell.topology = network.name;
    cell.condition = condition.name;
    cell.metrics = workload.metrics;
    cell.small_flows = workload.small_flows;
    cell.half = half_of_[fnv1a(cell.name) % 2];
    cell.set = condition.set;
    Words words = network.words;
    // A point may override a word of the topology.
    for (const auto& [name, value] : point.words) {
      words[name] = value;
    }
    std::set<std::string> missing;
    const auto part = [&](const char* key, const std::string& text) {
      return text.empty() ? std::string()
                          : std::string(key) + ": " + filled(text, words, missing) + "\n";
    };
    // The seed follows from the name of the cell: cells draw different matrices, and each draws the
    // same in every run of the grid and under every policy. The shift leaves 31 bits, which every
    // reader of numbers takes.
    const std::uint64_t seed = mix64(fnv1a(cell.name) ^ mix64(grid_.seed)) >> 33;
    cell.text = "name: grid\nseed: " + std::to_string(seed) + "\ntime_limit: " + time_limit_ +
                "\n" + part("topology", network.topology) + part("traffic", workload.traffic) +
                part("faults", condition.faults);
    if (missing.empty()) {
      grid_.cells.push_back(std::move(cell));
      return;
    }
    std::string names;
    for (const std::string& name : missing) {
      names += (names.empty() ? "" : ", ") + name;
    }
    grid_.gaps.push_back({cell.name, "the topology " + network.name + " has no " + names});
  }

  fabric::YamlFile file_;
  std::string time_limit_;
  std::string half_of_[2];
  std::vector<GridWorkload> workloads_;
  std::vector<GridNetwork> networks_;
  std::vector<GridCondition> conditions_;
  Grid grid_;
};

}  // namespace

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return hash;
}

Result<Grid> read_grid(const std::string& file_name, const std::string& text) {
  return GridReader(file_name).read(text);
}

std::vector<GridCell> sample(const std::vector<GridCell>& cells, std::size_t count,
                             std::uint64_t seed) {
  if (count >= cells.size()) {
    return cells;
  }
  std::vector<std::size_t> order(cells.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Rng rng(mix64(seed));
  for (std::size_t i = 0; i < count; ++i) {
    // The first steps of a Fisher-Yates shuffle: each set of `count` cells is equally likely.
    std::swap(order[i], order[i + rng.below(static_cast<std::uint32_t>(order.size() - i))]);
  }
  order.resize(count);
  std::sort(order.begin(), order.end());
  std::vector<GridCell> some;
  std::transform(order.begin(), order.end(), std::back_inserter(some),
                 [&](std::size_t index) { return cells[index]; });
  return some;
}

}  // namespace weft::sim
