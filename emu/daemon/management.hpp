// Owns what the queue pair 1 of a NIC does with datagrams of management: all processes of the NIC
// share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/daemon/recent_requests.hpp"
#include "emu/daemon/service_owners.hpp"

namespace weft::daemon {

// The process that a message is for; none, if `place` is 0. A request for a service that no process
// has claimed is refused, as the kernel of a host does it. What cannot be read is for no process.
struct ManagementRoute {
  std::uint32_t place = 0;
  bool refuse = false;
  bool ends = false;  // DREQ: the kernel answers it for a process that has gone
};

// `packet`: BTH to ICRC. Of connection management REQ and SIDR_REQ name a service; the others, the
// communication id of the process that they are for, which begins with its attachment. Of other
// classes requests are for the process that has claimed their method, as a service; answers name
// the agent that has asked, whose number begins with the attachment. A REJ that names nobody takes
// back a REQ `from` the same address, and follows it; each REQ is noted in `requests` for that.
[[nodiscard]] ManagementRoute route_management(const ServiceOwners& services,
                                               RecentRequests& requests, const srd::Address& from,
                                               std::span<const std::byte> packet);

// The frame with which a kernel answers the one in `frame` where it is for no process: REJ or
// SIDR_REP to a request, DREP to a DREQ. Empty: others are not answered.
[[nodiscard]] std::vector<std::byte> answer_for_nobody(std::span<const std::byte> frame);

}  // namespace weft::daemon
