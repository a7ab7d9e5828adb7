// Owns the shapes of traffic. A shape is a list of flows and triggers: a trigger fires when the
// flows that feed it have ended, and starts the flows that wait for it. So collectives need no code
// while a simulation runs.
#include "emu/sim/traffic.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace weft::sim {

// The first two have the shape of the distributions that data-centre papers use under these names;
// the third is ours: many small control messages, and gradients in buckets of 1 to 64 MB.
SizeDistribution size_distribution(std::string_view name) {
  if (name == "web-search") {
    return {{{1'000, 0},
             {6'000, 0.15},
             {13'000, 0.2},
             {19'000, 0.3},
             {33'000, 0.4},
             {53'000, 0.53},
             {133'000, 0.6},
             {667'000, 0.7},
             {1'333'000, 0.8},
             {3'333'000, 0.9},
             {6'667'000, 0.97},
             {20'000'000, 1}}};
  }
  if (name == "hadoop") {
    return {{{100, 0},
             {250, 0.2},
             {600, 0.35},
             {1'000, 0.5},
             {2'000, 0.6},
             {5'000, 0.7},
             {40'000, 0.8},
             {400'000, 0.9},
             {3'000'000, 0.97},
             {10'000'000, 1}}};
  }
  if (name == "ai") {
    return {{{64, 0},
             {4'096, 0.3},
             {65'536, 0.5},
             {1'048'576, 0.7},
             {4'194'304, 0.85},
             {16'777'216, 0.95},
             {67'108'864, 1}}};
  }
  return {};
}

Bytes SizeDistribution::draw(Rng& rng) const {
  const double share = rng.unit();
  for (std::size_t i = 1; i < points.size(); ++i) {
    const Point& a = points[i - 1];
    const Point& b = points[i];
    if (share <= b.share) {
      const double part = b.share > a.share ? (share - a.share) / (b.share - a.share) : 1;
      return static_cast<Bytes>(std::max(1.0, a.bytes + part * (b.bytes - a.bytes)));
    }
  }
  return static_cast<Bytes>(points.back().bytes);
}

double SizeDistribution::mean() const {
  double sum = 0;
  for (std::size_t i = 1; i < points.size(); ++i) {
    sum += (points[i].share - points[i - 1].share) * (points[i].bytes + points[i - 1].bytes) / 2;
  }
  return sum;
}

fabric::FlowSpec& TrafficBuilder::add(fabric::PortId from, fabric::PortId to, Bytes bytes) {
  fabric::FlowSpec flow;
  flow.source = from;
  flow.destination = to;
  flow.bytes = std::max<Bytes>(bytes, 1);
  flow.group = group_;
  return matrix_.flows.emplace_back(flow);
}

std::uint32_t TrafficBuilder::trigger(fabric::TriggerSpec::Kind kind, std::uint32_t count) {
  matrix_.triggers.push_back({kind, count});
  return static_cast<std::uint32_t>(matrix_.triggers.size() - 1);
}

void TrafficBuilder::flow(fabric::PortId from, fabric::PortId to, Bytes bytes,
                          fabric::Picos start) {
  add(from, to, bytes).start = start;
}

void TrafficBuilder::permutation(std::uint32_t n, Bytes bytes, Rng& rng, fabric::Picos start) {
  std::vector<fabric::PortId> to(n);
  std::iota(to.begin(), to.end(), 0U);
  for (std::uint32_t i = n; i > 1; --i) {
    std::swap(to[i - 1], to[rng.below(i)]);
  }
  // A port that drew itself swaps with the next one: at most one swap each, after which neither has
  // itself.
  for (std::uint32_t i = 0; i < n && n > 1; ++i) {
    if (to[i] == i) {
      std::swap(to[i], to[(i + 1) % n]);
    }
  }
  for (fabric::PortId from = 0; from < n; ++from) {
    add(from, to[from], bytes).start = start;
  }
}

void TrafficBuilder::incast(const std::vector<fabric::PortId>& senders, fabric::PortId receiver,
                            Bytes bytes, fabric::Picos start) {
  for (const fabric::PortId from : senders) {
    add(from, receiver, bytes).start = start;
  }
}

void TrafficBuilder::fan_out(fabric::PortId sender, const std::vector<fabric::PortId>& receivers,
                             Bytes bytes, fabric::Picos start) {
  for (const fabric::PortId to : receivers) {
    add(sender, to, bytes).start = start;
  }
}

void TrafficBuilder::all_to_all(std::uint32_t n, Bytes bytes, std::uint32_t window, Rng& rng) {
  for (fabric::PortId from = 0; from < n; ++from) {
    std::vector<fabric::PortId> order;
    for (fabric::PortId to = 0; to < n; ++to) {
      if (to != from) {
        order.push_back(to);
      }
    }
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[rng.below(static_cast<std::uint32_t>(i))]);
    }
    const std::uint32_t next = trigger(fabric::TriggerSpec::Kind::multishot);
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      fabric::FlowSpec& flow = add(from, order[i], bytes);
      flow.trigger = i < window ? fabric::kNone : next;
      flow.on_sent = next;
    }
  }
}

void TrafficBuilder::staggered_all_to_all(std::uint32_t n, Bytes bytes, std::uint32_t window,
                                          Rng& rng) {
  std::vector<fabric::PortId> circle(n);
  std::iota(circle.begin(), circle.end(), 0U);
  for (std::uint32_t i = n; i > 1; --i) {
    std::swap(circle[i - 1], circle[rng.below(i)]);
  }
  const std::uint32_t rounds = (n - 1) / window;  // of `window` flows, and one of what is left
  const std::uint32_t left = (n - 1) % window;
  for (std::uint32_t s = 0; s < n; ++s) {
    std::uint32_t started_by = fabric::kNone;
    const auto add_round = [&](std::uint32_t flows, bool last, const auto& distance) {
      const std::uint32_t starts =
          last ? fabric::kNone : trigger(fabric::TriggerSpec::Kind::multishot);
      for (std::uint32_t i = 0; i < flows; ++i) {
        fabric::FlowSpec& flow = add(circle[s], circle[(s + distance(i)) % n], bytes);
        flow.trigger = started_by;
        flow.on_sent = starts;
      }
      started_by = starts;
    };
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      add_round(window, round == rounds && left == 0,
                [&](std::uint32_t i) { return round + i * rounds; });
    }
    if (left > 0) {
      add_round(left, true, [&](std::uint32_t i) { return window * rounds + i + 1; });
    }
  }
}

void TrafficBuilder::tornado(std::uint32_t n, Bytes bytes) {
  for (fabric::PortId from = 0; from < n; ++from) {
    if (const fabric::PortId to = (from + n / 2) % n; to != from) {
      add(from, to, bytes);
    }
  }
}

void TrafficBuilder::random(std::uint32_t n, std::uint32_t flows, const SizeDistribution& sizes,
                            double load, Rate rate, Rng& rng) {
  const double per_second =
      load * n * static_cast<double>(rate.bits_per_second()) / 8 / sizes.mean();
  double at = 0;
  for (std::uint32_t i = 0; i < flows; ++i) {
    // Exponential gaps; unit() is below 1.
    at += -std::log(1 - rng.unit()) / per_second;
    const fabric::PortId from = rng.below(n);
    const fabric::PortId to = (from + 1 + rng.below(n - 1)) % n;
    flow(from, to, sizes.draw(rng), static_cast<fabric::Picos>(at * 1e12));
  }
}

// Each rank passes on what came from its neighbour: step s+1 of a rank waits for step s to have
// arrived there.
void TrafficBuilder::ring(const std::vector<fabric::PortId>& ranks, Bytes bytes,
                          std::uint32_t rounds) {
  const auto n = static_cast<std::uint32_t>(ranks.size());
  const Bytes chunk = (bytes + n - 1) / n;
  const std::uint32_t steps = rounds * (n - 1);
  std::vector<std::uint32_t> waiting(n, fabric::kNone);
  for (std::uint32_t step = 0; step < steps; ++step) {
    std::vector<std::uint32_t> arrived(n, fabric::kNone);
    for (std::uint32_t rank = 0; rank < n; ++rank) {
      fabric::FlowSpec& flow = add(ranks[rank], ranks[(rank + 1) % n], chunk);
      flow.trigger = waiting[rank];
      if (step + 1 < steps) {
        arrived[(rank + 1) % n] = trigger(fabric::TriggerSpec::Kind::oneshot);
        matrix_.flows.back().on_received = arrived[(rank + 1) % n];
      }
    }
    waiting = arrived;
  }
}

// A binary tree: children send up, a parent passes on when all its children have arrived; then down
// again.
void TrafficBuilder::tree_all_reduce(const std::vector<fabric::PortId>& ranks, Bytes bytes) {
  const auto n = static_cast<std::uint32_t>(ranks.size());
  std::vector<std::uint32_t> ready(n, fabric::kNone);
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    const std::uint32_t children = (2 * rank + 1 < n ? 1U : 0U) + (2 * rank + 2 < n ? 1U : 0U);
    if (children > 0) {
      ready[rank] = trigger(fabric::TriggerSpec::Kind::barrier, children);
    }
  }
  for (std::uint32_t rank = n - 1; rank > 0; --rank) {
    fabric::FlowSpec& up = add(ranks[rank], ranks[(rank - 1) / 2], bytes);
    up.trigger = ready[rank];
    up.on_received = ready[(rank - 1) / 2];
  }
  std::vector<std::uint32_t> down(n, fabric::kNone);
  down[0] = ready[0];  // the root has everything when its children have arrived
  for (std::uint32_t rank = 1; rank < n; ++rank) {
    if (2 * rank + 1 < n) {
      down[rank] = trigger(fabric::TriggerSpec::Kind::oneshot);
    }
    fabric::FlowSpec& flow = add(ranks[(rank - 1) / 2], ranks[rank], bytes);
    flow.trigger = down[(rank - 1) / 2];
    flow.on_received = down[rank];
  }
}

// log2(n) exchanges of everything with partners at doubling distance; ranks beyond a power of two
// stay out.
void TrafficBuilder::recursive_doubling(const std::vector<fabric::PortId>& ranks, Bytes bytes) {
  const auto n = static_cast<std::uint32_t>(std::bit_floor(ranks.size()));
  std::vector<std::uint32_t> waiting(n, fabric::kNone);
  for (std::uint32_t distance = 1; distance < n; distance *= 2) {
    std::vector<std::uint32_t> arrived(n, fabric::kNone);
    for (std::uint32_t rank = 0; rank < n && distance * 2 < n; ++rank) {
      // To go on, a rank needs its partner's data, and its own previous step.
      arrived[rank] = trigger(fabric::TriggerSpec::Kind::oneshot);
    }
    for (std::uint32_t rank = 0; rank < n; ++rank) {
      fabric::FlowSpec& flow = add(ranks[rank], ranks[rank ^ distance], bytes);
      flow.trigger = waiting[rank];
      flow.on_received = arrived[rank ^ distance];
    }
    waiting = arrived;
  }
}

}  // namespace weft::sim
