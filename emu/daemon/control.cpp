// Owns the meaning of weftd's control protocol.
//
// Runs on the control thread. Figures are copied out of the forwarding thread once per request
// (NetworkControl::figures()), and turned into JSON here, where that delays no frame.
#include "emu/daemon/control.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "emu/daemon/metrics.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "srd/net/address_text.hpp"
#include "srd/run/clock.hpp"

namespace weft::daemon {
namespace {

using nlohmann::json;

constexpr int kControlVersion = 1;
constexpr unsigned kMaxDepth = 32;  // of nested objects and lists in a request

json failure(const std::string& text) {
  return {{"v", kControlVersion}, {"ok", false}, {"error", text}};
}

json drops_json(const fabric::FabricTotals& totals) {
  json dropped;
  for (std::size_t i = 0; i < fabric::kLossReasons; ++i) {
    dropped[to_string(static_cast<fabric::LossReason>(i))] = totals.dropped[i];
  }
  return dropped;
}

// "dropped" merges the drops by weftd itself and those by the network that it models.
json counters_json(const NetworkFigures& figures) {
  const SwitchboardCounters& counters = figures.counters;
  json dropped;
  for (std::size_t i = 0; i < kFrameDrops; ++i) {
    dropped[to_string(static_cast<FrameDrop>(i))] = counters.dropped[i];
  }
  if (figures.modelled) {
    dropped.update(drops_json(figures.modelled->totals));
  }
  return {{"frames", counters.frames}, {"bytes", counters.bytes}, {"dropped", dropped}};
}

json process_json(const NetworkFigures::Process& slot) {
  return {{"pid", slot.pid},
          {"attachment", slot.id},
          {"life", slot.life.value()},
          {"first_qpn", slot.first_qpn},
          {"frames_in", slot.counters.frames_in},
          {"bytes_in", slot.counters.bytes_in},
          {"frames_out", slot.counters.frames_out},
          {"bytes_out", slot.counters.bytes_out}};
}

json fabric_json(const std::optional<ModelledFigures>& modelled, const fabric::Topology& topology) {
  if (!modelled) {
    return nullptr;
  }
  const fabric::FabricTotals& totals = modelled->totals;
  json links = json::array();
  for (fabric::LinkId link = 0; link < modelled->links.size(); ++link) {
    const fabric::LinkCounters& counters = modelled->links[link];
    if (counters.bytes != 0 || counters.drops != 0) {
      links.push_back({{"link", topology.link_name(link)},
                       {"bytes", counters.bytes},
                       {"drops", counters.drops},
                       {"trims", counters.trims},
                       {"marks", counters.marks},
                       {"longest_queue_us", fabric::microseconds(counters.longest_queue)}});
    }
  }
  return {{"injected", totals.injected},
          {"delivered", totals.delivered},
          {"duplicated", totals.duplicated},
          {"corrupted", totals.corrupted},
          {"trimmed", totals.trimmed},
          {"marked", totals.marked},
          {"inside", modelled->inside},
          {"dropped", drops_json(totals)},
          {"links", links}};
}

// The request's "fault" has the keys of a fault in a scenario file, and is read by the same code:
// JSON is YAML.
json apply_fault(NetworkControl& network, const json& request) {
  fabric::YamlFile file("fault");
  const YAML::Node node = file.load(request.at("fault").dump());
  const fabric::Fault fault =
      file.failed() ? fabric::Fault{} : fabric::read_fault(file, node, "fault");
  if (file.failed()) {
    return failure(file.error().message);
  }
  const auto applied = network.apply(fault);
  return applied ? json{{"v", kControlVersion}, {"ok", true}, {"fault", *applied}}
                 : failure(applied.error().message);
}

json ports_json(const NetworkFigures& figures, const std::vector<NetworkControl::PortName>& names) {
  json ports = json::array();
  for (std::size_t i = 0; i < figures.ports.size(); ++i) {
    const srd::FrameCounters& counters = figures.ports[i].counters;
    ports.push_back({{"port", names[i].name},
                     {"host", names[i].host},
                     {"frames_in", counters.rx_frames},
                     {"bytes_in", counters.rx_bytes},
                     {"frames_out", counters.tx_frames},
                     {"bytes_out", counters.tx_bytes},
                     {"marked_in", counters.rx_marked},
                     {"dropped_in", counters.rx_dropped},
                     {"unproved_in", counters.rx_unproved},
                     {"up", figures.ports[i].is_up},
                     {"dropped", figures.ports[i].dropped},
                     {"lost_out", counters.tx_oversize + counters.tx_lost + counters.tx_stalled}});
  }
  return ports;
}

json capture_json(const Capture* capture, const NetworkFigures& figures) {
  if (capture == nullptr) {
    return nullptr;
  }
  return {{"file", capture->file()},
          {"links", capture->links()},
          {"packets", figures.captured},
          {"skipped", figures.capture_skipped},
          {"dropped", figures.capture_dropped}};
}

// The capture has ended, so its figures can be read without asking the forwarding thread.
json capture_json(const NetworkControl::StoppedCapture& stopped) {
  const Capture& capture = *stopped.capture;
  NetworkFigures figures;
  figures.captured = capture.packets();
  figures.capture_skipped = capture.skipped();
  figures.capture_dropped = capture.dropped();
  json last = capture_json(&capture, figures);
  last["complete"] = stopped.complete;
  return last;
}

// Processes are sorted by NIC, and so are walked through once.
json nics_json(const NetworkControl& network, const NetworkFigures& figures) {
  json nics = json::array();
  auto process = figures.processes.begin();
  for (const auto& nic : network.plant().nics()) {
    json processes = json::array();
    for (; process != figures.processes.end() && process->nic == nic.get(); ++process) {
      processes.push_back(process_json(*process));
    }
    nics.push_back({{"host", nic->host},
                    {"nic", nic->index},
                    {"address", srd::to_text(nic->address)},
                    {"link_up", network.link_up(*nic)},
                    {"processes", processes}});
  }
  return nics;
}

json status_json(const ControlView& view) {
  NetworkControl& network = view.network;
  const NetworkFigures figures = network.figures();
  const Duration uptime = srd::monotonic_now() - view.started;
  return {{"pid", ::getpid()},
          {"directory", view.directory},
          {"network", network.is_modelled() ? network.topology_to_be().name : "ideal"},
          {"fabric", fabric_json(figures.modelled, network.topology_to_be())},
          {"mtu", view.mtu},
          {"uptime_s", static_cast<double>(nanoseconds(uptime)) / 1e9},
          {"direct_pairs", view.direct_pairs()},
          {"capture", capture_json(network.capture(), figures)},
          {"nics", nics_json(network, figures)},
          {"ports", ports_json(figures, network.ports())},
          {"counters", counters_json(figures)}};
}

// The request has "link" and "set" (fields), or "reset"; without either, nothing changes and the
// answer lists what is set.
Result<void> impair(NetworkControl& network, const json& request) {
  const std::string link = request.value("link", "");
  if (request.value("reset", false)) {
    return network.impairments().reset(network, link);
  }
  if (!request.contains("set")) {
    return {};
  }
  if (link.empty()) {
    return fail(ErrorCode::invalid_argument, "name the link, such as \"h1->fabric\"");
  }
  return network.impairments().set(network, link, request["set"]);
}

// The request's "start", a file, or "stop"; without either the capture that is running. The
// answer's "capture" goes into `reply`.
Result<void> change_capture(NetworkControl& network, const json& request, json& reply) {
  const bool stops = request.value("stop", false);
  const bool starts = request.contains("start");
  if (stops && starts) {
    return fail(ErrorCode::invalid_argument, "start a capture, or stop one: not both in a request");
  }
  if (stops) {
    return network.stop_capture().map([&](const NetworkControl::StoppedCapture& stopped) {
      reply["capture"] = capture_json(stopped);
    });
  }
  Result<void> done;
  if (starts) {
    CaptureOptions options;
    options.file = request["start"].get<std::string>();
    options.links = request.value("links", options.links);
    options.snap_length = std::clamp<std::size_t>(request.value("snap_length", options.snap_length),
                                                  64, options.snap_length);
    options.size_limit = request.value("size_limit", options.size_limit);
    done = network.start_capture(options);
  }
  reply["capture"] = capture_json(network.capture(), network.figures());
  return done;
}

json answer(const ControlView& view, const json& request) {
  if (!request.is_object() || request.value("v", 0) != kControlVersion) {
    return failure("this weftd speaks version 1: {\"v\": 1, \"cmd\": ...}");
  }
  NetworkControl& network = view.network;
  const std::string command = request.value("cmd", "");
  json reply = {{"v", kControlVersion}, {"ok", true}};
  Result<void> done;
  if (command == "status") {
    reply["status"] = status_json(view);
  } else if (command == "counters") {
    reply["counters"] = counters_json(network.figures());
  } else if (command == "metrics") {
    reply["metrics"] = metrics_text(view);
  } else if (command == "fault") {
    return apply_fault(network, request);
  } else if (command == "heal") {
    done = network.end_fault(request.at("fault").get<std::uint32_t>());
  } else if (command == "impair") {
    done = impair(network, request);
    reply["impairments"] = network.impairments().json();
  } else if (command == "capture") {
    done = change_capture(network, request, reply);
  } else if (command == "stop") {
    view.stop();
  } else {
    return failure("unknown command '" + command +
                   "'; there are status, counters, metrics, fault, heal, impair, capture, stop");
  }
  return done ? reply : failure(done.error().message);
}

// The JSON library copies and frees nested values recursively: deep nesting would overflow the
// stack.
bool is_too_deep(const std::string& line) {
  unsigned depth = 0;
  for (const char c : line) {
    if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) {
        return true;
      }
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

std::string answer_control(const ControlView& view, const std::string& line) {
  json reply;
  try {
    reply = is_too_deep(line) ? failure("not understood: nested too deeply")
                              : answer(view, json::parse(line));
  } catch (const std::exception& error) {  // of the JSON and YAML libraries
    reply = failure(std::string("not understood: ") + error.what());
  }
  return reply.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace weft::daemon
