// Owns `weft softroce`: a virtual machine whose kernel has Linux's own soft-RoCE, as a host of a
// network.
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/child.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/temporary_directory.hpp"
#include "emu/launch/weftd_process.hpp"
#include "emu/softroce/guest.hpp"
#include "emu/softroce/image.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/address_text.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

// How QEMU comes to a machine that has none.
constexpr const char* kRemedy = "sudo apt-get install --no-install-recommends qemu-system-x86";
// RoCE's largest path MTU and all headers fit into it.
constexpr std::size_t kLargestMtu = 4200;
constexpr std::size_t kHeadersOfIp = 40;  // that are in weftd's MTU neither

struct Options {
  std::string network;
  std::string host;
  std::string kernel = "default";
  std::size_t memory_mib = 384;
  bool outside = false;
  std::vector<std::uint16_t> forwards;
  std::size_t timeout_s = 0;
  std::vector<std::string> words;  // only for the help text: the words are read as they stand
};

srd::Address address_of(const std::string& text) {
  const srd::Address address = unwrap(srd::parse_address(text));
  if (!address.is_v4() || address.v4_bytes()[0] == std::byte{127}) {
    throw std::runtime_error("a kernel cannot reach " + text +
                             ": start the network with `weft up --routable`");
  }
  return address;
}

bool somebody_is_at(const std::string& path) {
  const srd::UniqueFd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// The first dgram port at which no guest is yet.
void choose_port(const json& status, softroce::GuestOptions& guest, std::string& host) {
  for (const json& port : status["ports"]) {
    std::string text = port["port"].get<std::string>();
    const std::size_t comma = text.find(',');
    if (!text.starts_with("dgram:") || comma == std::string::npos) {
      continue;
    }
    host = port["host"].get<std::string>();
    if (!host.empty()) {
      text.resize(text.rfind('@'));
    }
    guest.network_socket = text.substr(6, comma - 6);
    guest.own_socket = text.substr(comma + 1);
    if (!somebody_is_at(guest.own_socket)) {
      return;
    }
  }
  throw std::runtime_error(
      "the network has no free port for a guest: `weft up --routable --port dgram:A,B` gives it "
      "one, where A and B are paths of sockets");
}

// The guest is a host of its own: the first that comes after all others, or the one that was named.
// On the link of a host of ours it has another address than that one's NICs.
void choose_address(const json& status, const std::string& link_of, const std::string& wish,
                    softroce::GuestOptions& guest) {
  unsigned prefix[2] = {0, 0};
  unsigned number = 0;
  unsigned of_link = 0;
  for (const json& nic : status["nics"]) {
    const srd::Address address = address_of(nic["address"].get<std::string>());
    guest.neighbours.push_back(address);
    const auto bytes = address.v4_bytes();
    prefix[0] = std::to_integer<unsigned>(bytes[0]);
    prefix[1] = std::to_integer<unsigned>(bytes[1]);
    const auto host = std::to_integer<unsigned>(bytes[2]);
    number = std::max(number, host + 1);
    of_link = nic["host"] == link_of ? host : of_link;
  }
  unsigned last = 1;
  if (!wish.empty()) {
    if (wish.size() > 4 || std::sscanf(wish.c_str(), "h%3u", &number) != 1 || number == 0 ||
        number > 254) {
      throw std::runtime_error("--host " + wish + ": give h1 to h254");
    }
  } else if (of_link != 0) {
    number = of_link;
  }
  guest.address = srd::Address::v4(prefix[0], prefix[1], number, last);
  if (std::count(guest.neighbours.begin(), guest.neighbours.end(), guest.address) != 0) {
    guest.address = srd::Address::v4(prefix[0], prefix[1], number, 101);
  }
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) {
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return text + "'";
}

// rping of the guest's kernel against rping on h1, 50 messages whose bytes are compared. The server
// may not be there yet, and a request may be lost: so it is tried again.
constexpr const char* kSelfTest =
    "ibv_devinfo | head -n 12\n"
    "for i in 1 2 3 4 5 6 7 8 9 10; do\n"
    "  timeout 60 rping -c -a @ -C 50 -V && echo 'soft-RoCE of Linux '$(uname -r)' speaks with "
    "ours' && exit 0\n"
    "  sleep 1\n"
    "done\n"
    "exit 1";

int run_vm(const Options& options) {
  if (softroce::find_program(softroce::kQemu).empty()) {
    complain("weft softroce: there is no {}: {}\n", softroce::kQemu, kRemedy);
    return kFailure;
  }
  const launch::Interruptible interruptible;
  const std::string image =
      unwrap(softroce::make_image(unwrap(softroce::cache_folder()), options.kernel));
  const auto folder = unwrap(launch::TemporaryDirectory::create());
  softroce::GuestOptions guest{.folder = folder.path(),
                               .image = image,
                               .address = {},
                               .own_socket = {},
                               .network_socket = {},
                               .job = {}};
  guest.kvm = softroce::judge_kvm().usable;
  guest.memory_mib = options.memory_mib;
  guest.outside = options.outside;
  guest.forwards = options.forwards;
  guest.limit = std::chrono::seconds{options.timeout_s};
  const launch::DeviceKind kind = unwrap(launch::parse_device_kind("rxe"));
  std::optional<launch::PrivateWeftd> own;
  std::string directory;
  if (options.network.empty()) {
    own.emplace(unwrap(launch::PrivateWeftd::start(
        {.hosts = 1,
         .mtu = launch::payload_of(kind),
         .routable = true,
         .ports = {"dgram:" + folder.path() + "/network.sock," + folder.path() + "/guest.sock"}})));
    directory = own->directory();
  } else {
    directory = unwrap(launch::named_directory(options.network, false));
  }
  const json status = unwrap(launch::ask_weftd(directory, {{"cmd", "status"}}))["status"];
  std::string link_of;
  choose_port(status, guest, link_of);
  choose_address(status, link_of, options.host, guest);
  guest.mtu = std::min(kLargestMtu, status["mtu"].get<std::size_t>() + kHeadersOfIp);
  std::optional<launch::Child> server;
  const auto words = words_after_dashes();
  for (const char* word : words) {
    guest.job += quoted(word) + " ";
  }
  if (words.empty()) {
    if (softroce::find_program("rping").empty()) {
      complain("weft softroce: the self-test needs rping (rdmacm-utils) here, too\n");
      return kFailure;
    }
    guest.job = kSelfTest;
    const std::string address = status["nics"][0]["address"].get<std::string>();
    guest.job.replace(guest.job.find('@'), 1, address);
    server.emplace(unwrap(launch::Child::start(
        {.words = {"rping", "-s", "-P", "-a", address},
         .environment = unwrap(
             launch::equip_host(directory, status["nics"][0]["host"].get<std::string>(), kind))})));
  }
  return unwrap(softroce::run_guest(guest));
}

int show_status() {
  const std::string qemu = softroce::find_program(softroce::kQemu);
  fmt::print("{:<12}{}\n", "QEMU", qemu.empty() ? std::string("missing: ") + kRemedy : qemu);
  const softroce::KvmVerdict kvm = softroce::judge_kvm();
  fmt::print("{:<12}{}\n", "KVM", kvm.usable ? "used" : "not used: " + kvm.why);
  for (const char* program : {"apt-get", "dpkg-deb", "flock"}) {
    if (softroce::find_program(program).empty()) {
      fmt::print("{:<12}missing: images are made of Debian's packages\n", program);
    }
  }
  const std::string cache = unwrap(softroce::cache_folder());
  std::error_code error;
  bool any = false;
  for (const auto& entry : std::filesystem::directory_iterator(cache + "/by-name", error)) {
    const auto target = std::filesystem::canonical(entry.path(), error);
    if (!error) {
      any = true;
      fmt::print("{:<12}{}\n", "image", target.string());
    }
  }
  if (!any) {
    fmt::print("{:<12}none yet in {}: `weft softroce vm` makes it\n", "image", cache);
  }
  return qemu.empty() ? kFailure : kSuccess;
}

}  // namespace

