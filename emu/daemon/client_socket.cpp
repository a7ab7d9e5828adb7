// Owns peeking at the next message of a connection before it is received.
#include "emu/daemon/client_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "emu/attach/seqpacket.hpp"

namespace weft::daemon {
namespace {

// What a peek saw: the size as recvmsg() returns it, whether a sender was named, and whether
// descriptors come with it.
struct Look {
  ssize_t size = 0;
  bool names_sender = false;
  bool descriptors = false;
};

// Peeks at the next message. Each carries its sender's credentials (SO_PASSCRED), for which there
// is room; so if the control data are cut (MSG_CTRUNC), the message carries descriptors as well. A
// peek leaves them in the socket.
Look look(int socket, std::span<std::byte> to) {
  iovec piece{to.data(), to.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  Look look;
  look.size = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  if (look.size < 0 && errno == ECONNRESET) {
    // Reported once, if the peer closed without reading our last message; its own come after that.
    message.msg_controllen = control.size();
    look.size = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  }
  look.names_sender = look.size >= 0 && message.msg_controllen != 0;
  look.descriptors = look.size >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
  return look;
}

int option(int socket, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

// On a SEQPACKET socket an empty message reads like the end of the connection, but only a message
// has a sender.
bool holds_messages(int socket) {
  std::byte first;
  const Look next = look(socket, {&first, 1});
  return next.size > 0 || (next.names_sender && option(socket, SO_TYPE) == SOCK_SEQPACKET);
}

// Receives whatever is left, and closes the descriptors. May block: for side threads.
void empty(int socket) {
  while (holds_messages(socket)) {
    attach::Received received = attach::receive_message(socket);
    attach::close_unwanted(received.fds);
  }
}

}  // namespace

ClientSocket::ClientSocket(SideThreads& side, srd::UniqueFd fd) : side_(&side), fd_(std::move(fd)) {
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  // Otherwise reading skips urgent data, and the descriptors that came with it.
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
}

ClientSocket::~ClientSocket() {
  if (!fd_ || option(fd_.get(), SO_DOMAIN) != AF_UNIX) {
    return;
  }
  ::shutdown(fd_.get(), SHUT_RDWR);  // no message is added from here on
  if (holds_messages(fd_.get())) {
    side_->run([it = std::make_shared<const srd::UniqueFd>(std::move(fd_))] { empty(it->get()); });
  }
}

void ClientSocket::become(int stand_in, Became then) {
  ::shutdown(fd_.get(), SHUT_RDWR);
  const auto it = std::make_shared<srd::UniqueFd>(std::move(fd_));
  side_->run(
      [it, stand_in] {
        empty(it->get());
        ::dup3(stand_in, it->get(), O_CLOEXEC);
      },
      [it, then = std::move(then)] { then(std::move(*it)); });
}

ClientSocket::Next ClientSocket::next() const {
  std::byte first;
  const Look next = look(fd_.get(), {&first, 1});
  return next.descriptors                   ? Next::descriptors
         : next.size < 0 && errno == EAGAIN ? Next::nothing
                                            : Next::bare;
}

ssize_t ClientSocket::read(std::span<std::byte> to) const {
  const Look next = look(fd_.get(), to);
  if (next.descriptors) {
    errno = EBADMSG;
    return -1;
  }
  // No more than the peek has seen: bytes behind that may have come with descriptors meanwhile.
  return next.size > 0
             ? ::recv(fd_.get(), to.data(), static_cast<std::size_t>(next.size), MSG_DONTWAIT)
             : next.size;
}

}  // namespace weft::daemon
