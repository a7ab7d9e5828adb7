// Owns reading what makes pods: Pod, Job, MPIJob, Deployment, StatefulSet, ReplicaSet.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "emu/k8s/objects.hpp"

namespace weft::k8s {
namespace {

using nlohmann::json;

constexpr const char* kNetworksAnnotation = "k8s.v1.cni.cncf.io/networks";
constexpr std::uint64_t kMaxReplicas = 10'000;

std::optional<std::uint64_t> number_of(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc{} && end == text.data() + text.size() ? std::optional(number)
                                                                   : std::nullopt;
}

// Names of devices have a prefix with a dot or a slash; cpu, memory, hugepages-2Mi and the like are
// the kubelet's own.
bool is_device(const std::string& resource) {
  return resource.find('/') != std::string::npos && !resource.starts_with("kubernetes.io/");
}

class PodReader {
 public:
  PodReader(const Manifest& manifest, Findings& findings)
      : manifest_(manifest), findings_(findings) {}

  // A pod from an object or a template with metadata and spec.
  Pod read(const YAML::Node& root) {
    pod_.place = manifest_.place;
    pod_.owner = manifest_.title();
    pod_.name = manifest_.name;
    pod_.name_space = manifest_.name_space;
    const YAML::Node spec = value_of(root, "spec");
    pod_.node_selector = read_labels(value_of(spec, "nodeSelector"));
    const YAML::Node networks =
        value_of(value_of(value_of(root, "metadata"), "annotations"), kNetworksAnnotation);
    if (networks.IsDefined()) {
      pod_.annotation = place_of(manifest_.place.file, networks);
      read_networks(text_of(networks));
    }
    const YAML::Node containers = value_of(spec, "containers");
    if (!containers.IsDefined() || !containers.IsSequence() || containers.size() == 0) {
      findings_.error(manifest_.place, pod_.owner + " has no containers",
                      "spec.containers: a list with at least one");
      return pod_;
    }
    for (const YAML::Node& container : containers) {
      read_container(container);
    }
    return pod_;
  }

