// Owns the use of a file of rdma_cm without its library.
#pragma once

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "emu/kernel/abi/ucma.hpp"
#include "tests/conformance/guest/ranks.hpp"

namespace weft::conformance {

namespace ucma = kernel::abi::ucma;

template <class Body>
struct Command {
  ucma::Header header;
  Body body;
};

template <class Body, class Reply>
ssize_t ask(int file, ucma::Command command, const Body& body, const Reply*) {
  const Command<Body> whole{{static_cast<std::uint32_t>(command), sizeof(Body), sizeof(Reply)},
                            body};
  return write(file, &whole, sizeof whole);
}

inline int open_connections(int flags = 0) {
  const int file = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | flags);
  demand(file >= 0, "the device file of connection management");
  return file;
}

// An event comes at the file: an address of this host's own is found.
inline void bring_event(int file) {
  ucma::IdReply made{};
  ucma::CreateId create{};
  create.uid = 7;
  create.response = reinterpret_cast<std::uint64_t>(&made);
  create.port_space = 0x0106;  // as TCP
  demand(ask(file, ucma::Command::create_id, create, &made) > 0, "an id");
  ucma::ResolveIp resolve{};
  resolve.id = made.id;
  resolve.timeout_ms = 2000;
  ifaddrs* list = nullptr;
  demand(getifaddrs(&list) == 0, "getifaddrs");
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (std::strncmp(one->ifa_name, "weft", 4) == 0 && one->ifa_addr->sa_family == AF_INET) {
      std::memcpy(&resolve.destination, one->ifa_addr, sizeof(sockaddr_in));
    }
  }
  freeifaddrs(list);
  demand(ask(file, ucma::Command::resolve_ip, resolve, &made) > 0, "an address to be found");
}

}  // namespace weft::conformance
