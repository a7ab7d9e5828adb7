// Owns one ethdev: bringing it up from devargs, and taking it down without a trace.
#pragma once

#include <rte_mempool.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "srd/base/result.hpp"
#include "srd/io/dpdk_port.hpp"

namespace weft::srd::dpdk {

// One thread at a time. Driver quirks are found by the name in the devargs.
class EthDevice {
 public:
  explicit EthDevice(const DpdkConfig& config);
  ~EthDevice();
  EthDevice(const EthDevice&) = delete;
  EthDevice& operator=(const EthDevice&) = delete;

  // Makes, configures and starts the device. A memif client whose server is not there yet stays
  // down, and may be opened again later.
  [[nodiscard]] Result<void> open();
  void close();

  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] rte_mempool* pool() const { return pool_; }
  [[nodiscard]] std::size_t max_frame() const { return max_frame_; }
  [[nodiscard]] bool link_is_up() const;
  [[nodiscard]] std::uint32_t gigabits() const;
  // The driver's queue interrupt, or -1.
  [[nodiscard]] int interrupt_fd() const { return interrupt_fd_; }
  // The other side comes and goes, and the driver finds it again only when the device is made anew.
  [[nodiscard]] bool must_reopen() const;
  // Frames pass through memory of this machine, where nothing damages them.
  [[nodiscard]] bool is_memory() const;

 private:
  [[nodiscard]] Result<void> make();
  [[nodiscard]] Result<void> start();
  [[nodiscard]] bool configure(bool interrupts);
  [[nodiscard]] Result<void> make_pool();
  void find_limits();
  [[nodiscard]] bool is_driver(const char* name) const;
  [[nodiscard]] std::string option(const std::string& key) const;

  DpdkConfig config_;
  std::string name_;     // of the device
  std::string options_;  // the rest of the devargs
  std::uint16_t port_ = 0;
  bool made_ = false;
  bool open_ = false;
  rte_mempool* pool_ = nullptr;
  std::size_t max_frame_ = 0;
  std::uint16_t mtu_ = 0;  // 0: the driver has none of its own
  int interrupt_fd_ = -1;
};

}  // namespace weft::srd::dpdk
