// Owns opening ports to the outside, and sending through them in bursts.
//
// A frame for the outside is copied into the port's staging memory (stage()), sealed with the
// checksums that memory does not need, and sent with others by one call of the carrier at the end
// of the round (flush()). A port learns by which Ethernet and IP addresses its side is reached from
// the frames that come in (claim()); an address that another port has claimed is refused.
#include "emu/daemon/outside.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "emu/daemon/protocols.hpp"
#include "srd/io/dgram_io.hpp"
#include "srd/io/dpdk_port.hpp"
#include "srd/io/tap_io.hpp"
#include "srd/io/tunnel_io.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;

constexpr std::size_t kMac = 6;
constexpr const char* kInsecure = ",insecure";

// An Ethernet address as a number; only compared with others made in the same way.
std::uint64_t mac_at(std::span<const std::byte> frame, std::size_t offset) {
  std::uint64_t mac = 0;
  std::memcpy(&mac, &frame[offset], kMac);
  return mac;
}

// Multicast and broadcast addresses belong to no port.
bool is_group(std::span<const std::byte> frame, std::size_t offset) {
  return (frame[offset] & std::byte{1}) != std::byte{0};
}

template <class Io>
Result<std::unique_ptr<srd::FrameIo>> as_frames(Result<std::unique_ptr<Io>> io) {
  if (!io) {
    return tl::unexpected(io.error());
  }
  return std::unique_ptr<srd::FrameIo>(std::move(*io));
}

}  // namespace

Result<OutsideSpec> parse_outside(const std::string& text) {
  OutsideSpec spec{.text = text, .kind = {}, .arguments = {}, .host = {}};
  const std::size_t colon = text.find(':');
  spec.kind = text.substr(0, colon);
  if (colon == std::string::npos ||
      (spec.kind != "udp" && spec.kind != "dpdk" && spec.kind != "tap" && spec.kind != "dgram")) {
    return fail(ErrorCode::invalid_argument,
                "port '" + text +
                    "': give udp:LOCAL,REMOTE, dpdk:DEVARGS, tap:NAME or dgram:LOCAL,REMOTE, each "
                    "maybe with @HOST");
  }
  const std::size_t at = text.rfind('@');
  // A host has no slash: behind one the @ belongs to a path.
  const bool has_host =
      at != std::string::npos && at > colon && text.find('/', at) == std::string::npos;
  const std::size_t end = has_host ? at : text.size();
  spec.arguments = text.substr(colon + 1, end - colon - 1);
  spec.host = end == text.size() ? "" : text.substr(end + 1);
  if (spec.kind == "udp" && spec.arguments.ends_with(kInsecure)) {
    spec.insecure = true;
    spec.arguments.resize(spec.arguments.size() - std::strlen(kInsecure));
  }
  const bool pair = spec.kind == "udp" || spec.kind == "dgram";
  if (pair && spec.arguments.find(',') == std::string::npos) {
    return fail(ErrorCode::invalid_argument,
                "port '" + text + "': give both ends, with a comma between");
  }
  return spec;
}

namespace {

Result<std::unique_ptr<srd::FrameIo>> open_tunnel(const OutsideSpec& spec,
                                                  srd::TunnelIo::Config config,
                                                  const std::string& join_key) {
  if (!spec.insecure && join_key.empty()) {
    return fail(ErrorCode::invalid_argument,
                "port '" + spec.text +
                    "': anybody could send to it. Give --join-key FILE, the same key on both "
                    "machines (`weft up --new-join-key FILE` makes one), or write " +
                    spec.kind + ":" + spec.arguments + kInsecure +
                    " where nobody else can send from there");
  }
  if (!spec.insecure) {
    const auto key = srd::read_join_key(join_key);
    if (!key) {
      return tl::unexpected(key.error());
    }
    config.key = *key;
  }
  return as_frames(srd::TunnelIo::create(config));
}

}  // namespace

Result<std::unique_ptr<srd::FrameIo>> open_outside(const OutsideSpec& spec, std::size_t max_frame,
                                                   const std::string& join_key) {
  const std::size_t comma = spec.arguments.find(',');
  const std::string first = spec.arguments.substr(0, comma);
  const std::string rest = comma == std::string::npos ? "" : spec.arguments.substr(comma + 1);
  if (spec.kind == "udp") {
    return open_tunnel(spec, {.local = first, .remote = rest, .max_frame = max_frame}, join_key);
  }
  if (spec.kind == "dgram") {
    return as_frames(
        srd::DgramIo::create({.local = first, .remote = rest, .max_frame = max_frame}));
  }
  if (spec.kind == "tap") {
    return as_frames(srd::TapIo::create({.name = spec.arguments, .max_frame = max_frame}));
  }
  return srd::open_dpdk_port(
      {.devargs = spec.arguments, .max_frame = std::max<std::size_t>(max_frame, 1518), .eal = {}});
}

