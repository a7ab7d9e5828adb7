// Owns one device of the plugin in a real process: its carrier, its engine, and which threads make
// progress.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "integration/nccl/core/net_machine.hpp"
#include "srd/run/background.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/host.hpp"

namespace weft::nccl {

// Where the devices come from and how they are tuned; docs/nccl.md lists the environment.
struct Settings {
  std::string socket;                  // of weftd; empty: UDP
  std::vector<std::string> addresses;  // UDP: one device each; empty: a loopback address of our own
  std::size_t mtu = 0;                 // UDP: of packets; 0: by the address
  Duration timeout = std::chrono::seconds{10};
  std::string path_selector;  // empty: the engine's default
};
[[nodiscard]] Settings settings_from_environment();

// What NCCL is told before the device is up.
struct DeviceDescription {
  std::string name;     // lives as long as the process: NCCL keeps the pointer
  std::size_t nic = 0;  // its number on the host, or that of its address
  std::uint64_t guid = 0;
  int speed = 0;      // Mb/s
  float latency = 0;  // us
};

// Any thread may call; each call takes the Host's lock. The machine belongs to that lock, whoever
// runs it: NCCL's threads through with() and poll(), or the background thread. Pointers to
// connections and requests stay valid between calls, their contents (except Request::state) do not.
class PluginNic {
 public:
  using Host = srd::Host<NetMachine>;

  // The device is one of find_devices() with the same settings.
  [[nodiscard]] static Result<std::unique_ptr<PluginNic>> start(const Settings& settings,
                                                                const DeviceDescription& device);
  ~PluginNic();
  PluginNic(const PluginNic&) = delete;
  PluginNic& operator=(const PluginNic&) = delete;

  // Runs f(core) under the lock, and sends what it made ready.
  template <class F>
  decltype(auto) with(F&& f) {
    return host_->with([&](NetMachine& machine, TimePoint) { return f(machine.core()); });
  }
  // The same with f(machine).
  template <class F>
  decltype(auto) with_machine(F&& f) {
    return host_->with([&](NetMachine& machine, TimePoint) { return f(machine); });
  }
  // Whether a packet moved, as far as this thread knows.
  [[nodiscard]] bool poll() { return host_->poll() != 0; }
  // Until a packet or a timer comes, for `limit` at the most.
  void sleep(Duration limit) { host_->sleep(srd::monotonic_now() + limit); }
  // NCCL has been given a request, and then was told its end.
  void begin() { open_.fetch_add(1, std::memory_order_relaxed); }
  void end() {
    if (open_.fetch_sub(1, std::memory_order_relaxed) == 1 && tells_early_) [[unlikely]] {
      host_->hand_over();
    }
  }
  // From now on receives may be told before their data are there. NCCL waits for these by reading
  // memory, and calls nothing once it was told the end of its last request: the background thread
  // takes over then.
  void tell_early() { tells_early_ = true; }
  // Polls until what was sent has been acknowledged, for `limit` at the most, and then until peers
  // have heard of what came from them: the process may end now.
  void drain(Duration limit);
  // A connection was closed. Polls until what closed ones have sent has been acknowledged, and,
  // after the last one, until peers have heard of what came from them: NCCL may know no finalize(),
  // so this may be the last call before the process ends. All such waits together are bounded.
  void finish_closing();
  // Called in the child of a fork: nothing of this PluginNic may be touched afterwards, not even
  // destroyed.
  void abandon() { host_->abandon(); }
  [[nodiscard]] Result<void> write_report(const std::string& path, const std::string& device);

 private:
  PluginNic() = default;

  std::atomic<std::uint32_t> open_{0};  // requests
  std::atomic<bool> tells_early_{false};
  // ns, in finish_closing(): until messages were acknowledged, and for peers that did not answer.
  std::atomic<std::int64_t> waited_{0};
  std::atomic<std::int64_t> asked_{0};
  std::unique_ptr<Host> host_;
  std::unique_ptr<srd::BackgroundThread<NetMachine>> background_;
};

// After the poll() of a call that NCCL repeats. In vain: nothing moved, and what is waited for is
// not there. NCCL's own threads give up their core then, but whoever only repeats the call keeps it
// from the thread or process that is to answer: with more of them than cores, one message took as
// long as a time slice.
void yield_after_vain_polls(bool in_vain);

// The devices that there are, in order.
[[nodiscard]] Result<std::vector<DeviceDescription>> find_devices(const Settings& settings);

}  // namespace weft::nccl
