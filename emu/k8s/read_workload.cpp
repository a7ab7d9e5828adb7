// Owns reading what makes pods: Pod, Job, CronJob, MPIJob, Deployment, StatefulSet, ReplicaSet,
// DaemonSet.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "emu/k8s/object_name.hpp"
#include "emu/k8s/objects.hpp"

namespace weft::k8s {
namespace {

using nlohmann::json;

constexpr const char* kNetworksAnnotation = "k8s.v1.cni.cncf.io/networks";
const std::set<std::string> kMakers{"Job",        "CronJob",     "MPIJob",   "Deployment",
                                    "ReplicaSet", "StatefulSet", "DaemonSet"};
// More than any lab here could start.
constexpr std::uint64_t kMaxReplicas = 10'000;

// Names of devices have a prefix with a dot or a slash; cpu, memory, hugepages-2Mi and the like are
// the kubelet's own.
bool is_device(const std::string& resource) {
  return resource.find('/') != std::string::npos && !resource.starts_with("kubernetes.io/");
}

// Reads one pod, once.
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
    pod_.node = text_of(value_of(spec, "nodeName"));
    if (const YAML::Node affinity = value_of(value_of(spec, "affinity"), "nodeAffinity");
        affinity.IsDefined()) {
      findings_.warning(place_of(manifest_, affinity),
                        pod_.owner + " has a nodeAffinity, at which plans do not look",
                        "a nodeSelector with the same labels is looked at");
    }
    const YAML::Node networks =
        value_of(value_of(value_of(root, "metadata"), "annotations"), kNetworksAnnotation);
    if (networks.IsDefined()) {
      pod_.annotation = place_of(manifest_, networks);
      if (networks.IsScalar()) {
        read_networks(text_of(networks));
      } else {
        findings_.error(pod_.annotation,
                        pod_.owner + ": the annotation " + kNetworksAnnotation + " is no text",
                        "put the list into quotes: the API server refuses it otherwise");
      }
    }
    const YAML::Node containers = value_of(spec, "containers");
    if (!containers.IsDefined() || !containers.IsSequence() || containers.size() == 0) {
      findings_.error(manifest_.place, pod_.owner + " has no containers",
                      "spec.containers: a list with at least one");
      return pod_;
    }
    for (const YAML::Node& container : containers) {
      check_name(container, "container");
      // Containers of a pod run at the same time, so that their requests add up.
      add_up(requests_of(container), pod_.resources);
      pod_.containers.push_back(read_pod_container(container, value_of(spec, "securityContext")));
    }
    pod_.labels = read_labels(value_of(value_of(root, "metadata"), "labels"));
    const YAML::Node volumes = value_of(spec, "volumes");
    pod_.volumes = read_pod_volumes(volumes);
    if (volumes.IsDefined() && volumes.IsSequence()) {
      for (const YAML::Node& volume : volumes) {
        check_name(volume, "volume");
      }
    }
    const std::string restart = text_of(value_of(spec, "restartPolicy"));
    pod_.restart = restart == "Never"       ? PodRestart::never
                   : restart == "OnFailure" ? PodRestart::on_failure
                                            : PodRestart::always;
    read_init_containers(value_of(spec, "initContainers"));
    return pod_;
  }

 private:
  void check_name(const YAML::Node& part, const std::string& what) {
    const std::string name = text_of(value_of(part, "name"));
    if (!kLabelRule.allows(name)) {
      findings_.error(
          place_of(manifest_, part),
          pod_.owner + " has a " + what +
              (name.empty() ? " without a name" : " with the name '" + name.substr(0, 100) + "'"),
          kLabelRule.text());
    }
  }

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
      // Annotations are often folded over several lines.
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

  using Requests = std::map<std::string, DeviceRequest>;

  static void add_up(const Requests& more, Requests& sum) {
    for (const auto& [resource, request] : more) {
      DeviceRequest& all = sum[resource];
      // A sum that wrapped around would ask for little.
      const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - all.count;
      all.count += std::min(request.count, room);
      all.place = request.place;
    }
  }