 private:
  // "a,other/b@eth7", or a JSON list of objects.
  void read_networks(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \n\t");
    if (begin != std::string::npos && (text[begin] == '[' || text[begin] == '{')) {
      read_network_objects(text);
      return;
    }
    for (std::size_t from = 0; from <= text.size();) {
      const std::size_t comma = std::min(text.find(',', from), text.size());
      std::string word = text.substr(from, comma - from);
      std::erase_if(word, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
      from = comma + 1;
      if (word.empty()) {
        continue;
      }
      NetworkAttachment attachment{word, pod_.name_space, "", {}};
      if (const std::size_t at = attachment.name.find('@'); at != std::string::npos) {
        attachment.interface = attachment.name.substr(at + 1);
        attachment.name.resize(at);
      }
      if (const std::size_t slash = attachment.name.find('/'); slash != std::string::npos) {
        attachment.name_space = attachment.name.substr(0, slash);
        attachment.name = attachment.name.substr(slash + 1);
      }
      pod_.attachments.push_back(std::move(attachment));
    }
  }

  void read_network_objects(const std::string& text) {
    const json list = json::parse(text, nullptr, false);
    if (!list.is_array()) {
      findings_.error(
          pod_.annotation,
          pod_.owner + ": the annotation " + kNetworksAnnotation +
              " is neither names with commas nor a JSON list",
          "NAME,NAMESPACE/NAME or [{\"name\": \"NAME\", \"namespace\": \"NAMESPACE\"}]");
      return;
    }
    for (const json& item : list) {
      const auto text_in = [&](const char* key) {
        const auto found = item.is_object() ? item.find(key) : item.end();
        return item.is_object() && found != item.end() && found->is_string()
                   ? found->get<std::string>()
                   : "";
      };
      NetworkAttachment attachment{text_in("name"), text_in("namespace"), text_in("interface"), {}};
      if (attachment.name.empty()) {
        findings_.error(pod_.annotation, pod_.owner + ": a network in the annotation has no name",
                        "each object of the list has a \"name\"");
        continue;
      }
      if (attachment.name_space.empty()) {
        attachment.name_space = pod_.name_space;
      }
      if (item.contains("ips") && item["ips"].is_array()) {
        for (const json& address : item["ips"]) {
          if (address.is_string()) {
            attachment.addresses.push_back(address.get<std::string>());
          }
        }
      }
      pod_.attachments.push_back(std::move(attachment));
    }
  }

  void read_container(const YAML::Node& node) {
    Container container{text_of(value_of(node, "name")), text_of(value_of(node, "image")), {}, {}};
    for (const char* key : {"command", "args"}) {
      const YAML::Node words = value_of(node, key);
      if (words.IsDefined() && words.IsSequence()) {
        for (const YAML::Node& word : words) {
          container.command.push_back(text_of(word));
        }
      }
    }
    const YAML::Node variables = value_of(node, "env");
    if (variables.IsDefined() && variables.IsSequence()) {
      for (const YAML::Node& variable : variables) {
        container.environment.emplace_back(text_of(value_of(variable, "name")),
                                           text_of(value_of(variable, "value")));
      }
    }
    const YAML::Node resources = value_of(node, "resources");
    read_requests(value_of(resources, "limits"), value_of(resources, "requests"));
    pod_.containers.push_back(std::move(container));
  }

  // Of devices request and limit are equal; where only one is given it stands for both, if it is
  // the limit.
  void read_requests(const YAML::Node& limits, const YAML::Node& requests) {
    for (const bool is_limit : {true, false}) {
      const YAML::Node& map = is_limit ? limits : requests;
      if (!map.IsDefined() || !map.IsMap()) {
        continue;
      }
      for (const auto& pair : map) {
        const std::string resource = text_of(pair.first);
        if (!is_device(resource)) {
          continue;
        }
        const FilePlace place = place_of(manifest_.place.file, pair.first);
        const auto count = number_of(text_of(pair.second));
        if (!count) {
          findings_.error(place,
                          pod_.owner + " asks for '" + text_of(pair.second) + "' of " + resource,
                          "a whole number: devices are not divided");
          continue;
        }
        const YAML::Node other = value_of(is_limit ? requests : limits, resource.c_str());
        if (!is_limit && !other.IsDefined()) {
          findings_.error(place, pod_.owner + " requests " + resource + " without a limit",
                          "give limits the same number: the API server refuses it otherwise");
        } else if (is_limit && other.IsDefined() && text_of(other) != text_of(pair.second)) {
          findings_.error(place,
                          pod_.owner + " requests " + text_of(other) + " and limits " +
                              text_of(pair.second) + " of " + resource,
                          "the same number in both: the API server refuses it otherwise");
        }
        if (is_limit || !other.IsDefined()) {
          Request& request = pod_.resources[resource];
          request.count += *count;
          request.place = place;
        }
      }
    }
  }

  const Manifest& manifest_;
  Findings& findings_;
  Pod pod_;
};

std::uint64_t count_of(const Manifest& manifest, const YAML::Node& node, std::uint64_t otherwise,
                       Findings& findings) {
  if (!node.IsDefined() || node.IsNull()) {
    return otherwise;
  }
  const auto count = number_of(text_of(node));
  if (!count || *count > kMaxReplicas) {
    findings.error(place_of(manifest.place.file, node),
                   manifest.title() + " asks for '" + text_of(node) + "' pods",
                   "a whole number, here at most " + std::to_string(kMaxReplicas));
    return 0;
  }
  return *count;
}

void add_pods(const Pod& pod, std::uint64_t count, const std::string& suffix, Objects& objects) {
  for (std::uint64_t i = 0; i < count; ++i) {
    objects.pods.push_back(pod);
    objects.pods.back().name += suffix + std::to_string(i);
  }
}

void read_mpi_job(const Manifest& manifest, Objects& objects, Findings& findings) {
  const YAML::Node specs = value_of(value_of(manifest.root, "spec"), "mpiReplicaSpecs");
  for (const char* role : {"Launcher", "Worker"}) {
    const YAML::Node replica = value_of(specs, role);
    if (!replica.IsDefined()) {
      findings.error(place_of(manifest.place.file, specs.IsDefined() ? specs : manifest.root),
                     manifest.title() + " has no " + role,
                     "spec.mpiReplicaSpecs: {Launcher: {template: ...}, Worker: {replicas: N, "
                     "template: ...}}");
      continue;
    }
    const Pod pod = PodReader(manifest, findings).read(value_of(replica, "template"));
    const std::uint64_t count = count_of(manifest, value_of(replica, "replicas"), 1, findings);
    if (*role == 'L') {
      objects.pods.push_back(pod);
      objects.pods.back().name += "-launcher";
    } else {
      add_pods(pod, count, "-worker-", objects);
    }
  }
}

}  // namespace

// As many pods as there are at a time.
bool read_workload(const Manifest& manifest, Objects& objects, Findings& findings) {
  const YAML::Node spec = value_of(manifest.root, "spec");
  if (manifest.kind == "Pod") {
    objects.pods.push_back(PodReader(manifest, findings).read(manifest.root));
    return true;
  }
  if (manifest.kind == "MPIJob") {
    read_mpi_job(manifest, objects, findings);
    return true;
  }
  std::uint64_t count = 1;
  if (manifest.kind == "Job") {
    const YAML::Node completions = value_of(spec, "completions");
    count = count_of(manifest, value_of(spec, "parallelism"), 1, findings);
    count = std::min(count, count_of(manifest, completions, count, findings));
  } else if (manifest.kind == "Deployment" || manifest.kind == "StatefulSet" ||
             manifest.kind == "ReplicaSet") {
    count = count_of(manifest, value_of(spec, "replicas"), 1, findings);
  } else {
    return false;
  }
  const YAML::Node pod_template = value_of(spec, "template");
  if (!pod_template.IsDefined() || !pod_template.IsMap()) {
    findings.error(manifest.place, manifest.title() + " has no spec.template",
                   "the pod that it makes, with metadata and spec");
    return true;
  }
  add_pods(PodReader(manifest, findings).read(pod_template), count, "-", objects);
  return true;
}

}  // namespace weft::k8s
