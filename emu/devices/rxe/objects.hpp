// Owns the soft-RoCE device's objects: each adds itself to the device's tables when it is made, and
// gives back what it holds when its handle is destroyed.
//
// The engine speaks in numbers. A table turns such a number back into the object, and a place in it
// is null from the object's end until the number is used again: whoever looks one up checks for
// that.
#pragma once

#include <algorithm>
#include <vector>

#include "emu/devices/rxe/device.hpp"
#include "srd/base/check.hpp"

namespace weft::devices::rxe {

struct RxeDevice::OwnedPd final : kernel::Pd {
  OwnedPd(RxeDevice& owner, std::uint32_t number) : device(owner), domain(number) { ++device.pds_; }
  ~OwnedPd() override { --device.pds_; }
  RxeDevice& device;
  std::uint32_t domain;
};

struct RxeDevice::OwnedMr final : kernel::Mr {
  OwnedMr(RxeDevice& owner, std::uint32_t key) : device(owner) {
    lkey = rkey = key;
    ++device.mrs_;
  }
  ~OwnedMr() override {
    WEFT_CHECK(device.engine_.keys().deregister(lkey) == 0);
    --device.mrs_;
  }
  // A window that is bound to a region keeps it from being deregistered, as on Linux.
  [[nodiscard]] bool busy() const override {
    return Object::busy() || device.engine_.keys().has_windows(lkey);
  }
  [[nodiscard]] int error_of_busy() const override { return EINVAL; }  // as Linux's driver
  RxeDevice& device;
};

struct RxeDevice::OwnedMw final : kernel::Mw {
  OwnedMw(RxeDevice& owner, std::uint32_t key) : device(owner), window(key) {
    rkey = key;
    ++device.mws_;
  }
  ~OwnedMw() override {
    device.engine_.keys().free_window_at(window);
    --device.mws_;
  }
  RxeDevice& device;
  std::uint32_t window;  // its first key: later ones differ in the low byte
};

struct RxeDevice::OwnedAh final : kernel::Ah {
  OwnedAh(RxeDevice& owner, const kernel::Pd& pd, const roce::AddressVector& to)
      : device(owner), domain(static_cast<const OwnedPd&>(pd).domain), address(to) {
    number = device.ahs_.add(this) + 1;
  }
  ~OwnedAh() override { device.ahs_.remove(number - 1); }
  RxeDevice& device;
  std::uint32_t domain;
  roce::AddressVector address;
  std::uint32_t number = 0;
};

class RxeDevice::OwnedCq final : public CompletionQueue {
 public:
  OwnedCq(RxeDevice& device, const kernel::FileServices& file, std::uint32_t entries, bool awaited)
      : CompletionQueue(file, entries), device_(device), id_(device.cqs_.add(this)) {
    if (awaited) {
      device_.awaited_.push_back(this);
    }
  }
  ~OwnedCq() override {
    device_.publish();  // nothing of it stays behind
    device_.cqs_.remove(id_);
    std::erase(device_.awaited_, this);
  }
  [[nodiscard]] std::uint32_t id() const { return id_; }

 private:
  RxeDevice& device_;
  std::uint32_t id_;
};

class RxeDevice::OwnedSrq final : public SharedReceiveQueue {
 public:
  OwnedSrq(RxeDevice& device, const kernel::FileServices& file, const kernel::Pd& pd,
           std::uint32_t id, const kernel::SrqRequest& request)
      : SharedReceiveQueue(file, request.max_wr, request.max_sge),
        device_(device),
        id_(id),
        domain_(static_cast<const OwnedPd&>(pd).domain) {
    number = id;
    if (device_.srqs_.size() <= id) {
      device_.srqs_.resize(id + std::size_t{1});
    }
    device_.srqs_[id] = this;
    ++device_.srq_count_;
  }
  ~OwnedSrq() override {
    device_.srqs_[id_] = nullptr;
    device_.engine_.destroy_srq(id_);
    --device_.srq_count_;
  }
  [[nodiscard]] std::uint32_t id() const { return id_; }
  [[nodiscard]] std::uint32_t domain() const { return domain_; }

 private:
  RxeDevice& device_;
  std::uint32_t id_;
  std::uint32_t domain_;
};

class RxeDevice::OwnedQp final : public QueuePair {
 public:
  OwnedQp(RxeDevice& device, const kernel::FileServices& file, const Shape& shape,
          const kernel::QpRequest& request)
      : QueuePair(file, shape, static_cast<OwnedCq&>(*request.recv_cq),
                  static_cast<const OwnedSrq*>(request.srq)),
        device_(device),
        domain_(static_cast<const OwnedPd&>(*request.pd).domain) {}
  // Before the engine forgets the queue pair its completions are written: the program may still
  // poll them after ibv_destroy_qp().
  ~OwnedQp() override {
    if (number == 0) {
      return;
    }
    device_.publish();
    for (const auto& group : groups) {
      (void)device_.detach_multicast(*this, group);
    }
    std::erase(device_.failed_, this);
    device_.qps_[number - device_.config_.first_qpn] = nullptr;
    WEFT_CHECK(device_.engine_.destroy_qp(number) == 0);
  }
  // It has got a number of the engine.
  void enlist(std::uint32_t qpn) {
    number = qpn;
    device_.qps_[qpn - device_.config_.first_qpn] = this;
  }
  [[nodiscard]] std::uint32_t domain() const { return domain_; }

 private:
  RxeDevice& device_;
  std::uint32_t domain_;
};

}  // namespace weft::devices::rxe
