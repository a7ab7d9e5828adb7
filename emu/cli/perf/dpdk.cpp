// Owns what `weft perf` needs for each kind of DPDK device.
#include "emu/cli/perf/dpdk.hpp"

#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include "emu/cli/unwrap.hpp"
#include "emu/launch/namespaces.hpp"
#include "srd/io/dpdk_port.hpp"
#include "srd/io/envelope_io.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kMtu = 8192 + 64;  // payload and transport headers
constexpr int kDeviceMtu = 9000;         // room for IP and UDP around it

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

// Two processes, a socket between them: one side makes it, the other one connects.
Result<DpdkPlan> plan_sockets(const std::string& kind) {
  auto directory = launch::TemporaryDirectory::create();
  if (!directory) {
    return tl::unexpected(directory.error());
  }
  const std::string socket = directory->path() + "/port.sock";
  DpdkPlan plan;
  plan.directory.emplace(std::move(*directory));
  if (kind == "memif") {
    // A longer ring of such buffers than the cache holds is slower than a short one.
    const std::string common = ",socket-abstract=no,bsize=9216,rsize=8,socket=" + socket;
    plan.devargs = {"net_memif0,role=server" + common, "net_memif0,role=client" + common};
  } else {
    plan.devargs = {"net_vhost0,iface=" + socket, "net_virtio_user0,path=" + socket};
  }
  return plan;
}

// Needs the rights that a user namespace gives, but neither root nor a NIC.
Result<DpdkPlan> plan_af_packet() {
  if (auto entered = launch::enter_private_network(); !entered) {
    return tl::unexpected(entered.error());
  }
  const std::string mtu = std::to_string(kDeviceMtu);
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           // The driver tells its sockets apart by pid xor index: these never collide.
           {"link", "add", "weft0", "index", "100", "mtu", mtu, "type", "veth", "peer", "name",
            "weft1", "index", "200", "mtu", mtu},
           {"link", "set", "weft0", "up"},
           {"link", "set", "weft1", "up"}}) {
    if (auto done = launch::run_ip(command); !done) {
      return tl::unexpected(done.error());
    }
  }
  DpdkPlan plan;
  plan.devargs = {"net_af_packet0,iface=weft0", "net_af_packet0,iface=weft1"};
  return plan;
}

// Whether the arguments of a device have that one, as a word of its own between commas.
bool has(const std::string& devargs, const char* option) {
  return ("," + devargs).find(std::string(",") + option + "=") != std::string::npos;
}

Result<DpdkPlan> plan_devices(const std::string& text) {
  if (text == "memif" || text == "vhost") {
    return plan_sockets(text);
  }
  if (text == "af_packet") {
    return plan_af_packet();
  }
  if (text.empty()) {
    return fail(ErrorCode::invalid_argument,
                "give a device after 'dpdk:': memif, vhost, af_packet, or devargs");
  }
  const std::size_t middle = text.find(';');
  DpdkPlan plan;
  plan.devargs[0] = text.substr(0, middle);
  // One device for both, where the kind of device tells its sides apart by itself.
  plan.devargs[1] = middle == std::string::npos ? text : text.substr(middle + 1);
  // Of all kinds only memif has to be told which side waits for the other.
  if (text.rfind("net_memif", 0) == 0 && !has(text, "role")) {
    plan.devargs[0] += ",role=server";
    plan.devargs[1] += ",role=client";
  }
  return plan;
}

}  // namespace

Result<DpdkPlan> plan_dpdk(const std::string& text, const std::string& eal) {
  auto plan = plan_devices(text);
  if (plan) {
    plan->eal = words_of(eal);
  }
  return plan;
}

PerfPlace place_on_dpdk(const DpdkPlan& plan, int side, unsigned run) {
  // Clients find their server.
  const std::string socket = plan.directory ? plan.directory->path() + "/port.sock" : "";
  const auto patience = srd::clock_now() + std::chrono::seconds{20};
  while (side == 1 && plan.directory && !std::filesystem::exists(socket) &&
         srd::clock_now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  const auto address = srd::Address::v4(10, 77, 0, static_cast<unsigned>(side) + 1);
  auto port = unwrap(srd::open_dpdk_port(
      {.devargs = plan.devargs[static_cast<std::size_t>(side)], .eal = plan.eal}));
  auto io = unwrap(
      srd::EnvelopeIo<srd::wire::SrdCodec>::create({.own = address, .mtu = kMtu}, std::move(port)));
  return {.address = address,
          .attachment = srd::AttachmentId{1},
          // Each run is another life, so that packets of the one before are not taken for its own.
          .life = srd::Life{run},
          .qpn = 257,
          .io = std::move(io)};
}

}  // namespace weft::cli
