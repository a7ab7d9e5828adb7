// Owns bringing a NIC up for Gloo, and its end in the child of a fork.
#include "integration/gloo/device.hpp"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "integration/gloo/transport.hpp"

namespace weft::gloo {
namespace {

// The devices of this process, for the handlers of fork(). Never destroyed: a fork may come at any
// time.
struct Living {
  std::mutex mutex;
  std::vector<GlooDevice*> devices;
  std::mutex creation;  // taken before the other one
  std::weak_ptr<GlooDevice> latest;
};
Living& living() {
  static auto* const all = new Living;
  return *all;
}

}  // namespace

// Two locks: bringing a NIC up takes long and registers the device itself, so it runs under
// `creation` only, which lets no two threads bring up the same NIC.
std::shared_ptr<::gloo::transport::Device> create_device() {
  Living& all = living();
  const std::scoped_lock turn(all.creation);
  {
    const std::scoped_lock lock(all.mutex);
    if (auto there = all.latest.lock(); there != nullptr && !there->forked()) {
      return there;
    }
  }
  const nccl::Settings settings = nccl::settings_from_environment();
  auto found = nccl::find_devices(settings);
  if (!found) {
    GLOO_THROW_IO_EXCEPTION("weft: ", found.error().message);
  }
  auto nic = nccl::PluginNic::start(settings, found->front());
  if (!nic) {
    GLOO_THROW_IO_EXCEPTION("weft: ", nic.error().message);
  }
  auto made = std::make_shared<GlooDevice>(std::move(*nic), std::move(found->front()));
  const std::scoped_lock lock(all.mutex);
  all.latest = made;
  return made;
}

// Registers the handlers for fork() with the first device of the process.
GlooDevice::GlooDevice(std::unique_ptr<nccl::PluginNic> nic, nccl::DeviceDescription told)
    : nic_(std::move(nic)), told_(std::move(told)) {
  Living& all = living();
  const std::scoped_lock lock(all.mutex);
  static const int once = ::pthread_atfork(before_fork, after_fork, in_child);
  (void)once;
  all.devices.push_back(this);
}

// What was sent last must arrive: the process may end now.
GlooDevice::~GlooDevice() {
  Living& all = living();
  {
    const std::scoped_lock lock(all.mutex);
    std::erase(all.devices, this);
  }
  if (forked_) {
    // Destroying it would join that thread, which does not exist in this process.
    (void)nic_.release();  // its thread is the parent's
    return;
  }
  nic_->drain(std::chrono::milliseconds{200});
}

// Nobody changes the list while it is copied, and its locks are free in both processes.
void GlooDevice::before_fork() {
  living().creation.lock();
  living().mutex.lock();
}
void GlooDevice::after_fork() {
  living().mutex.unlock();
  living().creation.unlock();
}

// In the child nothing of the parent's devices may be touched: their rings are shared memory with a
// single consumer. The locks were taken for the child, too, so it has to give them back.
void GlooDevice::in_child() {
  after_fork();
  for (GlooDevice* const one : living().devices) {
    one->forked_ = true;
    one->nic_->abandon();
  }
}

nccl::PluginNic& GlooDevice::nic() {
  if (forked_) {
    GLOO_THROW_IO_EXCEPTION("weft: this process is a child of the one that has the NIC");
  }
  return *nic_;
}

std::shared_ptr<::gloo::transport::Context> GlooDevice::createContext(int rank, int size) {
  return std::make_shared<Context>(shared_from_this(), rank, size);
}

}  // namespace weft::gloo
