// Owns putting a guest's parts together: its image, its place in a network, its job.
#include "emu/cli/softroce/vm.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/shell_quoted.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/devices/listening_sign.hpp"
#include "emu/launch/child.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/find_program.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/temporary_directory.hpp"
#include "emu/launch/weftd_process.hpp"
#include "emu/softroce/guest.hpp"
#include "emu/softroce/image.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

// What of Debian's packages a guest takes here, and its self-test more: our side of that is a stock
// program on our device. All that is missing is told at once.
std::vector<std::string> missing_packages(bool with_self_test) {
  std::vector<std::string> missing;
  if (launch::find_program(softroce::kQemu).empty()) {
    missing.emplace_back("qemu-system-x86");
  }
  if (with_self_test && launch::find_program("rping").empty()) {
    missing.emplace_back("rdmacm-utils");
  }
  if (with_self_test && launch::find_provider("rxe").empty()) {
    missing.emplace_back("ibverbs-providers");
  }
  return missing;
}
std::string remedy(const std::vector<std::string>& packages) {
  return fmt::format("sudo apt-get install --no-install-recommends {}", fmt::join(packages, " "));
}

// rping of the guest's kernel against rping on h1, 50 messages whose bytes are compared. The server
// may not be there yet, and a request may be lost: so it is tried again.
constexpr const char* kSelfTest = R"(ibv_devinfo | head -n 12
for i in 1 2 3 4 5 6 7 8 9 10; do
  timeout 60 rping -c -a @ -C 50 -V &&
    echo 'soft-RoCE of Linux '$(uname -r)' speaks with ours' && exit 0
  sleep 1
done
exit 1)";

// This process's variables as lines of a script, so that a command finds in the guest what it would
// find here. What leads to emulated devices stays out: the guest has a kernel for that.
std::string exports() {
  std::string text;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string_view entry(*variable);
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      continue;
    }
    const std::string_view name = entry.substr(0, equals);
    const bool is_name =
        std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (is_name && std::isdigit(static_cast<unsigned char>(name[0])) == 0 && name != "LD_PRELOAD") {
      text += "export " + std::string(name) + "=" + shell_quoted(entry.substr(equals + 1)) + "\n";
    }
  }
  return text;
}

// An interactive shell needs a terminal there, which `script` makes, of the size of ours.
std::string shell_job() {
  winsize size{};
  std::string resize;
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
    resize = fmt::format("stty rows {} cols {}; ", size.ws_row, size.ws_col);
  }
  return "exec script -q -e -c " + shell_quoted(resize + "exec bash -i") + " /dev/null";
}

std::string job_of(const VmOptions& options) {
  std::string job;
  if (!options.root.empty()) {
    job += exports();
    std::error_code error;
    const std::string here = std::filesystem::current_path(error).string();
    // In another tree the folder of this process may not exist.
    job += options.root == "/" && !error ? "cd " + shell_quoted(here) + "\n" : "cd /\n";
  }
  if (options.shell) {
    return job + shell_job();
  }
  for (const std::string& word : options.words) {
    job += shell_quoted(word) + " ";
  }
  return job;
}

// Our terminal passes every key on while this exists; the guest's own does what keys mean.
class RawTerminal {
 public:
  explicit RawTerminal(bool wanted) {
    if (wanted && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      ::cfmakeraw(&raw);
      changed_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    }
  }
  ~RawTerminal() {
    if (changed_) {
      ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    }
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios before_{};
  bool changed_ = false;
};

std::string directory_of(const std::string& network) {
  return network.find('/') == std::string::npos ? unwrap(launch::named_directory(network, false))
                                                : network;
}

}  // namespace