  // Init containers run before the others, one after the other, and what one had is free again for
  // the next, except for sidecars (restartPolicy: Always), which go on. So the pod needs the larger
  // of what its containers with all sidecars need, and what an init container with the sidecars
  // before it needs.
  void read_init_containers(const YAML::Node& containers) {
    if (!containers.IsDefined() || !containers.IsSequence()) {
      return;
    }
    Requests staying;
    Requests most;
    for (const YAML::Node& node : containers) {
      check_name(node, "container");
      const Requests own = requests_of(node);
      pod_.init_containers.push_back(text_of(value_of(node, "name")));
      Requests at_once = staying;
      add_up(own, at_once);
      for (const auto& [resource, request] : at_once) {
        DeviceRequest& before = most[resource];
        before = request.count > before.count ? request : before;
      }
      if (text_of(value_of(node, "restartPolicy")) == "Always") {
        staying = at_once;
      }
    }
    add_up(staying, pod_.resources);
    for (const auto& [resource, request] : most) {
      DeviceRequest& all = pod_.resources[resource];
      all = request.count > all.count ? request : all;
    }
  }

  // The devices that a container asks for.
  Requests requests_of(const YAML::Node& node) {
    const YAML::Node resources = value_of(node, "resources");
    if (!is_map(resources, "resources")) {
      return {};
    }
    return read_requests(value_of(resources, "limits"), value_of(resources, "requests"));
  }

  // False, too, where there is nothing, which is no mistake.
  bool is_map(const YAML::Node& node, const std::string& key) {
    if (!node.IsDefined() || node.IsNull() || node.IsMap()) {
      return node.IsDefined() && node.IsMap();
    }
    complain_of_request(
        place_of(manifest_, node), "has '" + key + "' that are no names with a number each",
        key == "resources" ? "resources: {limits: {NAME: NUMBER}}" : key + ": {NAME: NUMBER}");
    return false;
  }

  void complain_of_request(const FilePlace& place, const std::string& what,
                           const std::string& remedy) {
    findings_.error(place, pod_.owner + " " + what, remedy);
    pod_.has_unread_request = true;
  }

  // Of devices request and limit are equal; where only one is given it stands for both, if it is
  // the limit.
  Requests read_requests(const YAML::Node& limits, const YAML::Node& requests) {
    Requests asked;
    for (const bool is_limit : {true, false}) {
      const YAML::Node& map = is_limit ? limits : requests;
      if (!is_map(map, is_limit ? "limits" : "requests")) {
        continue;
      }
      for (const auto& pair : map) {
        const std::string resource = text_of(pair.first);
        if (!is_device(resource)) {
          continue;
        }
        const FilePlace place = place_of(manifest_, pair.first);
        const auto count = count_of_quantity(text_of(pair.second));
        if (!count) {
          complain_of_request(place, "asks for '" + text_of(pair.second) + "' of " + resource,
                              "a whole number from 0 to " +
                                  std::to_string(std::numeric_limits<std::uint64_t>::max()));
          continue;
        }
        const YAML::Node other = value_of(is_limit ? requests : limits, resource.c_str());
        // Devices cannot be promised to more pods than get them: a request needs an equal limit.
        if (!is_limit && !other.IsDefined()) {
          findings_.error(place, pod_.owner + " requests " + resource + " without a limit",
                          "give limits the same number: the API server refuses it otherwise");
        } else if (is_limit && other.IsDefined() &&
                   count_of_quantity(text_of(other)).value_or(*count) != *count) {
          findings_.error(place,
                          pod_.owner + " requests " + text_of(other) + " and limits " +
                              text_of(pair.second) + " of " + resource,
                          "the same number in both: the API server refuses it otherwise");
        }
        if ((is_limit || !other.IsDefined()) && *count != 0) {
          asked[resource] = {*count, place};
        }
      }
    }
    return asked;
  }

  const Manifest& manifest_;
  Findings& findings_;
  Pod pod_;
};

// A number of pods; 0, and a finding, where it is none or too large.
std::uint64_t count_of(const Manifest& manifest, const YAML::Node& node, std::uint64_t otherwise,
                       Findings& findings) {
  if (!node.IsDefined() || node.IsNull()) {
    return otherwise;
  }
  const auto count = whole_number<std::uint64_t>(text_of(node));
  if (!count || *count > kMaxReplicas) {
    findings.error(place_of(manifest, node),
                   manifest.title() + " asks for '" + text_of(node) + "' pods",
                   "a whole number, here at most " + std::to_string(kMaxReplicas));
    return 0;
  }
  return *count;
}

