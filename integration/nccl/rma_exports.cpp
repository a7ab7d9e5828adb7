// Owns the tables for remote memory access that NCCL 2.30 looks for: ncclRmaPlugin_v13 and v14.
//
// As in exports.cpp, rma_plugin.hpp has each function once and the adapters are here. Groups carry
// all state, so contexts of init() are not looked at.
#include "integration/nccl/properties.hpp"
#include "integration/nccl/rma_plugin.hpp"

namespace weft::nccl {
namespace {

using abi::Result;

Result init(void** context, std::uint64_t, abi::Logger logger) {
  static char any = 0;  // a context is never looked at, but must not be null
  *context = &any;
  return plugin::init(logger);
}
Result finalize(void*) { return plugin::finalize(); }

// The type of device that makes NCCL's proxy thread call these functions on behalf of the GPU.
Result proxy_properties(int index, abi::PropertiesV12* out) {
  const Result result = properties(index, out);
  if (result == abi::kSuccess) {
    out->netDeviceType = abi::kProxyDevice;
  }
  return result;
}
Result listen(void*, int index, void* handle, void** listener) {
  return plugin::listen_group(index, handle, listener);
}
Result connect(void*, void** handles, int ranks, int rank, void* listener, void** group) {
  return plugin::connect_group(handles, ranks, rank, listener, group);
}
Result create_v13(void* group, abi::RmaConfigV13* config, void** contexts,
                  abi::DeviceHandle** device) {
  if (device != nullptr) {  // no code of ours on the device
    *device = nullptr;
  }
  return plugin::create_contexts(group, config->nContexts, 1, contexts);
}
Result create_v14(void* group, abi::RmaConfigV14* config, void** contexts) {
  return plugin::create_contexts(group, config->nContexts, config->rankStride, contexts);
}
// The flags ask for an order of writes that signals give in any case, so they are ignored. Version
// 13 also wants a handle for the GPU, which is not used with a proxy but must not be null.
Result register_v13(void* group, void* data, std::size_t size, int type, std::uint64_t,
                    void** window, void** device_window) {
  const Result result = plugin::register_window(group, data, size, type, window);
  if (device_window != nullptr) {
    *device_window = *window;
  }
  return result;
}
Result register_v14(void* group, void* data, std::size_t size, int type, std::uint64_t,
                    void** window) {
  return plugin::register_window(group, data, size, type, window);
}
Result put(void* contexts, int context, std::uint64_t from, void* source, std::size_t size,
           std::uint64_t to, void* target, std::uint32_t rank, void** request) {
  return plugin::put(contexts, context, {from, source}, size, {to, target}, rank, nullptr, request);
}
// All signals of version 13 are strong.
Result put_signal_v13(void* contexts, int context, std::uint64_t from, void* source,
                      std::size_t size, std::uint64_t to, void* target, std::uint32_t rank,
                      std::uint64_t word, void* signals, std::uint64_t value,
                      std::uint32_t operation, void** request) {
  const plugin::SignalArgument signal{{word, signals}, value, operation, true};
  return plugin::put(contexts, context, {from, source}, size, {to, target}, rank, &signal, request);
}
Result put_signal_v14(void* contexts, int context, std::uint64_t from, void* source,
                      std::size_t size, std::uint64_t to, void* target, std::uint32_t rank,
                      std::uint64_t word, void* signals, std::uint64_t value,
                      std::uint32_t operation, bool strong, void** request) {
  const plugin::SignalArgument signal{{word, signals}, value, operation, strong};
  return plugin::put(contexts, context, {from, source}, size, {to, target}, rank, &signal, request);
}
Result get(void* contexts, int context, std::uint64_t from, void* source, std::size_t size,
           std::uint64_t to, void* target, std::uint32_t rank, void** request) {
  return plugin::get(contexts, context, {from, source}, size, {to, target}, rank, request);
}
// NCCL flushes to make data visible. Host memory is visible as soon as a request has ended, so a
// null request says that there is nothing to wait for.
Result flush(void*, int, void*, std::uint32_t, void** request) {
  *request = nullptr;
  return abi::kSuccess;
}
Result test(void*, void* request, int* done) { return plugin::test_group(request, done); }

template <class Table>
constexpr Table common() {
  Table table{};
  table.name = kPluginName;
  table.init = init;
  table.devices = plugin::devices;
  table.getProperties = proxy_properties;
  table.listen = listen;
  table.connect = connect;
  table.deregMrSym = plugin::deregister_window;
  table.destroyContext = plugin::destroy_contexts;
  table.closeColl = plugin::close_group;
  table.closeListen = plugin::close_group_listener;
  table.iput = put;
  table.iget = get;
  table.iflush = flush;
  table.test = test;
  table.queryLastError = plugin::has_error;
  table.finalize = finalize;
  return table;
}

constexpr abi::RmaTableV13 make_v13() {
  auto table = common<abi::RmaTableV13>();
  table.createContext = create_v13;
  table.regMrSym = register_v13;
  table.iputSignal = put_signal_v13;
  table.ginProgress = plugin::progress_contexts;
  return table;
}

constexpr abi::RmaTableV14 make_v14() {
  auto table = common<abi::RmaTableV14>();
  table.createContext = create_v14;
  table.regMrSym = register_v14;
  table.iputSignal = put_signal_v14;
  table.rmaProgress = plugin::progress_contexts;
  return table;
}

}  // namespace
}  // namespace weft::nccl

#define WEFT_EXPORT extern "C" __attribute__((visibility("default"))) constinit const

WEFT_EXPORT weft::nccl::abi::RmaTableV13 ncclRmaPlugin_v13 = weft::nccl::make_v13();
WEFT_EXPORT weft::nccl::abi::RmaTableV14 ncclRmaPlugin_v14 = weft::nccl::make_v14();
