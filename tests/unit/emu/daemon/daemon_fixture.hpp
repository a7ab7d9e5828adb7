// Owns a weftd of a test's own, and processes that are attached to it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emu/daemon/client.hpp"
#include "emu/daemon/daemon.hpp"
#include "srd/run/clock.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::emu {

using nlohmann::json;

// A weftd in a process of its own, so that it can be killed.
class Weftd {
 public:
  explicit Weftd(DaemonOptions options) : options_(std::move(options)) { start(); }
  ~Weftd() { kill(SIGTERM); }

  void start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      auto daemon = Daemon::create(options_);
      _exit(daemon && (*daemon)->run() ? 0 : 1);
    }
    const auto patience = srd::monotonic_now() + std::chrono::seconds{10};
    while (!connect_seqpacket(options_.directory + "/attach.sock") &&
           srd::monotonic_now() < patience) {
      std::this_thread::yield();
    }
  }
  // Returns its exit status as waitpid() tells it.
  int kill(int signal) {
    int status = -1;
    if (pid_ > 0) {
      ::kill(pid_, signal);
      ::waitpid(pid_, &status, 0);
      pid_ = -1;
    }
    return status;
  }
  [[nodiscard]] bool alive() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  [[nodiscard]] const DaemonOptions& options() const { return options_; }

 private:
  DaemonOptions options_;
  pid_t pid_ = -1;
};

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/weft-test-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override {
    weftd_.reset();
    std::filesystem::remove_all(directory_);
  }
  void start(bool direct_rings) {
    DaemonOptions options;
    options.directory = directory_;
    options.plant.hosts = {"h1", "h2"};
    options.plant.nics_per_host = 2;
    options.direct_rings = direct_rings;
    weftd_ = std::make_unique<Weftd>(options);
  }
  [[nodiscard]] Result<Attachment> join(const std::string& host, std::uint32_t nic = 0) const {
    AttachOptions options;
    options.socket = directory_ + "/attach.sock";
    options.host = host;
    options.nic = nic;
    return attach(options);
  }
  json ask(const json& request) const { return ask_line(request.dump()); }
  json ask_line(std::string line) const {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (directory_ + "/control.sock").c_str());
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    line += "\n";
    EXPECT_EQ(::write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    std::string reply;
    char buffer[4096];
    while (reply.find('\n') == std::string::npos) {
      const ssize_t size = ::read(fd, buffer, sizeof buffer);
      if (size <= 0) {
        break;
      }
      reply.append(buffer, static_cast<std::size_t>(size));
    }
    ::close(fd);
    return json::parse(reply, nullptr, false);
  }
  json status() const { return ask({{"v", 1}, {"cmd", "status"}})["status"]; }

  static srd::TxPacket packet(const Attachment& to, std::uint32_t number, std::size_t size = 64) {
    static const std::vector<std::byte> payload(5000, std::byte{0x5A});
    srd::TxPacket packet;
    srd::wire::CommonHeader header{};
    header.version = srd::wire::kVersion;
    header.type = 1;
    header.destination_attachment = to.id.value();
    header.source_life = number;
    packet.to = to.address;
    packet.header_size = sizeof header;
    srd::wire::store(packet.header.data(), header);
    packet.payload[0] = {payload.data(), size - sizeof header};
    return packet;
  }
  static std::uint32_t number_of(const srd::RxPacket& packet) {
    srd::wire::CommonHeader header{};
    EXPECT_TRUE(srd::wire::load(packet.bytes, header));
    return header.source_life.value();
  }
  // Sends one packet and waits for it at the other end.
  static testing::AssertionResult passes(Attachment& from, Attachment& to, std::uint32_t number) {
    const srd::TxPacket sent = packet(to, number);
    if (from.io->transmit({&sent, 1}) != 1) {
      return testing::AssertionFailure() << "not taken";
    }
    return arrives(to, number);
  }
  static testing::AssertionResult arrives(Attachment& to, std::uint32_t number) {
    const auto patience = srd::monotonic_now() + std::chrono::seconds{5};
    while (srd::monotonic_now() < patience) {
      for (const srd::RxPacket& received : to.io->receive()) {
        if (number_of(received) == number) {
          to.io->release();
          return testing::AssertionSuccess();
        }
      }
      to.io->release();
      std::this_thread::yield();
    }
    return testing::AssertionFailure() << "packet " << number << " did not arrive";
  }
  template <class Condition>
  static bool eventually(Condition&& condition) {
    const auto patience = srd::monotonic_now() + std::chrono::seconds{10};
    while (!condition()) {
      if (srd::monotonic_now() > patience) {
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }
  static void poll_once(Attachment& attachment) {
    [[maybe_unused]] const auto packets = attachment.io->receive();
    attachment.io->release();
  }

  std::string directory_;
  std::unique_ptr<Weftd> weftd_;
};

}  // namespace weft::emu
