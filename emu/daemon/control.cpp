// Owns weftd's control socket: one JSON object per line in, one per line out.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "emu/daemon/daemon.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "srd/run/clock.hpp"

namespace weft::emu {
namespace {

using nlohmann::json;

constexpr int kControlVersion = 1;
constexpr std::size_t kMaxLine = 1 << 16;
constexpr std::size_t kMaxTalks = 64;

json failure(const std::string& text) {
  return {{"v", kControlVersion}, {"ok", false}, {"error", text}};
}

json counters_json(const Switchboard& switchboard) {
  const SwitchboardCounters& counters = switchboard.counters();
  json dropped;
  for (std::size_t i = 0; i < kFrameDrops; ++i) {
    dropped[to_string(static_cast<FrameDrop>(i))] = counters.dropped[i];
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
  json dropped;
  for (std::size_t i = 0; i < kDropReasons; ++i) {
    dropped[to_string(static_cast<DropReason>(i))] = totals.dropped[i];
  }
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
          {"dropped", dropped},
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
      {"nics", nics},
      {"ports", ports_json(daemon.outside())},
      {"counters", counters_json(daemon.switchboard())}};
}

json answer(Daemon& daemon, const json& request) {
  if (!request.is_object() || request.value("v", 0) != kControlVersion) {
    return failure("this weftd speaks version 1: {\"v\": 1, \"cmd\": ...}");
  }
  const std::string command = request.value("cmd", "");
  json reply = {{"v", kControlVersion}, {"ok", true}};
  if (command == "status") {
    reply["status"] = status_json(daemon);
  } else if (command == "counters") {
    reply["counters"] = counters_json(daemon.switchboard());
  } else if (command == "fault") {
    return apply_fault(daemon, request);
  } else if (command == "heal") {
    const auto ended = daemon.end_fault(request.at("fault").get<std::uint32_t>());
    return ended ? reply : failure(ended.error().message);
  } else if (command == "stop") {
    daemon.stop();
  } else {
    return failure("unknown command '" + command +
                   "'; there are status, counters, fault, heal, stop");
  }
  return reply;
}

std::string answer_line(Daemon& daemon, const std::string& line) {
  json reply;
  try {
    reply = answer(daemon, json::parse(line));
  } catch (const std::exception& error) {  // of the JSON and YAML libraries
    reply = failure(std::string("not understood: ") + error.what());
  }
  return reply.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

void Daemon::accept_talks() {
  while (true) {
    srd::UniqueFd socket(
        ::accept4(control_socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      return;
    }
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool allowed = ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                         (peer.uid == ::geteuid() || peer.uid == 0);
    const int fd = socket.get();
    if (allowed && talks_.size() < kMaxTalks && watch(fd, Source::talk)) {
      talks_[fd] = {std::move(socket), {}};
    }
  }
}

void Daemon::hear_talk(int fd) {
  Talk& talk = talks_[fd];
  std::array<char, 4096> buffer;
  const ssize_t size = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  bool over = size <= 0;
  talk.input.append(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  for (std::size_t end; !over && (end = talk.input.find('\n')) != std::string::npos;) {
    const std::string reply = answer_line(*this, talk.input.substr(0, end));
    talk.input.erase(0, end + 1);
    // Who does not read the answer does not get one: weftd waits for nobody.
    over = ::send(fd, reply.data(), reply.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
           static_cast<ssize_t>(reply.size());
  }
  if (over || talk.input.size() > kMaxLine) {
    unwatch(fd);
    talks_.erase(fd);
  }
}

}  // namespace weft::emu
