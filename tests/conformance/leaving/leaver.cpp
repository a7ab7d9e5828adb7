// Owns a rank that sends or receives a few messages and leaves: when its requests have ended and
// its connection is closed, its process ends, without finalize(), which NCCL before 2.28 does not
// know.
//
//   weft_nccl_leaver PLUGIN FOLDER short|long sends|receives
//
// Of short messages the sender leaves first: the receives are posted when it has gone. They meet by
// files in FOLDER.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "integration/collectives/net.hpp"

namespace weft::collectives {
namespace {

using nccl::abi::kSuccess;

constexpr int kVersion = 8;
constexpr std::size_t kMessages = 16;
constexpr std::size_t kShort = 64;
constexpr std::size_t kLong = 2000;  // waits for its buffer, and for its acknowledgement

void require(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "nccl_leaver: %s\n", what);
    ::_exit(1);
  }
}

char byte_of(std::size_t message, std::size_t at) {
  return static_cast<char>(message * 31 + at * 7 + 1);
}

void await_file(const std::string& path) {
  while (!std::filesystem::exists(path)) {
    ::usleep(1000);
  }
}

void make_file(const std::string& path, const Handle& bytes) {
  std::ofstream(path + ".new", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::filesystem::rename(path + ".new", path);
}

void end(Net& net, void* request, std::size_t bytes, const char* what) {
  int size = 0;
  for (bool done = false; !done;) {
    require(net.test(request, done, {&size, 1}) == kSuccess, what);
  }
  require(size == static_cast<int>(bytes), "the size of a message");
}

void send(Net& net, const std::string& folder, std::size_t size) {
  await_file(folder + "/handle");
  Handle handle{};
  std::ifstream(folder + "/handle", std::ios::binary)
      .read(handle.data(), static_cast<std::streamsize>(handle.size()));
  void* connection = nullptr;
  while (connection == nullptr) {
    require(net.connect(0, handle, connection) == kSuccess, "connect");
  }
  std::array<char, kLong> bytes;
  void* memory = nullptr;
  require(net.register_memory(connection, bytes.data(), size, memory) == kSuccess, "regMr");
  for (std::size_t message = 0; message < kMessages; ++message) {
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
  require(net.close_send(connection) == kSuccess, "closeSend");
  make_file(folder + "/gone", handle);
}

void receive(Net& net, const std::string& folder, std::size_t size) {
  Handle handle{};
  void* listener = nullptr;
  require(net.listen(0, handle, listener) == kSuccess, "listen");
  make_file(folder + "/handle", handle);
  void* connection = nullptr;
  while (connection == nullptr) {
    require(net.accept(listener, connection) == kSuccess, "accept");
  }
  std::array<char, kLong> bytes;
  void* memory = nullptr;
  require(net.register_memory(connection, bytes.data(), size, memory) == kSuccess, "regMr");
  if (size == kShort) {
    await_file(folder + "/gone");
  }
  for (std::size_t message = 0; message < kMessages; ++message) {
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
  require(net.close_receive(connection) == kSuccess, "closeRecv");
}

}  // namespace

int run(char** words) {
  ::alarm(90);
  const auto loaded = load_net(words[1], kVersion);
  int devices = 0;
  require(loaded && loaded->net->init() == kSuccess && loaded->net->devices(devices) == kSuccess &&
              devices != 0,
          "no device of the plugin");
  const std::size_t size = std::string(words[3]) == "short" ? kShort : kLong;
  (std::string(words[4]) == "sends" ? send : receive)(*loaded->net, words[2], size);
  std::printf("all right\n");
  std::fflush(stdout);
  ::_exit(0);
}

}  // namespace weft::collectives

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: weft_nccl_leaver PLUGIN FOLDER short|long sends|receives\n");
    return 2;
  }
  return weft::collectives::run(words);
}
