// Owns finding and loading the module that links DPDK.
#include "srd/io/dpdk_port.hpp"

#include <dlfcn.h>

#include <array>
#include <filesystem>

namespace weft::srd {
namespace {

constexpr const char* kModule = "libweft-dpdk.so";

// Looks beside the program, in its lib folder, and upwards through the build tree it may lie in.
std::string find_module() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error);
  for (int level = 0; level < 6 && folder.has_relative_path(); ++level) {
    folder = folder.parent_path();
    for (const char* place : {"", "lib/weft", "srd/io"}) {
      const auto candidate = folder / place / kModule;
      if (std::filesystem::exists(candidate, error)) {
        return candidate;
      }
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<FrameIo>> open_dpdk_port(const DpdkConfig& config) {
  static OpenDpdkPort open = nullptr;
  if (open == nullptr) {
    const std::string path = find_module();
    if (path.empty()) {
      return fail(ErrorCode::not_found,
                  std::string("'") + kModule + "' is missing: install libdpdk-dev and rebuild");
    }
    void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // DPDK loads its own plugins
    if (module == nullptr) {
      return fail(ErrorCode::io_error, std::string("DPDK: ") + ::dlerror());
    }
    open = reinterpret_cast<OpenDpdkPort>(::dlsym(module, kDpdkEntry));
    if (open == nullptr) {
      return fail(ErrorCode::io_error, "'" + path + "' is of another version");
    }
  }
  std::string why;
  std::unique_ptr<FrameIo> port(open(config, why));
  if (port == nullptr) {
    return fail(ErrorCode::io_error, why);
  }
  return port;
}

}  // namespace weft::srd
