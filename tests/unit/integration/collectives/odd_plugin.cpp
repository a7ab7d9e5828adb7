// Owns plugins that have only the oldest table, and with which nothing can be done: ODD_DEVICES of
// devices, and an init that gives ODD_INIT.
#include "integration/nccl/abi.hpp"

namespace weft::testing {
namespace {

using nccl::abi::Result;

Result init(nccl::abi::Logger) { return static_cast<Result>(ODD_INIT); }

Result devices(int* count) {
  *count = ODD_DEVICES;
  return nccl::abi::kSuccess;
}

}  // namespace
}  // namespace weft::testing

extern "C" __attribute__((visibility("default")))
const weft::nccl::abi::TableV6 ncclNetPlugin_v6 = {.name = "odd",
                                                   .init = weft::testing::init,
                                                   .devices = weft::testing::devices,
                                                   .getProperties = nullptr,
                                                   .listen = nullptr,
                                                   .connect = nullptr,
                                                   .accept = nullptr,
                                                   .regMr = nullptr,
                                                   .regMrDmaBuf = nullptr,
                                                   .deregMr = nullptr,
                                                   .isend = nullptr,
                                                   .irecv = nullptr,
                                                   .iflush = nullptr,
                                                   .test = nullptr,
                                                   .closeSend = nullptr,
                                                   .closeRecv = nullptr,
                                                   .closeListen = nullptr};
