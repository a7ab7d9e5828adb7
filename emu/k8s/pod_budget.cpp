// Owns reckoning how large a pod is.
//
// A few lines of a manifest may ask for thousands of pods, each with a copy of all that the
// template says. The sum is reckoned before any copy is made.
#include "emu/k8s/pod_budget.hpp"

#include "emu/k8s/objects.hpp"

namespace weft::k8s {
namespace {

// A text of up to half the size of its object is stored within it, and a longer one on the heap:
// near enough for a limit.
std::uint64_t size_of(const std::string& text) {
  return sizeof text + (text.size() < sizeof text / 2 ? 0 : text.size());
}

std::uint64_t size_of(const std::vector<std::string>& texts) {
  std::uint64_t sum = 0;
  for (const std::string& text : texts) {
    sum += size_of(text);
  }
  return sum;
}

std::uint64_t size_of(const Labels& labels) {
  constexpr std::uint64_t kNode = 32;  // of a map, beside its value
  std::uint64_t sum = 0;
  for (const auto& [name, value] : labels) {
    sum += kNode + size_of(name) + size_of(value);
  }
  return sum;
}

std::uint64_t size_of(const PodContainer& container) {
  std::uint64_t sum = sizeof container + size_of(container.image) + size_of(container.command) +
                      size_of(container.arguments) + size_of(container.capabilities_added) +
                      size_of(container.capabilities_dropped);
  for (const PodVariable& variable : container.environment) {
    sum += size_of(variable.name) + size_of(variable.value) + size_of(variable.field);
  }
  for (const auto& [name, path] : container.mounts) {
    sum += size_of(name) + size_of(path);
  }
  return sum;
}

std::uint64_t size_of(const Pod& pod) {
  std::uint64_t sum = sizeof pod + size_of(pod.labels) + size_of(pod.node_selector) +
                      size_of(pod.init_containers) + pod.volumes.size() * sizeof(PodVolume);
  for (const auto& [resource, request] : pod.resources) {
    sum += sizeof request + size_of(resource) + size_of(request.place.file);
  }
  for (const NetworkAttachment& attachment : pod.attachments) {
    sum += size_of(attachment.name) + size_of(attachment.name_space) +
           size_of(attachment.interface) + sizeof attachment.addresses +
           size_of(attachment.addresses);
  }
  for (const PodContainer& container : pod.containers) {
    sum += size_of(container);
  }
  return sum;
}

}  // namespace

bool PodBudget::take(const Pod& pod, std::uint64_t count) {
  const std::uint64_t each = size_of(pod);
  if (count > kMaxPods - pods_ || count > (kMaxBytes - bytes_) / each) {
    return false;
  }
  pods_ += count;
  bytes_ += count * each;
  return true;
}

}  // namespace weft::k8s