void register_softroce(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "softroce");
  command->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* vm =
      command->add_subcommand("vm", "Run a command in a guest; without one, a self-test");
  vm->add_option("--network", options->network,
                 "A network that is up, with --routable and a dgram port; else one of its own");
  vm->add_option("--host", options->host, "Which host the guest is; default: the next number");
  vm->add_option("--kernel", options->kernel, "default, 6.1, 6.12, or a package of Debian's")
      ->capture_default_str();
  vm->add_option("--memory", options->memory_mib, "Of the guest, in MiB")
      ->check(CLI::Range(192, 65536))
      ->capture_default_str();
  vm->add_flag("--outside", options->outside,
               "A second NIC, at which 10.0.2.2 is this machine's loopback");
  vm->add_option("--forward", options->forwards,
                 "This TCP port of this machine's loopback is the guest's; implies --outside")
      ->allow_extra_args(false);
  vm->add_option("--timeout", options->timeout_s,
                 "Seconds after which the guest is ended; 0: never");
  vm->add_option("command", options->words, "After `--`: the command")->expected(-1);
  vm->callback([&work, options] { work = [options] { return run_vm(*options); }; });
  CLI::App* status = command->add_subcommand("status", "Say what is there, and what is missing");
  status->callback([&work] { work = [] { return show_status(); }; });
}

}  // namespace weft::cli
