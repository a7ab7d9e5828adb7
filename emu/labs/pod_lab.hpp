// Owns making a lab of planned pods: physical functions as NICs of an emulated network, a
// container for each container of a pod.
//
// Each physical function of a node is a switch with one cable to the network that joins them all.
// A pod has a cable to that switch for each virtual function that it was given: so functions share
// their NIC's rate, and a fault of the NIC's cable is one of all of them. A device that is no
// virtual function has a cable of its own to the network.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emu/k8s/plan.hpp"
#include "emu/labs/lab_file.hpp"
#include "srd/base/result.hpp"
#include "srd/base/units.hpp"

namespace weft::labs {

struct PodLabOptions {
  std::string name = "k8s";
  std::map<std::string, std::string> images;   // instead of those that manifests name
  std::string rootfs;                          // instead of all of them: a whole file system
  std::map<std::string, std::string> devices;  // kinds of devices, by resource
  Rate rate = Rate::gbps(100);                 // of each NIC
};

// A container of a pod that starts.
struct PodProcess {
  std::string pod;   // "default/test-1"
  std::string node;  // of the lab
  k8s::PodRestart restart = k8s::PodRestart::always;
  unsigned attempts = 0;  // 0: without an end
};

struct PodLab {
  LabFile file;
  std::vector<PodProcess> processes;
  std::vector<std::string> notes;  // what is asked for and not given, with its place
};

// What kind of device a resource is: EFA for names that end with it, RoCE for others.
[[nodiscard]] std::string device_of_resource(const std::string& resource);

// Only of pods that start. An error is what no lab can be: too many hosts, names that it cannot
// have.
[[nodiscard]] Result<PodLab> make_pod_lab(const k8s::PodPlan& plan, const PodLabOptions& options);

}  // namespace weft::labs
