// Owns the arithmetic of results: quantiles, fairness, utilisation, and the comparison with the
// bounds that a scenario sets.
#include "emu/sim/result.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace weft::sim {

Quantiles quantiles(std::vector<double> values) {
  Quantiles q;
  q.flows = values.size();
  if (values.empty()) {
    return q;
  }
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto index =
        static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::min(index == 0 ? 0 : index - 1, values.size() - 1)];
  };
  q.min_us = values.front();
  q.p50_us = at(0.5);
  q.p90_us = at(0.9);
  q.p99_us = at(0.99);
  q.p999_us = at(0.999);
  q.max_us = values.back();
  return q;
}

const char* size_class(Bytes bytes, Bytes payload, Bytes window) {
  constexpr Bytes kSmallPackets = 8;
  constexpr Bytes kLargeWindows = 16;
  return bytes <= payload                   ? "packet"
         : bytes <= kSmallPackets * payload ? "small"
         : bytes <= window                  ? "window"
         : bytes <= kLargeWindows * window  ? "large"
                                            : "huge";
}

namespace {

std::vector<Slowdown> slowdowns(const Scenario& scenario, const std::vector<FlowRecord>& records) {
  const srd::EngineConfig& engine = scenario.transport.engine;
  const Bytes window = engine.line_rate.bytes_in(engine.base_rtt);
  std::map<std::string, std::vector<double>> values;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].state == FlowRecord::State::done) {
      const double slowdown =
          static_cast<double>(records[i].finished - records[i].started) /
          static_cast<double>(std::max<fabric::Picos>(scenario.ideal.flows[i], 1));
      values["all"].push_back(slowdown);
      values[size_class(scenario.traffic.flows[i].bytes, engine.mtu_payload, window)].push_back(
          slowdown);
    }
  }
  std::vector<Slowdown> list;
  for (const char* const size : {"all", "packet", "small", "window", "large", "huge"}) {
    if (const auto it = values.find(size); it != values.end()) {
      const Quantiles q = quantiles(std::move(it->second));
      list.push_back({size, q.flows, q.p50_us, q.p99_us, q.max_us});
    }
  }
  return list;
}

}  // namespace

RunResult summarise(const Scenario& scenario, const Simulation& simulation) {
  RunResult result;
  result.scenario = scenario.name;
  result.seed = scenario.seed;
  result.hosts = simulation.fabric().port_count();
  result.flows = static_cast<std::uint32_t>(simulation.flows().size());
  result.simulated_us = fabric::microseconds(simulation.now());
  std::vector<double> times;
  std::vector<std::vector<double>> by_group(scenario.traffic.groups.size());
  double bytes = 0;
  double sum = 0;
  double squares = 0;
  fabric::Picos end = 0;
  for (std::size_t i = 0; i < simulation.flows().size(); ++i) {
    const FlowRecord& record = simulation.flows()[i];
    const fabric::FlowSpec& spec = scenario.traffic.flows[i];
    if (record.state == FlowRecord::State::failed) {
      ++result.failed;
    }
    if (record.state != FlowRecord::State::done) {
      continue;
    }
    ++result.finished;
    const double time = fabric::microseconds(record.finished - record.started);
    times.push_back(time);
    by_group[spec.group].push_back(time);
    const double rate = static_cast<double>(spec.bytes) / std::max(time, 1e-6);
    sum += rate;
    squares += rate * rate;
    bytes += static_cast<double>(spec.bytes);
    end = std::max(end, record.finished);
  }
  const auto count = static_cast<double>(times.size());
  // Jain: 1 if all flows got the same rate, 1/n if one got everything.
  result.jain = squares > 0 ? sum * sum / (count * squares) : 0;
  result.fct = quantiles(std::move(times));
  for (std::size_t group = 0; by_group.size() > 1 && group < by_group.size(); ++group) {
    result.groups.emplace_back(scenario.traffic.groups[group],
                               quantiles(std::move(by_group[group])));
  }
  result.makespan_us = fabric::microseconds(end);
  result.ideal_us = ideal_us(scenario);
  const bool whole = result.finished == result.flows;
  result.ratio = whole && result.ideal_us > 0 ? result.makespan_us / result.ideal_us : 0;
  result.slowdown = slowdowns(scenario, simulation.flows());
  result.goodput_gbps = end > 0 ? bytes * 8e3 / static_cast<double>(end) : 0;
  result.transport = simulation.counters();
  result.fabric = simulation.fabric().totals();
  result.damaged = simulation.damaged();
  result.digest = simulation.digest();
  const auto& links = scenario.topology.links();
  for (fabric::LinkId id = 0; id < links.size(); ++id) {
    if (links[id].properties.buffer == 0) {
      continue;  // a NIC's own queue
    }
    // The fabric keeps queues as picoseconds of their link.
    const double queue = static_cast<double>(simulation.fabric().counters(id).longest_queue) *
                         static_cast<double>(links[id].properties.rate.bits_per_second()) / 8e12;
    if (queue > result.longest_queue_bytes) {
      result.longest_queue_bytes = queue;
      result.longest_queue_link = scenario.topology.link_name(id);
    }
  }
  if (const auto ok = simulation.check_conservation(); !ok) {
    result.conservation = ok.error().message;
    result.within_bounds = false;
  }
  return result;
}

void check_bounds(const Bounds& bounds, RunResult& result) {
  const auto check = [&](const char* what, double value, double limit, bool met,
                         bool at_least = false) {
    result.checks.push_back({what, value, limit, met, at_least});
    result.within_bounds = result.within_bounds && met;
  };
  const auto at_most = [&](const char* what, double value, const std::optional<double>& limit) {
    if (limit) {
      check(what, value, *limit, value <= *limit);
    }
  };
  // A run with unfinished flows has no makespan worth the name: it fails whatever its bounds are.
  if (result.finished != result.flows) {
    check("flows finished", result.finished, result.flows, false, true);
  }
  at_most("makespan (us)", result.makespan_us, bounds.tail_fct_us);
  if (result.finished == result.flows) {
    at_most("ratio to ideal", result.ratio, bounds.ratio);
  }
  if (bounds.least_jain) {
    check("Jain index", result.jain, *bounds.least_jain, result.jain >= *bounds.least_jain, true);
  }
  const double again = result.transport.new_packets == 0
                           ? 0
                           : static_cast<double>(result.transport.retransmitted) /
                                 static_cast<double>(result.transport.new_packets);
  at_most("retransmitted/new", again, bounds.retransmitted_per_new);
  if (bounds.path_abandoned_us) {
    // A fault that traffic never left (-1), or none at all, is no fast one.
    double slowest = result.faults.empty() ? -1 : 0;
    for (const FaultTimeline& fault : result.faults) {
      slowest = slowest < 0 || fault.abandoned_us < 0 ? -1 : std::max(slowest, fault.abandoned_us);
    }
    check("path abandoned (us)", slowest, *bounds.path_abandoned_us,
          slowest >= 0 && slowest <= *bounds.path_abandoned_us);
  }
  const auto near = [&](const char* what, double value, const std::optional<double>& reference) {
    if (reference) {
      const double off = std::abs(value / *reference - 1);
      check(what, off, bounds.reference_within, off <= bounds.reference_within);
    }
  };
  near("distance from the reference", result.makespan_us, bounds.reference_us);
  near("distance of the median from the reference", result.fct.p50_us, bounds.reference_p50_us);
  near("distance of p99 from the reference", result.fct.p99_us, bounds.reference_p99_us);
}

}  // namespace weft::sim
