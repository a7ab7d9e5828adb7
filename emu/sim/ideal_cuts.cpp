// Owns the bounds of flows together.
//
// A cut is a set of links that every one of some flows has to cross. Its links carry only so many
// bytes by any time, so these flows cannot have ended before the links have carried all their
// bytes. Tried are: the link of each port, the cables of each switch with hosts, those around
// larger regions, and all cables between switches together. The largest bound wins; a cut more
// never does harm, since each is a lower bound by itself.
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

// What a flow asks of a cut: to carry `bytes`, none of which can be there before `ready`. After the
// last of them has crossed, at least `rest` goes by until the flow has ended. Times in picoseconds.
// `cut` is kNone for a flow that does not have to cross.
struct Demand {
  std::uint32_t cut = fabric::kNone;
  double ready = 0;
  double bytes = 0;
  double frames = 0;
  double rest = 0;
};

// Tries the cuts, one kind after the other, and keeps the largest bound. Used once.
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
  // What the bounds need to know of one flow; made anew for each question.
  struct Facts {
    const fabric::FlowSpec& flow;
    FlowFrames frames;
    const Way& way;
    double start = 0;
    bool direct = false;
  };
  using Ask = std::function<Demand(const Facts&)>;

  // Parts of a flow's least time, each with its shortest frame, since the frame that comes last may
  // be that one: from a frame's being sent by the host to its arrival at the receiver; from time 0
  // to the earliest arrival of a frame at the first switch; and from the last switch to the
  // sender's knowing of the end.
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

  // The bound of each cut. A set of flows has crossed the cut, at the earliest, when it has carried
  // all their bytes from the moment on when the first of them was ready. Taking only the flows that
  // are ready late may give a larger bound than taking all: so flows are added by falling `ready`,
  // and the bound is taken after each. `rest` is the least of the set, because any of its flows may
  // be the last to cross.
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
      // The fabric rounds the time of each frame down to picoseconds: up to one is lost per frame.
      const double through = rates.at(it.cut).carried_by(it.ready, sum.bytes) - sum.frames;
      // Infinite if an outage never ends: then no bound says anything, and the flows never finish.
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

  // The regions of the network below `tier`: switches that reach each other by links between lower
  // switches belong to one. Union-find; a node of `tier` or above, and each host, is a region of
  // its own, and hosts pass nothing on.
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

  // A flow between two regions leaves one and enters the other. How long it takes inside of them is
  // not known here and taken for 0.
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

  // Every frame takes at least as many links between switches as its shortest way has, and all
  // these links together carry only so much.
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

  // What a link carries under its faults. A NIC takes one frame at a time from its host, so its
  // queue is one frame; a link without a buffer limit may queue anything.
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
