// Owns a second name of a socket.
#include "emu/daemon/shared_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "emu/attach/peer.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {
namespace {

constexpr mode_t kFolderMode = 0755;
constexpr mode_t kSocketMode = 0666;

Result<void> failure(const std::string& path) {
  return fail(ErrorCode::io_error, srd::errno_text("'" + path + "'"));
}

}  // namespace

Result<void> share_socket(const std::string& directory) {
  const std::string folder = directory + "/" + attach::kShareFolder;
  const std::string shown = folder + "/attach.sock";
  const std::string draft = shown + ".new";
  ::mkdir(folder.c_str(), kFolderMode);
  if (::chmod(folder.c_str(), kFolderMode) != 0) {  // whatever the umask
    return failure(folder);
  }
  // A link to the file, not to its path, which leads nowhere in a container. Renamed into its
  // place, where that of an earlier weftd may be.
  ::unlink(draft.c_str());
  if (::link((directory + "/attach.sock").c_str(), draft.c_str()) != 0 ||
      ::rename(draft.c_str(), shown.c_str()) != 0) {
    return failure(shown);
  }
  return {};
}

Result<void> open_socket_to_all(const std::string& directory) {
  const std::string socket = directory + "/attach.sock";
  return ::chmod(socket.c_str(), kSocketMode) == 0 ? Result<void>{} : failure(socket);
}

}  // namespace weft::daemon
