// Owns the guess at what a file is, and the checks of each kind. A check reads the file as its
// command would, and describes what it has read, so that a person sees whether that is what was
// meant.
#include "emu/cli/sim/validation.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "emu/devices/profiles.hpp"
#include "emu/devices/registry.hpp"
#include "emu/fabric/fabric.hpp"
#include "emu/fabric/htsim_topo.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "emu/fabric/traffic_matrix.hpp"
#include "emu/sim/scenario.hpp"
#include "srd/base/joined.hpp"

namespace weft::cli {
namespace {

// In the order of FileKind.
constexpr std::array kNames{"auto",    "scenario", "topology",      "faults",
                            "profile", "matrix",   "htsim-topology"};

std::string directory_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

// Guesses by keys that only one kind of file has; `topology` is also a key of scenarios, so it is
// asked last. `automatic`: no guess.
FileKind guess(const std::string& path, const YAML::Node& root) {
  if (path.ends_with(".cm")) {
    return FileKind::matrix;
  }
  if (path.ends_with(".topo")) {
    return FileKind::htsim_topology;
  }
  if (root.IsSequence()) {
    return FileKind::faults;
  }
  if (!root.IsMap()) {
    return FileKind::automatic;
  }
  if (root["fields"].IsDefined() || root["profile"].IsDefined()) {
    return FileKind::profile;
  }
  if (root["traffic"].IsDefined() || root["transport"].IsDefined() || root["bounds"].IsDefined() ||
      root["variants"].IsDefined()) {
    return FileKind::scenario;
  }
  if (root["faults"].IsDefined() && !root["topology"].IsDefined()) {
    return FileKind::faults;
  }
  return root["topology"].IsDefined() ? FileKind::topology : FileKind::automatic;
}

std::string describe(const fabric::Topology& network) {
  // Links are one-way; a cable is two of them.
  const auto hosts = static_cast<std::size_t>(std::count_if(
      network.nodes().begin(), network.nodes().end(),
      [](const fabric::Node& node) { return node.kind == fabric::Node::Kind::host; }));
  return fmt::format("{} hosts, {} switches, {} cables", hosts, network.nodes().size() - hosts,
                     network.links().size() / 2);
}

Result<Valid> check_topology(const std::string& path, const std::string& text) {
  const auto network = fabric::read_topology(path, text, directory_of(path));
  if (!network) {
    return tl::unexpected(network.error());
  }
  return Valid{FileKind::topology, describe(*network)};
}

Result<Valid> check_scenario(const std::string& path, const std::string& text) {
  const auto scenario = sim::read_scenario(path, text, {}, directory_of(path));
  if (!scenario) {
    return tl::unexpected(scenario.error());
  }
  // Names of links in faults and the settings of variants are normally looked at only when they
  // run. Here both are tried, so that no run is needed to find a mistake.
  fabric::Fabric fabric(scenario->topology, {});
  for (const fabric::Fault& fault : scenario->faults) {
    if (const auto applied = fabric.apply(0, fault); !applied) {
      return fail(applied.error().code, path + ": faults: " + applied.error().message);
    }
  }
  for (const sim::Variant& variant : scenario->variants) {
    if (const auto other = sim::read_scenario(path, text, variant.set, directory_of(path));
        !other) {
      return fail(other.error().code,
                  other.error().message + " (in variant '" + variant.name + "')");
    }
  }
  return Valid{FileKind::scenario,
               fmt::format("{}, {} flows, {} faults, {} variants", describe(scenario->topology),
                           scenario->traffic.flows.size(), scenario->faults.size(),
                           scenario->variants.size())};
}

// A list of faults, or a map with nothing but `faults:`.
Result<Valid> check_faults(const std::string& path, const std::string& text,
                           const fabric::Topology* network) {
  fabric::YamlFile file(path);
  YAML::Node list = file.load(text);
  if (!file.failed() && list.IsMap()) {
    fabric::YamlMap top(file, list, "");
    list = top.raw("faults");
    top.finish();
  }
  if (!file.failed() && (!list.IsDefined() || !list.IsSequence())) {
    file.fail_at(list, "", "expected a list of faults: \"- {link: h1->sw, loss: 0.01}\"");
  }
  // Only a network knows which links there are: so faults are applied to one that nobody uses.
  std::optional<fabric::Fabric> fabric;
  if (network != nullptr) {
    fabric.emplace(*network, fabric::FabricOptions{});
  }
  std::size_t count = 0;
  for (std::size_t i = 0; !file.failed() && i < list.size(); ++i, ++count) {
    const std::string place = fmt::format("faults[{}]", i);
    const fabric::Fault fault = fabric::read_fault(file, list[i], place);
    if (!file.failed() && fabric) {
      if (const auto applied = fabric->apply(0, fault); !applied) {
        file.fail_at(list[i], place, applied.error().message);
      }
    }
  }
  if (file.failed()) {
    return tl::unexpected(file.error());
  }
  return Valid{FileKind::faults,
               fmt::format("{} faults{}", count,
                           network == nullptr ? "; give --topology to check their links" : "")};
}

Result<Valid> check_matrix(const std::string& path, const std::string& text,
                           const fabric::Topology* network) {
  const auto matrix = fabric::read_htsim_matrix(path, text);
  if (!matrix) {
    return tl::unexpected(matrix.error());
  }
  // Flows name ports by number; how many there are, only a network can say.
  if (network != nullptr) {
    const auto ports = static_cast<std::uint32_t>(network->ports().size());
    if (const auto valid = fabric::validate(*matrix, ports); !valid) {
      return fail(valid.error().code, path + ": " + valid.error().message);
    }
  }
  return Valid{FileKind::matrix, fmt::format("{} flows", matrix->flows.size())};
}

}  // namespace

Result<FileKind> parse_file_kind(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    return fail(ErrorCode::invalid_argument,
                "there is no kind '" + name + "'; there are: " + joined(kNames, ", "));
  }
  return static_cast<FileKind>(found - kNames.begin());
}

const char* to_string(FileKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

Result<Valid> validate_file(const std::string& path, FileKind kind,
                            const fabric::Topology* network) {
  const auto text = fabric::read_text_file(path);
  if (!text) {
    return tl::unexpected(text.error());
  }
  if (kind == FileKind::automatic) {
    YAML::Node root;
    // htsim's files are no YAML; guess() goes by their names.
    if (!path.ends_with(".cm") && !path.ends_with(".topo")) {
      fabric::YamlFile file(path);
      root = file.load(*text);
      if (file.failed()) {
        return tl::unexpected(file.error());
      }
    }
    kind = guess(path, root);
  }
  switch (kind) {
    case FileKind::scenario:
      return check_scenario(path, *text);
    case FileKind::topology:
      return check_topology(path, *text);
    case FileKind::faults:
      return check_faults(path, *text, network);
    case FileKind::matrix:
      return check_matrix(path, *text, network);
    case FileKind::profile: {
      const auto profile = devices::parse_profile(*devices::all_kinds().front(), *text, path);
      return profile ? Result<Valid>(Valid{kind, "device profile " + profile->name})
                     : tl::unexpected(profile.error());
    }
    case FileKind::htsim_topology: {
      const auto read = fabric::read_htsim_topology(path, *text, {});
      return read ? Result<Valid>(Valid{kind, describe(*read)}) : tl::unexpected(read.error());
    }
    case FileKind::automatic:
      break;
  }
  return fail(ErrorCode::parse_error,
              path +
                  ":1: neither topology, traffic, faults nor fields are in it; say what it is "
                  "with --kind");
}

}  // namespace weft::cli
