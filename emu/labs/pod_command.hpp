// Owns what a container of a pod is told: program, variables, user, limits, folders.
#pragma once

#include <string>
#include <vector>

#include "emu/k8s/plan.hpp"
#include "emu/labs/lab_file.hpp"
#include "emu/labs/pod_lab.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

// Completes `node` with what the manifest says of the container. What an engine cannot do is added
// to `notes`; an error is what makes the container impossible.
[[nodiscard]] Result<void> furnish_container(const k8s::PlannedPod& pod,
                                             const k8s::PodContainer& container,
                                             const PodLabOptions& options, LabNode& node,
                                             std::vector<std::string>& notes);

}  // namespace weft::labs
