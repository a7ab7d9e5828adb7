// Owns the one symbol that brings programs to weft which ask Gloo for a device over TCP, as PyTorch
// does: with LD_PRELOAD it is found before Gloo's own.
#include <gloo/transport/tcp/device.h>

#include "integration/gloo/device.hpp"

namespace gloo::transport::tcp {

__attribute__((visibility("default"))) std::shared_ptr<::gloo::transport::Device> CreateDevice(
    const attr&) {
  return weft::gloo::create_device();
}

}  // namespace gloo::transport::tcp
