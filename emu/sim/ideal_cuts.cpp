// Owns the bounds of flows together: what must cross a set of links takes as long as they need for
// it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "emu/sim/ideal_network.hpp"
#include "emu/sim/rate_over_time.hpp"

namespace weft::sim {
namespace {

// What a flow asks of a cut: `bytes` that cannot be there before `ready`; after the last of them
// `rest` goes by until the flow has ended.
struct Demand {
  std::uint32_t cut = fabric::kNone;
  double ready = 0;
  double bytes = 0;
  double frames = 0;
  double rest = 0;
};

class Cuts {
 public:
  Cuts(IdealNetwork& network, const std::vector<double>& starts)
      : network_(network), is_(network.question()), starts_(starts) {}

  double best() {
    ports();
    leaves();
    regions();
    all_trunks();
    return best_;
  }

 private:
  struct Facts {
    const fabric::FlowSpec& flow;
    FlowFrames frames;
    const Way& way;
    double start = 0;
    bool direct = false;
  };
  using Ask = std::function<Demand(const Facts&)>;

  // The time from the last frame's leaving its first link, and until its reaching its last one.
  double after_up(const Facts& f) {
    const LeastTime up = network_.up(f.flow.source);
    return f.direct ? up.nothing
                    : up.nothing + f.way.all.of(f.frames.last) +
                          network_.down(f.flow.destination).of(f.frames.last);
  }
  double until_switch(const Facts& f) {
    return f.start + network_.up(f.flow.source).of(f.frames.last);
  }
  double after_last_switch(const Facts& f) {
    return network_.down(f.flow.destination).of(f.frames.last) + network_.ack(f.flow);
  }

  // The bound of each cut with each set of its flows that are ready from some moment on.
  void judge(std::map<std::uint32_t, RateOverTime>& rates, const Ask& ask) {
    std::vector<Demand> demands;
    for (std::size_t i = 0; i < is_.traffic.flows.size(); ++i) {
      const fabric::FlowSpec& flow = is_.traffic.flows[i];
      const Demand demand =
          ask({flow, network_.frames_of(flow), network_.way(flow.source, flow.destination),
               starts_[i], network_.is_direct(flow.source, flow.destination)});
      if (demand.cut != fabric::kNone) {
        demands.push_back(demand);
      }
    }
    std::sort(demands.begin(), demands.end(), [](const Demand& a, const Demand& b) {
      return a.cut != b.cut ? a.cut < b.cut : a.ready > b.ready;
    });
    for (auto& [cut, rate] : rates) {
      rate.settle();
    }
    Demand sum;
    for (const Demand& it : demands) {
      if (it.cut != sum.cut) {
        sum = {.cut = it.cut, .rest = INFINITY};
      }
      sum.bytes += it.bytes;
      sum.frames += it.frames;
      sum.rest = std::min(sum.rest, it.rest);
      const double through = rates.at(it.cut).carried_by(it.ready, sum.bytes) - sum.frames;
      if (std::isfinite(through)) {
        best_ = std::max(best_, through + sum.rest);
      }
    }
  }

  // By port: the way into the network, and the way out of it.
  void ports() {
    std::map<std::uint32_t, RateOverTime> up;
    std::map<std::uint32_t, RateOverTime> down;
    for (const fabric::FlowSpec& flow : is_.traffic.flows) {
      if (!up.contains(flow.source)) {
        up.emplace(flow.source, rate_of(is_.routes.uplink(flow.source)));
      }
      if (!down.contains(flow.destination)) {
        down.emplace(flow.destination, rate_of(is_.routes.downlink(flow.destination)));
      }
    }
    judge(up, [&](const Facts& f) {
      return Demand{f.flow.source, f.start, f.frames.bytes, f.frames.count,
                    after_up(f) + network_.ack(f.flow)};
    });
    judge(down, [&](const Facts& f) {
      return f.direct ? Demand{}
                      : Demand{f.flow.destination, until_switch(f) + f.way.all.of(f.frames.last),
                               f.frames.bytes, f.frames.count,
                               network_.down(f.flow.destination).nothing + network_.ack(f.flow)};
    });
  }

  // By switch with hosts: the cables to other switches, outwards and inwards.
  void leaves() {
    std::vector<std::uint32_t> own(is_.topology.nodes().size());
    std::iota(own.begin(), own.end(), 0U);
    auto [out, in] = rates_of(own);
    judge(out, [&](const Facts& f) {
      return f.way.links == 0
                 ? Demand{}
                 : Demand{is_.routes.leaf_of(f.flow.source), until_switch(f), f.frames.bytes,
                          f.frames.count,
                          f.way.all.of(f.frames.last) - f.way.first_per_byte * f.frames.last +
                              after_last_switch(f)};
    });
    judge(in, [&](const Facts& f) {
      const double before =
          std::max(0.0, f.way.all.of(f.frames.last) - f.way.last_most.of(f.frames.last));
      return f.way.links == 0
                 ? Demand{}
                 : Demand{is_.routes.leaf_of(f.flow.destination), until_switch(f) + before,
                          f.frames.bytes, f.frames.count, f.way.last_delay + after_last_switch(f)};
    });
  }

