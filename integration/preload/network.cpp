// Owns connecting a NIC of this process to its network.
#include "integration/preload/network.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emu/attach/client.hpp"
#include "emu/devices/registry.hpp"
#include "emu/kernel/statistics.hpp"
#include "emu/kernel/sysfs/sysfs.hpp"
#include "integration/preload/any_host.hpp"
#include "integration/preload/fd_table.hpp"
#include "srd/io/network_protocol.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/address_text.hpp"

namespace weft::preload {
namespace {

// Passes weftd's notices about the link on to the device and the files in the tree. It is made
// before the device, because attaching may already say that the link is down.
class LinkWatch {
 public:
  explicit LinkWatch(kernel::PortStateFiles files) : files_(std::move(files)) {}

  void set(bool up) {
    up_ = up;
    files_.write(up);
    if (device_ != nullptr) {
      device_->set_port_state(up);
    }
  }
  void attend(kernel::Device& device) {
    device_ = &device;
    device.begin_with_port_state(up_);
  }

 private:
  kernel::PortStateFiles files_;
  kernel::Device* device_ = nullptr;
  bool up_ = true;
};

// A place on a network, and what hears of its link.
struct Joined {
  devices::Network network;
  std::shared_ptr<LinkWatch> link;
  std::function<bool(std::uint64_t service, bool wanted)> claim;
  std::function<bool(const srd::Address& address)> may_exist;
};

// Without a network no other process can claim a service.
bool grant_alone(std::uint64_t /*service*/, bool /*wanted*/) { return true; }

// A NIC that is joined to nothing: the first process of its own network.
Result<devices::Network> alone(const srd::Address& address, const srd::NetworkProtocol& protocol) {
  constexpr std::size_t kMtu = 9000;
  auto io = protocol.open_loopback(address, kMtu);
  if (!io) {
    return tl::unexpected(io.error());
  }
  const std::uint32_t qpns = 1U << protocol.qpn_bits;
  return devices::Network{address, srd::AttachmentId{1}, srd::Life{1}, qpns, qpns, std::move(*io)};
}

Result<Joined> join(const std::string& root, const kernel::NicDescription& description,
                    const devices::Personality& kind) {
  const srd::NetworkProtocol& protocol = kind.protocol();
  const auto address = srd::parse_address(description.address);
  if (!address) {
    return tl::unexpected(address.error());
  }
  auto link = std::make_shared<LinkWatch>(kernel::PortStateFiles(root, description));
  const char* const socket = std::getenv("WEFT_SOCKET");
  if (socket == nullptr || *socket == '\0') {
    auto network = alone(*address, protocol);
    if (!network) {
      return tl::unexpected(network.error());
    }
    return Joined{std::move(*network), std::move(link), grant_alone,
                  [own = kind.addresses(*address)](const srd::Address& called) {
                    return std::ranges::find(own, called) != own.end();
                  }};
  }
  attach::AttachOptions options;
  options.nic = description.index;
  const char* const host = std::getenv("WEFT_HOST");
  if (host != nullptr && std::strcmp(host, kAnyHost) == 0) {
    options.host = host_of_tree(root.c_str());
  }
  options.protocol = &protocol;
  // Called by the thread that polls, which holds the lock.
  options.on_link = [link](bool up) { link->set(up); };
  auto attached = attach::attach(std::move(options));
  if (!attached) {
    return tl::unexpected(attached.error());
  }
  const auto claim = [services = attached->services](std::uint64_t service, bool wanted) {
    if (wanted) {
      return services->claim(service);
    }
    services->release(service);
    return true;
  };
  const auto on_group = [services = attached->services](const srd::Address& group, bool wanted) {
    if (wanted) {
      return services->join(group);
    }
    services->leave(group);
    return true;
  };
  const auto may_exist = [services = attached->services](const srd::Address& called) {
    return services->may_exist(called);
  };
  return Joined{
      devices::Network{attached->address, attached->id, attached->life, attached->first_qpn,
                       attached->qpn_count, std::move(attached->io), on_group},
      std::move(link), claim, may_exist};
}

// A container's tree is its image's to change. Opening what is there must not wait (a pipe), and
// reading must end (a device).
constexpr std::size_t kMaxDescription = 65536;

Result<kernel::NicDescription> read_description_in(int folder, const std::string& root,
                                                   std::size_t nic) {
  const std::string name = "nic" + std::to_string(nic);
  const srd::UniqueFd file(static_cast<int>(
      syscall(SYS_openat, folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
  if (!file) {
    return fail(ErrorCode::not_found, "cannot read " + root + "/" + name);
  }
  std::string text(kMaxDescription + 1, '\0');
  std::size_t length = 0;
  long count = 0;
  do {
    count = syscall(SYS_read, file.get(), text.data() + length, text.size() - length);
    length += count > 0 ? static_cast<std::size_t>(count) : 0;
  } while (count > 0 && length < text.size());
  if (count < 0 || length > kMaxDescription) {
    return fail(ErrorCode::parse_error, root + "/" + name + " describes no NIC");
  }
  text.resize(length);
  return kernel::nic_from_text(text);
}

srd::UniqueFd open_tree(const std::string& root) {
  return srd::UniqueFd(static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
}

}  // namespace

Result<kernel::NicDescription> read_description(const std::string& root, std::size_t nic) {
  return read_description_in(open_tree(root).get(), root, nic);
}

std::vector<kernel::NicDescription> read_descriptions(const std::string& root) {
  std::vector<kernel::NicDescription> nics;
  const srd::UniqueFd tree = open_tree(root);
  for (std::size_t nic = 0; nic < FdTable::kMaxNics; ++nic) {
    auto description = read_description_in(tree.get(), root, nic);
    if (description && description->index == nic) {
      nics.push_back(std::move(*description));
    }
  }
  return nics;
}

Result<StartedNic> start_nic(const std::string& root, const kernel::NicDescription& description) {
  const devices::Personality* const kind = devices::find_kind(description.kind);
  if (kind == nullptr) {
    return fail(ErrorCode::not_found, "there is no kind of device \"" + description.kind +
                                          "\"; known are " + devices::names_of_kinds());
  }
  auto joined = join(root, description, *kind);
  if (!joined) {
    return tl::unexpected(joined.error());
  }
  auto runner =
      kind->start(description, std::move(joined->network),
                  kernel::claim_statistics(kernel::statistics_path(root, description.name)));
  if (!runner) {
    return tl::unexpected(runner.error());
  }
  joined->link->attend((*runner)->device());
  // The background thread inherits this mask: the application's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  (*runner)->need_background();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return StartedNic{std::move(*runner), description.index, std::move(joined->claim),
                    std::move(joined->may_exist)};
}

}  // namespace weft::preload
