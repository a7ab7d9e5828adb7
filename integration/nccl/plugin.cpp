// Owns the calls of NCCL's threads for connections.
//
// NCCL calls from several threads, for different connections at the same time. Each call takes the
// lock of its device for a moment (PluginNic::with()). What NCCL gets as a pointer (a listener, a
// connection, a request) is an object of ours. NCCL returns each listener and each connection
// exactly once, to the close function that deletes it.
#include "integration/nccl/plugin.hpp"

#include <array>
#include <cstring>
#include <memory>

#include "integration/nccl/library.hpp"

namespace weft::nccl::plugin {
namespace {

// A connection, as NCCL holds it. One type for both directions, because deregMr() gets either and
// does not say which; exactly one of `sends` and `receives` is set.
struct End {
  PluginNic* nic = nullptr;
  SendComm* sends = nullptr;
  ReceiveComm* receives = nullptr;
};
struct Listener {
  PluginNic* nic = nullptr;
  std::uint32_t id = 0;
};

// Null if there was no room: NCCL calls again.
void give(PluginNic& nic, Request* made, void** request) {
  *request = made;
  if (made != nullptr) {
    nic.begin();
  }
}

}  // namespace

abi::Result listen(int index, void* handle, void** listener) {
  return guarded([&] {
    PluginNic* const nic = nic_of(index);
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
    PluginNic* const nic = nic_of(index);
    // Null tells NCCL to call again.
    if (nic == nullptr) {
      return abi::kSystemError;
    }
    // NCCL repeats the call until it gets a connection, so progress is made here. What the handle
    // remembers of the attempt goes back into NCCL's copy.
    const bool moved = nic->poll();
    ListenHandle asked;
    std::memcpy(&asked, handle, sizeof asked);
    SendComm* made = nullptr;
    const Outcome outcome = nic->with([&](Core& core) { return core.connect(asked, made); });
    std::memcpy(handle, &asked, sizeof asked);
    if (made != nullptr) {
      *connection = new End{nic, made, nullptr};
    }
    yield_after_vain_polls(!moved && made == nullptr);
    return result_of(outcome);
  });
}

abi::Result accept(void* listener, void** connection) {
  return guarded([&] {
    *connection = nullptr;
    const auto& at = *static_cast<Listener*>(listener);
    // As in connect(): accept() is repeated, and drives the device.
    const bool moved = at.nic->poll();
    ReceiveComm* made = nullptr;
    const Outcome outcome = at.nic->with([&](Core& core) { return core.accept(at.id, made); });
    if (made != nullptr) {
      *connection = new End{at.nic, nullptr, made};
    }
    yield_after_vain_polls(!moved && made == nullptr);
    return result_of(outcome);
  });
}

abi::Result register_memory(void* connection, void* data, std::size_t size, int type,
                            void** region) {
  return guarded([&] {
    *region = nullptr;
    // GPU memory would need GPUDirect, which a NIC without hardware cannot offer.
    if (type != abi::kHostMemory) {
      warn("only host memory can be registered");
      return abi::kInvalidUsage;
    }
    const End& end = *static_cast<End*>(connection);
    auto* const bytes = static_cast<std::byte*>(data);
    const auto made = end.nic->with([&](Core& core) {
      return end.sends != nullptr ? core.register_memory(*end.sends, bytes, size)
                                  : core.register_memory(*end.receives, bytes, size);
    });
    if (!made) {
      warn(made.error().message);
      return abi::kSystemError;
    }
    *region = *made;
    return abi::kSuccess;
  });
}

abi::Result deregister_memory(void* connection, void* region) {
  return guarded([&] {
    const End& end = *static_cast<End*>(connection);
    const auto* const memory = static_cast<const CommRegion*>(region);
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
                       static_cast<const CommRegion*>(region), made);
    });
    give(*end.nic, made, request);
    return result_of(outcome);
  });
}

abi::Result receive(void* connection, int count, void* const* data, const std::size_t* sizes,
                    const int* tags, void* const* regions, void** request) {
  return guarded([&] {
    // NCCL marks receives of its LL protocols with a special value in `*request`. Those find their
    // data by flags in the data itself, so they may be reported as finished before it is there.
    // Only for single buffers: a group's sizes would be missing.
    const bool early = count == 1 && *request == abi::kOptionalCompletion;
    *request = nullptr;
    if (count < 1 || count > static_cast<int>(kMaxGroup)) {
      return abi::kInvalidArgument;
    }
    std::array<Buffer, kMaxGroup> buffers;
    const auto used = static_cast<std::size_t>(count);
    for (std::size_t i = 0; i < used; ++i) {
      buffers[i] = {static_cast<std::byte*>(data[i]), sizes[i], tags[i],
                    regions == nullptr ? nullptr : static_cast<const CommRegion*>(regions[i])};
    }
    const End& end = *static_cast<End*>(connection);
    Request* made = nullptr;
    const Outcome outcome = end.nic->with([&](Core& core) {
      return core.receive(*end.receives, std::span{buffers}.first(used), early, made);
    });
    if (early) {
      end.nic->tell_early();
    }
    give(*end.nic, made, request);
    return result_of(outcome);
  });
}

// NCCL flushes only after receives into GPU memory. Host memory is visible as soon as a receive has
// ended, so there is nothing to do, and a null request says so.
abi::Result flush(void** request) {
  *request = nullptr;
  return abi::kSuccess;
}

abi::Result test(void* request, int* done, int* sizes) {
  return guarded([&] {
    Request& one = *static_cast<Request*>(request);
    *done = 0;
    // The background thread may complete a request at any time, so the state is read with acquire
    // before the result is read; the store of `free` at the end gives the request back to its pool.
    auto state = one.state.load(std::memory_order_acquire);
    if (state == Request::State::pending) {
      const bool moved = static_cast<PluginNic*>(one.owner)->poll();
      state = one.state.load(std::memory_order_acquire);
      yield_after_vain_polls(!moved && state == Request::State::pending);
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
    auto& nic = *static_cast<PluginNic*>(one.owner);
    one.state.store(Request::State::free, std::memory_order_release);
    nic.end();
    return result_of(outcome);
  });
}

abi::Result close_send(void* connection) {
  return guarded([&] {
    const std::unique_ptr<End> end(static_cast<End*>(connection));
    end->nic->with([&](Core& core) { core.close(*end->sends); });
    end->nic->finish_closing();
    return abi::kSuccess;
  });
}

abi::Result close_receive(void* connection) {
  return guarded([&] {
    const std::unique_ptr<End> end(static_cast<End*>(connection));
    end->nic->with([&](Core& core) { core.close(*end->receives); });
    end->nic->finish_closing();
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
