// Owns the functions for remote memory access in one shape, from which rma_exports.cpp makes both
// tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "integration/nccl/abi_rma.hpp"

namespace weft::nccl::plugin {

// As plugin.hpp says: several threads, no exceptions. connect_group() and register_window() block
// until all members have called them, or one has failed. The order is NCCL's: listen, connect,
// contexts and windows, operations; then everything is destroyed in the opposite order.
abi::Result listen_group(int index, void* handle, void** listener);
abi::Result close_group_listener(void* listener);
abi::Result connect_group(void* const* handles, int ranks, int rank, void* listener, void** group);
abi::Result close_group(void* group);
abi::Result create_contexts(void* group, int count, int stride, void** contexts);
abi::Result destroy_contexts(void* contexts);
abi::Result register_window(void* group, void* data, std::size_t size, int type, void** window);
abi::Result deregister_window(void* group, void* window);

// A stretch of a window at one rank; `offset` in bytes. `window` may be null where no bytes are
// moved.
struct PlaceArgument {
  std::uint64_t offset = 0;
  void* window = nullptr;
};
// `word`: the 64-bit word that the signal changes. `strong`: everything that was put before it in
// the same context, to the same rank, arrives first; otherwise only its own put does.
struct SignalArgument {
  PlaceArgument word;
  std::uint64_t value = 0;
  std::uint32_t operation = 0;
  bool strong = true;
};
// `*request` null with success: no room, NCCL calls again. `from` is a place of this rank for
// put(), of rank `rank` for get(); `to` the other way round. test_group() reports an end once.
abi::Result put(void* contexts, int context, PlaceArgument from, std::size_t size, PlaceArgument to,
                std::uint32_t rank, const SignalArgument* signal, void** request);
abi::Result get(void* contexts, int context, PlaceArgument from, std::size_t size, PlaceArgument to,
                std::uint32_t rank, void** request);
abi::Result test_group(void* request, int* done);
abi::Result progress_contexts(void* contexts);
abi::Result has_error(void* contexts, bool* error);

}  // namespace weft::nccl::plugin
