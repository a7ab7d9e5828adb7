// Owns a network plugin over TCP with the semantics of NCCL's own socket transport: the baseline
// that other plugins are measured against.
//
// Each connection is one socket, used in one direction. A message is a size word followed by its
// bytes; both go out in one system call. There is no thread: a request moves only while NCCL calls
// test() on one of the connection's requests. There are no locks either: one thread at a time uses
// a connection (in NCCL the proxy thread).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "integration/nccl/abi.hpp"

namespace weft::collectives {
namespace {

using namespace nccl::abi;

constexpr char kName[] = "weft-tcp";
// Sent once by the connecting side, so that accept() can tell a peer from a stray connection.
constexpr std::uint32_t kGreeting = 0x57544350;

struct Connection;

// A posted isend() or irecv(); a slot of Connection::requests.
struct Request {
  Connection* connection = nullptr;
  std::byte* data = nullptr;
  std::uint32_t size = 0;  // receive: that of the buffer, then that of the message
  bool used = false;
  bool done = false;
};

struct Connection {
  explicit Connection(int socket) : fd(socket) {}
  ~Connection() { ::close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd;
  bool sends = false;
  std::array<Request, kMaxRequests> requests{};  // a ring: they end in the order of posting
  std::size_t first = 0;
  std::size_t next = 0;
  // The state of the oldest request: its size word, and how many bytes of the word and of the data
  // have gone over the socket.
  std::uint32_t header = 0;
  std::size_t header_passed = 0;
  std::size_t passed = 0;
  Result failure = kSuccess;

  // Returns nullptr if all requests are in flight; NCCL then tries again later. A request is reused
  // only after test() has reported it.
  [[nodiscard]] Request* take(void* data, std::size_t size) {
    Request& request = requests[next % requests.size()];
    if (next - first == requests.size() || request.used) {
      return nullptr;
    }
    request = {this, static_cast<std::byte*>(data), static_cast<std::uint32_t>(size), true, false};
    ++next;
    return &request;
  }
  void progress();

 private:
  // Moves the oldest request on by one system call; returns false if the socket has nothing more to
  // give or take.
  [[nodiscard]] bool step(Request& request);
};

bool Connection::step(Request& request) {
  if (sends) {
    header = request.size;
  }
  // A receiver does not know the size of the data before the size word has arrived, and asks for no
  // more than that word: what follows may belong to the next message.
  const bool has_size = sends || header_passed == sizeof header;
  iovec pieces[2] = {
      {reinterpret_cast<std::byte*>(&header) + header_passed, sizeof header - header_passed},
      {request.data + passed, has_size ? request.size - passed : 0}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  const ssize_t moved = sends ? ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                              : ::recvmsg(fd, &message, MSG_DONTWAIT);
  if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return false;
  }
  // Zero bytes are the end of the stream: the other side has closed its end.
  if (moved <= 0) {
    failure = kRemoteError;
    return false;
  }
  const std::size_t of_header =
      std::min(static_cast<std::size_t>(moved), sizeof header - header_passed);
  header_passed += of_header;
  passed += static_cast<std::size_t>(moved) - of_header;
  if (!has_size && header_passed == sizeof header) {
    if (header > request.size) {
      failure = kInvalidUsage;
      return false;
    }
    request.size = header;
  }
  return true;
}

void Connection::progress() {
  while (failure == kSuccess && first != next) {
    Request& request = requests[first % requests.size()];
    if (!step(request)) {
      return;
    }
    if (header_passed == sizeof header && passed == request.size) {
      request.done = true;
      ++first;
      header_passed = passed = 0;
    }
  }
}

// What a handle holds. NCCL carries the address to the peer; the descriptor is filled in there,
// because connect() is called again with the same handle until it has finished.
struct Place {
  sockaddr_in address{};
  int fd = 0;  // plus one; 0: not begun
};
static_assert(sizeof(Place) <= 64);

// Connections that have not sent their greeting yet. Accepting never waits for a greeting: its
// sender may be in accept() as well, and wait for ours.
struct Guest {
  int fd = -1;
  std::uint32_t greeting = 0;
  std::size_t arrived = 0;  // bytes of it

