// Owns the sockets by which tools ask about RDMA devices: netlink sockets that this library answers
// in the kernel's place.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

namespace weft::preload {

// As socket(AF_NETLINK, type, NETLINK_RDMA). Reading, polling and binding are native.
[[nodiscard]] int open_rdma_socket(int type);

// Whether a number that FdTable calls such a socket still is one. It may have been closed past our
// wrappers, and be another file by now.
[[nodiscard]] bool is_still_rdma_socket(int fd);

// `copy` has become such a socket.
void duplicated_rdma_socket(int copy);
// `fd` is no such socket any more, or about to be none.
void closing_rdma_socket(int fd);

// As send(2) and sendmsg(2) on such a socket. When they return, the answers can be read.
[[nodiscard]] ssize_t send_to_rdma(int fd, const void* bytes, std::size_t size);
[[nodiscard]] ssize_t send_to_rdma(int fd, const msghdr* message);

}  // namespace weft::preload
