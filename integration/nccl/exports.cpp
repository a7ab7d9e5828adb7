// Owns the symbols that NCCL looks for: one table of functions for each version of the interface.
//
// NCCL loads the library and asks for ncclNetPlugin_vN, from the newest N that it knows downwards.
// The versions differ in the types of sizes, in what properties hold, and in arguments that were
// added. plugin.hpp has each function once, with the widest types. The adapters are here: `name_vN`
// fits version N and the later ones until the next one of that name, or plugin.hpp's own function.
// The tables are constants, because NCCL reads them as data, before it has called anything.
#include <algorithm>
#include <type_traits>

#include "integration/nccl/plugin.hpp"
#include "integration/nccl/properties.hpp"

namespace weft::nccl {
namespace {

using abi::DeviceHandle;
using abi::Result;

// --- Adapters that only drop or supply arguments.
Result init_v6(abi::Logger logger) { return plugin::init(logger); }
Result init_v10(abi::Logger logger, abi::Profiler) { return plugin::init(logger); }
Result init_v11(void** context, std::uint64_t, abi::CommConfig*, abi::Logger logger,
                abi::Profiler) {
  static char any = 0;  // a context is never looked at, but must not be null
  *context = &any;
  return plugin::init(logger);
}
Result finalize(void*) { return plugin::finalize(); }
Result ignore_attributes(void*, abi::NetAttributes*) { return abi::kSuccess; }

void leave_host(DeviceHandle** device) {
  if (device != nullptr) {  // no code of ours on the device
    *device = nullptr;
  }
}
Result listen_v11(void*, int index, void* handle, void** listener) {
  return plugin::listen(index, handle, listener);
}
Result connect_v7(int index, void* handle, void** connection, DeviceHandle** device) {
  leave_host(device);
  return plugin::connect(index, handle, connection);
}
Result connect_v10(int index, abi::CommConfig*, void* handle, void** connection,
                   DeviceHandle** device) {
  return connect_v7(index, handle, connection, device);
}
Result connect_v11(void*, int index, void* handle, void** connection, DeviceHandle** device) {
  return connect_v7(index, handle, connection, device);
}
Result accept_v7(void* listener, void** connection, DeviceHandle** device) {
  leave_host(device);
  return plugin::accept(listener, connection);
}
// A negative size of the old interfaces would become a huge one: refuse it here, once.
Result register_int(void* connection, void* data, int size, int type, void** region) {
  return size < 0 ? abi::kInvalidArgument
                  : plugin::register_memory(connection, data, static_cast<std::size_t>(size), type,
                                            region);
}
// The same check for the sizes of messages.
Result send_v6(void* connection, void* data, int size, int tag, void* region, void** request) {
  return size < 0
             ? abi::kInvalidArgument
             : plugin::send(connection, data, static_cast<std::size_t>(size), tag, region, request);
}
Result send_v10(void* connection, void* data, std::size_t size, int tag, void* region, void*,
                void** request) {
  return plugin::send(connection, data, size, tag, region, request);
}

// Before version 9 NCCL asks for no early completion, and `*request` holds whatever was there:
// clear it, or plugin::receive() might read the leftover as kOptionalCompletion. A count beyond
// kMaxGroup is refused by plugin::receive(); until then only as many sizes are read as fit.
Result receive_v6(void* connection, int count, void** data, int* sizes, int* tags, void** regions,
                  void** request) {
  *request = nullptr;
  std::size_t wide[kMaxGroup] = {};
  for (int i = 0; i < std::min(count, static_cast<int>(kMaxGroup)); ++i) {
    if (sizes[i] < 0) {
      return abi::kInvalidArgument;
    }
    wide[i] = static_cast<std::size_t>(sizes[i]);
  }
  return plugin::receive(connection, count, data, wide, tags, regions, request);
}
Result receive_v9(void* connection, int count, void** data, std::size_t* sizes, int* tags,
                  void** regions, void** request) {
  return plugin::receive(connection, count, data, sizes, tags, regions, request);
}
Result receive_v10(void* connection, int count, void** data, std::size_t* sizes, int* tags,
                   void** regions, void**, void** request) {
  return plugin::receive(connection, count, data, sizes, tags, regions, request);
}
Result flush(void*, int, void**, int*, void**, void** request) { return plugin::flush(request); }

// The members that are the same in all versions, apart from the type of a registered size.
// regMrDmaBuf, getDeviceMr, irecvConsumed and makeVDevice stay null: NCCL takes that as "not
// offered".
template <class Table>
constexpr Table common() {
  Table table{};
  table.name = kPluginName;
  table.devices = plugin::devices;
  table.getProperties = properties<typename Table::Properties>;
  table.deregMr = plugin::deregister_memory;
  table.iflush = flush;
  table.test = plugin::test;
  table.closeSend = plugin::close_send;
  table.closeRecv = plugin::close_receive;
  table.closeListen = plugin::close_listener;
  if constexpr (std::is_same_v<decltype(table.regMr), Result (*)(void*, void*, int, int, void**)>) {
    table.regMr = register_int;
  } else {
    table.regMr = plugin::register_memory;
  }
  return table;
}

// Each function makes the table of the version in its name, and those of later versions that have
// the same signatures.
constexpr abi::TableV6 make_v6() {
  auto table = common<abi::TableV6>();
  table.init = init_v6;
  table.listen = plugin::listen;
  table.connect = plugin::connect;
  table.accept = plugin::accept;
  table.isend = send_v6;
  table.irecv = receive_v6;
  return table;
}

template <class Table>
constexpr Table make_v7() {
  auto table = common<Table>();
  table.init = init_v6;
  table.listen = plugin::listen;
  table.connect = connect_v7;
  table.accept = accept_v7;
  table.isend = send_v6;
  table.irecv = receive_v6;
  return table;
}

constexpr abi::TableV9 make_v9() {
  auto table = common<abi::TableV9>();
  table.init = init_v6;
  table.listen = plugin::listen;
  table.connect = connect_v7;
  table.accept = accept_v7;
  table.isend = plugin::send;
  table.irecv = receive_v9;
  return table;
}

constexpr abi::TableV10 make_v10() {
  auto table = common<abi::TableV10>();
  table.init = init_v10;
  table.listen = plugin::listen;
  table.connect = connect_v10;
  table.accept = accept_v7;
  table.isend = send_v10;
  table.irecv = receive_v10;
  return table;
}

template <class Table>
constexpr Table make_v11() {
  auto table = common<Table>();
  table.init = init_v11;
  table.listen = listen_v11;
  table.connect = connect_v11;
  table.accept = accept_v7;
  table.isend = send_v10;
  table.irecv = receive_v10;
  table.finalize = finalize;
  table.setNetAttr = ignore_attributes;
  return table;
}

}  // namespace
}  // namespace weft::nccl

// Data symbols with C names; the rest of the library is hidden (exports.map).
#define WEFT_EXPORT extern "C" __attribute__((visibility("default"))) constinit const

WEFT_EXPORT weft::nccl::abi::TableV6 ncclNetPlugin_v6 = weft::nccl::make_v6();
WEFT_EXPORT weft::nccl::abi::TableV7 ncclNetPlugin_v7 =
    weft::nccl::make_v7<weft::nccl::abi::TableV7>();
WEFT_EXPORT weft::nccl::abi::TableV8 ncclNetPlugin_v8 =
    weft::nccl::make_v7<weft::nccl::abi::TableV8>();
WEFT_EXPORT weft::nccl::abi::TableV9 ncclNetPlugin_v9 = weft::nccl::make_v9();
WEFT_EXPORT weft::nccl::abi::TableV10 ncclNetPlugin_v10 = weft::nccl::make_v10();
WEFT_EXPORT weft::nccl::abi::TableV11 ncclNetPlugin_v11 =
    weft::nccl::make_v11<weft::nccl::abi::TableV11>();
WEFT_EXPORT weft::nccl::abi::TableV12 ncclNetPlugin_v12 =
    weft::nccl::make_v11<weft::nccl::abi::TableV12>();
