// Owns furnishing the folder that containers mount.
#include "emu/launch/shared_folder.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

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

// The folder, or one in it, open. A process that may write into it from a container may replace
// what lies in it by links and other files, at any moment. So nothing in it is reached by a path:
// only by a name in an open folder, by calls that follow no link. What is long is made in weftd's
// directory, to which containers have no way, and moved.
class OpenFolder {
 public:
  [[nodiscard]] static Result<OpenFolder> at(const std::string& path) {
    return OpenFolder(path, ::open(path.c_str(), kFlags)).checked();
  }
  // A folder in this one, which is made if it is missing, and which everybody may read, whatever
  // the umask.
  [[nodiscard]] Result<OpenFolder> inner(const std::string& name) const {
    ::mkdirat(fd_.get(), name.c_str(), 0755);
    auto open = OpenFolder(path_ + "/" + name, ::openat(fd_.get(), name.c_str(), kFlags)).checked();
    if (open && ::fchmod(open->fd_.get(), 0755) != 0) {
      return open->failure("");
    }
    return open;
  }
  // Whether there is something of that name that is a folder, or a socket, ...: S_IFDIR, S_IFSOCK.
  [[nodiscard]] bool has(const std::string& name, mode_t type) const {
    struct stat status {};
    return ::fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           (status.st_mode & S_IFMT) == type;
  }
  // Moves a file or a folder of ours here, whole or not at all: programs may just be using what was
  // there before.
  [[nodiscard]] Result<void> take(const std::string& from, const std::string& name) const {
    if (::renameat(AT_FDCWD, from.c_str(), fd_.get(), name.c_str()) != 0) {
      return failure("/" + name);
    }
    return {};
  }
  // A link is only a name with a text: nothing in a container follows these.
  [[nodiscard]] Result<void> note(const std::string& name, const std::string& text) const {
    ::unlinkat(fd_.get(), name.c_str(), 0);
    if (::symlinkat(text.c_str(), fd_.get(), name.c_str()) != 0) {
      return failure("/" + name);
    }
    return {};
  }

 private:
  static constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

  OpenFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  [[nodiscard]] Result<OpenFolder> checked() && {
    return fd_ ? Result<OpenFolder>(std::move(*this)) : failure("");
  }
  [[nodiscard]] tl::unexpected<Error> failure(const std::string& below) const {
    return fail(ErrorCode::io_error, srd::errno_text("writing '" + path_ + below + "'"));
  }

  std::string path_;  // for messages only
  srd::UniqueFd fd_;
};

Result<void> copy_library(const std::string& directory, const OpenFolder& folder) {
  const std::string library = companion(kLibrary, "integration/preload");
  std::string draft = directory + "/library.XXXXXX";
  const srd::UniqueFd fd(::mkstemp(draft.data()));
  std::error_code error;
  fs::copy_file(library, draft, fs::copy_options::overwrite_existing, error);
  if (!error) {
    fs::permissions(draft, static_cast<fs::perms>(0755), error);
  }
  auto done = error ? Result<void>(fail(ErrorCode::io_error, "cannot copy '" + library + "' to '" +
                                                                 draft + "': " + error.message()))
                    : folder.take(draft, kLibrary);
  if (!done) {
    ::unlink(draft.c_str());
  }
  return done;
}

Environment container_environment(const std::string& host, const std::string& tree,
                                  const devices::Profile& kind) {
  const std::string mounted = kMountPoint;
  Environment environment{{"WEFT_SOCKET", mounted + "/attach.sock"},
                          {"WEFT_HOST", host},
                          {"WEFT_DEVICES", mounted + "/" + tree},
                          {"LD_PRELOAD", mounted + "/" + kLibrary}};
  for (const auto& variable : environment_of(kind)) {
    environment.push_back(variable);
  }
  return environment;
}

// The tree of these NICs of a host (none: all). Returns where it is in the folder.
Result<std::string> share_tree(const std::string& directory, const OpenFolder& trees,
                               const std::string& host, const devices::Profile& kind,
                               const std::vector<std::size_t>& numbers) {
  const auto of_host = trees.inner(host);
  if (!of_host) {
    return tl::unexpected(of_host.error());
  }
  return write_host_devices(
             directory, host, kind, numbers,
             [&](const std::string& name) { return of_host->has(name, S_IFDIR); },
             [&](const std::string& draft, const std::string& name) {
               auto taken = of_host->take(draft, name);
               // Another program may have been faster.
               return of_host->has(name, S_IFDIR) ? Result<void>{} : taken;
             })
      .map([&](const std::string& name) {
        return std::string(kDevicesFolder) + "/" + host + "/" + name;
      });
}

}  // namespace

std::string shared_folder(const std::string& directory) {
  return directory + "/" + attach::kShareFolder;
}

Result<std::vector<ContainerDevice>> furnish_shared_folder(const std::string& directory,
                                                           const devices::Profile& kind) {
  const auto folder = OpenFolder::at(shared_folder(directory));
  if (!folder || !folder->has("attach.sock", S_IFSOCK)) {
    return fail(ErrorCode::not_found, "'" + shared_folder(directory) +
                                          "' has no socket: the network was started by an older "
                                          "weft, or its weftd has ended (`weft up`)");
  }
  const auto hosts = hosts_of(directory);
  if (!hosts) {
    return tl::unexpected(hosts.error());
  }
  if (auto copied = copy_library(directory, *folder); !copied) {
    return tl::unexpected(copied.error());
  }
  const std::string kinds = std::string(kind.kind->kind());
  const auto any = folder->inner("any-" + kinds);
  const auto trees = folder->inner(kDevicesFolder);
  if (!any || !trees) {
    return tl::unexpected(any ? trees.error() : any.error());
  }
  std::vector<ContainerDevice> devices;
  auto noted = any->note("count", std::to_string(hosts->size()));
  for (std::size_t i = 0; i < hosts->size(); ++i) {
    const std::string& host = (*hosts)[i];
    const auto first = share_tree(directory, *trees, host, kind, {0});
    const auto all = first ? share_tree(directory, *trees, host, kind, {}) : first;
    if (!all) {
      return tl::unexpected(all.error());
    }
    devices.push_back({host, container_environment(host, *first, kind)});
    devices.push_back({host + "-all-rails", container_environment(host, *all, kind)});
    noted = noted ? any->note(std::to_string(i), *first) : noted;
    // Where it is known beforehand: what starts containers may write it down.
    noted = noted ? folder->note(kinds + "-" + host, *first) : noted;
  }
  if (!noted) {
    return tl::unexpected(noted.error());
  }
  devices.push_back({"any", container_environment("any", "any-" + kinds, kind)});
  return devices;
}

Result<ContainerDevice> share_nics(const std::string& directory, const devices::Profile& kind,
                                   const std::string& host,
                                   const std::vector<std::size_t>& numbers) {
  const auto folder = OpenFolder::at(shared_folder(directory));
  if (!folder) {
    return tl::unexpected(folder.error());
  }
  const auto trees = folder->inner(kDevicesFolder);
  if (!trees) {
    return tl::unexpected(trees.error());
  }
  return share_tree(directory, *trees, host, kind, numbers).map([&](const std::string& tree) {
    return ContainerDevice{host, container_environment(host, tree, kind)};
  });
}

}  // namespace weft::launch
