// Owns our own declarations of NCCL's network plugin interface, versions 6 to 12: layouts, numbers,
// signatures.
// Members have NCCL's own names, because its documentation speaks of them. Each layout is checked
// against the sizes and offsets that NCCL's own compiler gives it. A later version repeats an
// earlier one's members and adds to them, not always at the end, so each has a struct of its own.
//
// None of this may be changed to suit our code: NCCL is a binary that was compiled against these
// layouts, and it calls through a table without any check besides the version in the symbol's name.
// earlier one's members and adds to them, not always at the end, so each has a struct of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::nccl::abi {

inline constexpr std::size_t kHandleBytes = 128;  // what listen() writes and connect() reads
inline constexpr int kMaxRequests = 32;           // outstanding per connection
inline constexpr int kHostMemory = 1;             // a type of memory, and a bit of ptrSupport
inline constexpr int kHostDevice = 0;             // netDeviceType
inline constexpr int kUndefined = -1;             // of rails, planes and attributes

// An irecv() that finds this value in `*request` allows the plugin to report the receive as
// finished before the data is there (version 9 and later). NCCL sets it for the LL protocols.
inline void* const kOptionalCompletion = reinterpret_cast<void*>(std::uintptr_t{1});

// Gaps in the numbers are results that only NCCL itself gives (1: CUDA, 7: in progress). Any result
// but success ends the communicator: NCCL does not try again.
enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

enum LogLevel : int { kWarn = 2, kInfo = 3 };
inline constexpr unsigned long kLogInit = 0x01;
inline constexpr unsigned long kLogNet = 0x10;

// NCCL formats the text itself, printf() style, and filters by level and by subsystem (`flags`).
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
// Reports events to NCCL's profiler; may be null where a test program loads the plugin.
using Profiler = Result (*)(void** event, int type, void* parent, std::int64_t plugin, void* data);

// What the application asks of a communicator; kUndefined where it asks nothing.
struct CommConfig {
  int trafficClass;
};

// For plugins with code on the GPU. A plugin on the host leaves the pointer to it null.
struct DeviceHandle {
  int type;
  int version;
  void* handle;
  std::size_t size;
  int needsProxyProgress;
};
static_assert(sizeof(DeviceHandle) == 32);

// How NCCL expects to use the network from now on, told by setNetAttr(): a hint, which may be
// ignored.
struct FlowAttributes {
  std::int32_t maxConcurrentPeers;
  std::int32_t minConcurrentPeers;
  std::int32_t maxFlowsPerPeer;
  std::int32_t minFlowsPerPeer;
};
// `operations`, `algorithms` and `protocols` are masks of NCCL's own enumerations.
struct NetAttributes {
  FlowAttributes send;
  FlowAttributes receive;
  std::uint32_t operations;
  std::uint32_t algorithms;
  std::uint32_t protocols;
};
static_assert(sizeof(NetAttributes) == 44);

// Physical devices that NCCL has joined into one (makeVDevice()); a plain device lists only itself.
template <int kDevices>
struct VirtualDevice {
  int ndevs;
  int devs[kDevices];
};

// --- Properties of a device

// `name` and `pciPath` point into the plugin and must stay valid until it is unloaded: NCCL keeps
// the pointers. NCCL looks devices up by name, so names differ; equal pairs of `guid` and `port`
// mean one physical port, whose bandwidth is shared.
struct PropertiesV6 {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int speed;  // Mb/s
  int port;
  float latency;  // us
  int maxComms;
  int maxRecvs;
};
static_assert(sizeof(PropertiesV6) == 48 && offsetof(PropertiesV6, ptrSupport) == 24 &&
              offsetof(PropertiesV6, speed) == 28 && offsetof(PropertiesV6, port) == 32 &&
              offsetof(PropertiesV6, latency) == 36 && offsetof(PropertiesV6, maxComms) == 40 &&
              offsetof(PropertiesV6, maxRecvs) == 44);

// Version 7 brings devices with code on the GPU.
struct PropertiesV7 {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};
static_assert(sizeof(PropertiesV7) == 56 && offsetof(PropertiesV7, speed) == 28 &&
              offsetof(PropertiesV7, latency) == 36 && offsetof(PropertiesV7, maxRecvs) == 44 &&
              offsetof(PropertiesV7, netDeviceType) == 48 &&
              offsetof(PropertiesV7, netDeviceVersion) == 52);

