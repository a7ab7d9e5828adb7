// Owns asking for the Ethernet address behind GIDs, as rdma-core's own libraries do for datagrams:
// a line for each GID of the first device, and for two groups.
#include <arpa/inet.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "tests/conformance/verbs_objects.hpp"

namespace weft::conformance {
namespace {

int resolve(ibv_context* context, const ibv_gid& gid, std::uint8_t* mac, std::uint16_t* vlan) {
  ibv_ah_attr to{};
  to.grh.dgid = gid;
  to.is_global = 1;
  to.port_num = 1;
  return ibv_resolve_eth_l2_from_gid(context, &to, mac, vlan);
}

void show(ibv_context* context, const ibv_gid& gid) {
  std::uint8_t mac[ETHERNET_LL_SIZE] = {};
  std::uint16_t vlan = 0;
  demand(resolve(context, gid, mac, &vlan) == 0, "an address of an emulated NIC is not known");
  demand(vlan == 0xFFFF, "it is in a VLAN");
  demand(resolve(context, gid, mac, nullptr) == 0, "not known where nobody asks for a VLAN");
  char text[INET6_ADDRSTRLEN];
  std::printf("%s is %02x:%02x:%02x:%02x:%02x:%02x\n",
              inet_ntop(AF_INET6, gid.raw, text, std::size(text)), mac[0], mac[1], mac[2], mac[3],
              mac[4], mac[5]);
}

void run() {
  ibv_context* const context = open_first_device();
  ibv_gid gid{};
  for (int index = 0; index < 3; ++index) {
    demand(ibv_query_gid(context, 1, index, &gid) == 0, "there is no such GID");
    show(context, gid);
  }
  for (const char* group : {"::ffff:239.129.7.1", "ff0e::1:203"}) {
    demand(inet_pton(AF_INET6, group, gid.raw) == 1, group);
    show(context, gid);
  }
  // What is no device file of ours is the library's own matter: it knows no neighbour there.
  const int ours = std::exchange(context->cmd_fd, -1);
  std::uint8_t mac[ETHERNET_LL_SIZE] = {};
  demand(resolve(context, gid, mac, nullptr) != 0, "it is known of another device, too");
  context->cmd_fd = ours;
  demand(ibv_close_device(context) == 0, "the device cannot be closed");
}

}  // namespace
}  // namespace weft::conformance

int main() {
  weft::conformance::run();
  return 0;
}
