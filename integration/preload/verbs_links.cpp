// Owns the one wrapped function of the verbs library: the Ethernet address behind a GID.
//
// rdma-core's library for soft-RoCE writes the address of a datagram itself before version 39, and
// asks this function where it goes. The stock one looks among the kernel's interfaces, routes and
// neighbours, which know nothing of emulated NICs. On a device of ours it follows from the GID.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>

#include "integration/preload/fd_table.hpp"
#include "integration/preload/loaded_code.hpp"
#include "integration/preload/next.hpp"
#include "integration/preload/process.hpp"
#include "srd/net/envelope.hpp"

namespace {

using weft::preload::FdTable;

constexpr std::uint16_t kNoVlan = 0xFFFF;

using Resolve = int(ibv_context*, ibv_ah_attr*, std::uint8_t[ETHERNET_LL_SIZE], std::uint16_t*);

// The library is often loaded later than this one, and privately.
Resolve* stock() {
  return reinterpret_cast<Resolve*>(
      weft::preload::find_loaded_function("ibv_resolve_eth_l2_from_gid"));
}

}  // namespace

WEFT_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes,
                                            std::uint8_t mac[ETHERNET_LL_SIZE],
                                            std::uint16_t* vlan) {
  const int fd = context->cmd_fd;
  if (!FdTable::is_device(fd) || !weft::preload::is_still_device(fd)) {
    Resolve* const resolve = stock();
    return resolve == nullptr ? -ENOSYS : resolve(context, attributes, mac, vlan);
  }
  weft::srd::Address to;
  static_assert(sizeof to.bytes == sizeof attributes->grh.dgid.raw);
  std::memcpy(to.bytes.data(), attributes->grh.dgid.raw, sizeof to.bytes);
  weft::srd::net::MacAddress found{};
  if (weft::srd::net::is_group(to)) {
    weft::srd::net::store_group_mac(found.data(), to, to.is_v4());
  } else {
    weft::srd::net::store_mac(found.data(), to, to.is_v4());
  }
  std::memcpy(mac, found.data(), ETHERNET_LL_SIZE);
  if (vlan != nullptr) {
    *vlan = kNoVlan;
  }
  return 0;
}
