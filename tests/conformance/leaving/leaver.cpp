// Owns a rank that sends short messages and leaves: when its sends have ended and its connection is
// closed, its process ends, without finalize(), which NCCL before 2.28 does not know.
//
//   weft_nccl_leaver PLUGIN FOLDER sends|receives
//
// The other rank posts its receives when the sender has gone. They meet by files in FOLDER.
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
constexpr std::size_t kBytes = 64;

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

void end(Net& net, void* request, const char* what) {
  int size = 0;
  for (bool done = false; !done;) {
    require(net.test(request, done, {&size, 1}) == kSuccess, what);
  }
  require(size == kBytes, "the size of a message");
}

void send_and_leave(Net& net, const std::string& folder) {
  await_file(folder + "/handle");
  Handle handle{};
  std::ifstream(folder + "/handle", std::ios::binary)
      .read(handle.data(), static_cast<std::streamsize>(handle.size()));
  void* connection = nullptr;
  while (connection == nullptr) {
    require(net.connect(0, handle, connection) == kSuccess, "connect");
  }
  std::array<char, kBytes> bytes;
  void* memory = nullptr;
  require(net.register_memory(connection, bytes.data(), kBytes, memory) == kSuccess, "regMr");
  for (std::size_t message = 0; message < kMessages; ++message) {
    for (std::size_t i = 0; i < kBytes; ++i) {
      bytes[i] = byte_of(message, i);
    }
    void* request = nullptr;
    while (request == nullptr) {
      require(net.send(connection, {bytes.data(), kBytes, 0, memory}, request) == kSuccess,
              "isend");
    }
    end(net, request, "test of an isend");
  }
  require(net.deregister_memory(connection, memory) == kSuccess, "deregMr");
  require(net.close_send(connection) == kSuccess, "closeSend");
  make_file(folder + "/gone", handle);
}

void receive(Net& net, const std::string& folder) {
  Handle handle{};
  void* listener = nullptr;
  require(net.listen(0, handle, listener) == kSuccess, "listen");
  make_file(folder + "/handle", handle);
  void* connection = nullptr;
  while (connection == nullptr) {
    require(net.accept(listener, connection) == kSuccess, "accept");
  }
  std::array<char, kBytes> bytes;
  void* memory = nullptr;
  require(net.register_memory(connection, bytes.data(), kBytes, memory) == kSuccess, "regMr");
  await_file(folder + "/gone");
  for (std::size_t message = 0; message < kMessages; ++message) {
    void* request = nullptr;
    const Posted buffer{bytes.data(), kBytes, 0, memory};
    while (request == nullptr) {
      require(net.receive(connection, {&buffer, 1}, false, request) == kSuccess, "irecv");
    }
    end(net, request, "test of an irecv");
    for (std::size_t i = 0; i < kBytes; ++i) {
      require(bytes[i] == byte_of(message, i), "the bytes of a message");
    }
  }
}

}  // namespace

int run(char** words) {
  ::alarm(90);
  const auto loaded = load_net(words[1], kVersion);
  int devices = 0;
  require(loaded && loaded->net->init() == kSuccess && loaded->net->devices(devices) == kSuccess &&
              devices != 0,
          "no device of the plugin");
  const bool sends = std::string(words[3]) == "sends";
  sends ? send_and_leave(*loaded->net, words[2]) : receive(*loaded->net, words[2]);
  std::printf("all right\n");
  std::fflush(stdout);
  ::_exit(0);
}

}  // namespace weft::collectives

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: weft_nccl_leaver PLUGIN FOLDER sends|receives\n");
    return 2;
  }
  return weft::collectives::run(words);
}
