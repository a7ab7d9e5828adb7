// Owns the data that the report draws; report_page.hpp has the page around it. One file without
// references to others: it opens on a machine without a network.
#include "emu/sim/report.hpp"

#include <algorithm>
#include <map>

#include "emu/sim/report_page.hpp"
#include "emu/sim/story_report.hpp"

namespace weft::sim {
namespace {

constexpr std::size_t kMaxPoints = 1000;  // of a curve
constexpr std::size_t kMaxQueues = 24;    // the longest
constexpr std::size_t kMaxDrawnHosts = 160;
constexpr std::size_t kMaxDrawnLinks = 6000;

// Fixed point without trailing zeros: JSON needs no more, and pages stay small.
std::string number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text + "0" : text;
}

// Safe inside of a script element, too.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out + "\"";
}

template <class List, class Write>
std::string array(const List& list, const Write& write) {
  std::string text = "[";
  for (const auto& item : list) {
    text += (text.size() > 1 ? "," : "") + write(item);
  }
  return text + "]";
}

// In order, as the curve shows them. Of many flows every n-th, the slowest always among them.
std::vector<double> completion_times(const Simulation& simulation) {
  std::vector<double> times;
  for (const FlowRecord& record : simulation.flows()) {
    if (record.state == FlowRecord::State::done) {
      times.push_back(fabric::microseconds(record.finished - record.started));
    }
  }
  std::sort(times.begin(), times.end());
  if (times.size() <= kMaxPoints) {
    return times;
  }
  std::vector<double> some;
  for (std::size_t i = 1; i <= kMaxPoints; ++i) {
    some.push_back(times[i * times.size() / kMaxPoints - 1]);
  }
  return some;
}

// The curves of the links with the longest queues.
std::string queues(const Scenario& scenario, const Simulation& simulation,
                   const Recorder& recorder) {
  std::vector<fabric::LinkId> order;
  const auto& links = scenario.topology.links();
  for (fabric::LinkId id = 0; id < links.size(); ++id) {
    if (links[id].properties.buffer != 0 && simulation.fabric().counters(id).bytes != 0) {
      order.push_back(id);
    }
  }
  const std::size_t keep = std::min(kMaxQueues, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(),
                    [&](fabric::LinkId a, fabric::LinkId b) {
                      return simulation.fabric().counters(a).longest_queue >
                             simulation.fabric().counters(b).longest_queue;
                    });
  order.resize(keep);
  return array(order, [&](fabric::LinkId id) {
    const auto values = recorder.queue_of(id);
    return "{\"name\":" + quoted(scenario.topology.link_name(id)) +
           ",\"values\":" + array(values, [](std::uint8_t v) { return std::to_string(v); }) + "}";
  });
}

// Nodes by tier and how much of its rate each cable carried, the busier direction. Many hosts are
// left out: lines would hide each other.
std::string drawing(const Scenario& scenario, const Simulation& simulation) {
  const fabric::Topology& net = scenario.topology;
  std::map<unsigned, std::vector<fabric::NodeId>> tiers;
  for (fabric::NodeId node = 0; node < net.nodes().size(); ++node) {
    tiers[net.nodes()[node].tier].push_back(node);
  }
  const bool hosts = tiers[0].size() <= kMaxDrawnHosts;
  std::string names;
  std::string counts;
  std::string rows;
  for (const auto& [tier, nodes] : tiers) {
    if (tier == 0 && !hosts) {
      continue;
    }
    names +=
        (names.empty() ? "" : ",") + quoted(tier == 0 ? "hosts" : "tier " + std::to_string(tier));
    counts += (counts.empty() ? "" : ",") + std::to_string(nodes.size());
    rows += (rows.empty() ? "" : ",") +
            array(nodes, [&](fabric::NodeId id) { return quoted(net.nodes()[id].name); });
  }
  std::string links;
  std::size_t drawn = 0;
  for (fabric::LinkId id = 0; id + 1 < net.links().size() && drawn < kMaxDrawnLinks; id += 2) {
    const fabric::Link& link = net.links()[id];
    if (!hosts && (net.nodes()[link.from].tier == 0 || net.nodes()[link.to].tier == 0)) {
      continue;
    }
    const auto carried = std::max(simulation.fabric().counters(id).bytes,
                                  simulation.fabric().counters(id + 1).bytes);
    const double could = static_cast<double>(link.properties.rate.bits_per_second()) / 8e12 *
                         static_cast<double>(std::max<fabric::Picos>(simulation.now(), 1));
    links += (drawn++ == 0 ? "" : ",") + std::string("{\"a\":") +
             quoted(net.nodes()[link.from].name) + ",\"b\":" + quoted(net.nodes()[link.to].name) +
             ",\"use\":" + number(std::min(1.0, static_cast<double>(carried) / could)) + "}";
  }
  return "{\"names\":[" + names + "],\"counts\":[" + counts + "],\"tiers\":[" + rows +
         "],\"links\":[" + links + "]}";
}

