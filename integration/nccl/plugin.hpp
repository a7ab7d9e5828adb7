// Owns the plugin's functions in one shape, with the widest types of all versions. exports.cpp
// makes the tables from them; the names in parentheses are NCCL's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "integration/nccl/abi.hpp"
#include "integration/nccl/plugin_nic.hpp"

namespace weft::nccl::plugin {

// The process has one plugin, whatever the number of tables, contexts and communicators. Calls for
// different connections may come from several threads at once; calls for one connection come one
// after another. None lets an exception pass.
abi::Result init(abi::Logger logger);
abi::Result finalize();
abi::Result devices(int* count);
// nullptr: there is no such device.
const DeviceDescription* device(int index);

// Connections. connect() and accept() leave `*connection` null as long as the other side has not
// answered: NCCL repeats them. A handle takes kHandleBytes, and NCCL passes the same copy each
// time.
abi::Result listen(int index, void* handle, void** listener);
abi::Result connect(int index, void* handle, void** connection);
abi::Result accept(void* listener, void** connection);
// (regMr, deregMr) Memory is registered per connection. Afterwards deregister_memory() guarantees
// that no packet and no request touches it.
abi::Result register_memory(void* connection, void* data, std::size_t size, int type,
                            void** region);
abi::Result deregister_memory(void* connection, void* region);
// (isend, irecv, test) `*request` null with success: no room, NCCL calls again with the same
// arguments. A request is dead once test() has reported its end.
abi::Result send(void* connection, void* data, std::size_t size, int tag, void* region,
                 void** request);
abi::Result receive(void* connection, int count, void* const* data, const std::size_t* sizes,
                    const int* tags, void* const* regions, void** request);
abi::Result flush(void** request);
abi::Result test(void* request, int* done, int* sizes);
// Requests may still be outstanding: they are dropped, and their memory is not touched afterwards.
abi::Result close_send(void* connection);
abi::Result close_receive(void* connection);
abi::Result close_listener(void* listener);

}  // namespace weft::nccl::plugin