  enum class State : std::uint8_t { unknown, welcome, unwelcome };
  [[nodiscard]] State look();
};

Guest::State Guest::look() {
  const ssize_t count = ::recv(fd, reinterpret_cast<std::byte*>(&greeting) + arrived,
                               sizeof greeting - arrived, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return State::unknown;
  }
  arrived += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  if (count > 0 && arrived < sizeof greeting) {
    return State::unknown;
  }
  return count > 0 && greeting == kGreeting ? State::welcome : State::unwelcome;
}

// What listen() makes. The guests are bounded: a port may be found by anybody.
struct Listener {
  static constexpr std::size_t kMaxGuests = 128;

  explicit Listener(int socket) : fd(socket) {}
  ~Listener() {
    for (const Guest& guest : guests) {
      ::close(guest.fd);
    }
    ::close(fd);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int fd;
  std::vector<Guest> guests;
};

Result init(Logger) { return kSuccess; }
Result devices(int* count) {
  *count = 1;
  return kSuccess;
}

template <class P>
Result properties(int, P* out) {
  static char name[] = "tcp0";
  *out = {};
  out->name = name;
  out->guid = 1;
  out->ptrSupport = kHostMemory;
  out->speed = 10'000;
  out->port = 1;
  out->maxComms = 65536;
  out->maxRecvs = 1;
  out->netDeviceType = kHostDevice;
  if constexpr (requires { out->vProps; }) {
    out->vProps.ndevs = 1;
    out->maxP2pBytes = out->maxCollBytes = std::size_t{1} << 30;
    out->maxMultiRequestSize = 1;
  }
  return kSuccess;
}

Result listen(int, void* handle, void** listener) {
  Place place;
  place.address.sin_family = AF_INET;
  const char* const address = std::getenv("WEFT_NCCL_TCP_ADDRESS");
  if (::inet_pton(AF_INET, address == nullptr ? "127.0.0.1" : address, &place.address.sin_addr) !=
      1) {
    return kInvalidArgument;
  }
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t length = sizeof place.address;
  auto* const name = reinterpret_cast<sockaddr*>(&place.address);
  if (fd < 0 || ::bind(fd, name, length) != 0 || ::listen(fd, 128) != 0 ||
      ::getsockname(fd, name, &length) != 0) {
    ::close(fd);
    return kSystemError;
  }
  std::memcpy(handle, &place, sizeof place);
  *listener = new Listener(fd);
  return kSuccess;
}

// Without Nagle's algorithm: a small message must not wait for the acknowledgement of the last one.
Connection* adopt(int fd, bool sends) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto connection = std::make_unique<Connection>(fd);
  connection->sends = sends;
  return connection.release();
}

Result connect(int, void* handle, void** connection, DeviceHandle** device) {
  *connection = nullptr;
  if (device != nullptr) {
    *device = nullptr;
  }
  Place place;
  std::memcpy(&place, handle, sizeof place);
  if (place.fd == 0) {
    place.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) + 1;
    std::memcpy(handle, &place, sizeof place);
  }
  const int fd = place.fd - 1;
  // The number may be somebody else's by the next call with this handle: that one begins anew.
  const auto give_up = [&] {
    ::close(fd);
    place.fd = 0;
    std::memcpy(handle, &place, sizeof place);
    return kRemoteError;
  };
  if (::connect(fd, reinterpret_cast<sockaddr*>(&place.address), sizeof place.address) != 0 &&
      errno != EISCONN) {
    if (errno == EINPROGRESS || errno == EALREADY || errno == EINTR) {
      return kSuccess;
    }
    return give_up();
  }
  if (::send(fd, &kGreeting, sizeof kGreeting, MSG_NOSIGNAL) != sizeof kGreeting) {
    return give_up();
  }
  *connection = adopt(fd, true);
  return kSuccess;
}

Result accept(void* listener, void** connection, DeviceHandle** device) {
  *connection = nullptr;
  if (device != nullptr) {
    *device = nullptr;
  }
  auto& at = *static_cast<Listener*>(listener);
  // At most one new connection per call: NCCL calls until it gets the one it waits for.
  if (at.guests.size() < Listener::kMaxGuests) {
    const int fd = ::accept4(at.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      at.guests.push_back({fd});
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) {
      return kSystemError;
    }
  }
  // Greetings arrive in any order, so all connections that are waiting are looked at.
  for (auto guest = at.guests.begin(); guest != at.guests.end();) {
    const Guest::State state = guest->look();
    if (state == Guest::State::unknown) {
      ++guest;
      continue;
    }
    const int fd = guest->fd;
    guest = at.guests.erase(guest);
    if (state == Guest::State::welcome) {
      *connection = adopt(fd, false);
      return kSuccess;
    }
    ::close(fd);
  }
  return kSuccess;
}

Result register_memory(void*, void*, std::size_t, int type, void** memory) {
  static char any = 0;
  *memory = &any;
  return type == kHostMemory ? kSuccess : kInvalidUsage;
}
Result deregister_memory(void*, void*) { return kSuccess; }

// A null request says "not now", and is no error.
Result post(void* connection, void* data, std::size_t size, void** request) {
  auto& at = *static_cast<Connection*>(connection);
  *request = size > (std::size_t{1} << 30) ? nullptr : at.take(data, size);
  return size > (std::size_t{1} << 30) ? kInvalidArgument : at.failure;
}
Result send_v8(void* connection, void* data, int size, int, void*, void** request) {
  return post(connection, data, static_cast<std::size_t>(size), request);
}
Result send_v11(void* connection, void* data, std::size_t size, int, void*, void*, void** request) {
  return post(connection, data, size, request);
}
Result receive_v8(void* connection, int count, void** data, int* sizes, int*, void**,
                  void** request) {
  return count != 1 ? kInternalError
                    : post(connection, data[0], static_cast<std::size_t>(sizes[0]), request);
}
Result receive_v11(void* connection, int count, void** data, std::size_t* sizes, int*, void**,
                   void**, void** request) {
  return count != 1 ? kInternalError : post(connection, data[0], sizes[0], request);
}
Result flush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return kSuccess;
}

Result test(void* request, int* done, int* sizes) {
  Request& one = *static_cast<Request*>(request);
  if (!one.done) {
    one.connection->progress();
  }
  *done = one.done ? 1 : 0;
  if (!one.done) {
    return one.connection->failure;
  }
  if (sizes != nullptr) {
    *sizes = static_cast<int>(one.size);
  }
  one.used = false;
  return kSuccess;
}

Result close_connection(void* connection) {
  delete static_cast<Connection*>(connection);
  return kSuccess;
}
Result close_listener(void* listener) {
  delete static_cast<Listener*>(listener);
  return kSuccess;
}

// What the versions have in common. Both tables are constants, since NCCL looks them up by dlsym()
// as data.
template <class Table>
constexpr Table common() {
  Table table{};
  table.name = kName;
  table.devices = devices;
  table.getProperties = properties<typename Table::Properties>;
  table.accept = accept;
  table.regMr = register_memory;
  table.deregMr = deregister_memory;
  table.iflush = flush;
  table.test = test;
  table.closeSend = table.closeRecv = close_connection;
  table.closeListen = close_listener;
  return table;
}

constexpr TableV8 make_v8() {
  auto table = common<TableV8>();
  table.init = init;
  table.listen = listen;
  table.connect = connect;
  table.isend = send_v8;
  table.irecv = receive_v8;
  return table;
}

constexpr TableV11 make_v11() {
  auto table = common<TableV11>();
  table.init = [](void** context, std::uint64_t, CommConfig*, Logger logger, Profiler) {
    static char any = 0;
    *context = &any;
    return weft::collectives::init(logger);
  };
  table.listen = [](void*, int device, void* handle, void** listener) {
    return weft::collectives::listen(device, handle, listener);
  };
  table.connect = [](void*, int device, void* handle, void** connection, DeviceHandle** on_device) {
    return weft::collectives::connect(device, handle, connection, on_device);
  };
  table.isend = send_v11;
  table.irecv = receive_v11;
  table.finalize = [](void*) { return kSuccess; };
  return table;
}

}  // namespace
}  // namespace weft::collectives

#define WEFT_EXPORT extern "C" __attribute__((visibility("default"))) constinit const

WEFT_EXPORT weft::nccl::abi::TableV8 ncclNetPlugin_v8 = weft::collectives::make_v8();
WEFT_EXPORT weft::nccl::abi::TableV11 ncclNetPlugin_v11 = weft::collectives::make_v11();
