// Owns loading a network plugin of any version behind one face.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "integration/nccl/abi.hpp"
#include "srd/base/result.hpp"

namespace weft::collectives {

using nccl::abi::Result;
inline constexpr std::size_t kMaxBuffers = 8;  // of one receive

// What the harness uses of a device's properties.
struct Properties {
  std::string name;
  int speed = 0;  // Mb/s
  int max_receives = 1;
  int pointers = 0;
};

// One buffer of a request: `size` bytes at `data`, within the region for which regMr gave `memory`.
struct Posted {
  void* data = nullptr;
  std::size_t size = 0;
  int tag = 0;
  void* memory = nullptr;
};

using Handle = std::array<char, nccl::abi::kHandleBytes>;

// The calls of a plugin, in the shape of its latest version. As in NCCL, connect(), accept(),
// send() and receive() may succeed and give null: not now, call again. One thread uses a
// connection. A decorator may stand in between.
class Net {
 public:
  virtual ~Net() = default;
  virtual Result init() = 0;
  virtual Result finalize() = 0;
  virtual Result devices(int& count) = 0;
  virtual Result properties(int device, Properties& out) = 0;
  virtual Result listen(int device, Handle& handle, void*& listener) = 0;
  virtual Result connect(int device, Handle& handle, void*& connection) = 0;
  virtual Result accept(void* listener, void*& connection) = 0;
  virtual Result register_memory(void* connection, void* data, std::size_t size, void*& memory) = 0;
  virtual Result deregister_memory(void* connection, void* memory) = 0;
  virtual Result send(void* connection, const Posted& message, void*& request) = 0;
  virtual Result receive(void* connection, std::span<const Posted> buffers, bool early,
                         void*& request) = 0;
  virtual Result test(void* request, bool& done, std::span<int> sizes) = 0;
  virtual Result close_send(void* connection) = 0;
  virtual Result close_receive(void* connection) = 0;
  virtual Result close_listener(void* listener) = 0;
};

struct LoadedNet {
  std::unique_ptr<Net> net;
  std::string name;
  int version = 0;
};
// The newest version that the file has, or the one asked for. It stays loaded.
[[nodiscard]] weft::Result<LoadedNet> load_net(const std::string& file, std::optional<int> version);

[[nodiscard]] const char* to_string(Result result);

}  // namespace weft::collectives
