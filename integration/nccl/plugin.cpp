// Owns the plugin's one life in a process: its devices, and the calls of NCCL's threads.
//
// NCCL calls from several threads, for different connections at the same time. Each call takes the
// lock of its device for a moment (Nic::with()). What is returned to NCCL as a pointer (a listener,
// a connection, a request) is an object of ours; a connection's object is the same at both ends,
// because deregMr() gets either.
#include "integration/nccl/plugin.hpp"

#include <pthread.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace weft::nccl::plugin {
namespace {

// How long finalize() waits at most for what was sent to be acknowledged.
constexpr Duration kDrain = std::chrono::milliseconds{200};

// What NCCL holds. The same kind of object stands for both ends: deregMr() gets either.
struct End {
  Nic* nic = nullptr;
  SendComm* sends = nullptr;
  ReceiveComm* receives = nullptr;
};
struct Listener {
  Nic* nic = nullptr;
  std::uint32_t id = 0;
};

struct Library {
  std::mutex mutex;  // of the life of devices; calls for connections do not take it
  abi::Logger logger = nullptr;
  int users = 0;
  Settings settings;
  std::vector<std::unique_ptr<Device>> devices;
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

// NCCL calls through C function pointers, so no exception may leave. In a forked child every call
// fails once a device was up in the parent: see after_fork().
template <class F>
abi::Result guarded(F&& f) {
  try {
    return library().forked ? abi::kSystemError : f();
  } catch (...) {
    return abi::kInternalError;
  }
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
  for (Device& device : *found) {
    all.devices.push_back(std::make_unique<Device>(std::move(device)));
    all.nics.emplace_back();
  }
}

}  // namespace

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

const Device* device(int index) {
  Library& all = library();
  const std::scoped_lock lock(all.mutex);
  const bool known = index >= 0 && static_cast<std::size_t>(index) < all.devices.size();
  return known ? all.devices[static_cast<std::size_t>(index)].get() : nullptr;
}

abi::Result listen(int index, void* handle, void** listener) {
  return guarded([&] {
    Nic* const nic = nic_of(index);
    if (nic == nullptr) {
      return abi::kSystemError;
    }
    ListenHandle made;
    const std::uint32_t id = nic->with([&](Core& core) { return core.listen(made); });
    std::memcpy(handle, &made, sizeof made);
    *listener = new Listener{nic, id};
    return abi::kSuccess;
  });
}

abi::Result connect(int index, void* handle, void** connection) {
  return guarded([&] {
    *connection = nullptr;
    Nic* const nic = nic_of(index);
    if (nic == nullptr) {
      return abi::kSystemError;
    }
    // NCCL repeats the call until it gets a connection, so progress is made here. What the handle
    // remembers of the attempt goes back into NCCL's copy.
    nic->poll();
    ListenHandle asked;
    std::memcpy(&asked, handle, sizeof asked);
    SendComm* made = nullptr;
    const Outcome outcome = nic->with([&](Core& core) { return core.connect(asked, made); });
    std::memcpy(handle, &asked, sizeof asked);
    if (made != nullptr) {
      *connection = new End{nic, made, nullptr};
    }
    return result_of(outcome);
  });
}

abi::Result accept(void* listener, void** connection) {
  return guarded([&] {
    *connection = nullptr;
    const auto& at = *static_cast<Listener*>(listener);
    // As in connect(): accept() is repeated, and drives the device.
    at.nic->poll();
    ReceiveComm* made = nullptr;
    const Outcome outcome = at.nic->with([&](Core& core) { return core.accept(at.id, made); });
    if (made != nullptr) {
      *connection = new End{at.nic, nullptr, made};
    }
    return result_of(outcome);
  });
}

abi::Result register_memory(void* connection, void* data, std::size_t size, int type,
                            void** region) {
  return guarded([&] {
    *region = nullptr;
    if (type != abi::kHostMemory) {
      library().log(abi::kWarn, "only host memory can be registered");
      return abi::kInvalidUsage;
    }
    const End& end = *static_cast<End*>(connection);
    auto* const bytes = static_cast<std::byte*>(data);
    const auto made = end.nic->with([&](Core& core) {
      return end.sends != nullptr ? core.register_memory(*end.sends, bytes, size)
                                  : core.register_memory(*end.receives, bytes, size);
    });
    if (!made) {
      library().log(abi::kWarn, made.error().message);
      return abi::kSystemError;
    }
    *region = *made;
    return abi::kSuccess;
  });
}

abi::Result deregister_memory(void* connection, void* region) {
  return guarded([&] {
    const End& end = *static_cast<End*>(connection);
    const auto* const memory = static_cast<const Region*>(region);
    const bool done = end.nic->with([&](Core& core) {
      return end.sends != nullptr ? core.deregister(*end.sends, memory)
                                  : core.deregister(*end.receives, memory);
    });
    return done ? abi::kSuccess : abi::kInvalidArgument;
  });
}

abi::Result send(void* connection, void* data, std::size_t size, int tag, void* region,
                 void** request) {
  return guarded([&] {
    const End& end = *static_cast<End*>(connection);
    Request* made = nullptr;
    const Outcome outcome = end.nic->with([&](Core& core) {
      return core.send(*end.sends, static_cast<std::byte*>(data), size, tag,
                       static_cast<const Region*>(region), made);
    });
    *request = made;
    return result_of(outcome);
  });
}

abi::Result receive(void* connection, int count, void* const* data, const std::size_t* sizes,
                    const int* tags, void* const* regions, void** request) {
  return guarded([&] {
    // A special value in `*request` marks a receive of the LL protocols, which find their data by
    // flags in the data itself: it may be reported as finished before the data is there.
    const bool early = count == 1 && *request == abi::kOptionalCompletion;
    *request = nullptr;
    if (count < 1 || count > static_cast<int>(kMaxGroup)) {
      return abi::kInvalidArgument;
    }
    std::array<Buffer, kMaxGroup> buffers;
    const auto used = static_cast<std::size_t>(count);
    for (std::size_t i = 0; i < used; ++i) {
      buffers[i] = {static_cast<std::byte*>(data[i]), sizes[i], tags[i],
                    regions == nullptr ? nullptr : static_cast<const Region*>(regions[i])};
    }
    const End& end = *static_cast<End*>(connection);
    Request* made = nullptr;
    const Outcome outcome = end.nic->with([&](Core& core) {
      return core.receive(*end.receives, std::span{buffers}.first(used), early, made);
    });
    *request = made;
    return result_of(outcome);
  });
}

// Host memory is visible as soon as a receive has ended.
abi::Result flush(void** request) {
  *request = nullptr;
  return abi::kSuccess;
}

abi::Result test(void* request, int* done, int* sizes) {
  return guarded([&] {
    Request& one = *static_cast<Request*>(request);
    *done = 0;
    // The background thread may complete a request at any time, so the state is read with acquire
    // before the result is read; the store of `free` at the end gives the request back to the Core.
    auto state = one.state.load(std::memory_order_acquire);
    if (state == Request::State::pending) {
      static_cast<Nic*>(one.owner)->poll();
      state = one.state.load(std::memory_order_acquire);
    }
    if (state == Request::State::pending) {
      return abi::kSuccess;
    }
    if (state == Request::State::free) {
      return abi::kInvalidUsage;  // its end was told before
    }
    const Outcome outcome = one.outcome;
    for (std::size_t i = 0; sizes != nullptr && i < one.count; ++i) {
      sizes[i] = static_cast<int>(one.sizes[i]);
    }
    *done = outcome == Outcome::ok ? 1 : 0;
    one.state.store(Request::State::free, std::memory_order_release);
    return result_of(outcome);
  });
}

abi::Result close_send(void* connection) {
  return guarded([&] {
    const std::unique_ptr<End> end(static_cast<End*>(connection));
    end->nic->with([&](Core& core) { core.close(*end->sends); });
    return abi::kSuccess;
  });
}

abi::Result close_receive(void* connection) {
  return guarded([&] {
    const std::unique_ptr<End> end(static_cast<End*>(connection));
    end->nic->with([&](Core& core) { core.close(*end->receives); });
    return abi::kSuccess;
  });
}

abi::Result close_listener(void* listener) {
  return guarded([&] {
    const std::unique_ptr<Listener> at(static_cast<Listener*>(listener));
    at->nic->with([&](Core& core) { core.close_listener(at->id); });
    return abi::kSuccess;
  });
}

}  // namespace weft::nccl::plugin
