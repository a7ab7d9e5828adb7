// Owns the answers to what tools ask about RDMA devices by netlink.
//
// The program's socket is a real netlink socket, but of NETLINK_USERSOCK, the protocol for messages
// between programs, since a kernel without RDMA has no NETLINK_RDMA. What the program sends is
// intercepted, answered at once from the device tree, and the answers are sent to the socket's port
// from a second socket. So reading, polling and binding are native.
#include "integration/preload/rdma_netlink.hpp"

#include <linux/netlink.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "emu/devices/counter_files.hpp"
#include "emu/devices/registry.hpp"
#include "emu/kernel/abi/ucma.hpp"
#include "emu/kernel/interfaces.hpp"
#include "emu/kernel/netlink/nldev.hpp"
#include "emu/kernel/sysfs/sysfs.hpp"
#include "emu/kernel/user_memory.hpp"
#include "integration/preload/fd_table.hpp"
#include "integration/preload/network.hpp"
#include "integration/preload/own_memory.hpp"
#include "integration/preload/paths.hpp"
#include "srd/io/posix.hpp"

namespace weft::preload {
namespace {

namespace kernel = kernel;
namespace nldev = kernel::nldev;

constexpr std::size_t kMaxBytes = 16384;  // of a request

int raw_socket(int type) {
  return static_cast<int>(syscall(SYS_socket, AF_NETLINK, type, NETLINK_USERSOCK));
}

std::string read_file(const std::string& path) {
  std::string text;
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return text;
  }
  std::array<char, 1024> piece;
  std::size_t length = 0;
  while ((length = std::fread(piece.data(), 1, piece.size(), file)) > 0) {
    text.append(piece.data(), length);
  }
  std::fclose(file);
  return text;
}

// As sysfs shows it: hexadecimal, with colons.
std::uint64_t guid_from_text(std::string text) {
  std::erase(text, ':');
  return std::strtoull(text.c_str(), nullptr, 16);
}

// Everything comes from the tree, which all processes of the host share: the answer is the same
// whether or not this process uses the NIC.
nldev::DeviceFacts tell(const std::string& root, const kernel::NicDescription& nic) {
  nldev::DeviceFacts device;
  device.name = nic.name;
  device.index = nic.index;
  const devices::Personality* const kind = devices::find_kind(nic.kind);
  if (kind != nullptr) {
    device.driver = kind->driver_id();
    device.node_type = kind->node_type();
  }
  const std::string folder = root + "/sys/class/infiniband/" + nic.name;
  device.guid = guid_from_text(read_file(folder + "/node_guid"));
  device.up = read_file(folder + "/ports/1/state").starts_with("4");
  device.interface = read_file(folder + "/ports/1/gid_attrs/ndevs/0");
  while (device.interface.ends_with('\n')) {
    device.interface.pop_back();
  }
  device.interface_index = kernel::interface_index(nic.index);
  device.character_device = "uverbs" + std::to_string(nic.index);
  device.device_number =
      std::uint64_t{kernel::kUverbsMajor} << 8 | (kernel::kUverbsFirstMinor + nic.index);
  if (const auto counted = devices::read_statistics(kernel::statistics_path(root, nic.name))) {
    counted->kind->counters().visit(kernel::CounterSet::Place::port, counted->sum,
                                    [&device](const char* name, std::uint64_t value) {
                                      device.port_counters.emplace_back(name, value);
                                    });
    const kernel::LiveObjects& live = counted->sum.live;
    device.resources = {{"pd", live.pds}, {"cq", live.cqs},       {"qp", live.qps},  {"cm_id", 0},
                        {"mr", live.mrs}, {"ctx", live.contexts}, {"srq", live.srqs}};
  }
  return device;
}

std::vector<nldev::DeviceFacts> all_devices() {
  std::vector<nldev::DeviceFacts> devices;
  const std::string root = tree_root();
  for (const kernel::NicDescription& nic : read_descriptions(root)) {
    devices.push_back(tell(root, nic));
  }
  return devices;
}

// What the host's kernel has beside its devices.
std::vector<nldev::CharacterDevice> other_devices() {
  constexpr auto kNumber = std::uint64_t{kernel::kMiscMajor} << 8 | kernel::kConnectionsMinor;
  const std::string root = tree_root();
  if (read_file(root + "/sys/class/misc/rdma_cm/dev").empty()) {
    return {};
  }
  return {{"rdma_cm", "rdma_cm", kernel::abi::ucma::kAbiVersion, kNumber}};
}

int socket_option(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return syscall(SYS_getsockopt, fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

// The port number of the socket, which the kernel or the program has chosen; 0: none.
std::uint32_t port_of(int fd) {
  sockaddr_nl address{};
  socklen_t length = sizeof address;
  if (syscall(SYS_getsockname, fd, &address, &length) == 0 && address.nl_pid == 0) {
    address.nl_family = AF_NETLINK;  // as the kernel does when an unbound socket sends
    (void)syscall(SYS_bind, fd, &address, sizeof address);
    length = sizeof address;
    (void)syscall(SYS_getsockname, fd, &address, &length);
  }
  return address.nl_pid;
}

// A socket that is connected to the kernel accepts messages from no other sender.
void disconnect(int fd) {
  sockaddr_nl nobody{};
  nobody.nl_family = AF_UNSPEC;
  (void)syscall(SYS_connect, fd, &nobody, sizeof nobody);
}

// Each answer is one datagram to the program's socket. An errno, or 0.
int send_answers(std::uint32_t port, const nldev::Datagrams& answers) {
  const int from = raw_socket(SOCK_RAW | SOCK_CLOEXEC);
  if (from < 0) {
    return errno;
  }
  sockaddr_nl to{};
  to.nl_family = AF_NETLINK;
  to.nl_pid = port;
  int error = 0;
  for (const auto& datagram : answers) {
    if (error == 0 && syscall(SYS_sendto, from, datagram.data(), datagram.size(), MSG_DONTWAIT, &to,
                              sizeof to) < 0) {
      error = ENOBUFS;  // its queue is full: the program does not read
    }
  }
  syscall(SYS_close, from);
  return error;
}

// Answers at once: when it returns, the program can read.
ssize_t ask(int fd, std::span<const std::byte> request) {
  const srd::Uncancellable here;
  const std::uint32_t port = port_of(fd);
  int error = port == 0 ? EBADF : 0;
  if (error == 0) {
    const auto devices = all_devices();
    disconnect(fd);
    error = send_answers(port, nldev::answer(request, port, devices, other_devices()));
  }
  if (error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<ssize_t>(request.size());
}

ssize_t refuse(int error) {
  errno = error;
  return -1;
}

template <class T>
bool copy_in(std::span<T> to, const void* from) {
  return kernel::copy_from_user(std::as_writable_bytes(to), reinterpret_cast<std::uintptr_t>(from));
}

}  // namespace

int open_rdma_socket(int type) {
  const int fd = raw_socket(type);
  if (fd >= FdTable::kMax) {
    syscall(SYS_close, fd);
    return static_cast<int>(refuse(EMFILE));
  }
  if (fd >= 0 && is_own_memory()) {
    FdTable::set(fd, FdTable::kNetlink);
  }
  return fd;
}

bool is_still_rdma_socket(int fd) {
  const int error = errno;
  const bool still = socket_option(fd, SO_DOMAIN) == AF_NETLINK &&
                     socket_option(fd, SO_PROTOCOL) == NETLINK_USERSOCK;
  errno = error;
  if (!still) {
    closing_rdma_socket(fd);
  }
  return still;
}

void duplicated_rdma_socket(int copy) {
  if (copy < FdTable::kMax && is_own_memory()) {
    FdTable::set(copy, FdTable::kNetlink);
  }
}

void closing_rdma_socket(int fd) {
  if (FdTable::kind(fd) == FdTable::kNetlink && is_own_memory()) {
    FdTable::forget(fd, FdTable::kNetlink);
  }
}

ssize_t send_to_rdma(int fd, const void* bytes, std::size_t size) {
  if (size > kMaxBytes) {
    return refuse(EMSGSIZE);
  }
  std::vector<std::byte> request(size);
  return copy_in(std::span(request), bytes) ? ask(fd, request) : refuse(EFAULT);
}

ssize_t send_to_rdma(int fd, const msghdr* message) {
  constexpr std::size_t kMaxPieces = 64;
  msghdr header{};
  if (!copy_in(std::span(&header, 1), message)) {
    return refuse(EFAULT);
  }
  if (header.msg_iovlen > kMaxPieces) {
    return refuse(EMSGSIZE);
  }
  std::vector<iovec> pieces(header.msg_iovlen);
  if (!copy_in(std::span(pieces), header.msg_iov)) {
    return refuse(EFAULT);
  }
  std::vector<std::byte> request;
  for (const iovec& piece : pieces) {
    if (piece.iov_len > kMaxBytes - request.size()) {
      return refuse(EMSGSIZE);
    }
    request.resize(request.size() + piece.iov_len);
    if (!copy_in(std::span(request).last(piece.iov_len), piece.iov_base)) {
      return refuse(EFAULT);
    }
  }
  return ask(fd, request);
}

}  // namespace weft::preload
