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

// One more IP network of a lab, with addresses that are said and not chosen.
struct LabNetwork {
  std::string name;
  std::vector<std::pair<std::string, std::string>> subnets;  // each with its gateway's address
};

// A node's interface in one of these.
struct LabInterface {
  std::string network;
  std::string name;                    // as the container sees it
  std::vector<std::string> addresses;  // without a length
};

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

  // --- What pods have and lab files do not.
  std::string entry_point;   // instead of the image's
  bool has_terminal = true;  // where the command is the image's own
  std::string device;        // as `weft up --device` takes it; empty: the lab's
  bool has_nics = true;      // else it is no host of the emulated network
  // The node whose container comes first, and whose IP network and NICs this one shares.
  std::string beside;
  std::vector<LabInterface> interfaces;
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
  std::vector<LabNetwork> more_networks;
  // Other names of nodes in the network of the lab's own.
  std::vector<std::pair<std::string, std::string>> aliases;

  // Without links the network is ideal, and every host has as many NICs.
  fabric::Topology topology;
  std::size_t nics = 1;
  std::vector<LabNode> nodes;  // of the hosts, in the topology's order

  [[nodiscard]] bool is_modelled() const { return !topology.links().empty(); }
};

// Containers of users that the network does not admit would start, and find no NICs: the number in
// the node's `user` is added to those who may attach.
void admit_user_of(const LabNode& node, std::vector<uid_t>& users);

// `directory` is where relative names of other files start.
[[nodiscard]] Result<LabFile> read_lab(const std::string& file_name, const std::string& text,
                                       const std::string& directory);

}  // namespace weft::labs
