// Owns the description of a network: nodes, cables, the properties of each direction. Data only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/base/units.hpp"

namespace weft::fabric {

using NodeId = std::uint32_t;
using LinkId = std::uint32_t;  // one direction of a cable
// A NIC: a host's end of a cable. Numbered by host, and a host's NICs in the order of their cables.
using PortId = std::uint32_t;

inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

// What can be modelled; validate() refuses more. A slower link would take longer for 1024 bytes
// than 32 bits of picoseconds hold. A leaf is a node that hosts are plugged into; a route is the
// choice of one switch for one leaf, and takes two bytes.
inline constexpr Rate kMinRate = Rate::bits_per_second(2'000'000);
inline constexpr std::size_t kMaxLeaves = 0xFFFF;
inline constexpr std::size_t kMaxRoutes = std::size_t{1} << 31;

// One direction of a cable, with the queue in front of it.
struct LinkProperties {
  Rate rate = Rate::gbps(100);
  Duration delay = std::chrono::microseconds{1};
  // Data that may wait, 0: without a limit. Headers and acknowledgements may take twice as much
  // again.
  Bytes buffer = 178'450;
  Bytes ecn_low = 0;  // no marking unless ecn_high > 0
  Bytes ecn_high = 0;
  bool trimming = false;  // a full queue cuts the payload off instead of dropping the frame
};

struct Node {
  enum class Kind : std::uint8_t { host, network };
  std::string name;
  Kind kind = Kind::network;
  std::uint8_t tier = 0;  // hosts 0, switches from 1 (next to the hosts) upwards
  Duration latency{};     // a switch's own, added to every frame that comes to it
};

struct Link {
  NodeId from = 0;
  NodeId to = 0;
  LinkProperties properties;
};

// Built node by node, then cable by cable; nothing is ever removed, so that numbers stay valid.
// Numbers follow the order of insertion. Nothing is checked before validate().
class Topology {
 public:
  std::string name = "network";

  NodeId add_host(std::string node_name);
  NodeId add_switch(std::string node_name, std::uint8_t tier = 1, Duration latency = {});
  // Two links, one for each direction; returns a -> b, its reverse is one higher.
  LinkId connect(NodeId a, NodeId b, const LinkProperties& a_to_b, const LinkProperties& b_to_a);
  LinkId connect(NodeId a, NodeId b, const LinkProperties& both) {
    return connect(a, b, both, both);
  }

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Link>& links() const { return links_; }
  [[nodiscard]] std::vector<Link>& links() { return links_; }
  [[nodiscard]] static LinkId reverse(LinkId link) { return link ^ 1U; }

  // The node of that name, or kNone.
  [[nodiscard]] NodeId find(std::string_view node_name) const;
  // "a->b"; with several cables between the two, the n-th from 0 is "a->b#n".
  [[nodiscard]] std::string link_name(LinkId link) const;
  // The links of a name: "a->b" one direction, "a-b" both, with `*` and `?` as wildcards in node
  // names, and "#n" to choose one of parallel cables, counted from 0.
  [[nodiscard]] std::vector<LinkId> find_links(std::string_view pattern) const;
  // The same, but an error if there is none, which says how to write a name.
  [[nodiscard]] Result<std::vector<LinkId>> links_called(std::string_view pattern) const;

  // The uplink (host to network) of every port, in the order of PortId.
  [[nodiscard]] std::vector<LinkId> ports() const;
  [[nodiscard]] std::string port_name(PortId port) const;

  // Every host needs a cable, all hosts must be reachable, rates positive. The error names the node
  // or link that is wrong.
  [[nodiscard]] Result<void> validate() const;

 private:
  NodeId add(Node node);
  // What validate() asks: a text that says what is wrong, or an empty one.
  [[nodiscard]] std::string wrong_names() const;
  [[nodiscard]] std::string wrong_links() const;
  [[nodiscard]] std::string wrong_hosts() const;
  [[nodiscard]] std::string too_many_routes() const;
  [[nodiscard]] std::string unreachable_hosts() const;

  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::unordered_map<std::string, NodeId> by_name_;
};

// `*` any text, `?` any one character.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view text);

}  // namespace weft::fabric
