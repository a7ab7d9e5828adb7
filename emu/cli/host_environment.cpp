// Owns device trees and environments of emulated hosts.
#include "emu/cli/host_environment.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "emu/cli/weftd_process.hpp"
#include "emu/daemon/client.hpp"
#include "emu/daemon/plant.hpp"
#include "emu/kernel/nic_description.hpp"
#include "emu/kernel/sysfs.hpp"
#include "emu/profiles/profiles.hpp"

namespace weft::cli {
namespace {

Result<std::vector<srd::Address>> nics_of(const std::string& directory, const std::string& host) {
  return emu::describe_host({.socket = directory + "/attach.sock", .host = host});
}

std::string device_name(const DeviceKind& kind, std::size_t nic) {
  return kind.emulated ? "efa_" + std::to_string(nic) : "";
}

Result<void> write_devices(const std::string& root, const std::vector<srd::Address>& addresses,
                           const DeviceKind& kind) {
  std::error_code error;
  std::filesystem::create_directories(root, error);
  std::vector<emu::kernel::NicDescription> nics;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    emu::kernel::NicDescription nic = kind.profile;
    nic.name = device_name(kind, i);
    nic.index = static_cast<std::uint32_t>(i);
    nic.address = emu::to_text(addresses[i]);
    nics.push_back(nic);
  }
  return emu::kernel::write_device_tree(root, nics);
}

}  // namespace

Result<DeviceKind> parse_device_kind(const std::string& name) {
  if (name == "none") {
    return DeviceKind{};
  }
  const std::size_t colon = name.find(':');
  if (name.substr(0, colon) != "efa") {
    return fail(ErrorCode::invalid_argument,
                "there is no device '" + name + "'; known are: efa, efa:PROFILE, none");
  }
  auto profile =
      emu::load_profile(colon == std::string::npos ? emu::kDefaultProfile : name.substr(colon + 1));
  if (!profile) {
    return tl::unexpected(profile.error());
  }
  return DeviceKind{.emulated = true, .profile = *profile};
}

std::size_t payload_of(const DeviceKind& kind) { return kind.emulated ? kind.profile.mtu : 0; }

Result<Environment> equip_host(const std::string& directory, const std::string& host,
                               const DeviceKind& kind) {
  Environment environment{{"WEFT_SOCKET", directory + "/attach.sock"}, {"WEFT_HOST", host}};
  if (!kind.emulated) {
    return environment;
  }
  const std::string library = companion("libweft-preload.so", "integration/preload");
  if (!std::filesystem::exists(library)) {
    return fail(ErrorCode::not_found,
                "'" + library + "' is missing: emulated devices need it (libibverbs-dev, rebuild)");
  }
  const auto addresses = nics_of(directory, host);
  if (!addresses) {
    return tl::unexpected(addresses.error());
  }
  const std::string root = directory + "/devices/" + host;
  if (!std::filesystem::exists(root)) {
    // Several programs may come to a host at once: it appears whole, or not at all.
    const std::string draft = root + ".draft" + std::to_string(::getpid());
    if (auto written = write_devices(draft, *addresses, kind); !written) {
      return tl::unexpected(written.error());
    }
    std::error_code somebody_was_faster;
    std::filesystem::rename(draft, root, somebody_was_faster);
    if (somebody_was_faster) {
      std::filesystem::remove_all(draft, somebody_was_faster);
    }
  }
  environment.emplace_back("WEFT_DEVICES", root);
  const char* before = ::getenv("LD_PRELOAD");
  environment.emplace_back("LD_PRELOAD",
                           before != nullptr && *before != '\0' ? library + ":" + before : library);
  // A program with gcc's shared sanitizer refuses to start behind any other preloaded library.
  constexpr const char* kOrder = "verify_asan_link_order";
  const char* sanitizer = ::getenv("ASAN_OPTIONS");
  const std::string options = sanitizer == nullptr ? "" : sanitizer;
  if (options.find(kOrder) == std::string::npos) {
    environment.emplace_back("ASAN_OPTIONS",
                             (options.empty() ? "" : options + ":") + std::string(kOrder) + "=0");
  }
  for (const auto& [name, value] : emu::efa_environment()) {
    if (::getenv(name.c_str()) == nullptr) {
      environment.emplace_back(name, value);
    }
  }
  return environment;
}

Result<std::string> fill_placeholders(const std::string& directory, const std::string& word,
                                      const DeviceKind& kind) {
  std::string filled;
  std::size_t at = 0;
  for (std::size_t open; (open = word.find('{', at)) != std::string::npos;) {
    const std::size_t close = word.find('}', open);
    const std::size_t dot = word.find('.', open);
    if (close == std::string::npos || dot == std::string::npos || dot > close) {
      break;
    }
    const std::string host = word.substr(open + 1, dot - open - 1);
    const std::string what = word.substr(dot + 1, close - dot - 1);
    filled += word.substr(at, open - at);
    at = close + 1;
    if (what != "ip" && what != "dev" && what != "gid") {
      filled += word.substr(open, at - open);
      continue;
    }
    const auto addresses = nics_of(directory, host);
    if (!addresses) {
      return tl::unexpected(addresses.error());
    }
    filled += what == "dev"  ? device_name(kind, 0)
              : what == "ip" ? emu::to_text(addresses->front())
                             : emu::to_text(emu::kernel::gid_of(addresses->front()));
  }
  return filled + word.substr(at);
}

}  // namespace weft::cli
