// Owns our own declarations of NCCL's interface for remote memory access, versions 13 and 14.
//
// NCCL 2.30 looks for these tables in the library of the network plugin. Version 13 is at the same
// time version 13 of NCCL's device-initiated interface (GIN): it hands out handles for code on the
// GPU, of which we have none, and all its signals are strong.
//
// A group is called a collective here ("coll"): all ranks connect() to each other, and a symmetric
// registration (regMrSym) is one window with a part at every rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "integration/nccl/abi.hpp"

namespace weft::nccl::abi {

inline constexpr int kProxyDevice = 2;  // netDeviceType: NCCL's CPU thread makes the calls
// What a signal does to its word of 64 bits.
inline constexpr std::uint32_t kSignalIncrement = 1;
inline constexpr std::uint32_t kSignalAdd = 2;

// What the application asks of a context. Signals and counters of version 13 are for code on the
// GPU: here signals lie in windows, at offsets.
struct RmaConfigV13 {
  int nSignals;
  int nCounters;
  int nContexts;
  int queueDepth;
  int trafficClass;
};
static_assert(sizeof(RmaConfigV13) == 20 && offsetof(RmaConfigV13, nContexts) == 8);

// `rankStride`: operations go only to ranks whose distance is a multiple of it.
struct RmaConfigV14 {
  int nContexts;
  int trafficClass;
  int rankStride;
};
static_assert(sizeof(RmaConfigV14) == 12 && offsetof(RmaConfigV14, rankStride) == 8);

// connect() takes the handles of all ranks and returns when all have called it. Offsets and windows
// come in pairs, source before target; the rank is the other side's. test() does not block.
struct RmaTableV13 {
  const char* name;
  Result (*init)(void**, std::uint64_t, Logger);
  Result (*devices)(int*);
  Result (*getProperties)(int, PropertiesV12*);
  Result (*listen)(void*, int, void*, void**);
  Result (*connect)(void*, void**, int, int, void*, void**);
  Result (*createContext)(void*, RmaConfigV13*, void**, DeviceHandle**);
  Result (*regMrSym)(void*, void*, std::size_t, int, std::uint64_t, void**, void**);
  Result (*regMrSymDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, std::uint64_t,
                           void**, void**);
  Result (*deregMrSym)(void*, void*);
  Result (*destroyContext)(void*);
  Result (*closeColl)(void*);
  Result (*closeListen)(void*);
  Result (*iput)(void*, int, std::uint64_t, void*, std::size_t, std::uint64_t, void*, std::uint32_t,
                 void**);
  Result (*iputSignal)(void*, int, std::uint64_t, void*, std::size_t, std::uint64_t, void*,
                       std::uint32_t, std::uint64_t, void*, std::uint64_t, std::uint32_t, void**);
  Result (*iget)(void*, int, std::uint64_t, void*, std::size_t, std::uint64_t, void*, std::uint32_t,
                 void**);
  Result (*iflush)(void*, int, void*, std::uint32_t, void**);
  Result (*test)(void*, void*, int*);
  Result (*ginProgress)(void*);
  Result (*queryLastError)(void*, bool*);
  Result (*finalize)(void*);
};
static_assert(sizeof(RmaTableV13) == 168 && offsetof(RmaTableV13, createContext) == 48 &&
              offsetof(RmaTableV13, iput) == 104 && offsetof(RmaTableV13, test) == 136 &&
              offsetof(RmaTableV13, finalize) == 160);

// Version 14 drops the handles for the GPU, tells strong signals from weak ones (the bool of
// iputSignal()), and calls the progress function by another name.
struct RmaTableV14 {
  const char* name;
  Result (*init)(void**, std::uint64_t, Logger);
  Result (*devices)(int*);
  Result (*getProperties)(int, PropertiesV12*);
  Result (*listen)(void*, int, void*, void**);
  Result (*connect)(void*, void**, int, int, void*, void**);
  Result (*createContext)(void*, RmaConfigV14*, void**);
  Result (*regMrSym)(void*, void*, std::size_t, int, std::uint64_t, void**);
  Result (*regMrSymDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, std::uint64_t,
                           void**);
  Result (*deregMrSym)(void*, void*);
  Result (*destroyContext)(void*);
  Result (*closeColl)(void*);
  Result (*closeListen)(void*);
  Result (*iput)(void*, int, std::uint64_t, void*, std::size_t, std::uint64_t, void*, std::uint32_t,
                 void**);
  Result (*iputSignal)(void*, int, std::uint64_t, void*, std::size_t, std::uint64_t, void*,
                       std::uint32_t, std::uint64_t, void*, std::uint64_t, std::uint32_t, bool,
                       void**);
  Result (*iget)(void*, int, std::uint64_t, void*, std::size_t, std::uint64_t, void*, std::uint32_t,
                 void**);
  Result (*iflush)(void*, int, void*, std::uint32_t, void**);
  Result (*test)(void*, void*, int*);
  Result (*rmaProgress)(void*);
  Result (*queryLastError)(void*, bool*);
  Result (*finalize)(void*);
};
static_assert(sizeof(RmaTableV14) == 168 && offsetof(RmaTableV14, createContext) == 48 &&
              offsetof(RmaTableV14, iputSignal) == 112 && offsetof(RmaTableV14, test) == 136 &&
              offsetof(RmaTableV14, finalize) == 160);

}  // namespace weft::nccl::abi
