// Owns which reader a kind of object has, and reading nodes.
//
// What plans know nothing of is passed over without a word, unless it makes pods: then the user
// learns that those are missing.
#include "emu/k8s/objects.hpp"

#include <algorithm>

#include "emu/fabric/nearest_word.hpp"
#include "emu/k8s/object_name.hpp"

namespace weft::k8s {
namespace {

// A node may be described by two objects, in either order.
ClusterNode& node_called(const std::string& name, const FilePlace& place, Objects& objects) {
  const auto found = std::ranges::find(objects.nodes, name, &ClusterNode::name);
  return found != objects.nodes.end()
             ? *found
             : objects.nodes.emplace_back(ClusterNode{place, name, {}, false, false, {}});
}

// The operator acts only on what is in its own namespace, and says nothing of the rest.
bool is_seen_by_operator(const Manifest& manifest, const ReadOptions& options, Findings& findings) {
  if (std::ranges::find(options.operator_namespaces, manifest.name_space) !=
      options.operator_namespaces.end()) {
    return true;
  }
  std::string all;
  for (const std::string& one : options.operator_namespaces) {
    all += (all.empty() ? "" : ", ") + one;
  }
  findings.error(place_of(manifest, value_of(manifest.root, "metadata")),
                 manifest.kind + " " + manifest.name + " is in namespace '" + manifest.name_space +
                     "', where the operator does not look",
                 "put it into the operator's own namespace (metadata.namespace: " + all +
                     "; --operator-namespace names another one)");
  return false;
}

// Whether an object of an unknown kind makes pods: somewhere in it there is a list of containers.
// The depth of documents is limited (manifest.cpp), so the recursion is, too.
bool makes_pods(const YAML::Node& node) {
  if (node.IsMap()) {
    const YAML::Node containers = value_of(node, "containers");
    if (containers.IsDefined() && containers.IsSequence() && containers.size() > 0 &&
        value_of(containers[0], "image").IsDefined()) {
      return true;
    }
    return std::ranges::any_of(node, [](const auto& pair) { return makes_pods(pair.second); });
  }
  return node.IsSequence() &&
         std::ranges::any_of(node, [](const YAML::Node& item) { return makes_pods(item); });
}

// The pods of an indexed Job are hosts, whose names have a dash and a number behind the Job's.
NameRule rule_for(const Manifest& manifest) {
  NameRule rule = name_rule_of(manifest.kind);
  const YAML::Node spec = value_of(manifest.root, "spec");
  if (manifest.kind == "Job" && text_of(value_of(spec, "completionMode")) == "Indexed") {
    const auto completions = whole_number<std::uint32_t>(text_of(value_of(spec, "completions")));
    if (completions.value_or(0) != 0) {
      rule = kLabelRule;
      rule.longest -= 1 + std::to_string(*completions - 1).size();
    }
  }
  return rule;
}

// Checks the names of an object of a kind that a plan uses.
void check_names(const Manifest& manifest, Findings& findings) {
  const YAML::Node metadata = value_of(manifest.root, "metadata");
  const auto complain = [&](const std::string& field, const std::string& value,
                            const std::string& remedy) {
    findings.error(place_of(manifest, metadata),
                   manifest.kind + " with the " + field + " '" + value.substr(0, 100) + "'",
                   remedy);
  };
  const NameRule rule = rule_for(manifest);
  const std::string name = text_of(value_of(metadata, "name"));
  if (!name.empty() && !rule.allows(name)) {
    complain("name", name, rule.text());
  }
  const std::string beginning = text_of(value_of(metadata, "generateName"));
  if (!beginning.empty() && (!rule.allows_beginning(beginning) ||
                             (name.empty() && !rule.allows(name_generated_from(beginning))))) {
    complain("generateName", beginning, rule.text_of_beginnings());
  }
  if (!kLabelRule.allows(manifest.name_space)) {
    complain("namespace", manifest.name_space, kLabelRule.text());
  }
}

}  // namespace

// Unknown keys are dropped by the API server without a word, which is how a typing mistake stays
// unnoticed; here it is a finding, with what was perhaps meant.
void check_keys(const Manifest& manifest, const YAML::Node& map,
                const std::vector<std::string>& known, Findings& findings) {
  if (!map.IsDefined() || !map.IsMap()) {
    return;
  }
  for (const auto& pair : map) {
    const std::string key = text_of(pair.first, "?");
    if (std::ranges::find(known, key) != known.end()) {
      continue;
    }
    const std::string meant = fabric::nearest_word(key, known);
    findings.error(place_of(manifest, pair.first),
                   manifest.kind + " " + manifest.name + " has no field '" + key + "'",
                   meant.empty() ? "remove it, the API server drops it" : "write '" + meant + "'");
  }
}

void complain_of_crowd(const Pod& pod, Findings& findings) {
  findings.error(pod.place, pod.owner + ": with its pods there are more than a plan can have",
                 "plan fewer than " + std::to_string(PodBudget::kMaxPods) + " at a time, and " +
                     std::to_string(PodBudget::kMaxBytes >> 20) + " MB of what they say");
}

Labels read_labels(const YAML::Node& map) {
  Labels labels;
  if (map.IsDefined() && map.IsMap()) {
    for (const auto& pair : map) {
      labels[text_of(pair.first)] = text_of(pair.second);
    }
  }
  return labels;
}

void read_node(const Manifest& manifest, Objects& objects) {
  ClusterNode& node = node_called(manifest.name, manifest.place, objects);
  node.is_labelled = true;
  node.labels = read_labels(value_of(value_of(manifest.root, "metadata"), "labels"));
  node.labels.try_emplace("kubernetes.io/hostname", manifest.name);
}

// What the operator has found on the node: its NICs, with how many VFs each can have.
void read_node_state(const Manifest& manifest, Objects& objects) {
  ClusterNode& node = node_called(manifest.name, manifest.place, objects);
  node.has_state = true;
  const YAML::Node interfaces = value_of(value_of(manifest.root, "status"), "interfaces");
  if (!interfaces.IsDefined() || !interfaces.IsSequence()) {
    return;
  }
  for (const YAML::Node& interface : interfaces) {
    node.pfs.push_back(
        {text_of(value_of(interface, "name")), text_of(value_of(interface, "vendor")),
         text_of(value_of(interface, "deviceID")), text_of(value_of(interface, "pciAddress")),
         whole_number<unsigned>(text_of(value_of(interface, "totalvfs"))).value_or(0)});
  }
}

Objects read_objects(const std::vector<Manifest>& manifests, const ReadOptions& options,
                     Findings& findings) {
  Objects objects;
  std::map<std::string, FilePlace> seen;
  for (const Manifest& manifest : manifests) {
    // Of a generateName another name is made each time.
    if (text_of(value_of(value_of(manifest.root, "metadata"), "name")) != "") {
      const auto [first, is_new] = seen.emplace(manifest.title(), manifest.place);
      if (!is_new) {
        findings.error(manifest.place, manifest.title() + " is here a second time",
                       "the later one replaces the one of " + first->second.text() +
                           ": give it another name, or remove one");
      }
    }
    const std::string& kind = manifest.kind;
    if (kind == "SriovNetworkNodePolicy") {
      if (is_seen_by_operator(manifest, options, findings)) {
        read_policy(manifest, objects, findings);
      }
    } else if (kind == "SriovNetwork" || kind == "SriovIBNetwork") {
      if (is_seen_by_operator(manifest, options, findings)) {
        read_operator_network(manifest, options, objects, findings);
      }
    } else if (kind == "NetworkAttachmentDefinition") {
      read_attachment_definition(manifest, objects, findings);
    } else if (kind == "Node") {
      read_node(manifest, objects);
    } else if (kind == "SriovNetworkNodeState") {
      read_node_state(manifest, objects);
    } else if (kind == "Service") {
      read_service(manifest, objects);
    } else if (!read_workload(manifest, objects, findings)) {
      if (makes_pods(manifest.root)) {
        findings.warning(manifest.place,
                         manifest.title() + " makes pods, and plans know nothing of its kind",
                         "a Job or a Deployment with the same template shows what they would get");
      }
      continue;
    }
    check_names(manifest, findings);
  }
  return objects;
}

}  // namespace weft::k8s
