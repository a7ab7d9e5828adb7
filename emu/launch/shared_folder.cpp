// Owns furnishing the folder that containers mount.
#include "emu/launch/shared_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "emu/attach/peer.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libweft-preload.so";

Result<std::vector<std::string>> hosts_of(const std::string& directory) {
  const auto status = ask_weftd(directory, {{"cmd", "status"}});
  if (!status) {
    return tl::unexpected(status.error());
  }
  std::vector<std::string> hosts;
  for (const auto& nic : (*status)["status"]["nics"]) {
    if (nic["nic"] == 0) {
      hosts.push_back(nic["host"].get<std::string>());
    }
  }
  return hosts;
}

// Whole or not at all: programs may just be loading the file that was there before.
Result<void> copy_library(const std::string& folder) {
  const std::string library = companion(kLibrary, "integration/preload");
  const std::string to = folder + "/" + kLibrary;
  const std::string draft = to + ".new";
  std::error_code error;
  fs::copy_file(library, draft, fs::copy_options::overwrite_existing, error);
  if (!error) {
    fs::permissions(draft, static_cast<fs::perms>(0755), error);
  }
  if (!error) {
    fs::rename(draft, to, error);
  }
  return error ? Result<void>(fail(ErrorCode::io_error, "cannot copy '" + library + "' to '" + to +
                                                            "': " + error.message()))
               : Result<void>{};
}

// A folder that everybody may read, whatever the umask.
bool make_open(const std::string& folder) {
  ::mkdir(folder.c_str(), 0755);
  return ::chmod(folder.c_str(), 0755) == 0;
}

// A link is only a name with a text: nothing in a container follows these.
bool note(const std::string& link, const std::string& text) {
  ::unlink(link.c_str());
  return ::symlink(text.c_str(), link.c_str()) == 0;
}

Environment environment_of(const std::string& host, const std::string& tree,
                           const devices::Profile& kind) {
  const std::string mounted = kMountPoint;
  Environment environment{{"WEFT_SOCKET", mounted + "/attach.sock"},
                          {"WEFT_HOST", host},
                          {"WEFT_DEVICES", mounted + "/" + tree},
                          {"LD_PRELOAD", mounted + "/" + kLibrary}};
  for (const auto& variable : kind.kind->environment()) {
    environment.push_back(variable);
  }
  return environment;
}

}  // namespace

std::string shared_folder(const std::string& directory) {
  return directory + "/" + attach::kShareFolder;
}

Result<std::vector<ContainerDevice>> furnish_shared_folder(const std::string& directory,
                                                           const devices::Profile& kind) {
  const std::string folder = shared_folder(directory);
  if (::access((folder + "/attach.sock").c_str(), F_OK) != 0) {
    return fail(ErrorCode::not_found, "'" + folder +
                                          "' has no socket: the network was started by an older "
                                          "weft, or its weftd has ended (`weft up`)");
  }
  const auto hosts = hosts_of(directory);
  if (!hosts) {
    return tl::unexpected(hosts.error());
  }
  if (auto copied = copy_library(folder); !copied) {
    return tl::unexpected(copied.error());
  }
  const std::string trees_at = folder + "/" + kDevicesFolder;
  const std::string kinds = std::string(kind.kind->kind());
  const std::string any = folder + "/any-" + kinds;
  bool noted = make_open(any) && make_open(trees_at);
  std::vector<ContainerDevice> devices;
  for (std::size_t i = 0; i < hosts->size(); ++i) {
    const std::string& host = (*hosts)[i];
    noted = noted && make_open(trees_at + "/" + host);
    std::string trees[2];
    for (const bool all_rails : {false, true}) {
      const auto tree = write_host_devices(directory, folder, host, kind, all_rails ? 0 : 1);
      if (!tree) {
        return tl::unexpected(tree.error());
      }
      trees[all_rails ? 1 : 0] = tree->substr(folder.size() + 1);
    }
    devices.push_back({host, environment_of(host, trees[0], kind)});
    devices.push_back({host + "-all-rails", environment_of(host, trees[1], kind)});
    noted = noted && note(any + "/" + std::to_string(i), trees[0]);
  }
  noted = noted && note(any + "/count", std::to_string(hosts->size()));
  if (!noted) {
    return fail(ErrorCode::io_error, srd::errno_text("writing '" + any + "'"));
  }
  devices.push_back({"any", environment_of("any", "any-" + kinds, kind)});
  return devices;
}

}  // namespace weft::launch
