// Owns the bound of a flow that is alone, and the order in which ends of flows start others.
#include "emu/sim/ideal_time.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

#include "emu/sim/ideal_network.hpp"
#include "emu/sim/rate_over_time.hpp"

namespace weft::sim {

IdealNetwork::IdealNetwork(const IdealQuestion& question)
    : question_(question), places_(question.topology.nodes().size()) {
  const auto& links = question.topology.links();
  std::vector<double> fastest(links.size(), 1);
  for (std::size_t i = 0; i < question.faults.size(); ++i) {
    for (const fabric::LinkId link : question.fault_links[i]) {
      faults_of_[link].push_back(&question.faults[i]);
      // A fault may make a link faster; a bound must hold for the fastest that the link ever is.
      fastest[link] *= std::max(1.0, question.faults[i].impairment.rate_factor);
    }
  }
  for (fabric::LinkId link = 0; link < links.size(); ++link) {
    ps_per_byte_.push_back(fastest_ps_per_byte(links[link].properties, fastest[link]));
  }
}

const std::vector<const fabric::Fault*>& IdealNetwork::faults_of(fabric::LinkId link) const {
  static const std::vector<const fabric::Fault*> kNoFaults;
  const auto it = faults_of_.find(link);
  return it == faults_of_.end() ? kNoFaults : it->second;
}

LeastTime IdealNetwork::least_time(fabric::LinkId link) const {
  const fabric::Link& it = question_.topology.links()[link];
  const Duration delay = it.properties.delay + question_.topology.nodes()[it.to].latency;
  // The fabric rounds the delay down to picoseconds, by less than 1.
  return {static_cast<double>(fabric::picos(delay)) - 1, ps_per_byte_[link]};
}

LeastTime IdealNetwork::up(fabric::PortId port) const {
  return least_time(question_.routes.uplink(port));
}

LeastTime IdealNetwork::down(fabric::PortId port) const {
  return least_time(question_.routes.downlink(port));
}

bool IdealNetwork::is_direct(fabric::PortId from, fabric::PortId to) const {
  return question_.routes.uplink(from) == question_.routes.downlink(to);
}

FlowFrames IdealNetwork::frames_of(const fabric::FlowSpec& flow) const {
  const Bytes payload = question_.payload;
  const Bytes count = flow.bytes / payload + (flow.bytes % payload != 0 ? 1 : 0);
  FlowFrames frames;
  frames.count = static_cast<double>(count);
  frames.bytes =
      static_cast<double>(flow.bytes) + frames.count * static_cast<double>(question_.overhead);
  frames.full = static_cast<double>(payload + question_.overhead);
  // A flow of several writes has a short packet at the end of each, and where they are depends on
  // the writes: the bound takes the shortest possible frame.
  frames.one_short = flow.bytes <= question_.largest_write;
  frames.last = frames.one_short
                    ? static_cast<double>(flow.bytes - (count - 1) * payload + question_.overhead)
                    : static_cast<double>(question_.overhead + 1);
  return frames;
}

// A breadth-first search: switches are visited by their distance from the first one, along the
// links that routing allows. The links between two distances are a cut: each path takes exactly one
// of them. Minima of fixed delay and of time per byte are kept apart, so their sum may belong to no
// real path; it is below all of them, which is what a lower bound needs.
Way IdealNetwork::find(fabric::PortId from, fabric::PortId to) {
  const fabric::NodeId goal = question_.routes.leaf_of(to);
  const auto& links = question_.topology.links();
  const auto is_goal = [goal](const Reached& reached) { return reached.node == goal; };
  Way way;
  here_ = {{question_.routes.leaf_of(from), {}}};
  while (std::none_of(here_.begin(), here_.end(), is_goal)) {
    next_.clear();
    double slowest = 0;
    double carried = 0;
    LeastTime most;
    double least_delay = INFINITY;
    for (const auto& [node, before] : here_) {
      for (const fabric::LinkId link : question_.routes.candidates(node, to)) {
        const LeastTime own = least_time(link);
        LeastTime& sum = reach(links[link].to);
        sum.nothing = std::min(sum.nothing, before.nothing + own.nothing);
        sum.per_byte = std::min(sum.per_byte, before.per_byte + own.per_byte);
        slowest = std::max(slowest, own.per_byte);
        carried += 1 / own.per_byte;
        most = {std::max(most.nothing, own.nothing), slowest};
        least_delay = std::min(least_delay, own.nothing);
      }
    }
    if (next_.empty()) {
      return {};
    }
    way.first_per_byte = way.links == 0 ? slowest : way.first_per_byte;
    way.last_most = most;
    way.last_delay = least_delay;
    if (way.links == 0 || carried < way.narrowest) {
      way.narrowest = carried;
      way.narrow_per_byte = slowest;
    }
    ++way.links;
    here_.swap(next_);
  }
  way.all = std::find_if(here_.begin(), here_.end(), is_goal)->least;
  return way;
}

// The entry of that node among those at the next distance.
LeastTime& IdealNetwork::reach(fabric::NodeId node) {
  const std::uint32_t place = places_[node];
  if (place < next_.size() && next_[place].node == node) {
    return next_[place].least;
  }
  places_[node] = static_cast<std::uint32_t>(next_.size());
  next_.push_back({node, {INFINITY, INFINITY}});
  return next_.back().least;
}

const Way& IdealNetwork::way(fabric::PortId from, fabric::PortId to) {
  const std::uint64_t key =
      std::uint64_t{question_.routes.leaf_of(from)} << 32 | question_.routes.leaf_of(to);
  const auto it = ways_.find(key);
  return it != ways_.end()
             ? it->second
             : ways_.emplace(key, is_direct(from, to) ? Way{} : find(from, to)).first->second;
}

double IdealNetwork::ack(const fabric::FlowSpec& flow) {
  // An acknowledgement could be carried by data of the other direction, whose smallest frame has
  // one byte of payload; the smaller of the two frames bounds both.
  const double size = static_cast<double>(std::min(question_.control, question_.overhead + 1));
  const double first = up(flow.destination).of(size);
  return is_direct(flow.source, flow.destination)
             ? first
             : first + way(flow.destination, flow.source).all.of(size) + down(flow.source).of(size);
}

// A pipeline of three stages: the first link, everything between, the last link. All frames go
// through the first link and through the last one, one after the other. A short packet may overtake
// full ones in between but not on these two, which leaves few orders: the bound is the best of
// them. `u` and `v` are the times per byte on the first and on the last link, `middle` is what a
// frame of a size needs in between.
IdealNetwork::Alone IdealNetwork::alone(const fabric::FlowSpec& flow) {
  const FlowFrames f = frames_of(flow);
  const LeastTime first = up(flow.source);
  const double fulls = f.count - 1;
  double end = 0;
  if (is_direct(flow.source, flow.destination)) {
    end = first.nothing + f.bytes * first.per_byte;
  } else {
    const LeastTime last_link = down(flow.destination);
    const Way& between = way(flow.source, flow.destination);
    const auto middle = [&](double size) { return first.nothing + between.all.of(size); };
    const double u = first.per_byte;
    const double v = last_link.per_byte;
    end = std::max(f.bytes * u + middle(f.last) + f.last * v,
                   f.last * u + middle(f.last) + f.bytes * v);
    // The narrowest cut on the way may be what limits the flow, with the shortest frame before and
    // after it.
    if (between.narrowest > 0) {
      end = std::max(end, f.last * u + middle(f.last) + f.last * v + f.bytes / between.narrowest -
                              f.last * between.narrow_per_byte);
    }
    if (f.one_short && fulls > 0) {
      const double always = std::max(f.full * u + middle(f.full) + fulls * f.full * v,
                                     fulls * f.full * u + middle(f.full) + f.full * v);
      const double short_not_last_up =
          f.last * u + fulls * f.full * u + middle(f.full) + f.full * v;
      const double full_first_down = f.full * u + middle(f.full) + fulls * f.full * v + f.last * v;
      const double short_overtakes_all =
          fulls * f.full * u + f.last * u + middle(f.last) + f.last * v + fulls * f.full * v;
      end = std::max(
          {end, always, std::min({short_not_last_up, full_first_down, short_overtakes_all})});
    }
    end += last_link.nothing;
  }
  end -= f.count;  // each frame takes whole picoseconds, rounded down
  return {end, end + ack(flow)};
}

namespace {

// The earliest start of each flow. Triggers are played through as in a simulation, in which each
// flow takes only the time that it needs alone. Flows that in truth take longer can only make
// others start later, so these starts are bounds, too.
class EarliestStarts {
 public:
  EarliestStarts(const fabric::TrafficMatrix& traffic,
                 const std::vector<IdealNetwork::Alone>& alone)
      : traffic_(traffic),
        alone_(alone),
        starts_(traffic.flows.size(), 0),
        states_(traffic.triggers.size()) {}