// `regIsGlobal`: a registration is good for all connections of the device, so NCCL may keep it.
struct PropertiesV8 {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, regIsGlobal) == 28 &&
              offsetof(PropertiesV8, speed) == 32 && offsetof(PropertiesV8, port) == 36 &&
              offsetof(PropertiesV8, latency) == 40 && offsetof(PropertiesV8, maxComms) == 44 &&
              offsetof(PropertiesV8, maxRecvs) == 48 &&
              offsetof(PropertiesV8, netDeviceType) == 52 &&
              offsetof(PropertiesV8, netDeviceVersion) == 56);

// `forceFlush`: NCCL has to flush after a receive into GPU memory. `maxP2pBytes` and `maxCollBytes`
// limit one message, in bytes; NCCL refuses a device that says 0. Version 10 has the same
// properties.
struct PropertiesV9 {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  VirtualDevice<4> vProps;
  std::size_t maxP2pBytes;
  std::size_t maxCollBytes;
};
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, forceFlush) == 32 &&
              offsetof(PropertiesV9, speed) == 36 && offsetof(PropertiesV9, port) == 40 &&
              offsetof(PropertiesV9, latency) == 44 && offsetof(PropertiesV9, maxComms) == 48 &&
              offsetof(PropertiesV9, maxRecvs) == 52 &&
              offsetof(PropertiesV9, netDeviceType) == 56 &&
              offsetof(PropertiesV9, netDeviceVersion) == 60 &&
              offsetof(PropertiesV9, vProps) == 64 && offsetof(PropertiesV9, maxP2pBytes) == 88 &&
              offsetof(PropertiesV9, maxCollBytes) == 96);

// `maxMultiRequestSize`: how many requests NCCL may join into one call; 1 where it may not.
struct PropertiesV11 {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  VirtualDevice<4> vProps;
  std::size_t maxP2pBytes;
  std::size_t maxCollBytes;
  int maxMultiRequestSize;
};
static_assert(sizeof(PropertiesV11) == 112 && offsetof(PropertiesV11, vProps) == 64 &&
              offsetof(PropertiesV11, maxP2pBytes) == 88 &&
              offsetof(PropertiesV11, maxMultiRequestSize) == 104);

// `railId` and `planeId` place the device in a network of parallel rails and planes; kUndefined
// where the plugin does not know.
struct PropertiesV12 {
  char* name;
  char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  VirtualDevice<8> vProps;
  std::size_t maxP2pBytes;
  std::size_t maxCollBytes;
  int maxMultiRequestSize;
  std::int16_t railId;
  std::int16_t planeId;
};
static_assert(sizeof(PropertiesV12) == 128 && offsetof(PropertiesV12, vProps) == 64 &&
              offsetof(PropertiesV12, maxP2pBytes) == 104 &&
              offsetof(PropertiesV12, maxCollBytes) == 112 &&
              offsetof(PropertiesV12, maxMultiRequestSize) == 120 &&
              offsetof(PropertiesV12, railId) == 124 && offsetof(PropertiesV12, planeId) == 126);

// --- Tables of functions

// In the order in which NCCL calls them: init, devices and getProperties once per process; then for
// each connection listen() at the receiver, whose handle NCCL carries to the sender, connect() and
// accept() again and again until both have a connection, and closeListen(). After that isend(),
// irecv() and test() come from NCCL's progress thread and must not block; a null request means "no
// room, ask again". Connections are closed with requests still outstanding if NCCL gives up.
struct TableV6 {
  using Properties = PropertiesV6;
  using Size = int;
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*getProperties)(int, PropertiesV6*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, void*, void**);
  Result (*accept)(void*, void**);
  Result (*regMr)(void*, void*, int, int, void**);
  Result (*regMrDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  Result (*deregMr)(void*, void*);
  Result (*isend)(void*, void*, int, int, void*, void**);
  Result (*irecv)(void*, int, void**, int*, int*, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*closeSend)(void*);
  Result (*closeRecv)(void*);
  Result (*closeListen)(void*);
};
static_assert(sizeof(TableV6) == 136);

// Versions 7 and 8: connect() and accept() also give a handle for code on the GPU, which may be
// null, as may the pointer to it. Version 8 registers sizes beyond 2 GiB.
template <class P, class RegisteredSize>
struct TableV7To8 {
  using Properties = P;
  using Size = int;
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*getProperties)(int, P*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, void*, void**, DeviceHandle**);
  Result (*accept)(void*, void**, DeviceHandle**);
  Result (*regMr)(void*, void*, RegisteredSize, int, void**);
  Result (*regMrDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  Result (*deregMr)(void*, void*);
  Result (*isend)(void*, void*, int, int, void*, void**);
  Result (*irecv)(void*, int, void**, int*, int*, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*closeSend)(void*);
  Result (*closeRecv)(void*);
  Result (*closeListen)(void*);
  Result (*getDeviceMr)(void*, void*, void**);
  Result (*irecvConsumed)(void*, int, void*);
};
using TableV7 = TableV7To8<PropertiesV7, int>;
using TableV8 = TableV7To8<PropertiesV8, std::size_t>;
static_assert(sizeof(TableV7) == 152 && sizeof(TableV8) == 152);

