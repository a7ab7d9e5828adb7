// Owns device trees and environments of emulated hosts.
//
// A tree holds emulated versions of those parts of /sys and /dev that verbs libraries read;
// libweft-preload.so redirects a program's calls there. Its folder is named after a hash of its
// content, so that programs with different devices on one host do not overwrite each other's tree.
#include "emu/launch/host_environment.hpp"

#include <fmt/core.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "emu/attach/client.hpp"
#include "emu/attach/protocol.hpp"
#include "emu/devices/device_tree.hpp"
#include "emu/devices/registry.hpp"
#include "emu/kernel/nic_description.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/address_text.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNotedDevice = "device";
constexpr const char* kNotedNames = "device-names";

// Asks weftd, which must be running.
Result<std::vector<srd::Address>> nics_of(const std::string& directory, const std::string& host) {
  return attach::describe_host({.socket = directory + "/attach.sock", .host = host});
}

// What the tree says of each NIC, and what the preload library reads back from it.
Result<std::vector<kernel::NicDescription>> describe_nics(
    const std::vector<srd::Address>& addresses, const std::vector<std::size_t>& numbers,
    const devices::Profile& profile) {
  std::vector<kernel::NicDescription> nics;
  for (const std::size_t i : numbers) {
    const auto name = profile.device_name(i);
    if (!name) {
      return tl::unexpected(name.error());
    }
    kernel::NicDescription nic;
    const devices::Profile& own = profile.of_nic(i);
    nic.kind = own.kind->kind();
    nic.profile = own.name;
    nic.abilities = own.abilities;
    nic.name = *name;
    nic.index = static_cast<std::uint32_t>(i);
    nic.address = srd::to_text(addresses[i]);
    nics.push_back(nic);
  }
  return nics;
}

// The name of a tree, by its content: 64 bits of FNV-1a. Equal trees share a folder.
std::string fingerprint(const std::vector<kernel::NicDescription>& nics) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const kernel::NicDescription& nic : nics) {
    for (const char c : kernel::to_text(nic)) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    }
  }
  return fmt::format("{:016x}", hash);
}

// Moves a tree to `root`, whole or not at all: several programs may start on a host at once.
Result<void> rename_tree(const std::string& draft, const std::string& root) {
  std::error_code error;
  fs::create_directories(fs::path(root).parent_path(), error);
  fs::rename(draft, root, error);
  std::error_code none;
  if (error && !fs::exists(root, none)) {  // else another program was faster
    return fail(ErrorCode::io_error, "cannot rename '" + draft + "': " + error.message());
  }
  return {};
}

// Without an emulated device, too: programs that use the transport library exchange GIDs as well.
srd::Address gid_of(const DeviceKind& kind, const srd::Address& address) {
  return (kind ? *kind->kind : *devices::all_kinds().front()).gid(address);
}

// Names that can only be meant as hosts: an unknown one is an error, while other words in braces
// are passed on.
bool looks_like_a_host(const std::string& name) {
  return name.size() > 1 && name.front() == 'h' &&
         name.find_first_not_of("0123456789", 1) == std::string::npos;
}

// The words between commas.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

// One of a list: "KIND" or "KIND:PROFILE".
Result<devices::Profile> parse_profile_name(const std::string& name) {
  const std::size_t colon = name.find(':');
  const auto* const kind = devices::find_kind(name.substr(0, colon));
  if (kind == nullptr) {
    return fail(ErrorCode::invalid_argument,
                "there is no device '" + name + "'; known are: " + known_devices());
  }
  return devices::load_profile(*kind, colon == std::string::npos
                                          ? std::string(kind->default_profile())
                                          : name.substr(colon + 1));
}

}  // namespace

std::string known_devices() {
  std::string text;
  for (const auto* const kind : devices::all_kinds()) {
    text += fmt::format("{0}, {0}:PROFILE, ", kind->kind());
  }
  return text + "or none";
}

std::string default_device() { return std::string(devices::default_kind().kind()); }

// A profile's file is named by a path of the directory that the command was given in.
Result<void> note_device(const std::string& directory, const std::string& name,
                         const std::string& names) {
  std::string whole;
  for (const std::string& one : split_list(name)) {
    const std::size_t colon = one.find(':');
    const bool is_file = colon != std::string::npos && one.ends_with(".yaml");
    whole += whole.empty() ? "" : ",";
    whole +=
        is_file ? one.substr(0, colon + 1) + fs::absolute(one.substr(colon + 1)).string() : one;
  }
  for (const auto& [where, text] :
       {std::pair<const char*, const std::string*>{kNotedDevice, &whole}, {kNotedNames, &names}}) {
    std::ofstream file(directory + "/" + where, std::ios::trunc);
    if (!(file << *text << std::flush)) {
      return fail(ErrorCode::io_error, "cannot write '" + directory + "/" + where + "'");
    }
  }
  return {};
}

