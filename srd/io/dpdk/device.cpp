// Owns the calls that bring devices up, and the exceptions that single drivers need.
//
// The order is DPDK's: attach the device (make()), find out what it can carry (find_limits()),
// configure one queue in each direction, start. Most of what is special here is for virtual
// devices: a memif client whose server is gone cannot be started again and has to be made anew
// (must_reopen()), af_packet needs buffers of its own measure, and few drivers can wake a thread by
// an interrupt.
#include "srd/io/dpdk/device.hpp"

#include <linux/if.h>
#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "srd/io/dpdk/environment.hpp"
#include "srd/io/dpdk/interrupts.hpp"
#include "srd/io/posix.hpp"

namespace weft::srd::dpdk {
namespace {

constexpr std::uint16_t kDescriptors = 1024;
constexpr unsigned kBuffers = 4096;
constexpr unsigned kCachedBuffers = 256;
constexpr std::size_t kEthernet = 14;
constexpr std::size_t kAfPacketBlock = 65536;
constexpr std::size_t kVlanAndChecksum = 8;
constexpr std::chrono::milliseconds kMemifSettles{20};

std::string rte_text(const std::string& what, int code) {
  return "DPDK: " + what + ": " + rte_strerror(code < 0 ? -code : rte_errno);
}

// The largest payload of a network device of the kernel, in our network namespace.
std::size_t kernel_mtu(const std::string& interface) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::memcpy(request.ifr_name, interface.data(),
              std::min(interface.size(), sizeof request.ifr_name - 1));
  return ::ioctl(socket.get(), SIOCGIFMTU, &request) == 0
             ? static_cast<std::size_t>(request.ifr_mtu)
             : 1500;
}

// How many blocks af_packet may have in each direction: they count against RLIMIT_MEMLOCK.
rlim_t af_packet_blocks() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
    limit.rlim_cur = 0;
  }
  return std::clamp<rlim_t>(limit.rlim_cur / 8 * 7 / 2 / kAfPacketBlock, 4, 256);
}

// A server that was killed leaves its socket file, on which the next one could not bind. It is
// removed only if no process listens there.
void remove_stale_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED) {
    ::unlink(path.c_str());
  }
}

}  // namespace

EthDevice::EthDevice(const DpdkConfig& config) : config_(config) {
  const std::string devargs =
      config.devargs.rfind("vdev:", 0) == 0 ? config.devargs.substr(5) : config.devargs;
  const std::size_t comma = devargs.find(',');
  name_ = devargs.substr(0, comma);
  options_ = comma == std::string::npos ? "" : devargs.substr(comma + 1);
  // By default the buffers of af_packet hold 2 KiB; the driver drops larger frames, and counts them
  // as sent.
  if (is_driver("net_af_packet") && option("framesz").empty() && option("blocksz").empty()) {
    // The driver treats its blocks as one array, so the room of a frame must divide a block.
    const std::size_t frame = std::bit_ceil(config.max_frame + 128);
    options_ += ",blocksz=" + std::to_string(kAfPacketBlock) + ",framesz=" + std::to_string(frame) +
                ",framecnt=" + std::to_string(af_packet_blocks() * (kAfPacketBlock / frame));
  }
}

EthDevice::~EthDevice() { close(); }

bool EthDevice::is_driver(const char* name) const { return name_.rfind(name, 0) == 0; }

std::string EthDevice::option(const std::string& key) const {
  const std::string all = "," + options_ + ",";
  const std::size_t at = all.find("," + key + "=");
  if (at == std::string::npos) {
    return {};
  }
  const std::size_t begin = at + key.size() + 2;
  return all.substr(begin, all.find(',', begin) - begin);
}

bool EthDevice::must_reopen() const {
  return is_driver("net_memif") && option("role") != "server" && option("role") != "master";
}

bool EthDevice::is_memory() const {
  return is_driver("net_memif") || is_driver("net_vhost") || is_driver("net_virtio_user") ||
         is_driver("net_ring");
}

