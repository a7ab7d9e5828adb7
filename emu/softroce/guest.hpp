// Owns a virtual machine with soft-RoCE: how QEMU is told of it, one command in it, and its end.
//
// One guest runs one job and ends. It boots from an image that it cannot change (image.hpp), finds
// its job and its network in files of `folder`, which QEMU shows it as fw_cfg, and joins weftd's
// network by datagrams, a frame each (guest_place.hpp). init.sh is its first process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "emu/softroce/guest_place.hpp"
#include "srd/base/result.hpp"

namespace weft::softroce {

struct GuestOptions {
  std::string folder;  // of ours, for the files that QEMU reads and writes
  std::string image;   // folder with `kernel` and `initrd`
  GuestPlace place;
  // A folder of this machine's whose files the guest sees as its own; "": those of the image. What
  // the job writes stays in the guest's memory.
  std::string root{};
  std::size_t memory_mib = 384;
  // A second NIC: 10.0.2.2 is this machine's loopback. Connections to these ports of this machine's
  // loopback go to the same ports of the guest.
  bool outside = false;
  std::vector<std::uint16_t> forwards{};
  std::string
      capture{};  // a file for all that passes the guest's NIC on the fabric, as pcap; or ""
  bool kvm = false;
  std::string job;  // a script for the guest's shell
  // Called once, when a program in the guest listens on a TCP socket or a port of rdma_cm.
  std::function<void()> on_serving{};
  std::chrono::seconds boot_limit{240};
  std::chrono::seconds limit{0};  // of everything; 0: none
};

// Descriptors that QEMU is to have open: the job's output and errors, and `control`, on which
// init.sh writes "up", "serving" and at last the exit code, a line each.
struct GuestStreams {
  int out = -1;
  int errors = -1;
  int control = -1;
};

// QEMU's command line.
[[nodiscard]] std::vector<std::string> qemu_words(const GuestOptions& options,
                                                  const GuestStreams& streams);

// Runs the job in a guest of its own, with our standard streams, and returns its exit code. A job
// that reads gets our standard input.
[[nodiscard]] Result<int> run_guest(const GuestOptions& options);

// Whether KVM would run the guest faster than QEMU does by itself; if not, why. `root` is "" except
// in tests. It is not enough that /dev/kvm opens: below a hypervisor of the PVM kind guests start
// and then crawl.
struct KvmVerdict {
  bool usable = false;
  std::string why{};
};
[[nodiscard]] KvmVerdict judge_kvm(const std::string& root = "");

inline constexpr const char* kQemu = "qemu-system-x86_64";

}  // namespace weft::softroce
