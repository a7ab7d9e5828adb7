// Owns the plugin's single instance in a process: its devices, how many communicators use them, and
// what a fork does to them.
//
// NCCL may open and close the library several times (for its tuner, its profiler and so on), and
// calls init() per communicator or per process, by version. So everything hangs off one object that
// is never destroyed, and devices are counted.
#include "integration/nccl/library.hpp"

#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

namespace weft::nccl::plugin {
namespace {

// How long finalize() waits at most for acknowledgements. Long enough for retransmissions on a
// lossy network, short enough not to hold up a process whose partners are gone.
constexpr Duration kDrain = std::chrono::milliseconds{200};

struct Library {
  // Guards the lifetime of devices. Calls for connections do not take it: they hold a PluginNic
  // already.
  std::mutex mutex;
  abi::Logger logger = nullptr;
  // Calls of init() that succeeded and have had no finalize(): NCCL finalizes what it has
  // initialised. Versions below 11 have no finalize() at all.
  int users = 0;
  Settings settings;
  // By pointer, since NCCL keeps pointers to names.
  std::vector<std::unique_ptr<DeviceDescription>> devices;
  std::vector<std::unique_ptr<PluginNic>> nics;
  bool forked = false;

  void log(int level, const std::string& text) const {
    if (logger != nullptr) {
      logger(level, abi::kLogInit | abi::kLogNet, "weft", 0, "NET/weft: %s", text.c_str());
    }
  }
};

// Never destroyed: threads of NCCL may still call while the process runs its exit handlers.
Library& library() {
  static auto* const the_one = new Library;
  return *the_one;
}

// Runs in the child. Nothing of the parent's devices may be touched there: their rings are shared
// memory with a single consumer, and their threads exist only in the parent. The mutex is not
// taken, because a thread of the parent may have held it at the moment of the fork.
void after_fork() {
  for (const auto& nic : library().nics) {
    if (nic) {
      nic->abandon();
      library().forked = true;
    }
  }
}

// Finds the devices. Called under the mutex until it has found some; after that the list never
// changes, so pointers to descriptions stay valid.
void prepare(Library& all) {
  // NCCL reads this variable later. Without GPUDirect its low-latency protocols only add copies. A
  // value that the user has set is kept.
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

// A device comes up at its first use and not when it is listed: a process that NCCL gives another
// NIC must not occupy an attachment of weftd or a thread.
PluginNic* nic_of(int index) {
  Library& all = library();
  const std::scoped_lock lock(all.mutex);
  if (index < 0 || static_cast<std::size_t>(index) >= all.devices.size()) {
    return nullptr;
  }
  auto& nic = all.nics[static_cast<std::size_t>(index)];
  if (!nic) {
    auto started = PluginNic::start(all.settings, *all.devices[static_cast<std::size_t>(index)]);
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
    if (all.devices.empty()) {
      prepare(all);
    }
    if (all.devices.empty()) {
      return abi::kSystemError;
    }
    ++all.users;
    return abi::kSuccess;
  });
}

// Of the last communicator: what was sent must arrive, since the process may end now. The PluginNic
// goes too, so that the background thread ends before the library can be unloaded; a later
// communicator starts a new one.
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
