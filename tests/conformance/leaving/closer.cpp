// Owns a rank that closes its last connection again and again, and then leaves: what it sent last
// is received all the same, and closing takes no long time.
//
//   weft_nccl_closer PLUGIN FOLDER dies|closes|sends|receives
//
// One that `dies` or `closes` sends a message to the one that `sends`, and ends with or without a
// word. That one closes many connections to the one that `receives`, then sends and leaves. They
// meet by files in FOLDER.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "integration/collectives/net.hpp"

namespace weft::collectives {
namespace {

using nccl::abi::kSuccess;

constexpr int kVersion = 8;
constexpr std::size_t kShort = 64;
constexpr std::size_t kLong = 2000;
constexpr int kRounds = 12;
constexpr std::size_t kLast = 16;

std::array<char, kLong> bytes;

void require(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "nccl_closer: %s\n", what);
    ::_exit(1);
  }
}

void await_file(const std::string& path) {
  while (!std::filesystem::exists(path)) {
    ::usleep(1000);
  }
}

void make_file(const std::string& path, const Handle& handle) {
  std::ofstream(path + ".new", std::ios::binary)
      .write(handle.data(), static_cast<std::streamsize>(handle.size()));
  std::filesystem::rename(path + ".new", path);
}

void* connect(Net& net, const std::string& path) {
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

void* accept(Net& net, void* listener) {
  void* connection = nullptr;
  while (connection == nullptr) {
    require(net.accept(listener, connection) == kSuccess, "accept");
  }
  return connection;
}

void end(Net& net, void* request, const char* what) {
  int size = 0;
  for (bool done = false; !done;) {
    require(net.test(request, done, {&size, 1}) == kSuccess, what);
  }
}

void send(Net& net, void* connection, std::size_t size, std::size_t count) {
  void* memory = nullptr;
  require(net.register_memory(connection, bytes.data(), size, memory) == kSuccess, "regMr");
  for (std::size_t i = 0; i < count; ++i) {
    void* request = nullptr;
    while (request == nullptr) {
      require(net.send(connection, {bytes.data(), size, 0, memory}, request) == kSuccess, "isend");
    }
    end(net, request, "test of an isend");
  }
  require(net.deregister_memory(connection, memory) == kSuccess, "deregMr");
}

void receive(Net& net, void* connection, std::size_t size, std::size_t count) {
  void* memory = nullptr;
  require(net.register_memory(connection, bytes.data(), size, memory) == kSuccess, "regMr");
  for (std::size_t i = 0; i < count; ++i) {
    void* request = nullptr;
    const Posted buffer{bytes.data(), size, 0, memory};
    while (request == nullptr) {
      require(net.receive(connection, {&buffer, 1}, false, request) == kSuccess, "irecv");
    }
    end(net, request, "test of an irecv");
  }
  require(net.deregister_memory(connection, memory) == kSuccess, "deregMr");
}

// Milliseconds.
template <class F>
long time_of(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  require(f() == kSuccess, "close");
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               begin)
      .count();
}

void close_often(Net& net, void* listener, const Handle& handle, const std::string& folder) {
  make_file(folder + "/sender", handle);
  void* connection = accept(net, listener);
  receive(net, connection, kLong, 1);
  ::usleep(50000);  // its sender ends meanwhile
  long took = time_of([&] { return net.close_receive(connection); });
  for (int i = 0; i < kRounds; ++i) {
    connection = connect(net, folder + "/receiver");
    send(net, connection, kShort, 1);
    took += time_of([&] { return net.close_send(connection); });
  }
  connection = connect(net, folder + "/receiver");
  send(net, connection, kShort, kLast);
  took += time_of([&] { return net.close_send(connection); });
  std::printf("closing took %ld ms\n", took);
  make_file(folder + "/gone", handle);
}

void receive_often(Net& net, void* listener, const Handle& handle, const std::string& folder) {
  make_file(folder + "/receiver", handle);
  for (int i = 0; i <= kRounds; ++i) {
    void* const connection = accept(net, listener);
    if (i == kRounds) {
      await_file(folder + "/gone");
    }
    receive(net, connection, kShort, i == kRounds ? kLast : 1);
    require(net.close_receive(connection) == kSuccess, "closeRecv");
  }
}

}  // namespace

int run(char** words) {
  ::alarm(60);
  const auto loaded = load_net(words[1], kVersion);
  int devices = 0;
  require(loaded && loaded->net->init() == kSuccess && loaded->net->devices(devices) == kSuccess &&
              devices != 0,
          "no device of the plugin");
  Net& net = *loaded->net;
  const std::string folder = words[2];
  const std::string role = words[3];
  if (role == "dies" || role == "closes") {
    void* const connection = connect(net, folder + "/sender");
    send(net, connection, kLong, 1);
    require(role == "dies" || net.close_send(connection) == kSuccess, "closeSend");
    ::_exit(0);
  }
  Handle handle{};
  void* listener = nullptr;
  require(net.listen(0, handle, listener) == kSuccess, "listen");
  (role == "sends" ? close_often : receive_often)(net, listener, handle, folder);
  std::printf("all right\n");
  std::fflush(stdout);
  ::_exit(0);
}

}  // namespace weft::collectives

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: weft_nccl_closer PLUGIN FOLDER dies|closes|sends|receives\n");
    return 2;
  }
  return weft::collectives::run(words);
}
