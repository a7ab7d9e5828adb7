// Owns the base of decorators: passes every call on to the net behind it, so that a decorator
// consists of the calls that it wants to see or to disturb. session.cpp stacks them.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "integration/collectives/net.hpp"

namespace weft::collectives {

class ForwardingNet : public Net {
 public:
  explicit ForwardingNet(std::unique_ptr<Net> net) : net_(std::move(net)) {}

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
  Result send(void* connection, const Posted& message, void*& request) override {
    return net_->send(connection, message, request);
  }
  Result receive(void* connection, std::span<const Posted> buffers, bool early,
                 void*& request) override {
    return net_->receive(connection, buffers, early, request);
  }
  Result test(void* request, bool& done, std::span<int> sizes) override {
    return net_->test(request, done, sizes);
  }
  Result close_send(void* connection) override { return net_->close_send(connection); }
  Result close_receive(void* connection) override { return net_->close_receive(connection); }
  Result close_listener(void* listener) override { return net_->close_listener(listener); }

 protected:
  [[nodiscard]] Net& net() { return *net_; }

 private:
  std::unique_ptr<Net> net_;
};

}  // namespace weft::collectives
