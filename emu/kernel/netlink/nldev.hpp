// Owns answering what tools ask the kernel's RDMA core by netlink: which devices and ports there
// are, their state, counters and resources. Pure: the owner has the socket, and collects the facts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::kernel::nldev {

// Counters or numbers of objects, in the order in which they are told.
using Named = std::vector<std::pair<std::string, std::uint64_t>>;

// What is told of one device, which has one port.
struct DeviceFacts {
  std::string name;
  std::uint32_t index = 0;
  std::uint64_t guid = 0;    // as a number
  std::uint32_t driver = 0;  // the kernel's number of it
  std::uint8_t node_type = 0;
  bool up = true;
  std::string character_device;     // below /dev/infiniband
  std::uint64_t device_number = 0;  // as the kernel encodes it
  std::string interface {};         // that its port is on; empty: none
  std::uint32_t interface_index = 0;
  Named port_counters;
  Named resources;
};

// A character device of none of them in particular.
struct CharacterDevice {
  std::string type;  // by which it is asked for
  std::string name;  // below /dev/infiniband
  std::uint64_t abi = 0;
  std::uint64_t number = 0;  // as the kernel encodes it
};

// The answers to one datagram of a program; each is to be sent as one datagram. A message that
// cannot be understood is answered with an error, as by the kernel, or not at all where no answer
// is asked for. `port` is the number of the asking socket.
using Datagrams = std::vector<std::vector<std::byte>>;
[[nodiscard]] Datagrams answer(std::span<const std::byte> request, std::uint32_t port,
                               std::span<const DeviceFacts> devices,
                               std::span<const CharacterDevice> others = {});

}  // namespace weft::kernel::nldev
