// Owns the order in which the parts of a lab are started.
#include "emu/labs/lab_start.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "emu/fabric/topology_yaml.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/shared_folder.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::labs {
namespace {

launch::WeftdOptions weftd_options(const LabFile& file, const std::string& topology,
                                   const launch::DeviceKind& kind) {
  launch::WeftdOptions options{.nics = file.nics,
                               .mtu = launch::payload_of(kind),
                               .seed = file.seed,
                               .share = true,
                               .other_users = file.other_users};
  if (file.is_modelled()) {
    options.topology = topology;
    return options;
  }
  for (const LabNode& node : file.nodes) {
    options.host_names.push_back(node.name);
  }
  return options;
}

}  // namespace

Result<void> LabStart::bring_up(LabRecord& record) {
  auto done = start_network();
  if (done) {
    done = start_ip_network(record);
  }
  if (done) {
    done = start_nodes(record);
  }
  return done;
}

// Also where weftd was killed: containers find the new one by the name of its socket.
Result<void> LabStart::start_network() {
  const std::string device = file_.device.empty() ? launch::default_device() : file_.device;
  const auto kind = launch::parse_device_kind(device);
  if (!kind) {
    return tl::unexpected(kind.error());
  }
  if (!*kind) {
    return fail(ErrorCode::invalid_argument,
                "a lab's nodes have NICs: 'device' cannot be '" + device + "'");
  }
  const auto alive = launch::ask_weftd(identity_.directory, {{"cmd", "counters"}});
  if (!alive) {
    auto started = alive.error().code == ErrorCode::not_found ? start_weftd(*kind, device)
                                                              : tl::unexpected(alive.error());
    if (!started) {
      return started;
    }
  }
  auto devices = launch::furnish_shared_folder(identity_.directory, **kind);
  if (!devices) {
    return tl::unexpected(devices.error());
  }
  for (launch::ContainerDevice& of_host : *devices) {
    devices_.emplace(of_host.name, std::move(of_host.environment));
  }
  return {};
}

Result<void> LabStart::start_weftd(const launch::DeviceKind& kind, const std::string& device) {
  const std::string topology = identity_.directory + "/lab.fabric.yml";
  if (std::ofstream out(topology, std::ios::trunc);
      !(out << fabric::write_topology(file_.topology) << std::flush)) {
    return fail(ErrorCode::io_error, "cannot write '" + topology + "': is the disk full?");
  }
  if (auto noted = launch::note_device(identity_.directory, device); !noted) {
    return noted;
  }
  const auto pid =
      launch::start_weftd(identity_.directory, weftd_options(file_, topology, kind), false);
  if (!pid) {
    return tl::unexpected(pid.error());
  }
  progress_(fmt::format("network: weftd {}, {}", *pid, device), true);
  return {};
}

Result<void> LabStart::start_ip_network(LabRecord& record) {
  if (file_.ip_network != IpNetwork::own) {
    return {};
  }
  const auto there = engine_.ask(list_networks(identity_), Interrupts::heed);
  if (!there) {
    return tl::unexpected(there.error());
  }
  if (there->empty()) {
    const auto made =
        engine_.ask(create_network(engine_.kind(), identity_, file_.subnet), Interrupts::heed);
    if (!made) {
      return tl::unexpected(made.error());
    }
  }
  const auto subnets = engine_.ask(ask_subnet(engine_.kind(), identity_), Interrupts::heed);
  if (!subnets) {
    return tl::unexpected(subnets.error());
  }
  const std::string subnet = subnets->substr(0, subnets->find_first_of(" \n"));
  const auto addresses = addresses_in(subnet, file_.nodes.size());
  if (!addresses) {
    return tl::unexpected(addresses.error());
  }
  record.addresses.clear();
  for (std::size_t i = 0; i < file_.nodes.size(); ++i) {
    record.addresses.push_back({file_.nodes[i].name, (*addresses)[i]});
  }
  progress_(fmt::format("IP network: {}, {}", identity_.network(), subnet), true);
  return {};
}

Result<std::vector<const LabNode*>> LabStart::missing_nodes() const {
  const auto states = containers_of(engine_, identity_);
  if (!states) {
    return tl::unexpected(states.error());
  }
  Words ended;
  std::vector<std::string> alive;
  for (const ContainerState& state : *states) {
    const bool runs = state.state == "running" || state.state == "paused";
    (runs ? alive : ended).push_back(runs ? state.node : state.id);
  }
  if (!ended.empty()) {
    const auto removed = engine_.ask(remove_containers(engine_.kind(), ended), Interrupts::heed);
    if (!removed) {
      return tl::unexpected(removed.error());
    }
  }
  std::vector<const LabNode*> missing;
  for (const LabNode& node : file_.nodes) {
    if (std::ranges::find(alive, node.name) == alive.end()) {
      missing.push_back(&node);
    }
  }
  return missing;
}

Result<void> LabStart::start_nodes(const LabRecord& record) {
  const auto missing = missing_nodes();
  if (!missing) {
    return tl::unexpected(missing.error());
  }
  std::error_code error;
  const std::string folder =
      std::filesystem::canonical(launch::shared_folder(identity_.directory), error).string();
  std::vector<Words> commands;
  for (const LabNode* node : *missing) {
    const auto device = devices_.find(node->name + "-all-rails");
    if (device == devices_.end()) {
      return fail(ErrorCode::wrong_state, "weftd has no host '" + node->name + "'");
    }
    commands.push_back(run_node(engine_.kind(), identity_, file_, *node,
                                {device->second, folder, launch::kMountPoint}, record.addresses));
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto answers =
      engine_.run_all(commands, Interrupts::heed, [&](std::size_t ended, const auto& answer) {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        progress_(fmt::format("nodes: {} of {} ({:.1f} s)", ended, commands.size(), took.count()),
                  ended == commands.size());
        return answer.code == 0;
      });
  if (!answers) {
    return tl::unexpected(answers.error());
  }
  for (std::size_t i = 0; i < answers->size(); ++i) {
    if (const auto& answer = (*answers)[i]; answer && answer->code != 0) {
      const LabNode& node = *(*missing)[i];
      return fail(ErrorCode::io_error, fmt::format("{}: node '{}' does not start: {}", node.place,
                                                   node.name, answer->complaint()));
    }
  }
  return {};
}

}  // namespace weft::labs