Result<void> EthDevice::make() {
  if (made_) {
    return {};
  }
  if (is_driver("net_memif") && !must_reopen() && option("socket-abstract") == "no") {
    remove_stale_socket(option("socket"));
  }
  if (is_virtual(config_.devargs)) {
    const int made = ::rte_vdev_init(name_.c_str(), options_.c_str());
    if (made != 0) {
      return fail(ErrorCode::io_error, rte_text("device '" + config_.devargs + "'", made));
    }
  } else if (::rte_eth_dev_get_port_by_name(name_.c_str(), &port_) != 0) {
    const int probed = ::rte_dev_probe(config_.devargs.c_str());
    if (probed != 0) {
      return fail(ErrorCode::not_found,
                  rte_text("device '" + config_.devargs +
                               "' (is it bound to vfio-pci, or its driver's port?)",
                           probed));
    }
  }
  made_ = true;
  const int found = ::rte_eth_dev_get_port_by_name(name_.c_str(), &port_);
  if (found != 0) {
    close();
    return fail(ErrorCode::not_found, rte_text("no port of the name '" + name_ + "'", found));
  }
  return {};
}

// The largest frame that both the driver and our buffers take.
void EthDevice::find_limits() {
  max_frame_ = config_.max_frame;
  mtu_ = 0;
  if (is_driver("net_memif")) {
    return;  // it reports 1518, but carries whatever its ring holds
  }
  rte_eth_dev_info info{};
  if (::rte_eth_dev_info_get(port_, &info) != 0) {
    return;
  }
  std::size_t payload = std::min<std::size_t>(max_frame_ - kEthernet, info.max_mtu);
  if (info.max_rx_pktlen != 0 && info.max_rx_pktlen != UINT32_MAX) {
    payload = std::min<std::size_t>(payload, info.max_rx_pktlen - kEthernet - kVlanAndChecksum);
  }
  if (is_driver("net_af_packet")) {
    const std::string size = option("framesz");
    const std::size_t frame = size.empty() ? 2048 : std::strtoul(size.c_str(), nullptr, 10);
    payload = std::min({config_.max_frame - kEthernet, kernel_mtu(option("iface")),
                        frame - std::min<std::size_t>(frame, 128)});
    max_frame_ = payload + kEthernet;
    return;  // its MTU is the interface's
  }
  max_frame_ = payload + kEthernet;
  mtu_ = static_cast<std::uint16_t>(std::max<std::size_t>(payload, info.min_mtu));
}

Result<void> EthDevice::make_pool() {
  static std::atomic<unsigned> pools{0};
  const std::string name = "weft-" + std::to_string(pools++);
  // af_packet wants room for the whole buffers of the kernel.
  const std::size_t kernel_frame = std::strtoul(option("framesz").c_str(), nullptr, 10);
  const std::size_t largest = std::max(config_.max_frame + kVlanAndChecksum, kernel_frame);
  const std::size_t room = (RTE_PKTMBUF_HEADROOM + largest + 63) & ~std::size_t{63};
  pool_ = ::rte_pktmbuf_pool_create(name.c_str(), kBuffers, kCachedBuffers, 0,
                                    static_cast<std::uint16_t>(room), SOCKET_ID_ANY);
  if (pool_ == nullptr) {
    return fail(ErrorCode::out_of_resources,
                rte_text("memory for packets (give more with --eal '-m MEGABYTES')", 0));
  }
  return {};
}

