// Owns the system calls of unix datagrams.
#include "srd/io/dgram_io.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "srd/net/envelope.hpp"

namespace weft::srd {
namespace {

bool fits(const std::string& path) {
  return !path.empty() && path.size() < sizeof(sockaddr_un::sun_path);
}

sockaddr_un socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

// Whether the socket at this path has no owner: left behind by a process that was killed, it
// refuses connections. Any other answer means that it is in use, even if it is of another type.
bool is_abandoned(const std::string& path) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(path);
  return probe &&
         ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

DgramIo::DgramIo(const Config& config)
    : config_(config),
      remote_(socket_address(config.remote)),
      buffer_(std::make_unique<std::byte[]>(kBurst * (config.max_frame + 1))),
      held_(config.max_held, config.max_frame, config.patience) {}

Result<std::unique_ptr<DgramIo>> DgramIo::create(const Config& config) {
  if (!fits(config.local) || !fits(config.remote) || config.local == config.remote) {
    return fail(ErrorCode::invalid_argument,
                "dgram: give two different socket paths of at most 107 characters");
  }
  struct stat info {};
  if (::lstat(config.local.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) {
    if (!is_abandoned(config.local)) {
      return fail(ErrorCode::io_error, "dgram: socket '" + config.local +
                                           "' is another process's; give a path of its own");
    }
    ::unlink(config.local.c_str());
  }
  std::unique_ptr<DgramIo> io(new DgramIo(config));
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un own = socket_address(config.local);
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) {
    return fail(ErrorCode::io_error, errno_text("dgram: socket '" + config.local + "'"));
  }
  // Another user could otherwise send frames into the network.
  ::chmod(config.local.c_str(), S_IRUSR | S_IWUSR);
  const int bytes = 4 << 20;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  io->socket_ = std::move(socket);
  return io;
}

DgramIo::~DgramIo() {
  if (socket_) {
    ::unlink(config_.local.c_str());
  }
}

std::span<const RxFrame> DgramIo::receive() {
  flush();
  const std::size_t room = config_.max_frame + 1;  // one more shows what is too long
  for (std::size_t i = 0; i < kBurst; ++i) {
    pieces_[i] = {buffer_.get() + i * room, room};
    messages_[i] = {};
    messages_[i].msg_hdr.msg_iov = &pieces_[i];
    messages_[i].msg_hdr.msg_iovlen = 1;
  }
  const int got = ::recvmmsg(socket_.get(), messages_.data(), kBurst, MSG_DONTWAIT, nullptr);
  std::size_t count = 0;
  for (int i = 0; i < got; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const std::size_t size = messages_[index].msg_len;
    if (size < net::kEthernetSize || size > config_.max_frame) {
      ++counters_.rx_dropped;
      continue;
    }
    received_[count++] = {buffer_.get() + index * room, size};
    counters_.rx_bytes += size;
  }
  counters_.rx_frames += count;
  return {received_.data(), count};
}

// True: the frame was sent, or is lost because no socket is bound at the other side's path. False:
// the reader's queue is full.
bool DgramIo::send(std::span<const iovec> pieces, std::size_t size) {
  msghdr message{};
  message.msg_name = &remote_;
  message.msg_namelen = sizeof remote_;
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  if (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
    ++counters_.tx_frames;
    counters_.tx_bytes += size;
    return true;
  }
  if (errno == EAGAIN || errno == ENOBUFS) {
    return false;
  }
  ++counters_.tx_lost;  // no process is there
  return true;
}

void DgramIo::flush() {
  counters_.tx_stalled += held_.flush(clock_now(), [this](std::span<const std::byte> frame) {
    const iovec piece{const_cast<std::byte*>(frame.data()), frame.size()};
    return send({&piece, 1}, frame.size());
  });
}

std::size_t DgramIo::transmit_room() {
  flush();
  return held_.room() >= kBurst ? kBurst : 0;
}

std::size_t DgramIo::transmit(std::span<const TxFrame> frames) {
  flush();
  std::size_t taken = 0;
  for (const TxFrame& frame : frames) {
    if (frame.size() > config_.max_frame) {
      ++counters_.tx_oversize;
    } else {
      std::array<iovec, 4> pieces;
      std::size_t count = 0;
      for (const auto& piece : frame.pieces) {
        if (!piece.empty()) {
          pieces[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
        }
      }
      const bool sent = held_.empty() && send({pieces.data(), count}, frame.size());
      if (!sent && !held_.hold(clock_now(), frame)) {
        break;
      }
    }
    ++taken;
  }
  return taken;
}

// Not while frames are held: nothing wakes a sleeper when the reader has room again.
bool DgramIo::arm() {
  pollfd fd{socket_.get(), POLLIN, 0};
  return held_.empty() && ::poll(&fd, 1, 0) == 0;
}

}  // namespace weft::srd
