// Owns the file that describes a lab: YAML shaped like containerlab's, a network and a container
// for each of its hosts.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "emu/fabric/topology.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

// The container of a host.
struct LabNode {
  std::string name;
  std::string place;  // "FILE:LINE", for errors
  // What it is made from: an image, or a directory that is a whole file system.
  std::string image;
  std::string rootfs;
  std::vector<std::string> command;  // empty: the image's own
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> ports;  // to publish, as the engine's --publish takes them
  std::vector<std::string> binds;  // as its --volume takes them
  std::string user;
  std::string memory;
  std::string cpu;
  std::vector<std::string> options;  // more words for the engine
};

// The IP network beside the RDMA network.
enum class IpNetwork : std::uint8_t {
  own,   // one of the lab's own, on which nodes know each other by name
  host,  // this machine's
  none,
};

struct LabFile {
  std::string name;
  std::string engine;              // podman, docker or a path; empty: what there is
  std::string device;              // as `weft up --device` takes it; empty: the default
  std::uint64_t seed = 1;          // of what the network draws by lot
  std::vector<uid_t> other_users;  // who may attach, beside weftd's own user and root
  IpNetwork ip_network = IpNetwork::own;
  std::string subnet;  // of that network; empty: the engine chooses

  // Without links the network is ideal, and every host has as many NICs.
  fabric::Topology topology;
  std::size_t nics = 1;
  std::vector<LabNode> nodes;  // of the hosts, in the topology's order

  [[nodiscard]] bool is_modelled() const { return !topology.links().empty(); }
};

// `directory` is where relative names of other files start.
[[nodiscard]] Result<LabFile> read_lab(const std::string& file_name, const std::string& text,
                                       const std::string& directory);

}  // namespace weft::labs
