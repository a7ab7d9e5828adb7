// Owns a network plugin over memory that two processes share: an upper bound that shows what the
// harness itself can do.
//
// A connection is one ring of bytes in one direction. A message lies in it as a size word followed
// by its bytes. The sender copies in, the receiver copies out, each in its own calls of isend(),
// irecv() and test(); a message larger than the ring passes through it in pieces. There are no
// locks: each of the two positions is written by one side only.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "integration/nccl/abi.hpp"

namespace weft::collectives {
namespace {

using namespace nccl::abi;

constexpr std::size_t kRing = std::size_t{2}
                              << 20;  // fits into a second-level cache beside the data

// The head of the shared memory; the bytes follow it. Positions only grow; the place in the ring is
// the position modulo kRing. Each lies on a cache line of its own, because each is written by a
// different process.
//
// - written: by the sender alone, after the bytes
// - read: by the receiver alone, after it has copied them
// - joined: set once by the sender when it connects
// - left: set by whichever side closes first
struct Ring {
  alignas(64) std::atomic<std::uint64_t> written{0};
  alignas(64) std::atomic<std::uint64_t> read{0};
  alignas(64) std::atomic<std::uint32_t> joined{0};
  std::atomic<std::uint32_t> left{0};
};
constexpr std::size_t kShared = sizeof(Ring) + kRing;

struct Connection;

// A posted isend() or irecv(); a slot of Connection::requests.
struct Request {
  Connection* connection = nullptr;
  std::byte* data = nullptr;
  std::uint64_t size = 0;  // receive: that of the buffer, then that of the message
  bool used = false;
  bool done = false;
};

struct Connection {
  ~Connection() {
    ring->left.store(1, std::memory_order_release);
    ::munmap(ring, kShared);
  }

  Ring* ring = nullptr;
  bool sends = false;
  std::array<Request, kMaxRequests> requests{};  // a ring: they end in the order of posting
  // Requests from `first` to `next` have not ended; both only grow.
  std::size_t first = 0;
  std::size_t next = 0;
  bool begun = false;      // the oldest: its size has passed,
  std::size_t passed = 0;  // and so many of its bytes
  Result failure = kSuccess;

  void progress();

