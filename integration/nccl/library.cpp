// Owns the plugin's one life in a process: its devices, and who uses them.
#include "integration/nccl/library.hpp"

#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

namespace weft::nccl::plugin {
namespace {

// How long finalize() waits at most for what was sent to be acknowledged.
constexpr Duration kDrain = std::chrono::milliseconds{200};

struct Library {
  std::mutex mutex;  // of the life of devices; calls for connections do not take it
  abi::Logger logger = nullptr;
  int users = 0;
  Settings settings;
  // By pointer, since NCCL keeps pointers to names.
  std::vector<std::unique_ptr<DeviceDescription>> devices;
  std::vector<std::unique_ptr<Nic>> nics;
  bool forked = false;

  void log(int level, const std::string& text) const {
    if (logger != nullptr) {
      logger(level, abi::kLogInit | abi::kLogNet, "weft", 0, "NET/weft: %s", text.c_str());
    }
  }
};

// Never destroyed: threads of the process may call until it ends.
Library& library() {
  static auto* const the_one = new Library;
  return *the_one;
}

// In the child nothing of the parent's devices may be touched: rings have one consumer.
void after_fork() {
  for (const auto& nic : library().nics) {
    if (nic) {
      nic->abandon();
      library().forked = true;
    }
  }
}

// Finds the devices, once in a process's life.
void prepare(Library& all) {
  // Without GPUDirect the low-latency protocols only add copies; NCCL reads this later.
  ::setenv("NCCL_PROTO", "Simple", 0);
  static const int once = ::pthread_atfork(nullptr, nullptr, after_fork);
  (void)once;
  all.settings = settings_from_environment();
  auto found = find_devices(all.settings);
  if (!found) {
    all.log(abi::kWarn, found.error().message);
    return;
  }
  for (DeviceDescription& device : *found) {
    all.devices.push_back(std::make_unique<DeviceDescription>(std::move(device)));
    all.nics.emplace_back();
  }
}

}  // namespace

bool forked() { return library().forked; }

void warn(const std::string& text) { library().log(abi::kWarn, text); }

abi::Result result_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return abi::kSuccess;
    case Outcome::system_error:
      return abi::kSystemError;
    case Outcome::internal_error:
      return abi::kInternalError;
    case Outcome::invalid_argument:
      return abi::kInvalidArgument;
    case Outcome::invalid_usage:
      return abi::kInvalidUsage;
    case Outcome::remote_error:
      return abi::kRemoteError;
  }
  return abi::kInternalError;
}

// Devices come up when they are first used, not when they are listed.
Nic* nic_of(int index) {
  Library& all = library();
  const std::scoped_lock lock(all.mutex);
  if (index < 0 || static_cast<std::size_t>(index) >= all.devices.size()) {
    return nullptr;
  }
  auto& nic = all.nics[static_cast<std::size_t>(index)];
  if (!nic) {
    auto started = Nic::start(all.settings, static_cast<std::size_t>(index));
    if (!started) {
      all.log(abi::kWarn, started.error().message);
      return nullptr;
    }
    nic = std::move(*started);
  }
  return nic.get();
}

abi::Result init(abi::Logger logger) {
  return guarded([&] {
    Library& all = library();
    const std::scoped_lock lock(all.mutex);
    all.logger = logger;
    ++all.users;
    if (all.devices.empty()) {
      prepare(all);
    }
    return all.devices.empty() ? abi::kSystemError : abi::kSuccess;
  });
}

// The last communicator has gone: what was sent must arrive, for the process may end now.
abi::Result finalize() {
  return guarded([] {
    Library& all = library();
    const std::scoped_lock lock(all.mutex);
    if (all.users == 0 || --all.users != 0) {
      return abi::kSuccess;
    }
    const char* const report = std::getenv("WEFT_NCCL_REPORT");
    for (std::size_t i = 0; i < all.nics.size(); ++i) {
      if (!all.nics[i]) {
        continue;
      }
      all.nics[i]->drain(kDrain);
      if (report != nullptr && *report != '\0') {
        if (const auto written = all.nics[i]->write_report(report, all.devices[i]->name);
            !written) {
          all.log(abi::kWarn, written.error().message);
        }
      }
      all.nics[i].reset();
    }
    return abi::kSuccess;
  });
}

// How many there are is known without bringing any of them up.
abi::Result devices(int* count) {
  return guarded([&] {
    Library& all = library();
    const std::scoped_lock lock(all.mutex);
    *count = static_cast<int>(all.devices.size());
    return abi::kSuccess;
  });
}

const DeviceDescription* device(int index) {
  Library& all = library();
  const std::scoped_lock lock(all.mutex);
  const bool known = index >= 0 && static_cast<std::size_t>(index) < all.devices.size();
  return known ? all.devices[static_cast<std::size_t>(index)].get() : nullptr;
}

}  // namespace weft::nccl::plugin