  std::vector<double> run() {
    for (std::uint32_t flow = 0; flow < traffic_.flows.size(); ++flow) {
      const fabric::FlowSpec& spec = traffic_.flows[flow];
      if (spec.trigger == fabric::kNone) {
        start(flow, static_cast<double>(spec.start));
      } else {
        states_[spec.trigger].flows.push_back(flow);
      }
    }
    while (!activations_.empty()) {
      const Activation next = activations_.top();
      activations_.pop();
      activate(next);
    }
    return std::move(starts_);
  }

 private:
  struct Activation {
    double when = 0;
    std::uint32_t trigger = 0;
    bool operator<(const Activation& other) const { return when > other.when; }  // earliest on top
  };
  // Of a trigger, as in Simulation::TriggerState.
  struct State {
    std::uint32_t activations = 0;
    std::uint32_t next = 0;
    std::vector<std::uint32_t> flows;
  };

  void start(std::uint32_t flow, double when) {
    starts_[flow] = when;
    const fabric::FlowSpec& spec = traffic_.flows[flow];
    if (spec.on_received != fabric::kNone) {
      activations_.push({when + alone_[flow].received, spec.on_received});
    }
    if (spec.on_sent != fabric::kNone) {
      activations_.push({when + alone_[flow].known, spec.on_sent});
    }
  }

