// Owns a second name of a socket.
#include "emu/daemon/shared_folder.hpp"

#include <fcntl.h>
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

// A process that may write into the folder from a container may put links and other files of any
// name there, at any moment. So the draft is made where no container can reach it, and moved into
// the open folder: rename() follows no link.
Result<void> share_socket(const std::string& directory) {
  const std::string folder = directory + "/" + attach::kShareFolder;
  ::mkdir(folder.c_str(), kFolderMode);
  const srd::UniqueFd open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!open || ::fchmod(open.get(), kFolderMode) != 0) {  // whatever the umask
    return failure(folder);
  }
  // A link to the file, not to its path, which leads nowhere in a container. It takes the place of
  // that of an earlier weftd.
  const std::string draft = directory + "/attach.sock.shared";
  ::unlink(draft.c_str());
  if (::link((directory + "/attach.sock").c_str(), draft.c_str()) != 0 ||
      ::renameat(AT_FDCWD, draft.c_str(), open.get(), "attach.sock") != 0) {
    auto failed = failure(folder + "/attach.sock");
    ::unlink(draft.c_str());
    return failed;
  }
  return {};
}

Result<void> open_socket_to_all(const std::string& directory) {
  const std::string socket = directory + "/attach.sock";
  return ::chmod(socket.c_str(), kSocketMode) == 0 ? Result<void>{} : failure(socket);
}

}  // namespace weft::daemon
