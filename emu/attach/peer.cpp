// Owns asking the kernel for the process at the other end of a socket.
#include "emu/attach/peer.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "emu/attach/seqpacket.hpp"

namespace weft::attach {

srd::UniqueFd peer_pidfd(int socket) {
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, which the headers may not have
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) {
    return srd::UniqueFd(fd);
  }
  return srd::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer_process(socket), 0)));
}

}  // namespace weft::attach
