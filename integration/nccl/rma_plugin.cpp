// Owns NCCL's calls for remote memory access: groups, windows, puts, gets and signals.
//
// One of NCCL's threads makes groups and windows, another one puts and tests, both at once. The
// pointers that they hold are small objects with numbers of the core, so a call that comes after
// its group was closed is refused and not a use of freed memory.
#include "integration/nccl/rma_plugin.hpp"

#include <cstring>
#include <memory>
#include <vector>

#include "integration/nccl/library.hpp"
#include "srd/run/clock.hpp"

namespace weft::nccl::plugin {
namespace {

struct GroupListener {
  PluginNic* nic = nullptr;
  std::uint32_t id = 0;
};
struct GroupEnd {
  PluginNic* nic = nullptr;
  std::uint16_t number = 0;
};
struct Contexts {
  PluginNic* nic = nullptr;
  std::uint16_t group = 0;
  std::vector<std::uint32_t> numbers;
};
struct WindowEnd {
  std::uint32_t number = 0;
};

// The Rma of a NIC. Only objects that listen_group() has led to get here, and listen_group() opens
// it, so it exists.
template <class F>
decltype(auto) with_rma(PluginNic& nic, F&& f) {
  return nic.with_machine([&](NetMachine& machine) { return f(**machine.rma()); });
}

// NCCL's calls wait for all members: connect() and regMrSym() of the interface block. The wait ends
// at the latest when a member is found dead. The device is polled without its lock being held in
// between, so that NCCL's other threads get on.
template <class F>
RmaStep wait_for_all(PluginNic& nic, F&& step) {
  for (;;) {
    (void)nic.poll();
    if (const RmaStep now = with_rma(nic, step); now != RmaStep::waits) {
      return now;
    }
    srd::give_way();
  }
}

// Runs a call for an object that NCCL got from us; a null pointer is refused.
template <class T, class F>
abi::Result with_object(void* object, F&& f) {
  return object == nullptr ? abi::kInvalidArgument
                           : guarded([&] { return f(*static_cast<T*>(object)); });
}

// Only those of `numbers`: also called when creating the contexts stopped half-way.
void destroy(const Contexts& contexts) {
  with_rma(*contexts.nic, [&](Rma& rma) {
    for (const std::uint32_t one : contexts.numbers) {
      rma.destroy_context(contexts.group, one);
    }
  });
}

RmaPlace place_of(const PlaceArgument& argument) {
  const auto* const window = static_cast<const WindowEnd*>(argument.window);
  return {window == nullptr ? 0 : window->number, argument.offset};
}

abi::Result take(Outcome outcome, Request* made, void** request) {
  *request = made;
  return result_of(outcome);
}

}  // namespace

abi::Result listen_group(int index, void* handle, void** listener) {
  return guarded([&] {
    PluginNic* const nic = nic_of(index);
    if (nic == nullptr) {
      return abi::kSystemError;
    }
    const auto opened = nic->with_machine([](NetMachine& machine) -> Result<void> {
      if (const auto rma = machine.rma(); !rma) {
        return tl::unexpected(rma.error());
      }
      return {};
    });
    if (!opened) {
      warn(opened.error().message);
      return abi::kSystemError;
    }
    ListenHandle made;
    const std::uint32_t id = with_rma(*nic, [&](Rma& rma) { return rma.listen(made); });
    std::memcpy(handle, &made, sizeof made);
    *listener = new GroupListener{nic, id};
    return abi::kSuccess;
  });
}

abi::Result close_group_listener(void* listener) {
  return with_object<GroupListener>(listener, [](GroupListener& closed) {
    const std::unique_ptr<GroupListener> at(&closed);
    with_rma(*at->nic, [&](Rma& rma) { rma.close_listener(at->id); });
    return abi::kSuccess;
  });
}

abi::Result connect_group(void* const* handles, int ranks, int rank, void* listener, void** group) {
  return with_object<GroupListener>(listener, [&](const GroupListener& at) {
    *group = nullptr;
    if (ranks < 1 || rank < 0 || rank >= ranks) {
      return abi::kInvalidArgument;
    }
    std::vector<ListenHandle> all(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::memcpy(&all[i], handles[i], sizeof all[i]);
    }
    std::uint16_t number = 0;
    const Outcome begun = with_rma(*at.nic, [&](Rma& rma) {
      return rma.join(all, static_cast<std::uint32_t>(rank), at.id, number);
    });
    if (begun != Outcome::ok) {
      return result_of(begun);
    }
    if (wait_for_all(*at.nic, [&](Rma& rma) { return rma.joined(number); }) == RmaStep::done) {
      *group = new GroupEnd{at.nic, number};
      return abi::kSuccess;
    }
    return with_rma(*at.nic, [&](Rma& rma) {
      const Outcome failure = rma.failure_of(number);
      rma.close(number);
      return result_of(failure);
    });
  });
}

abi::Result close_group(void* group) {
  return with_object<GroupEnd>(group, [](GroupEnd& closed) {
    const std::unique_ptr<GroupEnd> at(&closed);
    with_rma(*at->nic, [&](Rma& rma) { rma.close(at->number); });
    return abi::kSuccess;
  });
}

abi::Result create_contexts(void* group, int count, int stride, void** contexts) {
  return with_object<GroupEnd>(group, [&](const GroupEnd& at) {
    *contexts = nullptr;
    if (count < 1 || stride < 1) {
      return abi::kInvalidArgument;
    }
    auto made = std::make_unique<Contexts>();
    made->nic = at.nic;
    made->group = at.number;
    for (int i = 0; i < count; ++i) {
      const Outcome outcome = with_rma(*at.nic, [&](Rma& rma) {
        return rma.create_context(at.number, static_cast<std::uint32_t>(stride),
                                  made->numbers.emplace_back());
      });
      if (outcome != Outcome::ok) {
        made->numbers.pop_back();
        destroy(*made);
        return result_of(outcome);
      }
    }
    *contexts = made.release();
    return abi::kSuccess;
  });
}

abi::Result destroy_contexts(void* contexts) {
  return with_object<Contexts>(contexts, [](Contexts& destroyed) {
    const std::unique_ptr<Contexts> at(&destroyed);
    destroy(*at);
    return abi::kSuccess;
  });
}

// A member that cannot take part joins with null: that tells the others, who would wait for it
// otherwise, and the window fails at all of them.
abi::Result register_window(void* group, void* data, std::size_t size, int type, void** window) {
  return with_object<GroupEnd>(group, [&](const GroupEnd& at) {
    *window = nullptr;
    const bool usable = type == abi::kHostMemory;
    if (!usable) {
      warn("only host memory can be registered");
    }
    std::uint32_t number = 0;
    const Outcome begun = with_rma(*at.nic, [&](Rma& rma) {
      return rma.register_window(at.number, usable ? static_cast<std::byte*>(data) : nullptr, size,
                                 number);
    });
    if (begun != Outcome::ok) {
      return result_of(begun);
    }
    if (wait_for_all(*at.nic, [&](Rma& rma) { return rma.registered(at.number, number); }) ==
        RmaStep::done) {
      *window = new WindowEnd{number};
      return abi::kSuccess;
    }
    return with_rma(*at.nic, [&](Rma& rma) {
      (void)rma.deregister(at.number, number);
      return usable ? abi::kRemoteError : abi::kInvalidUsage;
    });
  });
}

abi::Result deregister_window(void* group, void* window) {
  return with_object<GroupEnd>(group, [&](const GroupEnd& at) {
    const std::unique_ptr<WindowEnd> end(static_cast<WindowEnd*>(window));
    const bool done = end != nullptr && with_rma(*at.nic, [&](Rma& rma) {
                        return rma.deregister(at.number, end->number);
                      });
    return done ? abi::kSuccess : abi::kInvalidArgument;
  });
}

// A null window stands for number 0, which no window ever has: the core refuses it if bytes move.
abi::Result put(void* contexts, int context, PlaceArgument from, std::size_t size, PlaceArgument to,
                std::uint32_t rank, const SignalArgument* signal, void** request) {
  return with_object<Contexts>(contexts, [&](const Contexts& at) {
    *request = nullptr;
    std::optional<RmaSignal> what;
    if (signal != nullptr) {
      if (signal->operation != abi::kSignalIncrement && signal->operation != abi::kSignalAdd) {
        return abi::kInvalidArgument;
      }
      what =
          RmaSignal{place_of(signal->word),
                    signal->operation == abi::kSignalIncrement ? 1 : signal->value, signal->strong};
    }
    if (context < 0 || static_cast<std::size_t>(context) >= at.numbers.size()) {
      return abi::kInvalidArgument;
    }
    Request* made = nullptr;
    const Outcome outcome = with_rma(*at.nic, [&](Rma& rma) {
      return rma.put(at.group, at.numbers[static_cast<std::size_t>(context)], rank, place_of(from),
                     size, place_of(to), what, made);
    });
    return take(outcome, made, request);
  });
}

abi::Result get(void* contexts, int context, PlaceArgument from, std::size_t size, PlaceArgument to,
                std::uint32_t rank, void** request) {
  return with_object<Contexts>(contexts, [&](const Contexts& at) {
    *request = nullptr;
    if (context < 0 || static_cast<std::size_t>(context) >= at.numbers.size()) {
      return abi::kInvalidArgument;
    }
    Request* made = nullptr;
    const Outcome outcome = with_rma(*at.nic, [&](Rma& rma) {
      return rma.get(at.group, at.numbers[static_cast<std::size_t>(context)], rank, place_of(from),
                     size, place_of(to), made);
    });
    return take(outcome, made, request);
  });
}

abi::Result test_group(void* request, int* done) {
  // NULL is what put() and get() give where there is no room: it has not been done.
  return with_object<Request>(request, [&](Request& one) {
    PluginNic& nic = *static_cast<PluginNic*>(one.owner);
    *done = 0;
    if (one.state.load(std::memory_order_acquire) == Request::State::pending) {
      const bool moved = nic.poll();
      yield_after_vain_polls(!moved &&
                             one.state.load(std::memory_order_acquire) == Request::State::pending);
    }
    switch (one.state.load(std::memory_order_acquire)) {
      case Request::State::pending:
        return abi::kSuccess;
      case Request::State::free:
        return abi::kInvalidUsage;  // its end was told before
      case Request::State::done:
      case Request::State::failed:
        break;
    }
    const Outcome outcome = one.outcome;
    *done = outcome == Outcome::ok ? 1 : 0;
    with_rma(nic, [&](Rma& rma) { rma.release(one); });
    return result_of(outcome);
  });
}

abi::Result progress_contexts(void* contexts) {
  return with_object<Contexts>(contexts, [](const Contexts& at) {
    yield_after_vain_polls(!at.nic->poll());
    return abi::kSuccess;
  });
}

abi::Result has_error(void* contexts, bool* error) {
  return with_object<Contexts>(contexts, [&](const Contexts& at) {
    *error = with_rma(*at.nic, [&](Rma& rma) { return rma.has_failed(at.group); });
    return abi::kSuccess;
  });
}

}  // namespace weft::nccl::plugin