// One queue in each direction: one thread drives the port.
bool EthDevice::configure(bool interrupts) {
  rte_eth_dev_info info{};
  rte_eth_conf conf{};
  conf.rxmode.mtu = mtu_;
  conf.intr_conf.rxq = interrupts ? 1 : 0;
  if (::rte_eth_dev_info_get(port_, &info) == 0) {
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
  }
  std::uint16_t rx = kDescriptors;
  std::uint16_t tx = kDescriptors;
  return ::rte_eth_dev_configure(port_, 1, 1, &conf) == 0 &&
         ::rte_eth_dev_adjust_nb_rx_tx_desc(port_, &rx, &tx) == 0 &&
         ::rte_eth_rx_queue_setup(port_, 0, rx, SOCKET_ID_ANY, nullptr, pool_) == 0 &&
         ::rte_eth_tx_queue_setup(port_, 0, tx, SOCKET_ID_ANY, nullptr) == 0;
}

// Drivers that refuse queue interrupts, at once or only when they start, are configured without.
Result<void> EthDevice::start() {
  find_limits();
  const bool asks_interrupts = !is_driver("net_memif") && !is_driver("net_af_packet");
  if (!(asks_interrupts && configure(true)) && !configure(false)) {
    return fail(ErrorCode::io_error, rte_text("configuring '" + name_ + "'", 0));
  }
  int started = ::rte_eth_dev_start(port_);
  if (started != 0 && asks_interrupts && configure(false)) {
    started = ::rte_eth_dev_start(port_);
  }
  if (started != 0) {
    return fail(ErrorCode::io_error, rte_text("starting '" + name_ + "'", started));
  }
  (void)::rte_eth_promiscuous_enable(port_);  // frames come to the transport's own addresses
  interrupt_fd_ = -1;
  if (asks_interrupts && ::rte_eth_dev_rx_intr_enable(port_, 0) == 0) {
    (void)::rte_eth_dev_rx_intr_disable(port_, 0);
    interrupt_fd_ = ::rte_eth_dev_rx_intr_ctl_q_get_fd(port_, 0);
  }
  open_ = true;
  return {};
}

Result<void> EthDevice::open() {
  if (pool_ == nullptr) {
    if (auto pool = make_pool(); !pool) {
      return pool;
    }
  }
  if (auto made = make(); !made) {
    return made;
  }
  auto started = start();
  if (!started) {
    close();
    if (must_reopen()) {
      return {};
    }
  }
  return started;
}

void EthDevice::close() {
  const auto level = ::rte_log_get_global_level();
  if (is_memory()) {
    ::rte_log_set_global_level(RTE_LOG_EMERG);  // it is normal that the other side closed first
  }
  if (made_ && is_driver("net_memif")) {
    // The other side may be closing too, and the driver's thread may not have noticed yet: let it
    // finish before its device disappears.
    std::this_thread::sleep_for(kMemifSettles);
  }
  std::unique_lock guard(driver_lock(), std::defer_lock);
  if (is_driver("net_memif")) {  // others wait here for their callbacks to end
    guard.lock();
  }
  if (open_) {
    (void)::rte_eth_dev_stop(port_);
    open_ = false;
  }
  if (made_) {
    (void)::rte_eth_dev_close(port_);
    if (is_virtual(config_.devargs)) {
      (void)::rte_vdev_uninit(name_.c_str());
    }
    made_ = false;
  }
  ::rte_log_set_global_level(level);
  interrupt_fd_ = -1;
  // If the driver has not returned all buffers, their memory must stay.
  if (pool_ != nullptr && ::rte_mempool_full(pool_) == 1) {
    ::rte_mempool_free(pool_);
  }
  pool_ = nullptr;
}

bool EthDevice::link_is_up() const {
  rte_eth_link link{};
  return open_ && ::rte_eth_link_get_nowait(port_, &link) == 0 &&
         link.link_status == RTE_ETH_LINK_UP;
}

std::uint32_t EthDevice::gigabits() const {
  rte_eth_link link{};
  if (is_virtual(config_.devargs)) {
    return 100;  // what these say of their speed is made up
  }
  if (!open_ || ::rte_eth_link_get_nowait(port_, &link) != 0 ||
      link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN) {
    return 0;
  }
  return link.link_speed / 1000;
}

}  // namespace weft::srd::dpdk
