// Owns one NIC of this process while it runs: the device, its way to the network, and the threads
// that drive them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "emu/kernel/device.hpp"
#include "srd/base/result.hpp"
#include "srd/run/background.hpp"
#include "srd/run/host.hpp"
#include "srd/run/last_rounds.hpp"

namespace weft::devices {

// What the preload library holds of each NIC. Any thread of the application may call, also below a
// signal handler that has interrupted a call on the same NIC: held_here() tells.
class NicRunner : public kernel::Runner {
 public:
  [[nodiscard]] virtual kernel::Device& device() = 0;
  // Before the process ends: srd::make_last_rounds(). Waits for no lock: its holder may be this
  // very thread, below a signal handler.
  virtual void finish_before_exit(Duration longest) = 0;
  // As exclusively(), after a round of progress; but if another thread has the device, nothing is
  // done. True: it was done.
  [[nodiscard]] virtual bool try_exclusively(const std::function<void()>& work) = 0;
  // This thread is making progress already: only poll(), push() and finish_before_exit() are
  // allowed.
  [[nodiscard]] virtual bool held_here() const = 0;
  // In the child of a fork: nothing of this may be used any more, as the parent goes on using it.
  virtual void abandon() = 0;
  // Has the background thread look at the device, where that is asleep. Takes no lock.
  virtual void kick() = 0;
  // Starts the thread that drives the NIC while the application does not poll. Once, with the
  // signals blocked that are for the application's own threads.
  virtual void need_background() = 0;
};

// The runner for devices of type D. Applications' threads and the background thread take turns at
// the host's lock. D is a kernel::Device and a srd::Machine as srd::Host wants it, and says in
// addition what srd::make_last_rounds() asks.
template <class D>
class DeviceRunner final : public NicRunner {
 public:
  [[nodiscard]] static Result<std::unique_ptr<NicRunner>> create(
      std::unique_ptr<D> device, std::unique_ptr<srd::PacketIo> io) {
    D& borrowed = *device;
    auto host = srd::Host<D>::create(std::move(device), std::move(io));
    if (!host) {
      return tl::unexpected(host.error());
    }
    return std::unique_ptr<NicRunner>(new DeviceRunner(std::move(*host), borrowed));
  }

  void exclusively(const std::function<void()>& work) override {
    host_->with([&work](D& /*device*/, TimePoint /*now*/) { work(); });
  }
  [[nodiscard]] bool try_exclusively(const std::function<void()>& work) override {
    bool done = false;
    (void)host_->poll([&](D& /*device*/, TimePoint /*now*/) {
      work();
      done = true;
    });
    return done;
  }
  bool poll() override { return host_->poll() != 0; }
  void push() override {
    if (host_->push()) {
      host_->linger();
    }
  }
  // A thread that only posts must still make receive progress: peers wait for its answers.
  void post(const std::function<void()>& fetch) override {
    if (host_->post([&fetch](D& /*device*/) { fetch(); })) {
      host_->linger();
    }
    constexpr std::uint32_t kPostsBetween = 32;
    if (posts_.fetch_add(1, std::memory_order_relaxed) % kPostsBetween == kPostsBetween - 1) {
      (void)host_->poll();
    }
  }
  void push_unpolled() override {
    if (host_->held_here()) {
      (void)host_->push();  // leaves a mark for the round that this signal handler interrupted
    } else if (host_->push_unpolled()) {
      host_->linger();
    }
  }
  void took_completions(bool receives) override { host_->took_completions(receives); }
  void expect_events() override {
    if (host_->held_here()) {
      return;
    }
    // Waits for the lock instead of only trying it: the next poll overwrites the arming.
    host_->look([](D& device) { device.look_at_arms(); });
    host_->expect_events();
    background_->take_over_now();
  }

  [[nodiscard]] kernel::Device& device() override { return *device_; }
  void finish_before_exit(Duration longest) override {
    (void)srd::make_last_rounds(*host_, longest);
  }
  [[nodiscard]] bool held_here() const override { return host_->held_here(); }
  void abandon() override { host_->abandon(); }
  void kick() override { host_->kick(); }
  void need_background() override {
    background_ = std::make_unique<srd::BackgroundThread<D>>(*host_, /*watchful=*/true);
  }

 private:
  DeviceRunner(std::unique_ptr<srd::Host<D>> host, D& device)
      : host_(std::move(host)), device_(&device) {}

  std::unique_ptr<srd::Host<D>> host_;
  D* device_;  // owned by the host
  std::atomic<std::uint32_t> posts_{0};
  std::unique_ptr<srd::BackgroundThread<D>> background_;
};

}  // namespace weft::devices
