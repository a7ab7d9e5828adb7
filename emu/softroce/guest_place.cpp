// Owns finding a guest's place in what weftd says of its network.
#include "emu/softroce/guest_place.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "srd/io/posix.hpp"
#include "srd/net/address_text.hpp"

namespace weft::softroce {
namespace {

using nlohmann::json;

// RoCE's largest path MTU, 4096, and all headers fit into it. More would be of no use to RoCE.
constexpr std::size_t kMaxMtu = 4200;
// An interface's MTU counts the headers of IP and UDP, weftd's MTU does not. Guests speak IPv4,
// whose two headers need 28 bytes, and a frame of weftd has room for 48, so 40 are safe. With
// weftd's default MTU they make kMaxMtu.
constexpr std::size_t kHeadersOfIp = 40;
constexpr unsigned kLastHost = 254;
// The last octet of a guest's address on the link of a host of ours. NICs of a host are numbered
// from 1, sixteen at most, so none of them has it.
constexpr unsigned kNumberOfGuest = 101;

struct Port {
  std::string network_socket;
  std::string own_socket;
  std::string host;  // on whose link it is; "" if on none
};

// A socket file outlives its process. Whether a process receives there, only a connection tells.
bool somebody_is_at(const std::string& path) {
  const srd::UniqueFd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Ports at which no guest is yet. weftd describes one as dgram:ITS_SOCKET,OTHER_SOCKET, with @HOST
// behind it if it is on a host's link.
std::vector<Port> free_ports(const json& status) {
  std::vector<Port> ports;
  for (const json& port : status["ports"]) {
    std::string text = port["port"].get<std::string>();
    const std::size_t comma = text.find(',');
    if (!text.starts_with("dgram:") || comma == std::string::npos) {
      continue;
    }
    const auto host = port["host"].get<std::string>();
    if (!host.empty()) {
      text.resize(text.rfind('@'));
    }
    ports.push_back({text.substr(6, comma - 6), text.substr(comma + 1), host});
  }
  std::erase_if(ports, [](const Port& port) { return somebody_is_at(port.own_socket); });
  return ports;
}

std::optional<unsigned> number_of(const std::string& host) {
  unsigned number = 0;
  const char* end = host.data() + host.size();
  if (!host.starts_with('h') || std::from_chars(host.data() + 1, end, number).ptr != end ||
      number == 0 || number > kLastHost) {
    return std::nullopt;
  }
  return number;
}

unsigned octet(const srd::Address& address, std::size_t index) {
  return std::to_integer<unsigned>(address.v4_bytes()[index]);
}

struct Nic {
  std::string host;
  srd::Address address;
};

Result<std::vector<Nic>> nics_of(const json& status) {
  std::vector<Nic> nics;
  for (const json& nic : status["nics"]) {
    const auto text = nic["address"].get<std::string>();
    const auto address = srd::parse_address(text);
    if (!address || !address->is_v4() || octet(*address, 0) == 127) {
      return fail(ErrorCode::invalid_argument, "a kernel cannot reach " + text +
                                                   ": start the network with `weft up --routable`");
    }
    nics.push_back({nic["host"].get<std::string>(), *address});
  }
  return nics;
}

// The hosts of a topology may have other names; then h3 is the host whose addresses have that
// number, as in all that weft is told.
std::string real_name(const std::vector<Nic>& nics, const std::string& host) {
  if (const auto number = number_of(host);
      number && std::ranges::find(nics, host, &Nic::host) == nics.end()) {
    const auto found = std::ranges::find_if(
        nics, [&](const Nic& nic) { return octet(nic.address, 2) == *number; });
    return found == nics.end() ? host : found->host;
  }
  return host;
}

}  // namespace

unsigned number_of_host(const srd::Address& nic) { return octet(nic, 2); }

srd::Address beside(const srd::Address& nic) {
  return srd::Address::v4(octet(nic, 0), octet(nic, 1), octet(nic, 2), kNumberOfGuest);
}

Result<GuestPlace> find_guest_place(const json& status, const std::string& host) {
  std::vector<Port> ports = free_ports(status);
  if (ports.empty()) {
    return fail(ErrorCode::not_found,
                "the network has no free port for a guest: `weft up --routable --port dgram:A,B` "
                "gives it one, where A and B are paths of sockets");
  }
  const auto nics = nics_of(status);
  if (!nics) {
    return tl::unexpected(nics.error());
  }
  const std::string name = real_name(*nics, host);
  const bool is_known = std::ranges::find(*nics, name, &Nic::host) != nics->end();
  if (!host.empty() && !is_known && !number_of(host)) {
    return fail(ErrorCode::invalid_argument, "'" + host + "' is no host: give h1 to h254");
  }
  // A port on the host's link is better than any other: only there does the modelled network lie
  // between the guest and its peers.
  const auto wished =
      std::ranges::find_if(ports, [&](const Port& port) { return port.host == name; });
  const Port& port = wished == ports.end() ? ports.front() : *wished;
  GuestPlace place{.address = {},
                   .own_socket = port.own_socket,
                   .network_socket = port.network_socket,
                   .mtu = std::min(kMaxMtu, status["mtu"].get<std::size_t>() + kHeadersOfIp)};
  unsigned number = number_of(host).value_or(1);
  std::optional<srd::Address> on_link;
  for (const Nic& nic : *nics) {
    if (host.empty()) {
      number = std::max(number, number_of_host(nic.address) + 1);
    }
    if (nic.host == (host.empty() ? port.host : name) && !on_link) {
      on_link = nic.address;
    }
  }
  if (nics->empty() || number > kLastHost) {
    return fail(ErrorCode::out_of_resources, "the network has no number for one more host");
  }
  const srd::Address& any = nics->front().address;
  place.address =
      on_link ? beside(*on_link) : srd::Address::v4(octet(any, 0), octet(any, 1), number, 1);
  return place;
}

}  // namespace weft::softroce
