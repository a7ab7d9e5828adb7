// Owns the wrapped calls that list the host's network interfaces. A soft-RoCE device belongs to an
// interface, and libraries look among the interfaces' addresses for those that rdma_cm has
// (libfabric's verbs provider, for example). The addresses of emulated NICs are on no interface, so
// one is shown for each.
//
// getifaddrs() appends our entries to libc's list, in one piece of memory of their own.
// freeifaddrs() cuts them off again before libc frees its part; it knows them by their statistics,
// which point to a word of this library.
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "emu/devices/registry.hpp"
#include "emu/kernel/interfaces.hpp"
#include "integration/preload/network.hpp"
#include "integration/preload/next.hpp"
#include "integration/preload/paths.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/address_text.hpp"

namespace weft::preload {
namespace {

// An entry of the list, with all that it points to. Those of a list lie in one piece of memory.
struct Interface {
  ifaddrs entry;
  sockaddr_in6 address;  // or a sockaddr_in
  sockaddr_in6 mask;
  char name[IFNAMSIZ];
};

// The statistics that our entries point to: by this address they are recognised.
constinit rtnl_link_stats no_statistics{};

constexpr unsigned kFlags = IFF_UP | IFF_RUNNING | IFF_NOARP;

bool is_ours(const ifaddrs* entry) { return entry != nullptr && entry->ifa_data == &no_statistics; }

struct Shown {
  std::uint32_t nic;
  srd::Address address;
};

// The kernel knows the address already where the host has a network namespace of its own.
bool is_listed(const ifaddrs* list, const srd::Address& address) {
  in_addr wanted{};
  std::memcpy(&wanted, address.v4_bytes().data(), sizeof wanted);
  for (; list != nullptr; list = list->ifa_next) {
    if (list->ifa_addr != nullptr && list->ifa_addr->sa_family == AF_INET &&
        reinterpret_cast<const sockaddr_in*>(list->ifa_addr)->sin_addr.s_addr == wanted.s_addr) {
      return true;
    }
  }
  return false;
}

std::vector<Shown> missing_in(const ifaddrs* list) {
  std::vector<Shown> shown;
  const char* const root = tree_root();
  if (root == nullptr) {
    return shown;
  }
  for (const kernel::NicDescription& description : read_descriptions(root)) {
    const devices::Personality* const kind = devices::find_kind(description.kind);
    const auto address = srd::parse_address(description.address);
    if (kind == nullptr || !kind->manages_connections() || !address || !address->is_v4()) {
      continue;
    }
    if (is_listed(list, *address)) {
      continue;
    }
    shown.push_back({description.index, *address});
    for (const srd::Address& alias : kind->addresses(*address)) {
      if (alias != *address) {
        shown.push_back({description.index, alias});
      }
    }
  }
  return shown;
}

void fill_v4(Interface& to, const srd::Address& shown) {
  constexpr unsigned char kMask[4] = {255, 255, 0, 0};  // of the hosts of a network
  auto& address = reinterpret_cast<sockaddr_in&>(to.address);
  auto& mask = reinterpret_cast<sockaddr_in&>(to.mask);
  address.sin_family = mask.sin_family = AF_INET;
  std::memcpy(&address.sin_addr, shown.v4_bytes().data(), sizeof address.sin_addr);
  std::memcpy(&mask.sin_addr, kMask, sizeof kMask);
}

void fill_v6(Interface& to, const Shown& shown) {
  constexpr std::size_t kPrefix = 8;
  to.address.sin6_family = to.mask.sin6_family = AF_INET6;
  std::memcpy(&to.address.sin6_addr, shown.address.bytes.data(), shown.address.bytes.size());
  std::memset(&to.mask.sin6_addr, 0xFF, kPrefix);
  if (IN6_IS_ADDR_LINKLOCAL(&to.address.sin6_addr)) {
    to.address.sin6_scope_id = kernel::interface_index(shown.nic);
  }
}

void fill(Interface& to, const Shown& shown) {
  std::snprintf(to.name, sizeof to.name, "%s%u", kernel::kInterfacePrefix,
                static_cast<unsigned>(shown.nic));
  if (shown.address.is_v4()) {
    fill_v4(to, shown.address);
  } else {
    fill_v6(to, shown);
  }
  to.entry.ifa_name = to.name;
  to.entry.ifa_flags = kFlags;
  to.entry.ifa_addr = reinterpret_cast<sockaddr*>(&to.address);
  to.entry.ifa_netmask = reinterpret_cast<sockaddr*>(&to.mask);
  to.entry.ifa_data = &no_statistics;
}

// Ours come last: programs that take the first interface take what they would take without us.
bool append_interfaces(ifaddrs** list) {
  const std::vector<Shown> shown = missing_in(*list);
  if (shown.empty()) {
    return true;
  }
  auto* const ours = static_cast<Interface*>(std::calloc(shown.size(), sizeof(Interface)));
  if (ours == nullptr) {
    return false;
  }
  ifaddrs** last = list;
  while (*last != nullptr) {
    last = &(*last)->ifa_next;
  }
  for (std::size_t i = 0; i < shown.size(); ++i) {
    fill(ours[i], shown[i]);
    *last = &ours[i].entry;
    last = &ours[i].entry.ifa_next;
  }
  return true;
}

// Takes ours out of the list, and returns their memory.
void* cut_interfaces(ifaddrs** list) {
  while (*list != nullptr && !is_ours(*list)) {
    list = &(*list)->ifa_next;
  }
  static_assert(offsetof(Interface, entry) == 0);
  return std::exchange(*list, nullptr);
}

}  // namespace
}  // namespace weft::preload

WEFT_NEXT(void(ifaddrs*), stock_freeifaddrs, "freeifaddrs");

WEFT_EXPORT int getifaddrs(ifaddrs** list) noexcept {
  WEFT_NEXT(int(ifaddrs**), stock, "getifaddrs");
  const weft::srd::Uncancellable here;
  const int result = stock(list);
  if (result == 0 && !weft::preload::append_interfaces(list)) {
    stock_freeifaddrs(*list);
    errno = ENOMEM;
    return -1;
  }
  return result;
}

WEFT_EXPORT void freeifaddrs(ifaddrs* list) noexcept {
  std::free(weft::preload::cut_interfaces(&list));
  stock_freeifaddrs(list);
}