  // Larger parts of the network: the pods of each tier; where all switches are of one tier, halves,
  // quarters and so on of their numbers.
  void regions() {
    std::set<unsigned> tiers;
    std::vector<fabric::NodeId> switches;
    for (fabric::NodeId node = 0; node < is_.topology.nodes().size(); ++node) {
      if (is_.topology.nodes()[node].kind == fabric::Node::Kind::network) {
        tiers.insert(is_.topology.nodes()[node].tier);
        switches.push_back(node);
      }
    }
    if (tiers.size() > 1) {
      tiers.erase(tiers.begin());  // below the second tier there are single switches
      if (!tiers.empty()) {
        tiers.erase(tiers.begin());
      }
      for (const unsigned tier : tiers) {
        by_region(pods_below(tier));
      }
      return;
    }
    for (std::size_t parts = 2; parts < switches.size(); parts *= 2) {
      std::vector<std::uint32_t> region(is_.topology.nodes().size(), fabric::kNone);
      for (std::size_t i = 0; i < switches.size(); ++i) {
        region[switches[i]] = static_cast<std::uint32_t>(i * parts / switches.size());
      }
      by_region(region);
    }
  }

  // Switches that reach each other by links below `tier`. Hosts pass nothing on.
  std::vector<std::uint32_t> pods_below(unsigned tier) {
    const auto& nodes = is_.topology.nodes();
    std::vector<std::uint32_t> root(nodes.size());
    std::iota(root.begin(), root.end(), 0U);
    const auto find = [&](std::uint32_t node) {
      while (root[node] != node) {
        node = root[node] = root[root[node]];
      }
      return node;
    };
    const auto below = [&](fabric::NodeId node) {
      return nodes[node].kind == fabric::Node::Kind::network && nodes[node].tier < tier;
    };
    for (const fabric::Link& link : is_.topology.links()) {
      if (below(link.from) && below(link.to)) {
        root[find(link.from)] = find(link.to);
      }
    }
    std::vector<std::uint32_t> region(nodes.size(), fabric::kNone);
    for (fabric::NodeId node = 0; node < nodes.size(); ++node) {
      region[node] = below(node) ? find(node) : node;
    }
    return region;
  }

  void by_region(const std::vector<std::uint32_t>& region) {
    auto [out, in] = rates_of(region);
    const auto cut = [&](const Facts& f, bool outwards) {
      const std::uint32_t from = region[is_.routes.leaf_of(f.flow.source)];
      const std::uint32_t to = region[is_.routes.leaf_of(f.flow.destination)];
      return f.way.links == 0 || from == to
                 ? Demand{}
                 : Demand{outwards ? from : to, until_switch(f), f.frames.bytes, f.frames.count,
                          after_last_switch(f)};
    };
    judge(out, [&](const Facts& f) { return cut(f, true); });
    judge(in, [&](const Facts& f) { return cut(f, false); });
  }

  // Every frame takes each link of its way, and all of them together carry only so much.
  void all_trunks() {
    std::map<std::uint32_t, RateOverTime> all;
    for (fabric::LinkId link = 0; link < is_.topology.links().size(); ++link) {
      if (is_trunk(link)) {
        all[0].add(rate_of(link));
      }
    }
    judge(all, [&](const Facts& f) {
      const double links = f.way.links;
      return f.way.links == 0 ? Demand{}
                              : Demand{0, until_switch(f), links * f.frames.bytes,
                                       links * f.frames.count, after_last_switch(f)};
    });
  }

  [[nodiscard]] bool is_trunk(fabric::LinkId id) const {
    const fabric::Link& link = is_.topology.links()[id];
    return is_.topology.nodes()[link.from].kind == fabric::Node::Kind::network &&
           is_.topology.nodes()[link.to].kind == fabric::Node::Kind::network;
  }

  RateOverTime rate_of(fabric::LinkId id) {
    const fabric::Link& link = is_.topology.links()[id];
    const Bytes mtu = is_.payload + is_.overhead;
    const bool nic = is_.topology.nodes()[link.from].kind == fabric::Node::Kind::host;
    return link_rate(link.properties, network_.faults_of(id),
                     nic                           ? std::optional<Bytes>(mtu)
                     : link.properties.buffer == 0 ? std::nullopt
                                                   : std::optional<Bytes>(link.properties.buffer),
                     mtu);
  }

  // Of the links that lead out of each region, and into it.
  std::pair<std::map<std::uint32_t, RateOverTime>, std::map<std::uint32_t, RateOverTime>> rates_of(
      const std::vector<std::uint32_t>& region) {
    std::map<std::uint32_t, RateOverTime> out;
    std::map<std::uint32_t, RateOverTime> in;
    for (fabric::LinkId id = 0; id < is_.topology.links().size(); ++id) {
      const fabric::Link& link = is_.topology.links()[id];
      if (is_trunk(id) && region[link.from] != region[link.to]) {
        const RateOverTime rate = rate_of(id);
        out[region[link.from]].add(rate);
        in[region[link.to]].add(rate);
      }
    }
    return {std::move(out), std::move(in)};
  }

  IdealNetwork& network_;
  const IdealQuestion& is_;
  const std::vector<double>& starts_;
  double best_ = 0;
};

}  // namespace

double all_cuts(IdealNetwork& network, const std::vector<double>& starts) {
  return Cuts(network, starts).best();
}

}  // namespace weft::sim
