// Owns a program that is a kubelet for device plugins of real processes: FakeKubelet in a folder,
// with the kubelet's own book of which container has which devices.
//
// usage: weft_test_kubelet FOLDER. Each line of standard input is an order, each line of standard
// output its answer, in JSON. It ends at the end of its input.
//   see              which resource is registered, and the devices that the plugin lists
//   admit NAME COUNT chooses devices for a container, and says what the plugin wants it to be given
//   remove NAME      that container has ended: its devices are free
//   ask ID...        allocates just these, whatever the book says
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "srd/base/result.hpp"
#include "tests/unit/integration/kubernetes/fake_kubelet.hpp"

namespace weft::kubernetes {
namespace {

using nlohmann::json;
using Ids = std::vector<std::string>;

// For a plugin's answer. It only ends a call that would never end.
constexpr std::chrono::seconds kPatience{20};

json edits_of(const v1beta1::ContainerAllocateResponse& response) {
  json mounts = json::array();
  for (const auto& mount : response.mounts()) {
    mounts.push_back({{"host_path", mount.host_path()},
                      {"container_path", mount.container_path()},
                      {"read_only", mount.read_only()}});
  }
  json nodes = json::array();
  for (const auto& node : response.devices()) {
    nodes.push_back({{"host_path", node.host_path()},
                     {"container_path", node.container_path()},
                     {"permissions", node.permissions()}});
  }
  json cdi = json::array();
  for (const auto& device : response.cdi_devices()) {
    cdi.push_back(device.name());
  }
  const std::map<std::string, std::string> envs(response.envs().begin(), response.envs().end());
  const std::map<std::string, std::string> annotations(response.annotations().begin(),
                                                       response.annotations().end());
  return {{"envs", envs},
          {"mounts", mounts},
          {"devices", nodes},
          {"annotations", annotations},
          {"cdi_devices", cdi}};
}

class Node {
 public:
  explicit Node(const std::string& folder) : kubelet_(folder) {}

  json see() {
    return {{"resource", kubelet_.resource()},
            {"endpoint", kubelet_.endpoint()},
            {"devices", kubelet_.devices()}};
  }

  // A container gets healthy devices that no other container has, those that the plugin prefers, or
  // an error and nothing.
  json admit(const std::string& name, std::size_t count) {
    const auto free = free_devices();
    if (held_.contains(name) || free.size() < count) {
      return {{"error", "container '" + name + "' asks for " + std::to_string(count) + " of '" +
                            kubelet_.resource() + "', of which " + std::to_string(free.size()) +
                            " are free"}};
    }
    const auto preferred = prefer(free, count);
    if (!preferred) {
      return {{"error", preferred.error().message}};
    }
    json answer = ask(*preferred);
    if (!answer.contains("error")) {
      held_[name] = *preferred;
      answer["ids"] = *preferred;
    }
    return answer;
  }

  json remove(const std::string& name) { return {{"removed", held_.erase(name)}}; }

  json ask(const Ids& ids) {
    v1beta1::AllocateRequest request;
    request.add_container_requests()->mutable_devicesids()->Assign(ids.begin(), ids.end());
    v1beta1::AllocateResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    const auto status = kubelet_.plugin()->Allocate(&context, request, &response);
    if (!status.ok()) {
      return {{"error", status.error_message()}, {"code", static_cast<int>(status.error_code())}};
    }
    if (response.container_responses_size() != 1) {
      return {{"error", "for one container there are " +
                            std::to_string(response.container_responses_size()) + " answers"}};
    }
    return edits_of(response.container_responses(0));
  }

 private:
  Ids free_devices() {
    std::set<std::string> taken;
    for (const auto& [name, ids] : held_) {
      taken.insert(ids.begin(), ids.end());
    }
    Ids free;
    for (const auto& [id, health] : kubelet_.devices()) {
      if (health == "Healthy" && !taken.contains(id)) {
        free.push_back(id);
      }
    }
    return free;
  }

  Result<Ids> prefer(const Ids& free, std::size_t count) {
    v1beta1::PreferredAllocationRequest request;
    auto* const container = request.add_container_requests();
    container->mutable_available_deviceids()->Assign(free.begin(), free.end());
    container->set_allocation_size(static_cast<int>(count));
    v1beta1::PreferredAllocationResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    const auto status = kubelet_.plugin()->GetPreferredAllocation(&context, request, &response);
    if (!status.ok()) {
      return fail(ErrorCode::io_error, status.error_message());
    }
    Ids ids;
    for (const auto& answer : response.container_responses()) {
      ids.insert(ids.end(), answer.deviceids().begin(), answer.deviceids().end());
    }
    const std::set<std::string> different(ids.begin(), ids.end());
    if (different.size() != count || ids.size() != count ||
        !std::includes(free.begin(), free.end(), different.begin(), different.end())) {
      return fail(ErrorCode::io_error,
                  "the plugin prefers what was not asked: " + json(ids).dump());
    }
    return ids;
  }

  FakeKubelet kubelet_;
  std::map<std::string, Ids> held_;
};

json obey(Node& node, const std::string& line) {
  std::istringstream words(line);
  std::string order;
  std::string name;
  std::size_t count = 0;
  words >> order;
  if (order == "see") {
    return node.see();
  }
  if (order == "ask") {
    return node.ask({std::istream_iterator<std::string>(words), {}});
  }
  if (order == "admit" && words >> name >> count) {
    return node.admit(name, count);
  }
  if (order == "remove" && words >> name) {
    return node.remove(name);
  }
  return {{"error", "unknown order: " + line}};
}

int run(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: weft_test_kubelet FOLDER\n";
    return 2;
  }
  const std::string folder = argv[1];
  Node node(folder);
  if (::access((folder + "/kubelet.sock").c_str(), F_OK) != 0) {
    std::cerr << "weft_test_kubelet: cannot listen in '" << folder << "'\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << obey(node, line).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace weft::kubernetes

int main(int argc, char** argv) {
  try {
    return weft::kubernetes::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "weft_test_kubelet: " << error.what() << "\n";
    return 1;
  }
}