// In this order: what can fail for want of a program or a folder comes before what takes time (the
// image), and the network before the guest, because its answer says where the guest can be.
int run_vm(const VmOptions& options) {
  const bool is_self_test = options.words.empty() && !options.shell;
  if (const auto missing = missing_packages(is_self_test); !missing.empty()) {
    complain("weft softroce: packages are missing here: {}\n", remedy(missing));
    return kFailure;
  }
  if (!options.root.empty() && !std::filesystem::is_directory(options.root)) {
    complain("weft softroce: --root {}: there is no such folder\n", options.root);
    return kUsage;
  }
  const launch::Interruptible interruptible;
  const std::string image =
      unwrap(softroce::make_image(unwrap(softroce::cache_folder()), options.kernel));
  const auto folder = unwrap(launch::TemporaryDirectory::create());
  const launch::DeviceKind kind = unwrap(launch::parse_device_kind("rxe"));
  std::optional<launch::PrivateWeftd> own;
  std::string directory;
  if (options.network.empty()) {
    // A network of its own with one host, for the self-test or for a job that needs no peer.
    own.emplace(unwrap(launch::PrivateWeftd::start(
        {.hosts = 1,
         .mtu = launch::payload_of(kind),
         .routable = true,
         .ports = {"dgram:" + folder.path() + "/network.sock," + folder.path() + "/guest.sock"}})));
    directory = own->directory();
  } else {
    directory = directory_of(options.network);
  }
  const json status = unwrap(launch::ask_weftd(directory, {{"cmd", "status"}}))["status"];
  // It shows others, as a listening socket of this process would, that the guest's program listens.
  srd::UniqueFd sign;
  softroce::GuestOptions guest{
      .folder = folder.path(),
      .image = image,
      .place = unwrap(softroce::find_guest_place(status, options.host)),
      .root = options.root,
      .memory_mib = options.memory_mib,
      .outside = options.outside,
      .forwards = options.forwards,
      .capture = options.capture,
      .kvm = softroce::judge_kvm().usable,
      .job = job_of(options),
      .on_serving = [&] {
        sign = srd::UniqueFd(::memfd_create(devices::kListeningSign, MFD_CLOEXEC));
      }};
  guest.limit = std::chrono::seconds{options.timeout_s};
  std::optional<launch::Child> server;
  if (is_self_test) {
    guest.job = kSelfTest;
    const auto address = status["nics"][0]["address"].get<std::string>();
    guest.job.replace(guest.job.find('@'), 1, address);
    // The peer of the self-test is a program of this machine on our soft-RoCE device.
    server.emplace(unwrap(launch::Child::start(
        {.words = {"rping", "-s", "-P", "-a", address},
         .environment = unwrap(
             launch::equip_host(directory, status["nics"][0]["host"].get<std::string>(), kind))})));
  }
  const RawTerminal terminal(options.shell);
  return unwrap(softroce::run_guest(guest));
}

int run_host_helper(const std::string& action, const std::string& driver) {
  const std::string script = launch::companion("host.sh", "emu/softroce");
  const launch::Interruptible interruptible;
  // Killed, this program asks the script to end, by SIGTERM, which it clears up after.
  auto helper =
      unwrap(launch::Child::start({.words = {"sh", script, action, driver}, .death_signal = 15}));
  std::optional<int> code;
  while (!(code = helper.ended())) {
    launch::check_interrupt();
    ::usleep(5000);
  }
  return *code;
}

int show_softroce_status() {
  const std::string qemu = launch::find_program(softroce::kQemu);
  fmt::print("{:<12}{}\n", "QEMU", qemu.empty() ? "missing" : qemu);
  if (const auto missing = missing_packages(true); !missing.empty()) {
    fmt::print("{:<12}{}\n", "remedy", remedy(missing));
  }
  const softroce::KvmVerdict kvm = softroce::judge_kvm();
  fmt::print("{:<12}{}\n", "KVM", kvm.usable ? "used" : "not used: " + kvm.why);
  for (const char* program : {"apt-get", "dpkg-deb", "flock"}) {
    if (launch::find_program(program).empty()) {
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
  // The rest is needed for making images, or for speed.
  return qemu.empty() ? kFailure : kSuccess;
}

}  // namespace weft::cli
