// Owns one NIC of this process while it runs: the device, its way to the network, and who drives
// them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "emu/kernel/efa_device.hpp"
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
  void push() override { host_->push(); }
  void ring() override {
    host_->with([](Device& /*device*/, TimePoint /*now*/) {});
  }
  void expect_events() override;

  [[nodiscard]] emu::kernel::Device& device() { return *device_; }
  // For who is about to go, in a network that loses packets: stays a moment to acknowledge what
  // peers send once more because the first acknowledgement was lost.
  void linger();
  // In the child of a fork: nothing of this may be used any more, as the parent goes on using it.
  void abandon() { host_->abandon(); }
  // Begins to watch over the NIC while nobody polls.
  void need_background();

 private:
  using Device = emu::kernel::efa::EfaDevice;

  NicRunner(std::unique_ptr<srd::Host<Device>> host, Device& device)
      : host_(std::move(host)), device_(&device) {}

  std::unique_ptr<srd::Host<Device>> host_;
  Device* device_;
  std::once_flag background_once_;
  std::unique_ptr<srd::BackgroundThread<Device>> background_;
};

}  // namespace weft::preload
