// Owns the bookkeeping of a topology, its names, and the checks that make it usable.
#include "emu/fabric/topology.hpp"

#include <algorithm>
#include <charconv>
#include <unordered_set>
#include <utility>

#include "srd/base/check.hpp"

namespace weft::fabric {

// On a mismatch, the last `*` takes one more character; there is no recursion. So a pattern from a
// file, however many stars it has, takes no more steps than the product of the two lengths.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') {
    ++p;
  }
  return p == pattern.size();
}

NodeId Topology::add(Node node) {
  const auto id = static_cast<NodeId>(nodes_.size());
  by_name_.emplace(node.name, id);
  nodes_.push_back(std::move(node));
  return id;
}

NodeId Topology::add_host(std::string node_name) {
  return add({std::move(node_name), Node::Kind::host, 0, {}});
}

NodeId Topology::add_switch(std::string node_name, std::uint8_t tier, Duration latency) {
  return add({std::move(node_name), Node::Kind::network, tier, latency});
}

LinkId Topology::connect(NodeId a, NodeId b, const LinkProperties& a_to_b,
                         const LinkProperties& b_to_a) {
  WEFT_CHECK(a < nodes_.size() && b < nodes_.size());
  links_.push_back({a, b, a_to_b});
  links_.push_back({b, a, b_to_a});
  return static_cast<LinkId>(links_.size() - 2);
}

NodeId Topology::find(std::string_view node_name) const {
  const auto found = by_name_.find(std::string(node_name));
  return found == by_name_.end() ? kNone : found->second;
}

std::string Topology::link_name(LinkId link) const {
  const Link& it = links_[link];
  std::size_t before = 0;
  std::size_t after = 0;
  for (LinkId other = link & 1U; other < links_.size(); other += 2) {
    const bool parallel = (links_[other].from == it.from && links_[other].to == it.to);
    (other < link ? before : after) += parallel && other != link ? 1U : 0U;
  }
  std::string text = nodes_[it.from].name + "->" + nodes_[it.to].name;
  if (before + after > 0) {
    text += "#" + std::to_string(before);
  }
  return text;
}

Result<std::vector<LinkId>> Topology::links_called(std::string_view pattern) const {
  auto found = find_links(pattern);
  if (found.empty()) {
    return fail(ErrorCode::not_found,
                "no link is called '" + std::string(pattern) +
                    "'; write \"a->b\" or \"a-b\", with * for any (for example \"" + link_name(0) +
                    "\")");
  }
  return found;
}

std::vector<LinkId> Topology::find_links(std::string_view pattern) const {
  std::size_t wanted = std::string_view::npos;
  if (const auto hash = pattern.rfind('#'); hash != std::string_view::npos) {
    const auto digits = pattern.substr(hash + 1);
    const auto end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, wanted).ptr != end || digits.empty()) {
      return {};
    }
    pattern = pattern.substr(0, hash);
  }
  bool both = false;
  auto dash = pattern.find("->");
  std::size_t length = 2;
  if (dash == std::string_view::npos) {
    // Node names may contain dashes: take the first dash that splits the text into two names, or
    // patterns, that exist.
    both = true;
    length = 1;
    for (std::size_t at = pattern.find('-'); at != std::string_view::npos;
         at = pattern.find('-', at + 1)) {
      const auto left = pattern.substr(0, at);
      const auto right = pattern.substr(at + 1);
      const auto known = [&](std::string_view part) {
        return std::any_of(nodes_.begin(), nodes_.end(),
                           [&](const Node& node) { return matches(part, node.name); });
      };
      if (known(left) && known(right)) {
        dash = at;
        break;
      }
    }
    if (dash == std::string_view::npos) {
      return {};
    }
  }
  const auto left = pattern.substr(0, dash);
  const auto right = pattern.substr(dash + length);
  std::vector<LinkId> found;
  std::unordered_map<std::uint64_t, std::size_t> seen;
  for (LinkId link = 0; link < links_.size(); ++link) {
    const Link& it = links_[link];
    const std::string& from = nodes_[it.from].name;
    const std::string& to = nodes_[it.to].name;
    const bool forward = matches(left, from) && matches(right, to);
    const bool backward = both && matches(left, to) && matches(right, from);
    if (!forward && !backward) {
      continue;
    }
    const std::size_t nth = seen[(static_cast<std::uint64_t>(it.from) << 32) | it.to]++;
    if (wanted == std::string_view::npos || nth == wanted) {
      found.push_back(link);
    }
  }
  return found;
}

// A port is a NIC: a link that leaves a host. They are numbered by host, then by cable.
std::vector<LinkId> Topology::ports() const {
  std::vector<LinkId> uplinks;
  for (LinkId link = 0; link < links_.size(); ++link) {
    if (nodes_[links_[link].from].kind == Node::Kind::host) {
      uplinks.push_back(link);
    }
  }
  std::stable_sort(uplinks.begin(), uplinks.end(),
                   [&](LinkId a, LinkId b) { return links_[a].from < links_[b].from; });
  return uplinks;
}

