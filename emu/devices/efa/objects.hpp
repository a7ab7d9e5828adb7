// Owns the EFA device's objects: each gives back what it holds when its handle is destroyed.
//
// UverbsFile destroys objects in an order in which nothing in use goes first, and refuses to
// destroy what is busy; so destructors here need not fail, and ignore what the NIC answers.
#pragma once

#include <algorithm>
#include <vector>

#include "emu/devices/efa/device.hpp"

namespace weft::devices::efa {

struct EfaPd final : kernel::Pd {
  EfaPd(nic::Nic& from, std::uint32_t id) : nic(from), number(id) {}
  ~EfaPd() override { (void)nic.free_pd(number); }
  nic::Nic& nic;
  std::uint32_t number;
};

// One key serves as local and as remote key, as with a real device.
struct EfaMr final : kernel::Mr {
  EfaMr(nic::Nic& from, srd::RegionKey key) : nic(from), region(key) { lkey = rkey = key.value(); }
  ~EfaMr() override { (void)nic.deregister(region); }
  nic::Nic& nic;
  srd::RegionKey region;
};

struct EfaAh final : kernel::Ah {
  EfaAh(nic::Nic& from, std::uint32_t domain, std::uint16_t id)
      : nic(from), pd(domain), number(id) {}
  ~EfaAh() override { (void)nic.destroy_ah(pd, number); }
  nic::Nic& nic;
  std::uint32_t pd;
  std::uint16_t number;
};

// A queue also adds itself to the device's list of queues to look at in every round.
class EfaDevice::OwnedCq final : public CompletionQueue {
 public:
  OwnedCq(EfaDevice& device, kernel::QueueMemory& memory, const Shape& shape)
      : CompletionQueue(memory, shape), device_(device) {
    device_.cqs_.push_back(this);
  }
  ~OwnedCq() override { std::erase(device_.cqs_, this); }

 private:
  EfaDevice& device_;
};

class EfaDevice::OwnedQp final : public QueuePair {
 public:
  OwnedQp(EfaDevice& device, nic::DatagramQp& qp, const kernel::FileServices& file,
          const Shape& shape, CompletionQueue& send_cq, CompletionQueue& recv_cq)
      : QueuePair(device.nic_, qp, file.queues, shape, send_cq, recv_cq),
        device_(device),
        events_(file.async_events) {
    device_.qps_.push_back(this);
  }
  ~OwnedQp() override { std::erase(device_.qps_, this); }

  void report(abi::AsyncEvent event) {
    ++async_events;
    events_.send({user_handle, static_cast<std::uint32_t>(event), 0});
  }

 private:
  EfaDevice& device_;
  kernel::EventChannel& events_;
};

}  // namespace weft::devices::efa
