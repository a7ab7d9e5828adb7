// Owns how many pods a plan may hold, and how much memory they take.
//
// A few lines of a manifest stand for many pods: replicas, a DaemonSet on each of many nodes. Each
// is a copy, so a template of some size is a lot of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::k8s {

struct Pod;

// Counts the pods of a plan before they are made. What was taken is never given back.
class PodBudget {
 public:
  static constexpr std::uint64_t kMaxPods = 100'000;                    // of all files
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{512} << 20;  // about, of their copies

  // Room for so many of that kind. False: there is not as much left, and none is taken.
  [[nodiscard]] bool take(const Pod& pod, std::uint64_t count);

 private:
  std::uint64_t pods_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace weft::k8s