 private:
  [[nodiscard]] std::byte* bytes() const { return reinterpret_cast<std::byte*>(ring + 1); }
  // Copies as much as the ring holds (receiver) or has room for (sender), at most `size` bytes, in
  // two pieces where the ring wraps. Returns how much. The release store makes the bytes visible
  // before the position.
  std::size_t move(std::byte* data, std::size_t size);
  [[nodiscard]] bool step(Request& request);
};

std::size_t Connection::move(std::byte* data, std::size_t size) {
  const std::uint64_t written = ring->written.load(std::memory_order_acquire);
  const std::uint64_t read = ring->read.load(std::memory_order_acquire);
  const std::uint64_t position = sends ? written : read;
  const std::uint64_t available = sends ? kRing - (written - read) : written - read;
  const std::size_t count = std::min<std::size_t>(size, available);
  for (std::size_t done = 0; done < count;) {
    const std::size_t at = (position + done) % kRing;
    const std::size_t piece = std::min(count - done, kRing - at);
    std::memcpy(sends ? bytes() + at : data + done, sends ? data + done : bytes() + at, piece);
    done += piece;
  }
  (sends ? ring->written : ring->read).store(position + count, std::memory_order_release);
  return count;
}

bool Connection::step(Request& request) {
  // The size word is moved as a whole or not at all, so that `begun` is enough to say where the
  // message stands.
  if (!begun) {
    const std::uint64_t there =
        ring->written.load(std::memory_order_acquire) - ring->read.load(std::memory_order_acquire);
    std::uint64_t size = request.size;
    if ((sends ? kRing - there : there) < sizeof size) {
      return false;
    }
    (void)move(reinterpret_cast<std::byte*>(&size), sizeof size);
    begun = true;
    if (size > request.size) {
      failure = kInvalidUsage;
      return false;
    }
    request.size = size;
  }
  passed += move(request.data + passed, request.size - passed);
  return passed == request.size;
}

void Connection::progress() {
  while (failure == kSuccess && first != next) {
    // Read before the step: what the peer wrote before it left is still received. Only if nothing
    // more moves then is the connection lost.
    const bool gone = ring->left.load(std::memory_order_acquire) != 0;
    Request& request = requests[first % requests.size()];
    if (!step(request)) {
      if (gone && failure == kSuccess) {
        failure = kRemoteError;
      }
      return;
    }
    request.done = true;
    ++first;
    begun = false;
    passed = 0;
  }
}

// What a handle holds: the listening process, and its descriptor of the shared memory. NCCL carries
// it to the sender. Memory without a name is freed when its processes end, however they end.
struct Place {
  std::int32_t process = 0;
  std::int32_t fd = -1;
};

// What listen() makes. The descriptor stays open until the listener is closed: the sender maps the
// memory through it.
struct Listener {
  Ring* ring = nullptr;
  int fd = -1;
  bool accepted = false;
};

// The descriptor stays the caller's.
Ring* map(int fd) {
  void* const memory = ::mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Ring*>(memory);
}

Result init(Logger) { return kSuccess; }
Result devices(int* count) {
  *count = 1;
  return kSuccess;
}
Result properties(int, PropertiesV8* out) {
  static char name[] = "memory0";
  *out = {};
  out->name = name;
  out->guid = 2;
  out->ptrSupport = kHostMemory;
  out->speed = 100'000;
  out->port = 1;
  out->maxComms = 65536;
  out->maxRecvs = 1;
  return kSuccess;
}

Result listen(int, void* handle, void** listener) {
  const int fd = ::memfd_create("weft-nccl", MFD_CLOEXEC);
  Ring* const ring = fd >= 0 && ::ftruncate(fd, kShared) == 0 ? map(fd) : nullptr;
  if (ring == nullptr) {
    ::close(fd);
    return kSystemError;
  }
  new (ring) Ring;
  const Place place{::getpid(), fd};
  std::memcpy(handle, &place, sizeof place);
  *listener = new Listener{ring, fd};
  return kSuccess;
}

Result connect(int, void* handle, void** connection, DeviceHandle** device) {
  *connection = nullptr;
  if (device != nullptr) {
    *device = nullptr;
  }
  Place place;
  std::memcpy(&place, handle, sizeof place);
  std::array<char, 64> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", place.process, place.fd);
  const int fd = ::open(path.data(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  Ring* const ring =
      fd >= 0 && ::fstat(fd, &status) == 0 && status.st_size == static_cast<off_t>(kShared)
          ? map(fd)
          : nullptr;
  ::close(fd);
  // The listener made the memory before it gave the handle away, and closes its descriptor when it
  // closes: without the descriptor it has gone.
  if (ring == nullptr) {
    return kRemoteError;
  }
  auto made = std::make_unique<Connection>();
  made->ring = ring;
  made->sends = true;
  ring->joined.store(1, std::memory_order_release);
  *connection = made.release();
  return kSuccess;
}

Result accept(void* listener, void** connection, DeviceHandle** device) {
  *connection = nullptr;
  if (device != nullptr) {
    *device = nullptr;
  }
  auto& at = *static_cast<Listener*>(listener);
  if (at.accepted || at.ring->joined.load(std::memory_order_acquire) == 0) {
    return kSuccess;
  }
  at.accepted = true;
  auto made = std::make_unique<Connection>();
  made->ring = at.ring;
  *connection = made.release();
  return kSuccess;
}

// An accepted connection owns the mapping from then on.
Result close_listener(void* listener) {
  const std::unique_ptr<Listener> at(static_cast<Listener*>(listener));
  ::close(at->fd);
  if (!at->accepted) {
    ::munmap(at->ring, kShared);
  }
  return kSuccess;
}

Result register_memory(void*, void*, std::size_t, int type, void** memory) {
  static char any = 0;
  *memory = &any;
  return type == kHostMemory ? kSuccess : kInvalidUsage;
}
Result deregister_memory(void*, void*) { return kSuccess; }

Result post(Connection& at, void* data, int size, void** request) {
  Request& one = at.requests[at.next % at.requests.size()];
  *request = nullptr;
  if (at.next - at.first < at.requests.size() && !one.used) {
    one = {&at, static_cast<std::byte*>(data), static_cast<std::uint64_t>(size), true, false};
    ++at.next;
    *request = &one;
    // The first piece is moved at once: a small message needs no later call on this side.
    at.progress();
  }
  return at.failure;
}
Result send(void* connection, void* data, int size, int, void*, void** request) {
  return post(*static_cast<Connection*>(connection), data, size, request);
}
Result receive(void* connection, int count, void** data, int* sizes, int*, void**, void** request) {
  return count != 1 ? kInternalError
                    : post(*static_cast<Connection*>(connection), data[0], sizes[0], request);
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

// Either side's destructor marks the ring, so the other side sees that nothing more will come.
Result close_connection(void* connection) {
  delete static_cast<Connection*>(connection);
  return kSuccess;
}

}  // namespace
}  // namespace weft::collectives

extern "C" __attribute__((
    visibility("default"))) constinit const weft::nccl::abi::TableV8 ncclNetPlugin_v8 = {
    .name = "weft-memory",
    .init = weft::collectives::init,
    .devices = weft::collectives::devices,
    .getProperties = weft::collectives::properties,
    .listen = weft::collectives::listen,
    .connect = weft::collectives::connect,
    .accept = weft::collectives::accept,
    .regMr = weft::collectives::register_memory,
    .regMrDmaBuf = nullptr,
    .deregMr = weft::collectives::deregister_memory,
    .isend = weft::collectives::send,
    .irecv = weft::collectives::receive,
    .iflush = weft::collectives::flush,
    .test = weft::collectives::test,
    .closeSend = weft::collectives::close_connection,
    .closeRecv = weft::collectives::close_connection,
    .closeListen = weft::collectives::close_listener,
    .getDeviceMr = nullptr,
    .irecvConsumed = nullptr};
