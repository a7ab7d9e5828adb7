// Owns one NIC of this process while it runs: the device, its way to the network, and the threads
// that drive them.
#pragma once

#include <memory>

#include "emu/devices/efa/device.hpp"
#include "emu/kernel/nic_description.hpp"
#include "srd/base/result.hpp"
#include "srd/run/background.hpp"
#include "srd/run/host.hpp"

namespace weft::preload {

class NicRunner final : public emu::kernel::Runner {
 public:
  // Counts into `statistics`, if not null. Joins the network that WEFT_SOCKET names; without one
  // the NIC reaches only itself.
  [[nodiscard]] static Result<std::unique_ptr<NicRunner>> start(
      const emu::kernel::NicDescription& description, emu::kernel::Statistics* statistics);

  void exclusively(const std::function<void()>& work) override;
  bool poll() override { return host_->poll() != 0; }
  void push() override;
  void ring() override;
  void took_completions() override { host_->took_completions(); }
  void expect_events() override;

  [[nodiscard]] emu::kernel::Device& device() { return *device_; }
  // Before the process ends: sends the acknowledgements that are owed, and in a network that loses
  // packets stays a moment to answer what peers send again. Waits for no lock: its holder may be
  // this very thread, below a signal handler.
  void linger();
  // This thread is making progress already: only poll(), push() and linger() are allowed.
  [[nodiscard]] bool held_here() const { return host_->held_here(); }
  // In the child of a fork: nothing of this may be used any more, as the parent goes on using it.
  void abandon() { host_->abandon(); }
  // Starts the thread that drives the NIC while the application does not poll. Once.
  void need_background();

 private:
  using Device = emu::devices::efa::EfaDevice;

  NicRunner(std::unique_ptr<srd::Host<Device>> host, Device& device)
      : host_(std::move(host)), device_(&device) {}

  std::unique_ptr<srd::Host<Device>> host_;
  Device* device_;
  std::unique_ptr<srd::BackgroundThread<Device>> background_;
};

}  // namespace weft::preload
