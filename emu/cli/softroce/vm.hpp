// Owns a command in a virtual machine whose kernel has Linux's own soft-RoCE, on a network of
// weft's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::cli {

struct VmOptions {
  std::string network;  // a name, or a weftd's directory; "": one of its own
  std::string host;
  std::string kernel = "default";
  std::string root;  // whose files the guest sees; "": those of the image
  std::size_t memory_mib = 384;
  bool outside = false;
  std::vector<std::uint16_t> forwards;
  std::string capture;  // file; "": none
  std::size_t timeout_s = 0;
  bool shell = false;              // on our terminal, instead of a command
  std::vector<std::string> words;  // the command; none: a self-test
};

// Returns the exit code of the command.
[[nodiscard]] int run_vm(const VmOptions& options);

// The same on this machine, whatever it has of soft-RoCE: `action` is up, down or status.
[[nodiscard]] int run_host_helper(const std::string& action, const std::string& driver);

// For people: what is there, and what is missing.
[[nodiscard]] int show_softroce_status();

}  // namespace weft::cli
