// Owns the lots of a plugin in chaos.
#include "integration/collectives/chaos_net.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "integration/collectives/forwarding_net.hpp"
#include "srd/base/rng.hpp"

namespace weft::collectives {
namespace {

using nccl::abi::kSuccess;

// What the caller has for a request.
struct Pending {
  void* inner = nullptr;
  bool done = false;  // which the caller has not heard yet
  std::array<int, kMaxBuffers> sizes{};
};

struct Registration {
  void* data = nullptr;
  std::size_t size = 0;
  bool sends = false;  // it has, or received: one of both is known before it goes
  bool used = false;
};

class ChaosNet final : public ForwardingNet {
 public:
  ChaosNet(std::unique_ptr<Net> net, std::uint64_t seed)
      : ForwardingNet(std::move(net)), rng_(seed) {}

  Result connect(int device, Handle& handle, void*& connection) override {
    connection = nullptr;
    return not_now() ? kSuccess : net().connect(device, handle, connection);
  }
  Result accept(void* listener, void*& connection) override {
    connection = nullptr;
    return not_now() ? kSuccess : net().accept(listener, connection);
  }
  Result register_memory(void* connection, void* data, std::size_t size, void*& memory) override {
    const Result result = net().register_memory(connection, data, size, memory);
    if (result == kSuccess) {
      registrations_[{connection, memory}] = {data, size, false, false};
    }
    return result;
  }
  // With a request under way, which nobody will ever test.
  Result deregister_memory(void* connection, void* memory) override {
    const auto found = registrations_.find({connection, memory});
    if (found != registrations_.end()) {
      const Registration what = found->second;
      registrations_.erase(found);
      if (what.used) {
        const Posted last{what.data, what.size, 0, memory};
        void* request = nullptr;
        (void)(what.sends ? net().send(connection, last, request)
                          : net().receive(connection, {&last, 1}, false, request));
      }
    }
    return net().deregister_memory(connection, memory);
  }
  Result send(void* connection, const Posted& message, void*& request) override {
    request = nullptr;
    note(connection, message, true);
    if (not_now()) {
      return kSuccess;
    }
    void* inner = nullptr;
    const Result result = net().send(connection, message, inner);
    request = keep(inner);
    return result;
  }
  Result receive(void* connection, std::span<const Posted> buffers, bool early,
                 void*& request) override {
    request = nullptr;
    note(connection, buffers[0], false);
    if (not_now()) {
      return kSuccess;
    }
    void* inner = nullptr;
    const Result result = net().receive(connection, buffers, early, inner);
    request = keep(inner);
    return result;
  }

  Result test(void* request, bool& done, std::span<int> sizes) override {
    auto& asked = *static_cast<Pending*>(request);
    done = false;
    // Another one first, or nobody at all.
    if (const Result result =
            look(*pending_[rng_.below(static_cast<std::uint32_t>(pending_.size()))]);
        result != kSuccess) {
      return result;
    }
    if (not_now()) {
      return kSuccess;
    }
    const Result result = look(asked);
    if (asked.done) {
      done = true;
      std::copy_n(asked.sizes.begin(), std::min(sizes.size(), asked.sizes.size()), sizes.begin());
      std::erase_if(pending_, [&](const auto& one) { return one.get() == &asked; });
    }
    return result;
  }

 private:
  bool not_now() { return rng_.below(3) == 0; }
  void* keep(void* inner) {
    if (inner == nullptr) {
      return nullptr;
    }
    pending_.push_back(std::make_unique<Pending>());
    pending_.back()->inner = inner;
    return pending_.back().get();
  }
  void note(void* connection, const Posted& message, bool sends) {
    const auto found = registrations_.find({connection, message.memory});
    if (found != registrations_.end()) {
      found->second.used = true;
      found->second.sends = sends;
    }
  }
  Result look(Pending& one) {
    return one.done ? kSuccess : net().test(one.inner, one.done, one.sizes);
  }

  Rng rng_;
  std::vector<std::unique_ptr<Pending>> pending_;
  std::map<std::pair<void*, void*>, Registration> registrations_;
};

}  // namespace

std::unique_ptr<Net> add_chaos(std::unique_ptr<Net> net, std::uint64_t seed) {
  return std::make_unique<ChaosNet>(std::move(net), seed);
}

}  // namespace weft::collectives