Result<DeviceKind> device_of_network(const std::string& directory, const std::string& name,
                                     const std::string& names) {
  const auto noted = [&](const char* what) {
    std::string text;
    std::getline(std::ifstream(directory + "/" + what), text, '\0');
    return text;
  };
  // Other devices than the network was made for are called as their kind says.
  const std::string device = name.empty() ? noted(kNotedDevice) : name;
  return parse_device_kind(device.empty() ? default_device() : device,
                           names.empty() && name.empty() ? noted(kNotedNames) : names);
}

Result<DeviceKind> parse_device_kind(const std::string& name, const std::string& names) {
  if (name == "none") {
    return names.empty() ? Result<DeviceKind>(DeviceKind{})
                         : fail(ErrorCode::invalid_argument,
                                "'" + names + "' names no devices: there are none");
  }
  DeviceKind all;
  for (const std::string& one : split_list(name)) {
    auto profile = parse_profile_name(one);
    if (!profile) {
      return tl::unexpected(profile.error());
    }
    if (!all) {
      all = std::move(*profile);
    } else {
      all->others.push_back(std::move(*profile));
    }
  }
  if (!names.empty()) {
    auto read = devices::DeviceNames::parse(names);
    if (!read) {
      return tl::unexpected(read.error());
    }
    all->names = std::move(*read);
  }
  return all;
}

std::size_t least_nics(const DeviceKind& kind) { return kind ? kind->others.size() + 1 : 1; }

Environment environment_of(const devices::Profile& kind) {
  Environment environment;
  for (std::size_t i = 0; i <= kind.others.size(); ++i) {
    for (const auto& variable : kind.of_nic(i).kind->environment()) {
      if (std::ranges::find(environment, variable) == environment.end()) {
        environment.push_back(variable);
      }
    }
  }
  return environment;
}

// In LD_PRELOAD, a space or a colon ends a library's name. For a path with one of these, a link in
// the network's directory is used instead.
Result<std::string> without_separators(const std::string& library, const std::string& directory) {
  constexpr const char* kSeparators = " :";
  if (library.find_first_of(kSeparators) == std::string::npos) {
    return library;
  }
  const std::string link = directory + "/" + fs::path(library).filename().string();
  std::error_code error;
  if (link.find_first_of(kSeparators) == std::string::npos) {
    fs::create_symlink(library, link, error);
    if (!error || fs::read_symlink(link, error) == library) {
      return link;
    }
  }
  return fail(ErrorCode::invalid_argument,
              "programs cannot be given '" + library + "': its path has a space or a colon, and '" +
                  link + "' cannot stand for it; install weft elsewhere, or use --device none");
}

std::size_t payload_of(const DeviceKind& kind) {
  std::size_t most = kind ? attach::kLeastPayload : 0;
  for (std::size_t i = 0; i < least_nics(kind) && kind; ++i) {
    const devices::Profile& one = kind->of_nic(i);
    most = std::max(most, one.kind->largest_send(one.abilities));
  }
  return most;
}

std::vector<std::string> kinds_of_devices() {
  std::vector<std::string> kinds;
  for (const auto* const kind : devices::all_kinds()) {
    kinds.emplace_back(kind->kind());
  }
  return kinds;
}

Result<std::string> write_host_devices(const std::string& directory, const std::string& host,
                                       const devices::Profile& kind,
                                       const std::vector<std::size_t>& numbers,
                                       const std::function<bool(const std::string& name)>& is_there,
                                       const PlaceTree& place) {
  auto addresses = nics_of(directory, host);
  if (!addresses) {
    return tl::unexpected(addresses.error());
  }
  std::vector<std::size_t> all(addresses->size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (const std::size_t number : numbers) {
    if (number >= addresses->size()) {
      return fail(ErrorCode::not_found,
                  fmt::format("host '{}' has no NIC {}; its {} are counted from 0", host, number,
                              addresses->size()));
    }
  }
  if (kind.others.size() >= addresses->size()) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("host '{}' has {} NICs, and there are {} kinds of devices: each takes one",
                    host, addresses->size(), kind.others.size() + 1));
  }
  const auto nics = describe_nics(*addresses, numbers.empty() ? all : numbers, kind);
  if (!nics) {
    return tl::unexpected(nics.error());
  }
  std::string name = fingerprint(*nics);
  if (is_there(name)) {
    return name;
  }
  std::string draft = directory + "/tree.XXXXXX";
  if (::mkdtemp(draft.data()) == nullptr) {
    return fail(ErrorCode::io_error, srd::errno_text("making directory '" + draft + "'"));
  }
  auto done = devices::write_device_tree(draft, *kind.kind, *nics);
  if (done) {
    done = place(draft, name);
  }
  std::error_code error;
  fs::remove_all(draft, error);  // where it has not been moved
  return done ? Result<std::string>(std::move(name)) : tl::unexpected(done.error());
}

