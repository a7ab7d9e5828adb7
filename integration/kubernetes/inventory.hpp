// Owns which devices the kubelet is told of, and which NICs stand behind them.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::kubernetes {

// One resource of a node.
struct NodeResource {
  std::string name;               // "vpc.amazonaws.com/efa"
  std::string device;             // as `weft up --device` takes it
  std::vector<std::size_t> nics;  // numbers of NICs of the host; empty: all
  std::size_t shares = 0;  // 0: each NIC is a device; else so many devices share all the NICs
};

// The devices of one resource: each is a NIC of its own, or a share of all of them. Ids never
// change their meaning, because the kubelet remembers which pod has which. Not safe for threads:
// Plugin::Service locks.
class Inventory {
 public:
  // `nics`: those that the resource names, or all of the host.
  Inventory(std::vector<std::size_t> nics, std::size_t shares);

  // In order. A device is healthy if all its NICs are.
  struct Device {
    std::string id;
    bool is_healthy = true;
  };
  [[nodiscard]] std::vector<Device> devices() const;

  // Returns whether that changed a device.
  bool set_health(const std::map<std::size_t, bool>& healthy_nics);

  // The NICs behind some devices, in order. An error names the id that is unknown, there twice, or
  // not healthy.
  [[nodiscard]] Result<std::vector<std::size_t>> nics_of(const std::vector<std::string>& ids) const;

  // `count` of the available devices, those that must be among them first, then healthy ones in
  // order. Fewer if there are not so many.
  [[nodiscard]] std::vector<std::string> prefer(const std::vector<std::string>& available,
                                                const std::vector<std::string>& must_include,
                                                std::size_t count) const;

 private:
  struct Entry {
    std::string id;
    std::vector<std::size_t> nics;
  };
  [[nodiscard]] bool is_healthy(const Entry& entry) const;
  [[nodiscard]] const Entry* find(const std::string& id) const;

  std::vector<Entry> entries_;
  // NICs without a link, or of which weftd told nothing.
  std::set<std::size_t> broken_;
};

}  // namespace weft::kubernetes
