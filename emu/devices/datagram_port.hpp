// Owns the management datagrams of one NIC in this process, and the way of the files that programs
// open for them to the NIC.
#pragma once

#include <functional>
#include <memory>

#include "emu/devices/nic_runner.hpp"
#include "emu/kernel/umad/file.hpp"
#include "emu/kernel/umad/port.hpp"

namespace weft::devices {

class DatagramPort final : private kernel::UmadHost {
 public:
  // As Connections::Nic has them.
  using Claim = std::function<bool(std::uint64_t service, bool wanted)>;
  using MayExist = std::function<bool(const srd::Address& address)>;

  // Of a NIC whose device has a management(). It must outlive this.
  DatagramPort(NicRunner& runner, Claim claim, MayExist may_exist);
  ~DatagramPort();
  DatagramPort(const DatagramPort&) = delete;
  DatagramPort& operator=(const DatagramPort&) = delete;

  [[nodiscard]] std::unique_ptr<kernel::UmadFile> make_file() {
    return std::make_unique<kernel::UmadFile>(port_);
  }

 private:
  // --- UmadHost
  void exclusively(const std::function<void(TimePoint now)>& work) override;
  void expect_messages() override;
  [[nodiscard]] bool claim(std::uint64_t service) override { return claim_(service, true); }
  void release(std::uint64_t service) override { (void)claim_(service, false); }
  [[nodiscard]] bool may_exist(const srd::Address& address) override {
    return !may_exist_ || may_exist_(address);
  }

  NicRunner& runner_;
  Claim claim_;
  MayExist may_exist_;
  kernel::UmadPort port_;
};

}  // namespace weft::devices