Result<Environment> equip_host(const std::string& directory, const std::string& host,
                               const DeviceKind& kind) {
  Environment environment{{"WEFT_SOCKET", directory + "/attach.sock"}, {"WEFT_HOST", host}};
  // Without devices nothing is preloaded: the program attaches by itself.
  if (!kind) {
    return environment;
  }
  const std::string library = companion("libweft-preload.so", "integration/preload");
  if (!fs::exists(library)) {
    return fail(ErrorCode::not_found,
                "'" + library + "' is missing: emulated devices need it (libibverbs-dev, rebuild)");
  }
  const std::string trees = directory + "/" + kDevicesFolder + "/" + host + "/";
  std::error_code error;
  const auto tree = write_host_devices(
      directory, host, *kind, {},
      [&](const std::string& name) { return fs::exists(trees + name, error); },
      [&](const std::string& draft, const std::string& name) {
        return rename_tree(draft, trees + name);
      });
  if (!tree) {
    return tl::unexpected(tree.error());
  }
  const std::string root = trees + *tree;
  // Canonical: the kernel reports paths without links, and the preload library compares them with
  // this one to hide it.
  const auto real = fs::canonical(root, error);
  environment.emplace_back("WEFT_DEVICES", error ? root : real.string());
  const auto preloadable = without_separators(library, directory);
  if (!preloadable) {
    return tl::unexpected(preloadable.error());
  }
  const char* before = ::getenv("LD_PRELOAD");
  environment.emplace_back("LD_PRELOAD", before != nullptr && *before != '\0'
                                             ? *preloadable + ":" + before
                                             : *preloadable);
  // A program with gcc's shared sanitizer refuses to start behind any other preloaded library.
  constexpr const char* kOrder = "verify_asan_link_order";
  const char* sanitizer = ::getenv("ASAN_OPTIONS");
  const std::string options = sanitizer == nullptr ? "" : sanitizer;
  if (options.find(kOrder) == std::string::npos) {
    environment.emplace_back("ASAN_OPTIONS",
                             (options.empty() ? "" : options + ":") + std::string(kOrder) + "=0");
  }
  // Only defaults: what the user has set stays.
  for (const auto& [name, value] : environment_of(*kind)) {
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
    filled += word.substr(at, open - at);
    at = open;
    const std::size_t close = word.find_first_of("{}", open + 1);
    const std::string inside = word.substr(open + 1, close - open - 1);
    const std::size_t dot = inside.rfind('.');
    const std::string host = inside.substr(0, dot);
    const std::string what = dot == std::string::npos ? "" : inside.substr(dot + 1);
    if (close == std::string::npos || word[close] != '}' || host.empty() ||
        (what != "ip" && what != "ip6" && what != "dev" && what != "gid")) {
      filled += word[at++];  // a brace of the program's own
      continue;
    }
    const auto addresses = nics_of(directory, host);
    if (!addresses) {
      if (looks_like_a_host(host)) {
        return tl::unexpected(addresses.error());
      }
      filled += word[at++];
      continue;
    }
    if (what == "ip6") {
      const srd::Address address =
          kind ? kind->kind->addresses(addresses->front()).back() : addresses->front();
      if (address.is_v4()) {
        return fail(ErrorCode::invalid_argument,
                    "{" + inside + "}: devices of this kind have no IPv6 address; rxe has");
      }
      filled += srd::to_text(address);
    } else if (what == "dev") {
      const auto name = kind ? kind->device_name(0) : "";
      if (!name) {
        return tl::unexpected(name.error());
      }
      filled += *name;
    } else {
      filled += srd::to_text(what == "ip" ? addresses->front() : gid_of(kind, addresses->front()));
    }
    at = close + 1;
  }
  return filled + word.substr(at);
}

}  // namespace weft::launch
