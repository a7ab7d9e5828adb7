// Owns the planted bugs.
#include "integration/collectives/bug_net.hpp"

#include <algorithm>
#include <cstdint>

namespace weft::collectives {
namespace {

using nccl::abi::kSuccess;

constexpr const char* kBugs[] = {"matching", "size", "order", "early", "reuse"};
constexpr std::uint64_t kEvery = 7;  // it strikes so often, and so in any phase of eight steps
constexpr int kPatience = 20;        // tests until what was held back goes on all the same

// A call that was held back, or is under way.
struct Call {
  bool sends = false;
  void* connection = nullptr;
  Posted posted;
  void* inner = nullptr;  // the plugin's request, once it has one
  bool strikes = false;
  bool told = false;  // its end, too early
  int tests = 0;
};

class BugNet final : public Net {
 public:
  BugNet(std::unique_ptr<Net> net, std::string bug) : net_(std::move(net)), bug_(std::move(bug)) {}

  Result init() override { return net_->init(); }
  Result finalize() override { return net_->finalize(); }
  Result devices(int& count) override { return net_->devices(count); }
  Result properties(int device, Properties& out) override { return net_->properties(device, out); }
  Result listen(int device, Handle& handle, void*& listener) override {
    return net_->listen(device, handle, listener);
  }
  Result connect(int device, Handle& handle, void*& connection) override {
    return net_->connect(device, handle, connection);
  }
  Result accept(void* listener, void*& connection) override {
    return net_->accept(listener, connection);
  }
  Result register_memory(void* connection, void* data, std::size_t size, void*& memory) override {
    return net_->register_memory(connection, data, size, memory);
  }
  Result deregister_memory(void* connection, void* memory) override {
    return net_->deregister_memory(connection, memory);
  }
  Result close_send(void* connection) override { return net_->close_send(connection); }
  Result close_receive(void* connection) override { return net_->close_receive(connection); }
  Result close_listener(void* listener) override { return net_->close_listener(listener); }

  Result send(void* connection, const Posted& message, void*& request) override {
    return take({.sends = true, .connection = connection, .posted = message}, "order", request);
  }
  Result receive(void* connection, std::span<const Posted> buffers, bool early,
                 void*& request) override {
    if (early || buffers.size() != 1) {
      return net_->receive(connection, buffers, early, request);
    }
    return take({.connection = connection, .posted = buffers[0]}, "matching", request);
  }

  Result test(void* request, bool& done, std::span<int> sizes) override {
    Call& call = *static_cast<Call*>(request);
    done = false;
    if (const Result result = drain(); result != kSuccess) {
      return result;
    }
    if (call.strikes && (bug_ == "early" || bug_ == "reuse")) {
      done = true;
      call.told = true;  // drain() goes on with it
      sizes[0] = static_cast<int>(call.posted.size);
      return kSuccess;
    }
    if (call.inner == nullptr) {
      return ++call.tests < kPatience ? kSuccess : post(call);
    }
    const Result result = net_->test(call.inner, done, sizes);
    if (done) {
      sizes[0] -= call.strikes && bug_ == "size" && sizes[0] > 0 ? 1 : 0;
      forget(call);
    }
    return result;
  }

 private:
  Result take(const Call& made, const char* changes_places, void*& request) {
    request = nullptr;
    Call* const before = held(made);
    calls_.push_back(std::make_unique<Call>(made));
    Call& call = *calls_.back();
    request = &call;
    // Of a connection's last messages none is held back for ever: test() loses its patience.
    const bool mine = (made.sends && (bug_ == "order" || bug_ == "reuse")) ||
                      (!made.sends && bug_ != "order" && bug_ != "reuse");
    call.strikes = mine && ++count_ % kEvery == 0;
    if (call.strikes && (bug_ == changes_places || bug_ == "reuse")) {
      return kSuccess;  // held back
    }
    Result result = post(call);
    if (call.inner == nullptr) {
      forget(call);
      request = nullptr;
    } else if (before != nullptr && result == kSuccess) {
      result = post(*before);
    }
    return result;
  }
  Call* held(const Call& made) {
    const auto found = std::find_if(calls_.begin(), calls_.end(), [&](const auto& one) {
      return one->inner == nullptr && one->connection == made.connection;
    });
    return found == calls_.end() ? nullptr : found->get();
  }
  Result post(Call& call) {
    return call.sends ? net_->send(call.connection, call.posted, call.inner)
                      : net_->receive(call.connection, {&call.posted, 1}, false, call.inner);
  }
  // Those whose end was told too early are done in secret.
  Result drain() {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      Call& call = *calls_[i];
      if (!call.told) {
        continue;
      }
      bool done = false;
      int sizes[kMaxBuffers] = {};
      const Result result =
          call.inner == nullptr ? post(call) : net_->test(call.inner, done, sizes);
      if (result != kSuccess) {
        return result;
      }
      if (done) {
        forget(call);
      }
    }
    return kSuccess;
  }
  void forget(const Call& call) {
    std::erase_if(calls_, [&](const auto& one) { return one.get() == &call; });
  }

  std::unique_ptr<Net> net_;
  std::string bug_;
  std::uint64_t count_ = 0;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace

std::vector<std::string> names_of_bugs() { return {std::begin(kBugs), std::end(kBugs)}; }

std::unique_ptr<Net> plant(std::unique_ptr<Net> net, const std::string& bug) {
  return std::make_unique<BugNet>(std::move(net), bug);
}

}  // namespace weft::collectives
