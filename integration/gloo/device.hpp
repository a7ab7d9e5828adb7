// Owns Gloo's way to a NIC of weft.
#pragma once

#include <gloo/transport/device.h>

#include <memory>
#include <string>

#include "integration/nccl/plugin_nic.hpp"

namespace weft::gloo {

// The first NIC of the host that the environment names, or a UDP address: as for the NCCL plugin,
// with the same variables. All groups of a process share it: PyTorch asks for a device for each.
// Throws ::gloo::IoException if there is none.
[[nodiscard]] std::shared_ptr<::gloo::transport::Device> create_device();

// One NIC, shared by all contexts; it lives until the last of them is gone, because each holds a
// reference. Any thread may use it: nic() locks.
class GlooDevice final : public ::gloo::transport::Device,
                         public std::enable_shared_from_this<GlooDevice> {
 public:
  GlooDevice(std::unique_ptr<nccl::PluginNic> nic, nccl::DeviceDescription told);
  ~GlooDevice() override;

  [[nodiscard]] std::string str() const override { return "weft, " + told_.name; }
  [[nodiscard]] const std::string& getPCIBusID() const override { return no_bus_; }
  [[nodiscard]] int getInterfaceSpeed() const override { return told_.speed; }
  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override;

  [[nodiscard]] bool forked() const { return forked_; }
  // Throws in the child of a fork: the NIC is its parent's.
  [[nodiscard]] nccl::PluginNic& nic();

 private:
  static void before_fork();
  static void after_fork();
  static void in_child();

  std::unique_ptr<nccl::PluginNic> nic_;
  nccl::DeviceDescription told_;
  std::string no_bus_;
  bool forked_ = false;
};

}  // namespace weft::gloo
