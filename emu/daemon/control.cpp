// Owns the meaning of weftd's control protocol.
#include "emu/daemon/control.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "emu/daemon/daemon.hpp"
#include "emu/daemon/metrics.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "srd/run/clock.hpp"

namespace weft::emu {
namespace {

using nlohmann::json;

constexpr int kControlVersion = 1;
constexpr unsigned kMaxDepth = 32;  // of nested objects and lists in a request

json failure(const std::string& text) {
  return {{"v", kControlVersion}, {"ok", false}, {"error", text}};
}

json drops_json(const FabricTotals& totals) {
  json dropped;
  for (std::size_t i = 0; i < kDropReasons; ++i) {
    dropped[to_string(static_cast<DropReason>(i))] = totals.dropped[i];
  }
  return dropped;
}

// By weftd itself, and by the network that it models.
json counters_json(const Daemon& daemon) {
  const SwitchboardCounters& counters = daemon.switchboard().counters();
  json dropped;
  for (std::size_t i = 0; i < kFrameDrops; ++i) {
    dropped[to_string(static_cast<FrameDrop>(i))] = counters.dropped[i];
  }
  if (daemon.fabric() != nullptr) {
    dropped.update(drops_json(daemon.fabric()->fabric().totals()));
  }
  return {{"frames", counters.frames}, {"bytes", counters.bytes}, {"dropped", dropped}};
}

json slot_json(const Slot& slot) {
  return {{"pid", slot.pid},
          {"attachment", slot.id},
          {"life", slot.life.value()},
          {"first_qpn", slot.id * 256},
          {"frames_in", slot.counters.frames_in},
          {"bytes_in", slot.counters.bytes_in},
          {"frames_out", slot.counters.frames_out},
          {"bytes_out", slot.counters.bytes_out}};
}

json fabric_json(const LiveFabric* live) {
  if (live == nullptr) {
    return nullptr;
  }
  const FabricTotals& totals = live->fabric().totals();
  json links = json::array();
  for (LinkId link = 0; link < live->topology().links().size(); ++link) {
    const LinkCounters& counters = live->fabric().counters(link);
    if (counters.bytes != 0 || counters.drops != 0) {
      links.push_back({{"link", live->topology().link_name(link)},
                       {"bytes", counters.bytes},
                       {"drops", counters.drops},
                       {"trims", counters.trims},
                       {"marks", counters.marks},
                       {"longest_queue_us", microseconds(counters.longest_queue)}});
    }
  }
  return {{"injected", totals.injected},
          {"delivered", totals.delivered},
          {"duplicated", totals.duplicated},
          {"corrupted", totals.corrupted},
          {"trimmed", totals.trimmed},
          {"marked", totals.marked},
          {"inside", live->frames_inside()},
          {"dropped", drops_json(totals)},
          {"links", links}};
}

// The request's "fault" has the keys of a fault in a scenario file; JSON is YAML.
json apply_fault(Daemon& daemon, const json& request) {
  YamlFile file("fault");
  const YAML::Node node = file.load(request.at("fault").dump());
  const Fault fault = file.failed() ? Fault{} : read_fault(file, node, "fault");
  if (file.failed()) {
    return failure(file.error().message);
  }
  const auto applied = daemon.apply(fault);
  return applied ? json{{"v", kControlVersion}, {"ok", true}, {"fault", *applied}}
                 : failure(applied.error().message);
}

json ports_json(const Outside& outside) {
  json ports = json::array();
  for (std::size_t i = 0; i < outside.size(); ++i) {
    const Outside::Port& port = outside.port(i);
    const srd::FrameCounters counters = port.io->counters();
    ports.push_back({{"port", port.name},
                     {"host", port.nic == nullptr ? "" : port.nic->host},
                     {"frames_in", counters.rx_frames},
                     {"bytes_in", counters.rx_bytes},
                     {"frames_out", counters.tx_frames},
                     {"bytes_out", counters.tx_bytes},
                     {"marked_in", counters.rx_marked},
                     {"dropped_in", counters.rx_dropped},
                     {"dropped", port.dropped},
                     {"lost_out", counters.tx_oversize + counters.tx_lost + counters.tx_stalled}});
  }
  return ports;
}

json capture_json(const Capture* capture) {
  if (capture == nullptr) {
    return nullptr;
  }
  return {{"file", capture->file()},
          {"links", capture->links()},
          {"packets", capture->writer().packets()},
          {"skipped", capture->writer().skipped()}};
}

json status_json(const Daemon& daemon) {
  json nics = json::array();
  for (const auto& nic : daemon.plant().nics()) {
    json processes = json::array();
    for (const auto& slot : nic->slots) {
      if (slot != nullptr) {
        processes.push_back(slot_json(*slot));
      }
    }
    nics.push_back({{"host", nic->host},
                    {"nic", nic->index},
                    {"address", to_text(nic->address)},
                    {"link_up", nic->link_up},
                    {"processes", processes}});
  }
  return {
      {"pid", ::getpid()},
      {"directory", daemon.options().directory},
      {"network", daemon.fabric() == nullptr ? "ideal" : daemon.fabric()->topology().name},
      {"fabric", fabric_json(daemon.fabric())},
      {"mtu", daemon.options().mtu},
      {"uptime_s", static_cast<double>(nanoseconds(srd::monotonic_now() - daemon.started())) / 1e9},
      {"direct_pairs", daemon.direct_pairs()},
      {"capture", capture_json(daemon.capture())},
      {"nics", nics},
      {"ports", ports_json(daemon.outside())},
      {"counters", counters_json(daemon)}};
}

// The request's "link" and "set" (fields), or "reset"; without either what is set now.
Result<void> impair(Daemon& daemon, const json& request) {
  const std::string link = request.value("link", "");
  if (request.value("reset", false)) {
    return daemon.impairments().reset(daemon, link);
  }
  if (!request.contains("set")) {
    return {};
  }
  if (link.empty()) {
    return fail(ErrorCode::invalid_argument, "name the link, such as \"h1->fabric\"");
  }
  return daemon.impairments().set(daemon, link, request["set"]);
}

Result<void> change_capture(Daemon& daemon, const json& request) {
  if (request.contains("start")) {
    CaptureOptions options;
    options.file = request["start"].get<std::string>();
    options.links = request.value("links", options.links);
    options.snap_length = std::clamp<std::size_t>(request.value("snap_length", options.snap_length),
                                                  64, options.snap_length);
    options.size_limit = request.value("size_limit", options.size_limit);
    return daemon.start_capture(options);
  }
  return request.value("stop", false) ? daemon.stop_capture() : Result<void>{};
}

json answer(Daemon& daemon, const json& request) {
  if (!request.is_object() || request.value("v", 0) != kControlVersion) {
    return failure("this weftd speaks version 1: {\"v\": 1, \"cmd\": ...}");
  }
  const std::string command = request.value("cmd", "");
  json reply = {{"v", kControlVersion}, {"ok", true}};
  Result<void> done;
  if (command == "status") {
    reply["status"] = status_json(daemon);
  } else if (command == "counters") {
    reply["counters"] = counters_json(daemon);
  } else if (command == "metrics") {
    reply["metrics"] = metrics_text(daemon);
  } else if (command == "fault") {
    return apply_fault(daemon, request);
  } else if (command == "heal") {
    done = daemon.end_fault(request.at("fault").get<std::uint32_t>());
  } else if (command == "impair") {
    done = impair(daemon, request);
    reply["impairments"] = daemon.impairments().json();
  } else if (command == "capture") {
    reply["capture"] = capture_json(daemon.capture());  // what there was, if this ends it
    done = change_capture(daemon, request);
    if (daemon.capture() != nullptr) {
      reply["capture"] = capture_json(daemon.capture());
    }
  } else if (command == "stop") {
    daemon.stop();
  } else {
    return failure("unknown command '" + command +
                   "'; there are status, counters, metrics, fault, heal, impair, capture, stop");
  }
  return done ? reply : failure(done.error().message);
}

// Deep nesting would be a deep recursion when such a value is copied or freed.
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

std::string answer_control(Daemon& daemon, const std::string& line) {
  json reply;
  try {
    reply = is_too_deep(line) ? failure("not understood: nested too deeply")
                              : answer(daemon, json::parse(line));
  } catch (const std::exception& error) {  // of the JSON and YAML libraries
    reply = failure(std::string("not understood: ") + error.what());
  }
  return reply.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace weft::emu
