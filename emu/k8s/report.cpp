// Owns what is said of a plan: as text, whose findings look like a compiler's, so that editors find
// their lines; and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "emu/k8s/plan.hpp"

namespace weft::k8s {
namespace {

using nlohmann::ordered_json;

// The text without control characters. Names of files, kinds and keys may have any bytes, and on a
// terminal these would be commands.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

// "4 PFs x 8 VFs of openshift.io/ib", and what else the node has.
std::string devices_text(const PlannedNode& node) {
  std::string text;
  std::set<std::string> resources;
  // Each resource at its first device. Devices of other plugins (--resource) have no PF.
  for (const ClusterDevice& device : node.devices) {
    if (!resources.insert(device.resource).second) {
      continue;
    }
    std::map<std::string, unsigned> of_pf;
    for (const ClusterDevice& other : node.devices) {
      of_pf[other.pf] += other.resource == device.resource ? 1U : 0U;
    }
    text += fmt::format("  {}: {} (", printable(device.resource), node.all(device.resource));
    const char* between = "";
    for (const auto& [pf, count] : of_pf) {
      if (count != 0) {
        text += between + (pf.empty() ? fmt::format("{} devices", count)
                                      : fmt::format("{} of {}", count, printable(pf)));
        between = ", ";
      }
    }
    text += ")\n";
  }
  return text.empty() ? "  no devices\n" : text;
}

}  // namespace

std::string plan_text(const PodPlan& plan) {
  std::string text;
  for (const PlannedNode& node : plan.nodes) {
    text += fmt::format("node {}{}\n{}", printable(node.name),
                        node.is_virtual ? " (as the policies ask for it)" : "", devices_text(node));
  }
  for (const PlannedPod& planned : plan.pods) {
    const Pod& pod = *planned.pod;
    text += printable(fmt::format("pod {}/{}: {}", pod.name_space, pod.name,
                                  planned.node.empty() ? "does not start" : "on " + planned.node)) +
            "\n";
    for (const PlannedDevice& device : planned.devices) {
      text +=
          printable(fmt::format(
              "  {:<8}{:<16}{}{}{}", device.interface.empty() ? "-" : device.interface,
              device.device, device.resource, device.network.empty() ? "" : "  " + device.network,
              device.addresses.empty()
                  ? ""
                  : "  " + fmt::format("{}", fmt::join(device.addresses, " ")))) +
          "\n";
    }
  }
  std::size_t errors = 0;
  for (const ManifestFinding& finding : plan.findings.list()) {
    errors += finding.is_error ? 1U : 0U;
    text += fmt::format("{}: {}: {}\n    {}\n", printable(finding.place.text()),
                        finding.is_error ? "error" : "warning", printable(finding.what),
                        printable(finding.remedy));
  }
  // A pod without an address has devices and no node: it does not start.
  const auto started =
      std::ranges::count_if(plan.pods, [](const PlannedPod& pod) { return !pod.node.empty(); });
  return text + fmt::format("{} of {} pods start, {} errors\n", started, plan.pods.size(), errors);
}

std::string plan_json(const PodPlan& plan) {
  ordered_json nodes = ordered_json::array();
  for (const PlannedNode& node : plan.nodes) {
    std::map<std::string, std::uint64_t> resources;
    for (const ClusterDevice& device : node.devices) {
      resources[device.resource] = node.all(device.resource);
    }
    nodes.push_back({{"node", node.name}, {"virtual", node.is_virtual}, {"resources", resources}});
  }
  ordered_json pods = ordered_json::array();
  for (const PlannedPod& planned : plan.pods) {
    ordered_json devices = ordered_json::array();
    for (const PlannedDevice& device : planned.devices) {
      devices.push_back({{"resource", device.resource},
                         {"device", device.device},
                         {"network", device.network},
                         {"interface", device.interface},
                         {"addresses", device.addresses}});
    }
    pods.push_back({{"pod", planned.pod->name_space + "/" + planned.pod->name},
                    {"node", planned.node},
                    {"devices", devices}});
  }
  ordered_json findings = ordered_json::array();
  for (const ManifestFinding& finding : plan.findings.list()) {
    findings.push_back({{"file", finding.place.file},
                        {"line", finding.place.line},
                        {"severity", finding.is_error ? "error" : "warning"},
                        {"what", finding.what},
                        {"remedy", finding.remedy}});
  }
  return ordered_json{{"nodes", nodes}, {"pods", pods}, {"findings", findings}}.dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace weft::k8s