void add_pods(const Pod& pod, std::uint64_t count, const std::string& suffix, Objects& objects,
              Findings& findings) {
  if (!objects.budget.take(pod, count)) {
    complain_of_crowd(pod, findings);
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    objects.pods.push_back(pod);
    objects.pods.back().name += suffix + std::to_string(i);
  }
}

// How many pods a Job starts at most, one after the other: the first, and as many as backoffLimit
// allows (6 unless it says otherwise).
unsigned attempts_of(const YAML::Node& spec) {
  constexpr std::uint64_t kUsual = 6;
  const auto limit = whole_number<std::uint64_t>(text_of(value_of(spec, "backoffLimit")));
  return static_cast<unsigned>(std::min(limit.value_or(kUsual), kMaxReplicas)) + 1;
}

void read_mpi_job(const Manifest& manifest, Objects& objects, Findings& findings) {
  const YAML::Node specs = value_of(value_of(manifest.root, "spec"), "mpiReplicaSpecs");
  for (const char* role : {"Launcher", "Worker"}) {
    const YAML::Node replica = value_of(specs, role);
    if (!replica.IsDefined()) {
      findings.error(place_of(manifest, specs.IsDefined() ? specs : manifest.root),
                     manifest.title() + " has no " + role,
                     "spec.mpiReplicaSpecs: {Launcher: {template: ...}, Worker: {replicas: N, "
                     "template: ...}}");
      continue;
    }
    Pod pod = PodReader(manifest, findings).read(value_of(replica, "template"));
    if (*role == 'L') {
      pod.restart = PodRestart::on_failure;
      pod.attempts = attempts_of(value_of(manifest.root, "spec"));
    }
    const std::uint64_t count = count_of(manifest, value_of(replica, "replicas"), 1, findings);
    if (*role == 'L') {
      objects.pods.push_back(pod);
      objects.pods.back().name += "-launcher";
    } else {
      add_pods(pod, count, "-worker-", objects, findings);
    }
  }
}

}  // namespace

// As many pods as there are at a time.
bool read_workload(const Manifest& manifest, Objects& objects, Findings& findings) {
  if (manifest.kind == "Pod") {
    objects.pods.push_back(PodReader(manifest, findings).read(manifest.root));
    return true;
  }
  const YAML::Node annotation =
      value_of(value_of(value_of(manifest.root, "metadata"), "annotations"), kNetworksAnnotation);
  if (kMakers.contains(manifest.kind) && annotation.IsDefined()) {
    findings.error(place_of(manifest, annotation),
                   manifest.title() + " has the annotation " + kNetworksAnnotation +
                       ", which its pods do not get",
                   "put it into the metadata of the pods' template");
  }
  if (manifest.kind == "MPIJob") {
    read_mpi_job(manifest, objects, findings);
    return true;
  }
  YAML::Node spec = value_of(manifest.root, "spec");
  if (manifest.kind == "CronJob") {
    // Assigning would change the document: nodes are references.
    spec.reset(value_of(value_of(spec, "jobTemplate"), "spec"));
  }
  std::uint64_t count = 1;
  if (manifest.kind == "Job" || manifest.kind == "CronJob") {
    count = count_of(manifest, value_of(spec, "parallelism"), 1, findings);
    // Never more at a time than are wanted in all.
    count = std::min(count, count_of(manifest, value_of(spec, "completions"), count, findings));
  } else if (manifest.kind == "Deployment" || manifest.kind == "StatefulSet" ||
             manifest.kind == "ReplicaSet") {
    count = count_of(manifest, value_of(spec, "replicas"), 1, findings);
  } else if (manifest.kind != "DaemonSet") {
    return false;
  }
  const YAML::Node pod_template = value_of(spec, "template");
  if (!pod_template.IsDefined() || !pod_template.IsMap()) {
    findings.error(manifest.place, manifest.title() + " has no spec.template",
                   "the pod that it makes, with metadata and spec");
    return true;
  }
  Pod pod = PodReader(manifest, findings).read(pod_template);
  if (manifest.kind == "Job" || manifest.kind == "CronJob") {
    // A Job starts another pod where one has failed, which comes to the same.
    pod.restart = PodRestart::on_failure;
    pod.attempts = attempts_of(spec);
  }
  if (manifest.kind == "DaemonSet") {
    objects.pods.push_back(pod);
    objects.pods.back().on_each_node = true;
  } else {
    add_pods(pod, count, "-", objects, findings);
  }
  return true;
}

}  // namespace weft::k8s
