// Owns what QEMU is told, and whether KVM helps.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "emu/softroce/guest.hpp"
#include "srd/net/envelope.hpp"

namespace weft::softroce {
namespace {

// In QEMU's options a comma begins the next field; two commas stand for one of the text.
std::string with_doubled_commas(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == ',') {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::vector<std::string> qemu_words(const GuestOptions& options, const GuestStreams& streams) {
  const auto mac = srd::net::mac_of(options.place.address);
  std::vector<int> octets;
  for (const std::byte b : mac) {
    octets.push_back(std::to_integer<int>(b));
  }
  const std::string folder = with_doubled_commas(options.folder);
  std::vector<std::string> words{
      kQemu, "-machine", options.kvm ? "q35,accel=kvm" : "q35,accel=tcg", "-cpu",
      options.kvm ? "host" : "max", "-smp", "1", "-m", std::to_string(options.memory_mib),
      "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
      // The kernel, its first process, and what that is to do
      "-kernel", options.image + "/kernel", "-initrd", options.image + "/initrd", "-append",
      "console=ttyS0 quiet panic=-1 no_timer_check", "-fw_cfg",
      fmt::format("name=opt/weft/job,file={}/job", folder), "-fw_cfg",
      fmt::format("name=opt/weft/addresses,file={}/addresses", folder), "-fw_cfg",
      fmt::format("name=opt/weft/mac,string={:02x}", fmt::join(octets, ":")),
      // Streams
      // The job's streams are not the console's: the kernel writes there, and its lines would be
      // mixed with the job's output.
      "-serial", fmt::format("file:{}/console.log", folder), "-device", "virtio-serial-pci",
      "-chardev", "stdio,id=in,signal=off", "-device", "virtserialport,chardev=in,name=weft.in"};
  for (const auto& [name, fd] : {std::pair("out", streams.out), std::pair("errors", streams.errors),
                                 std::pair("control", streams.control)}) {
    words.insert(words.end(),
                 {"-chardev", fmt::format("file,id={},path=/dev/fd/{}", name, fd), "-device",
                  fmt::format("virtserialport,chardev={0},name=weft.{0}", name)});
  }
  words.insert(words.end(),
               {"-netdev",
                fmt::format("dgram,id=fabric,local.type=unix,local.path={},remote.type=unix,"
                            "remote.path={}",
                            with_doubled_commas(options.place.own_socket),
                            with_doubled_commas(options.place.network_socket)),
                "-device",
                fmt::format("virtio-net-pci,netdev=fabric,mac={:02x},host_mtu={},romfile=",
                            fmt::join(octets, ":"), options.place.mtu)});
  if (!options.capture.empty()) {
    words.insert(words.end(),
                 {"-object", fmt::format("filter-dump,id=dump,netdev=fabric,file={},maxlen=65536",
                                         with_doubled_commas(options.capture))});
  }
  if (!options.root.empty()) {
    words.insert(words.end(), {"-fw_cfg", "name=opt/weft/root,string=9p", "-fsdev",
                               fmt::format("local,id=root,path={},security_model=none,readonly=on,"
                                           "multidevs=remap",
                                           with_doubled_commas(options.root)),
                               "-device", "virtio-9p-pci,fsdev=root,mount_tag=root"});
  }
  // A NIC of its own, so that what goes to this machine never passes the network under test.
  if (options.outside || !options.forwards.empty()) {
    std::string user = "user,id=outside";
    for (const std::uint16_t port : options.forwards) {
      user += fmt::format(",hostfwd=tcp:127.0.0.1:{0}-:{0}", port);
    }
    words.insert(words.end(), {"-netdev", user, "-device",
                               "virtio-net-pci,netdev=outside,mac=52:54:00:77:65:66,romfile="});
  }
  return words;
}

// The cheapest question first that can be answered without starting a guest. A wrong "usable" costs
// minutes, a wrong "not usable" only speed.
KvmVerdict judge_kvm(const std::string& root) {
  if (::access((root + "/sys/module/kvm_pvm").c_str(), F_OK) == 0) {
    return {.why = "this machine's KVM is of the PVM kind, in which Debian's kernels crawl"};
  }
  std::ifstream cpuinfo(root + "/proc/cpuinfo");
  bool capable = false;
  for (std::string line; !capable && std::getline(cpuinfo, line);) {
    std::istringstream words(line.starts_with("flags") ? line : "");
    for (std::string word; words >> word;) {
      capable = capable || word == "vmx" || word == "svm";
    }
  }
  if (!capable) {
    return {.why = "this processor has no virtualization, or hides it"};
  }
  if (::access((root + "/dev/kvm").c_str(), R_OK | W_OK) != 0) {
    return {.why = "/dev/kvm is not there, or not for this user"};
  }
  return {.usable = true, .why = {}};
}

}  // namespace weft::softroce
