// Owns what the ranks of this folder have in common: a plugin, how they meet, and NCCL's calls.
//
// Each ends without finalize(), which NCCL before 2.28 does not know. A call that fails ends the
// rank.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "integration/collectives/net.hpp"

namespace weft::collectives {

using nccl::abi::kSuccess;

inline constexpr std::size_t kShort = 64;
inline constexpr std::size_t kLong = 2000;  // waits for its buffer, and for its acknowledgement

inline void require(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "failed: %s\n", what);
    ::_exit(1);
  }
}

// With one device at least. The rank is killed if it takes longer than a test waits.
inline LoadedNet load_plugin(const char* file) {
  constexpr int kVersion = 8;
  constexpr unsigned kSeconds = 90;
  ::alarm(kSeconds);
  auto loaded = load_net(file, kVersion);
  int devices = 0;
  require(loaded && loaded->net->init() == kSuccess && loaded->net->devices(devices) == kSuccess &&
              devices != 0,
          "a device of the plugin");
  return std::move(*loaded);
}

[[noreturn]] inline void leave() {
  std::printf("all right\n");
  std::fflush(stdout);
  ::_exit(0);
}

// --- They meet by files.
inline void await_file(const std::string& path) {
  while (!std::filesystem::exists(path)) {
    ::usleep(1000);
  }
}
inline void make_file(const std::string& path, const Handle& bytes = {}) {
  std::ofstream(path + ".new", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::filesystem::rename(path + ".new", path);
}
// The listener's handle is in the file.
inline void* listen(Net& net, const std::string& path) {
  Handle handle{};
  void* listener = nullptr;
  require(net.listen(0, handle, listener) == kSuccess, "listen");
  make_file(path, handle);
  return listener;
}
inline void* connect(Net& net, const std::string& path) {
  await_file(path);
  Handle handle{};
  std::ifstream(path, std::ios::binary)
      .read(handle.data(), static_cast<std::streamsize>(handle.size()));
  void* connection = nullptr;
  while (connection == nullptr) {
    require(net.connect(0, handle, connection) == kSuccess, "connect");
  }
  return connection;
}
inline void* accept(Net& net, void* listener) {
  void* connection = nullptr;
  while (connection == nullptr) {
    require(net.accept(listener, connection) == kSuccess, "accept");
  }
  return connection;
}

// --- Messages, one after the other; each has bytes of its own.
inline char byte_of(std::size_t message, std::size_t at) {
  return static_cast<char>(message * 31 + at * 7 + 1);
}
inline void end(Net& net, void* request, std::size_t bytes, const char* what) {
  int size = 0;
  for (bool done = false; !done;) {
    require(net.test(request, done, {&size, 1}) == kSuccess, what);
  }
  require(size == static_cast<int>(bytes), "the size of a message");
}
inline void send(Net& net, void* connection, std::size_t size, std::size_t count) {
  std::array<char, kLong> bytes;
  void* memory = nullptr;
  require(net.register_memory(connection, bytes.data(), size, memory) == kSuccess, "regMr");
  for (std::size_t message = 0; message < count; ++message) {
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = byte_of(message, i);
    }
    void* request = nullptr;
    while (request == nullptr) {
      require(net.send(connection, {bytes.data(), size, 0, memory}, request) == kSuccess, "isend");
    }
    end(net, request, size, "test of an isend");
  }
  require(net.deregister_memory(connection, memory) == kSuccess, "deregMr");
}
inline void receive(Net& net, void* connection, std::size_t size, std::size_t count) {
  std::array<char, kLong> bytes;
  void* memory = nullptr;
  require(net.register_memory(connection, bytes.data(), size, memory) == kSuccess, "regMr");
  for (std::size_t message = 0; message < count; ++message) {
    void* request = nullptr;
    const Posted buffer{bytes.data(), size, 0, memory};
    while (request == nullptr) {
      require(net.receive(connection, {&buffer, 1}, false, request) == kSuccess, "irecv");
    }
    end(net, request, size, "test of an irecv");
    for (std::size_t i = 0; i < size; ++i) {
      require(bytes[i] == byte_of(message, i), "the bytes of a message");
    }
  }
  require(net.deregister_memory(connection, memory) == kSuccess, "deregMr");
}

}  // namespace weft::collectives