  void activate(const Activation& it) {
    State& state = states_[it.trigger];
    const fabric::TriggerSpec& spec = traffic_.triggers[it.trigger];
    ++state.activations;
    if (spec.kind == fabric::TriggerSpec::Kind::multishot) {
      if (state.next < state.flows.size()) {
        start(state.flows[state.next++], it.when);
      }
      return;
    }
    if (state.activations == (spec.kind == fabric::TriggerSpec::Kind::barrier ? spec.count : 1)) {
      for (const std::uint32_t flow : state.flows) {
        start(flow, it.when);
      }
    }
  }

  const fabric::TrafficMatrix& traffic_;
  const std::vector<IdealNetwork::Alone>& alone_;
  std::vector<double> starts_;
  std::vector<State> states_;
  std::priority_queue<Activation> activations_;
};

}  // namespace

IdealTimes ideal_times(const IdealQuestion& question) {
  IdealNetwork network(question);
  std::vector<IdealNetwork::Alone> alone;
  IdealTimes result;
  alone.reserve(question.traffic.flows.size());
  result.flows.reserve(question.traffic.flows.size());
  for (const fabric::FlowSpec& flow : question.traffic.flows) {
    alone.push_back(network.alone(flow));
    result.flows.push_back(static_cast<fabric::Picos>(std::max(alone.back().known, 0.0)));
  }
  const std::vector<double> starts = EarliestStarts(question.traffic, alone).run();
  double end = all_cuts(network, starts);
  for (std::size_t flow = 0; flow < starts.size(); ++flow) {
    end = std::max(end, starts[flow] + alone[flow].known);
  }
  result.all_us = end * 1e-6;
  return result;
}

}  // namespace weft::sim