Result<std::size_t> Outside::add(std::string name, std::unique_ptr<srd::FrameIo> io,
                                 const PlantNic* nic) {
  const auto free = std::find_if(ports_.begin(), ports_.end(),
                                 [](const auto& port) { return port->io == nullptr; });
  const auto number = static_cast<std::size_t>(free - ports_.begin());
  if (number >= kMaxPorts) {
    return fail(ErrorCode::out_of_resources,
                "all " + std::to_string(kMaxPorts) + " ports to the outside are taken");
  }
  auto port = std::make_unique<Port>();
  port->name = std::move(name);
  port->serial = ++serials_;
  port->nic = nic;
  const auto* tunnel = dynamic_cast<const srd::TunnelIo*>(io.get());
  port->proved = tunnel != nullptr && tunnel->is_proved();
  port->is_kernel = dynamic_cast<const srd::TapIo*>(io.get()) != nullptr;
  port->io = std::move(io);
  port->staged.resize(kBurst * max_frame_);
  port->ends.reserve(kBurst);
  if (free == ports_.end()) {
    ports_.push_back(std::move(port));
  } else {
    *free = std::move(port);
  }
  return number;
}

std::unique_ptr<srd::FrameIo> Outside::remove(std::size_t port) {
  by_mac_.forget(port);
  by_address_.forget(port);
  ports_[port]->ends.clear();
  return std::move(ports_[port]->io);
}

bool Outside::has_kernel(const PlantNic& nic) const {
  return std::ranges::any_of(ports_, [&](const auto& port) {
    return port->io != nullptr && port->is_kernel && port->nic == &nic;
  });
}

bool Outside::claim(TimePoint now, std::size_t port, std::span<const std::byte> frame) {
  return is_group(frame, kMac) ||
         by_mac_.claim(now, port, ports_[port]->proved, mac_at(frame, kMac));
}

bool Outside::claim(TimePoint now, std::size_t port, const srd::Address& address) {
  return by_address_.claim(now, port, ports_[port]->proved, address);
}

int Outside::find(std::span<const std::byte> frame) const {
  return is_group(frame, 0) ? -1 : by_mac_.find(mac_at(frame, 0));
}

int Outside::find(const srd::Address& address) const { return by_address_.find(address); }

bool Outside::has_room(std::size_t index) {
  Port& to = *ports_[index];
  if (to.ends.size() == kBurst) {
    flush(to);
  }
  return to.ends.size() < kBurst && (!to.ends.empty() || to.io->transmit_room() > 0);
}

void Outside::stage(std::size_t index, std::span<const std::byte> frame, bool seal) {
  Port& to = *ports_[index];
  if (to.ends.size() == kBurst) {
    flush(to);
  }
  if (to.ends.size() == kBurst || frame.size() > max_frame_) {
    ++to.dropped;
    return;
  }
  const std::size_t begin = to.ends.empty() ? 0 : to.ends.back();
  std::byte* copy = to.staged.data() + begin;
  std::memcpy(copy, frame.data(), frame.size());
  if (seal) {
    Protocols::seal({copy, frame.size()});
  }
  to.ends.push_back(begin + frame.size());
}

void Outside::flush() {
  for (const auto& port : ports_) {
    flush(*port);
  }
}

void Outside::flush(Port& port) {
  if (port.ends.empty()) {
    return;
  }
  std::array<srd::TxFrame, kBurst> frames;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < port.ends.size(); ++i) {
    frames[i].pieces[0] = std::span(port.staged).subspan(begin, port.ends[i] - begin);
    begin = port.ends[i];
  }
  const std::size_t taken = port.io->transmit({frames.data(), port.ends.size()});
  port.dropped += port.ends.size() - taken;
  port.ends.clear();
}

bool Outside::arm() {
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (is_there(i) && !ports_[i]->io->arm()) {
      disarm(i);
      return false;
    }
  }
  return true;
}

void Outside::disarm() { disarm(ports_.size()); }

void Outside::disarm(std::size_t first_ports) {
  for (std::size_t i = 0; i < first_ports; ++i) {
    if (is_there(i)) {
      ports_[i]->io->disarm();
    }
  }
}

bool Outside::blind() const {
  for (const auto& port : ports_) {
    if (port->io != nullptr && port->io->wait_fd() < 0) {
      return true;
    }
  }
  return false;
}

}  // namespace weft::daemon