// Messages have sizes beyond 2 GiB, and devices can be joined (makeVDevice()).
struct TableV9 {
  using Properties = PropertiesV9;
  using Size = std::size_t;
  const char* name;
  Result (*init)(Logger);
  Result (*devices)(int*);
  Result (*getProperties)(int, PropertiesV9*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, void*, void**, DeviceHandle**);
  Result (*accept)(void*, void**, DeviceHandle**);
  Result (*regMr)(void*, void*, std::size_t, int, void**);
  Result (*regMrDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  Result (*deregMr)(void*, void*);
  Result (*isend)(void*, void*, std::size_t, int, void*, void**);
  Result (*irecv)(void*, int, void**, std::size_t*, int*, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*closeSend)(void*);
  Result (*closeRecv)(void*);
  Result (*closeListen)(void*);
  Result (*getDeviceMr)(void*, void*, void**);
  Result (*irecvConsumed)(void*, int, void*);
  Result (*makeVDevice)(int*, VirtualDevice<4>*);
};
static_assert(sizeof(TableV9) == 160);

// init() brings the profiler, isend() and irecv() a cookie for it; connect() the communicator's
// wishes.
struct TableV10 {
  using Properties = PropertiesV9;
  using Size = std::size_t;
  const char* name;
  Result (*init)(Logger, Profiler);
  Result (*devices)(int*);
  Result (*getProperties)(int, PropertiesV9*);
  Result (*listen)(int, void*, void**);
  Result (*connect)(int, CommConfig*, void*, void**, DeviceHandle**);
  Result (*accept)(void*, void**, DeviceHandle**);
  Result (*regMr)(void*, void*, std::size_t, int, void**);
  Result (*regMrDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  Result (*deregMr)(void*, void*);
  Result (*isend)(void*, void*, std::size_t, int, void*, void*, void**);
  Result (*irecv)(void*, int, void**, std::size_t*, int*, void**, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*closeSend)(void*);
  Result (*closeRecv)(void*);
  Result (*closeListen)(void*);
  Result (*getDeviceMr)(void*, void*, void**);
  Result (*irecvConsumed)(void*, int, void*);
  Result (*makeVDevice)(int*, VirtualDevice<4>*);
};
static_assert(sizeof(TableV10) == 160);

// Versions 11 and 12: init() and finalize() come once per communicator, and what init() leaves in
// its first argument is handed to listen() and connect(). The tables differ only in their structs.
template <class P, int kDevices>
struct TableV11To12 {
  using Properties = P;
  using Size = std::size_t;
  const char* name;
  Result (*init)(void**, std::uint64_t, CommConfig*, Logger, Profiler);
  Result (*devices)(int*);
  Result (*getProperties)(int, P*);
  Result (*listen)(void*, int, void*, void**);
  Result (*connect)(void*, int, void*, void**, DeviceHandle**);
  Result (*accept)(void*, void**, DeviceHandle**);
  Result (*regMr)(void*, void*, std::size_t, int, void**);
  Result (*regMrDmaBuf)(void*, void*, std::size_t, int, std::uint64_t, int, void**);
  Result (*deregMr)(void*, void*);
  Result (*isend)(void*, void*, std::size_t, int, void*, void*, void**);
  Result (*irecv)(void*, int, void**, std::size_t*, int*, void**, void**, void**);
  Result (*iflush)(void*, int, void**, int*, void**, void**);
  Result (*test)(void*, int*, int*);
  Result (*closeSend)(void*);
  Result (*closeRecv)(void*);
  Result (*closeListen)(void*);
  Result (*getDeviceMr)(void*, void*, void**);
  Result (*irecvConsumed)(void*, int, void*);
  Result (*makeVDevice)(int*, VirtualDevice<kDevices>*);
  Result (*finalize)(void*);
  Result (*setNetAttr)(void*, NetAttributes*);
};
using TableV11 = TableV11To12<PropertiesV11, 4>;
using TableV12 = TableV11To12<PropertiesV12, 8>;
static_assert(sizeof(TableV11) == 176 && sizeof(TableV12) == 176);

}  // namespace weft::nccl::abi