// A row per path with its packets per sample; `most` becomes the largest of these, at which the
// colour is full.
std::string paths(const Recorder& recorder, std::string& most) {
  std::uint32_t largest = 1;
  for (const auto& path : recorder.path_use()) {
    for (const std::uint32_t count : path) {
      largest = std::max(largest, count);
    }
  }
  most = std::to_string(largest);
  return array(recorder.path_use(), [](const std::vector<std::uint32_t>& path) {
    return array(path, [](std::uint32_t count) { return std::to_string(count); });
  });
}

// The ends of faults in microseconds, -1 for a fault that stays; in the order of
// Recorder::timelines(), and as many of each.
std::string fault_ends(const Scenario& scenario) {
  std::string text;
  for (const fabric::Fault& fault : scenario.faults) {
    const std::uint32_t times =
        fault.every > Duration::zero() ? std::min(fault.times, Recorder::kMaxOccurrences) : 1;
    for (std::uint32_t n = 0; n < times; ++n) {
      const double end =
          fault.lasts > Duration::zero()
              ? static_cast<double>((fault.at + fault.every * n + fault.lasts).count()) / 1e3
              : -1;
      text += (text.empty() ? "" : ",") + number(end);
    }
  }
  return "[" + text + "]";
}

}  // namespace

std::string report_html(const Scenario& scenario, const Simulation& simulation,
                        const Recorder& recorder, const RunResult&,
                        const std::string& result_json) {
  std::string most;
  const std::string path_rows = paths(recorder, most);
  const fabric::FlowSpec& watched = scenario.traffic.flows[recorder.watched()];
  const auto sample = [](const Recorder::Sample& s) {
    return "[" + number(s.at_us) + "," + number(s.goodput_gbps) + "," + std::to_string(s.drops) +
           "," + std::to_string(s.trims) + "," + std::to_string(s.marks) + "]";
  };
  return std::string(report_head()) + "{\"title\":" + quoted(scenario.title) +
         ",\"reference\":" + quoted(scenario.reference) +
         ",\"result\":" + without_tags(result_json) +
         ",\"fct\":" + array(completion_times(simulation), number) +
         ",\"samples\":" + array(recorder.samples(), sample) +
         ",\"queues\":" + queues(scenario, simulation, recorder) + ",\"paths\":" + path_rows +
         ",\"path_max\":" + most + ",\"watched\":" +
         quoted(scenario.topology.port_name(watched.source) + " to " +
                scenario.topology.port_name(watched.destination)) +
         ",\"fault_ends\":" + fault_ends(scenario) + ",\"base_rtt_us\":" +
         number(static_cast<double>(scenario.transport.engine.base_rtt.count()) / 1e3) +
         ",\"topology\":" + drawing(scenario, simulation) + "}" + std::string(report_tail());
}

}  // namespace weft::sim
