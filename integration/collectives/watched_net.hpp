// Owns a decorator that says which call of the plugin a rank is in.
#pragma once

#include "integration/collectives/net.hpp"
#include "integration/collectives/rank_activity.hpp"

namespace weft::collectives {

// Not a ForwardingNet: no call may be left out, and the compiler says so if one is.
class WatchedNet final : public Net {
 public:
  WatchedNet(std::unique_ptr<Net> net, RankActivity& where) : net_(std::move(net)), where_(where) {}

  Result init() override {
    return in(Call::init, [&] { return net_->init(); });
  }
  Result finalize() override {
    return in(Call::finalize, [&] { return net_->finalize(); });
  }
  Result devices(int& count) override {
    return in(Call::devices, [&] { return net_->devices(count); });
  }
  Result properties(int device, Properties& out) override {
    return in(Call::properties, [&] { return net_->properties(device, out); });
  }
  Result listen(int device, Handle& handle, void*& listener) override {
    return in(Call::listen, [&] { return net_->listen(device, handle, listener); });
  }
  Result connect(int device, Handle& handle, void*& connection) override {
    return in(Call::connect, [&] { return net_->connect(device, handle, connection); });
  }
  Result accept(void* listener, void*& connection) override {
    return in(Call::accept, [&] { return net_->accept(listener, connection); });
  }
  Result register_memory(void* connection, void* data, std::size_t size, void*& memory) override {
    return in(Call::register_memory,
              [&] { return net_->register_memory(connection, data, size, memory); });
  }
  Result deregister_memory(void* connection, void* memory) override {
    return in(Call::deregister_memory, [&] { return net_->deregister_memory(connection, memory); });
  }
  Result send(void* connection, const Posted& message, void*& request) override {
    return in(Call::send, [&] { return net_->send(connection, message, request); });
  }
  Result receive(void* connection, std::span<const Posted> buffers, bool early,
                 void*& request) override {
    return in(Call::receive, [&] { return net_->receive(connection, buffers, early, request); });
  }
  Result test(void* request, bool& done, std::span<int> sizes) override {
    return in(Call::test, [&] { return net_->test(request, done, sizes); });
  }
  Result close_send(void* connection) override {
    return in(Call::close_send, [&] { return net_->close_send(connection); });
  }
  Result close_receive(void* connection) override {
    return in(Call::close_receive, [&] { return net_->close_receive(connection); });
  }
  Result close_listener(void* listener) override {
    return in(Call::close_listener, [&] { return net_->close_listener(listener); });
  }

 private:
  template <class F>
  Result in(Call call, F&& f) {
    where_.enter(call);
    const Result result = f();
    where_.enter(Call::none);
    return result;
  }

  std::unique_ptr<Net> net_;
  RankActivity& where_;
};

}  // namespace weft::collectives
