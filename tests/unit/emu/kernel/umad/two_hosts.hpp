// Owns two NICs whose datagrams reach each other at once, in a time that tests turn, and programs
// that speak the kernel's interface as libibumad does.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/endian/conversion.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <vector>

#include "emu/kernel/umad/file.hpp"
#include "emu/kernel/umad/port.hpp"

namespace weft::kernel::testing {

namespace umad = abi::umad;
using std::chrono::milliseconds;

constexpr std::uint8_t kPingClass = 0x32;
constexpr std::uint32_t kPingOui = 0x001405;
constexpr std::size_t kMad = 256;

// A host with one NIC and its three addresses; what it sends waits in `sent`.
class Machine final : public UmadHost {
 public:
  Machine(std::uint8_t attachment, std::uint8_t last)
      : addresses_{v6(0xFE, last), srd::Address::v4(10, 9, 0, last), v6(0xFD, last)},
        port(*this, {.guid = 1, .attachment = attachment, .addresses = addresses_}) {}

  void exclusively(const std::function<void(TimePoint)>& work) override {
    work(now);
    settle();
  }
  void expect_messages() override { ++expected; }
  bool claim(std::uint64_t service) override {
    return !others.contains(service) && claimed.insert(service).second;
  }
  void release(std::uint64_t service) override { claimed.erase(service); }
  bool may_exist(const srd::Address& address) override {
    return std::ranges::find(nobody, address) == nobody.end();
  }

  [[nodiscard]] const srd::Address& address() const { return addresses_[2]; }
  [[nodiscard]] const srd::Address& ipv4() const { return addresses_[1]; }
  void settle() {
    ManagementMessage message;
    while (port.next_message(message)) {
      sent.push_back(message);
    }
  }
  void hear(const ManagementMessage& message) {
    port.on_message(now, {.from = message.from,
                          .to = message.to,
                          .from_qpn = 1,
                          .traffic_class = message.traffic_class,
                          .flow_label = 0,
                          .message = message.bytes});
    settle();
  }
  void wait(milliseconds duration) {
    now += duration;
    port.on_timeout(now);
    settle();
  }

 private:
  static srd::Address v6(unsigned first, unsigned last) {
    srd::Address address;
    address.bytes.front() = static_cast<std::byte>(first);
    address.bytes.back() = static_cast<std::byte>(last);
    return address;
  }

  std::array<srd::Address, 3> addresses_;

 public:
  TimePoint now = time_at(std::chrono::seconds{1});
  std::set<std::uint64_t> others;  // another process has these
  std::set<std::uint64_t> claimed;
  std::vector<srd::Address> nobody;
  std::vector<ManagementMessage> sent;
  int expected = 0;
  UmadPort port;
};

struct Datagram {
  umad::Header header{};
  std::array<std::uint8_t, kMad> mad{};
};

// A program with one open file.
class Program {
 public:
  explicit Program(Machine& machine) : file(machine.port), fd(file.open()) {}
  ~Program() { ::close(fd); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] int enable_pkey() { return file.ioctl(umad::kEnablePkey, 0); }
  // The number of the agent, or a negative errno.
  [[nodiscard]] int add(umad::RegisterAgent request) {
    const int error = file.ioctl(umad::kRegisterAgent, address_of(request));
    return error < 0 ? error : static_cast<int>(request.id);
  }
  [[nodiscard]] int add(umad::RegisterAgent2& request) {
    const int error = file.ioctl(umad::kRegisterAgent2, address_of(request));
    return error < 0 ? error : static_cast<int>(request.id);
  }
  [[nodiscard]] int remove(std::uint32_t id) {
    return file.ioctl(umad::kUnregisterAgent, address_of(id));
  }
  [[nodiscard]] ssize_t write(const Datagram& datagram, std::size_t size = sizeof(Datagram)) {
    return file.write(&datagram, size);
  }
  [[nodiscard]] ssize_t read(Datagram& datagram, std::size_t size = sizeof(Datagram)) {
    return file.read(&datagram, size);
  }
  [[nodiscard]] bool readable() const {
    pollfd look{fd, POLLIN | POLLOUT, 0};
    EXPECT_EQ(::poll(&look, 1, 0), 1);
    EXPECT_NE(look.revents & POLLOUT, 0);
    return (look.revents & POLLIN) != 0;
  }

  template <class T>
  [[nodiscard]] static std::uint64_t address_of(T& object) {
    return reinterpret_cast<std::uint64_t>(&object);
  }

  UmadFile file;
  int fd;
};

// As ibping registers: at either end, or only the end that answers.
[[nodiscard]] inline umad::RegisterAgent ping_agent(bool answers) {
  umad::RegisterAgent request{};
  request.qpn = 1;
  request.management_class = kPingClass;
  request.class_version = 1;
  request.oui[1] = 0x14;
  request.oui[2] = 0x05;
  if (answers) {
    request.methods[0] = 1U << 1;  // Get
  }
  return request;
}

[[nodiscard]] inline Datagram to(const srd::Address& peer, std::uint32_t agent,
                                 std::uint32_t timeout_ms = 0, std::uint32_t retries = 0) {
  Datagram datagram;
  datagram.header.id = agent;
  datagram.header.timeout_ms = timeout_ms;
  datagram.header.retries = retries;
  datagram.header.qpn_be = boost::endian::native_to_big(1U);
  datagram.header.grh_present = 1;
  datagram.header.gid_index = 2;
  datagram.header.hop_limit = 64;
  std::memcpy(datagram.header.gid, peer.bytes.data(), 16);
  datagram.mad[0] = 1;
  datagram.mad[1] = kPingClass;
  datagram.mad[2] = 1;
  datagram.mad[3] = 1;      // Get
  datagram.mad[15] = 0x77;  // the transaction
  datagram.mad[38] = 0x14;
  datagram.mad[39] = 0x05;
  datagram.mad[255] = 0xAB;
  return datagram;
}

}  // namespace weft::kernel::testing
