// Owns the order in which the parts of a lab are started.
//
// Each step first looks at what is there and starts only the rest, so that `weft lab up` can be
// said again when something has died.
#include "emu/labs/lab_start.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "emu/fabric/topology_yaml.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/shared_folder.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/base/rng.hpp"

namespace weft::labs {
namespace {

// With links weftd emulates the topology, otherwise an ideal network of hosts with these names.
launch::WeftdOptions weftd_options(const LabFile& file, const std::string& topology,
                                   std::size_t payload) {
  launch::WeftdOptions options{.nics = file.nics,
                               .mtu = payload,
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

std::string LabStart::device_of(const LabNode& node) const {
  return !node.device.empty()    ? node.device
         : !file_.device.empty() ? file_.device
                                 : launch::default_device();
}

// Starts weftd if there is none; also where one was killed, for containers find the new one by the
// name of its socket. Then makes the device folders that containers mount.
Result<void> LabStart::start_network() {
  std::map<std::string, devices::Profile> kinds;
  std::size_t payload = 0;
  for (const LabNode& node : file_.nodes) {
    const std::string device = device_of(node);
    if (!node.has_nics || kinds.contains(device)) {
      continue;
    }
    const auto kind = launch::parse_device_kind(device);
    if (!kind) {
      return tl::unexpected(kind.error());
    }
    if (!*kind) {
      return fail(ErrorCode::invalid_argument,
                  "a lab's nodes have NICs: 'device' cannot be '" + device + "'");
    }
    kinds.emplace(device, **kind);
    // The network must carry the packets of every kind of device on it.
    payload = std::max(payload, launch::payload_of(*kind));
  }
  const auto alive = launch::ask_weftd(identity_.directory, {{"cmd", "counters"}});
  if (!alive) {
    auto started = alive.error().code == ErrorCode::not_found
                       ? start_weftd(payload, kinds.begin()->first)
                       : tl::unexpected(alive.error());
    if (!started) {
      return started;
    }
  }
  for (const auto& [device, kind] : kinds) {
    auto furnished = launch::furnish_shared_folder(identity_.directory, kind);
    if (!furnished) {
      return tl::unexpected(furnished.error());
    }
    for (launch::ContainerDevice& of_host : *furnished) {
      devices_[device].emplace(of_host.name, std::move(of_host.environment));
    }
  }
  return {};
}

Result<void> LabStart::start_weftd(std::size_t payload, const std::string& device) {
  const std::string topology = identity_.directory + "/lab.fabric.yml";
  if (std::ofstream out(topology, std::ios::trunc);
      !(out << fabric::write_topology(file_.topology) << std::flush)) {
    return fail(ErrorCode::io_error, "cannot write '" + topology + "': is the disk full?");
  }
  if (auto noted = launch::note_device(identity_.directory, device); !noted) {
    return noted;
  }
  const auto pid =
      launch::start_weftd(identity_.directory, weftd_options(file_, topology, payload), false);
  if (!pid) {
    return tl::unexpected(pid.error());
  }
  progress_(fmt::format("network: weftd {}, {}", *pid, device), true);
  return {};
}

// Networks that are there, from an earlier start, stay as they are. An engine that is told to end
// may make a network all the same, of which nobody would know: so these calls are not broken off.
Result<void> LabStart::create_networks() {
  const auto there = engine_.ask(list_networks(identity_), Interrupts::heed);
  if (!there) {
    return tl::unexpected(there.error());
  }
  const Words names = lines_of(*there);
  const auto is_there = [&](const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  if (is_there(subnet_question())) {  // of a start that was killed
    if (auto removed = remove_network(subnet_question()); !removed) {
      return removed;
    }
  }
  // Those whose subnets are said come first, so that the engine's choice is none of them.
  for (const LabNetwork& network : file_.more_networks) {
    if (is_there(identity_.container(network.name))) {
      continue;
    }
    const auto done =
        engine_.ask(create_network(engine_.kind(), identity_, network), Interrupts::defer);
    if (!done) {
      return tl::unexpected(done.error());
    }
  }
  if (is_there(identity_.network())) {
    return {};
  }
  return engine_.kind() == EngineKind::docker && file_.subnet.empty()
             ? create_network_of_docker()
             : create_network_as(identity_.network(), file_.subnet);
}

// No node's name begins with a dot.
std::string LabStart::subnet_question() const { return identity_.container(".subnet"); }

Result<void> LabStart::create_network_as(const std::string& name, const std::string& subnet) {
  return engine_.ask(create_network(engine_.kind(), identity_, name, subnet), Interrupts::defer)
      .map([](const std::string&) {});
}

Result<void> LabStart::remove_network(const std::string& name) {
  return engine_.ask({"network", "rm", name}, Interrupts::defer).map([](const std::string&) {});
}

// The first one; a network may have several, in IPv6 as well.
Result<std::string> LabStart::ask_for_subnet(const std::string& network) {
  return engine_.ask(ask_subnet(engine_.kind(), network), Interrupts::defer)
      .map([](const std::string& all) { return all.substr(0, all.find_first_of(" \n")); });
}

// Docker gives a container the address that it is to have only in a network whose subnet was said.
// So it is asked which one it would take, by a network of another name: one of the lab's own name
// has always been told its subnet. Meanwhile somebody else may take that subnet, labs that are
// started at the same time above all.
Result<void> LabStart::create_network_of_docker() {
  constexpr int kTries = 50;
  constexpr std::uint32_t kLongestPause = 200;  // ms; together they take five seconds on average
  Rng rng(mix64(static_cast<std::uint64_t>(::getpid())));
  for (int tries = 1;; ++tries) {
    launch::check_interrupt();
    auto done = create_network_as(subnet_question(), "");
    if (!done) {
      return done;
    }
    const auto subnet = ask_for_subnet(subnet_question());
    done = remove_network(subnet_question());
    if (!subnet || !done) {
      return subnet ? done : tl::unexpected(subnet.error());
    }
    done = create_network_as(identity_.network(), *subnet);
    if (done || tries == kTries || done.error().message.find("overlaps") == std::string::npos) {
      return done;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{rng.below(kLongestPause)});
  }
}

Result<void> LabStart::start_ip_network(LabRecord& record) {
  if (file_.ip_network != IpNetwork::own) {
    return {};
  }
  if (auto created = create_networks(); !created) {
    return created;
  }
  const auto subnet = ask_for_subnet(identity_.network());
  if (!subnet) {
    return tl::unexpected(subnet.error());
  }
  Words names;
  for (const LabNode& node : file_.nodes) {
    if (node.beside.empty()) {
      names.push_back(node.name);
    }
  }
  const auto addresses = addresses_in(*subnet, names.size());
  if (!addresses) {
    return tl::unexpected(addresses.error());
  }
  record.addresses.clear();
  for (std::size_t i = 0; i < names.size(); ++i) {
    record.addresses.push_back({names[i], (*addresses)[i]});
  }
  progress_(fmt::format("IP network: {}, {}", identity_.network(), *subnet), true);
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
    // What is paused is somebody's doing, and goes on when that one says so.
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

// First the containers whose network namespace others share, then those others.
Result<void> LabStart::start_nodes(const LabRecord& record) {
  const auto missing = missing_nodes();
  if (!missing) {
    return tl::unexpected(missing.error());
  }
  std::vector<const LabNode*> first;
  std::vector<const LabNode*> second;
  for (const LabNode* node : *missing) {
    (node->beside.empty() ? first : second).push_back(node);
  }
  auto done = start_some(first, record);
  return done && !second.empty() ? start_some(second, record) : done;
}

Result<void> LabStart::start_some(const std::vector<const LabNode*>& nodes,
                                  const LabRecord& record) {
  std::error_code error;
  const std::string folder =
      std::filesystem::canonical(launch::shared_folder(identity_.directory), error).string();
  std::vector<Words> commands;
  for (const LabNode* node : nodes) {
    const std::string host = node->beside.empty() ? node->name : node->beside;
    NodeNics nics{{}, folder, launch::kMountPoint};
    if (node->has_nics) {
      const auto& of_kind = devices_[device_of(*node)];
      // The device of a host's folder that stands for all of its NICs.
      const auto device = of_kind.find(host + "-all-rails");
      if (device == of_kind.end()) {
        return fail(ErrorCode::wrong_state, "weftd has no host '" + host + "'");
      }
      nics.environment = device->second;
    }
    commands.push_back(run_node(engine_.kind(), identity_, file_, *node, nics, record.addresses));
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
  // The first one that has failed; those without an answer were not started because of it.
  for (std::size_t i = 0; i < answers->size(); ++i) {
    if (const auto& answer = (*answers)[i]; answer && answer->code != 0) {
      return fail(ErrorCode::io_error,
                  fmt::format("{}: node '{}' does not start: {}", nodes[i]->place, nodes[i]->name,
                              answer->complaint()));
    }
  }
  return {};
}

}  // namespace weft::labs
