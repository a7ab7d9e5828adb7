// Owns the random moves of a plugin in chaos: what NCCL's interface allows and a well-behaved
// network seldom does. A request is refused for now, tested late, or tested after a younger one.
#include "integration/collectives/chaos_net.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "integration/collectives/forwarding_net.hpp"
#include "srd/base/rng.hpp"

namespace weft::collectives {
namespace {

using nccl::abi::kSuccess;

// The caller's request: a pointer to this takes the place of the plugin's own.
struct Pending {
  void* connection = nullptr;
  void* inner = nullptr;
  bool done = false;  // the plugin has said so, and the caller has not heard it yet
  Result result = kSuccess;
  std::array<int, kMaxBuffers> sizes{};
};

// One in three calls is answered "not now". A request that the plugin has ended is kept until the
// caller asks for it.
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
  // Its requests will never be tested again.
  Result deregister_memory(void* connection, void* memory) override {
    std::erase_if(pending_, [&](const auto& one) { return one->connection == connection; });
    return net().deregister_memory(connection, memory);
  }
  Result send(void* connection, const Posted& message, void*& request) override {
    request = nullptr;
    if (not_now()) {
      return kSuccess;
    }
    void* inner = nullptr;
    const Result result = net().send(connection, message, inner);
    request = keep(connection, inner);
    return result;
  }
  Result receive(void* connection, std::span<const Posted> buffers, bool early,
                 void*& request) override {
    request = nullptr;
    if (not_now()) {
      return kSuccess;
    }
    void* inner = nullptr;
    const Result result = net().receive(connection, buffers, early, inner);
    request = keep(connection, inner);
    return result;
  }

  Result test(void* request, bool& done, std::span<int> sizes) override {
    auto& asked = *static_cast<Pending*>(request);
    done = false;
    // Another one first, or none at all.
    look(*pending_[rng_.below(static_cast<std::uint32_t>(pending_.size()))]);
    if (not_now()) {
      return kSuccess;
    }
    look(asked);
    const Result result = asked.result;
    if (asked.done) {
      done = true;
      std::copy_n(asked.sizes.begin(), std::min(sizes.size(), asked.sizes.size()), sizes.begin());
      std::erase_if(pending_, [&](const auto& one) { return one.get() == &asked; });
    }
    return result;
  }

 private:
  bool not_now() { return rng_.below(3) == 0; }
  void* keep(void* connection, void* inner) {
    if (inner == nullptr) {
      return nullptr;
    }
    pending_.push_back(std::make_unique<Pending>());
    pending_.back()->connection = connection;
    pending_.back()->inner = inner;
    return pending_.back().get();
  }
  // Asks the plugin; not again once it has said "done", as the request is the plugin's again then.
  // What it said is kept until the caller asks for this very request.
  void look(Pending& one) {
    if (!one.done && one.result == kSuccess) {
      one.result = net().test(one.inner, one.done, one.sizes);
    }
  }

  Rng rng_;
  std::vector<std::unique_ptr<Pending>> pending_;
};

}  // namespace

std::unique_ptr<Net> add_chaos(std::unique_ptr<Net> net, std::uint64_t seed) {
  return std::make_unique<ChaosNet>(std::move(net), seed);
}

}  // namespace weft::collectives
