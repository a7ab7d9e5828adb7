// Owns the plugin's functions in one shape, from which the tables of all versions are made.
#pragma once

#include <cstddef>
#include <cstdint>

#include "integration/nccl/abi.hpp"
#include "integration/nccl/nic.hpp"

namespace weft::nccl::plugin {

// The process has one plugin, whatever the number of tables, contexts and communicators. Calls for
// different connections may come from several threads at once. None lets an exception pass.
abi::Result init(abi::Logger logger);
abi::Result finalize();
abi::Result devices(int* count);
// nullptr: there is no such device.
const DeviceDescription* device(int index);

abi::Result listen(int index, void* handle, void** listener);
abi::Result connect(int index, void* handle, void** connection);
abi::Result accept(void* listener, void** connection);
abi::Result register_memory(void* connection, void* data, std::size_t size, int type,
                            void** region);
abi::Result deregister_memory(void* connection, void* region);
abi::Result send(void* connection, void* data, std::size_t size, int tag, void* region,
                 void** request);
abi::Result receive(void* connection, int count, void* const* data, const std::size_t* sizes,
                    const int* tags, void* const* regions, void** request);
abi::Result flush(void** request);
abi::Result test(void* request, int* done, int* sizes);
abi::Result close_send(void* connection);
abi::Result close_receive(void* connection);
abi::Result close_listener(void* listener);

}  // namespace weft::nccl::plugin