std::string Topology::port_name(PortId port) const {
  const auto uplinks = ports();
  const NodeId host = links_[uplinks[port]].from;
  std::size_t nics = 0;
  std::size_t nth = 0;
  for (PortId other = 0; other < uplinks.size(); ++other) {
    if (links_[uplinks[other]].from == host) {
      nth += other < port ? 1U : 0U;
      ++nics;
    }
  }
  return nics == 1 ? nodes_[host].name : nodes_[host].name + "/nic" + std::to_string(nth);
}

// Later questions rely on the answers to earlier ones.
Result<void> Topology::validate() const {
  using Question = std::string (Topology::*)() const;
  for (const Question question :
       {&Topology::wrong_names, &Topology::wrong_links, &Topology::wrong_hosts,
        &Topology::too_many_routes, &Topology::unreachable_hosts}) {
    if (const std::string problem = (this->*question)(); !problem.empty()) {
      return fail(ErrorCode::invalid_argument, "topology '" + name + "': " + problem);
    }
  }
  return {};
}

std::string Topology::wrong_names() const {
  if (nodes_.size() == by_name_.size()) {
    return {};
  }
  std::unordered_set<std::string_view> seen;
  const auto twin = std::find_if(nodes_.begin(), nodes_.end(),
                                 [&](const Node& node) { return !seen.insert(node.name).second; });
  return "two nodes are called '" + twin->name + "'; give each its own name";
}

std::string Topology::wrong_links() const {
  for (LinkId link = 0; link < links_.size(); ++link) {
    const Link& it = links_[link];
    const LinkProperties& is = it.properties;
    if (it.from == it.to) {
      return "'" + nodes_[it.from].name + "' is connected to itself; a link joins two nodes";
    }
    if (is.rate.is_zero()) {
      return "link " + link_name(link) +
             " has rate 0; give a positive rate, or take it down by a fault";
    }
    if (is.rate < kMinRate) {
      return "link " + link_name(link) + " has a rate of " +
             std::to_string(is.rate.bits_per_second()) +
             " bit/s; the slowest links that can be modelled have 2 Mb/s";
    }
    if (is.delay < Duration::zero()) {
      return "link " + link_name(link) + " has a negative delay; give 0 or more";
    }
    if (is.ecn_low > is.ecn_high) {
      return "link " + link_name(link) +
             " starts marking above the threshold where it marks always; " +
             "the low ECN threshold must not exceed the high one";
    }
  }
  return {};
}

std::string Topology::wrong_hosts() const {
  std::vector<bool> has_link(nodes_.size(), false);
  for (const Link& link : links_) {
    has_link[link.from] = true;
  }
  bool any = false;
  for (NodeId node = 0; node < nodes_.size(); ++node) {
    const bool host = nodes_[node].kind == Node::Kind::host;
    if (host && !has_link[node]) {
      return "host '" + nodes_[node].name + "' has no link; connect it or remove it";
    }
    any = any || host;
  }
  return any ? "" : "there is no host; add at least two";
}

std::string Topology::too_many_routes() const {
  const auto switches = static_cast<std::size_t>(
      std::ranges::count(nodes_, Node::Kind::network, [](const Node& node) { return node.kind; }));
  std::unordered_set<NodeId> leaf_nodes;
  for (const LinkId uplink : ports()) {
    leaf_nodes.insert(links_[uplink].to);
  }
  const std::size_t leaves = leaf_nodes.size();
  if (leaves > kMaxLeaves) {
    return std::to_string(leaves) + " switches have hosts; at most " + std::to_string(kMaxLeaves) +
           " may";
  }
  if (switches * leaves > kMaxRoutes) {
    return std::to_string(switches) + " switches, of which " + std::to_string(leaves) +
           " have hosts, need " + std::to_string(switches * leaves) + " routes; at most " +
           std::to_string(kMaxRoutes) + " can be held";
  }
  return {};
}

// Hosts do not forward. But planes of multi-NIC hosts are connected only by their hosts, so this
// search goes through hosts too.
std::string Topology::unreachable_hosts() const {
  std::vector<std::vector<NodeId>> neighbours(nodes_.size());
  for (const Link& link : links_) {
    neighbours[link.from].push_back(link.to);
  }
  const auto is_host = [](const Node& node) { return node.kind == Node::Kind::host; };
  const auto first = static_cast<NodeId>(std::ranges::find_if(nodes_, is_host) - nodes_.begin());
  std::vector<NodeId> reached{first};
  std::vector<bool> seen(nodes_.size(), false);
  seen[first] = true;
  while (!reached.empty()) {
    const NodeId at = reached.back();
    reached.pop_back();
    for (const NodeId to : neighbours[at]) {
      if (!seen[to]) {
        seen[to] = true;
        reached.push_back(to);
      }
    }
  }
  for (NodeId node = 0; node < nodes_.size(); ++node) {
    if (!seen[node] && is_host(nodes_[node])) {
      return "host '" + nodes_[node].name + "' cannot be reached from '" + nodes_[first].name +
             "'; add a link that joins the two parts";
    }
  }
  return {};
}

}  // namespace weft::fabric
