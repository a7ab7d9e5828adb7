// Owns two processes that manage connections, without devices between them: what one sends, the
// other has at once.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "emu/kernel/abi/ucma.hpp"
#include "emu/kernel/ucma/contexts.hpp"
#include "emu/kernel/ucma/file.hpp"
#include "emu/kernel/ucma/layouts.hpp"
#include "tests/unit/emu/roce/cm/world.hpp"

namespace weft::kernel {

namespace cm = roce::cm;
namespace ucma = abi::ucma;
using ucma::Command;

// One process.
class Process final : public CmHost {
 public:
  explicit Process(std::size_t host) : manager(cm::config_of(host), claims, reachability) {}

  void exclusively(const std::function<void(cm::Manager&, TimePoint)>& work) override {
    const std::lock_guard guard(lock_);
    work(manager, now);
    settle();
  }
  void expect_events() override { ++sleepers; }
  std::shared_ptr<CmFile> file_of(int fd) override {
    const auto found = files.find(fd);
    return found == files.end() ? nullptr : found->second;
  }

  // What is ready leaves, events are heard. Nothing arrives here.
  void settle() {
    cm::Outgoing out;
    while (manager.next_mad(now, out)) {
      sent.push_back(out);
    }
    contexts.dispatch(manager);
  }

  cm::OpenClaims claims;
  cm::OpenReachability reachability;
  cm::Manager manager;
  Contexts contexts;
  std::map<int, std::shared_ptr<CmFile>> files;
  std::deque<cm::Outgoing> sent;
  TimePoint now = time_at(std::chrono::seconds{1});
  std::atomic<int> sleepers{0};

 private:
  std::mutex lock_;
};

// A program with the file open.
class Program {
 public:
  explicit Program(Process& process) : process_(process) {
    auto file = std::make_shared<CmFile>(process.contexts, process);
    fd = file->open();
    EXPECT_GE(fd, 0);
    process.files[fd] = std::move(file);
  }
  ~Program() { close(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void close() {
    if (fd >= 0) {
      process_.files.erase(fd);
      ::close(fd);
      fd = -1;
    }
  }

  // 0 or an errno.
  int write_bytes(std::uint32_t number, const void* body, std::uint16_t size, std::uint16_t room) {
    std::vector<std::byte> bytes(sizeof(ucma::Header) + size);
    const ucma::Header header{number, size, room};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, body, size);
    const ssize_t result = process_.files.at(fd)->write(bytes.data(), bytes.size());
    EXPECT_TRUE(result < 0 || result == static_cast<ssize_t>(bytes.size()));
    return result < 0 ? static_cast<int>(-result) : 0;
  }
  template <class Body>
  int command(Command number, const Body& body) {
    return write_bytes(static_cast<std::uint32_t>(number), &body, sizeof body, 0);
  }
  template <class Body, class Reply>
  int command(Command number, Body body, Reply& reply) {
    body.response = reinterpret_cast<std::uint64_t>(&reply);
    return write_bytes(static_cast<std::uint32_t>(number), &body, sizeof body, sizeof reply);
  }

  std::uint32_t create(std::uint64_t uid, cm::PortSpace space = cm::PortSpace::tcp) {
    ucma::CreateId request{};
    request.uid = uid;
    request.port_space = static_cast<std::uint16_t>(space);
    ucma::IdReply reply{~0U};
    EXPECT_EQ(command(Command::create_id, request, reply), 0);
    return reply.id;
  }
  std::uint32_t destroy(std::uint32_t id) {
    ucma::EventsReply reply{~0U};
    EXPECT_EQ(command(Command::destroy_id, ucma::DestroyId{0, id, 0}, reply), 0);
    return reply.events_reported;
  }
  // 0 or an errno. Sleeps as the program's descriptor says.
  int get_event(ucma::EventReply& event) {
    while (true) {
      const int error = command(Command::get_event, ucma::GetEvent{}, event);
      std::byte byte{};
      if (error != EAGAIN) {
        return error;
      }
      process_.files.at(fd)->expect_events();
      if (::recv(fd, &byte, sizeof byte, MSG_PEEK) < 0) {
        return errno;
      }
    }
  }
  [[nodiscard]] bool readable() const {
    pollfd poll{fd, POLLIN, 0};
    return ::poll(&poll, 1, 0) == 1;
  }
  // The next event, or a failure: never sleeps.
  ucma::EventReply next(cm::EventKind kind) {
    ucma::EventReply event{};
    EXPECT_TRUE(readable()) << "no event";
    if (readable()) {
      EXPECT_EQ(get_event(event), 0);
      EXPECT_EQ(event.event, static_cast<std::uint32_t>(kind));
    }
    return event;
  }

  int fd = -1;

 private:
  Process& process_;
};

inline ucma::SocketIn6 socket_of(const srd::Address& address, std::uint16_t port) {
  ucma::SocketIn6 socket{};
  socket[0] = std::byte{ucma::kIpv4};
  socket[2] = static_cast<std::byte>(port >> 8);
  socket[3] = static_cast<std::byte>(port & 0xFF);
  std::memcpy(&socket[4], address.v4_bytes().data(), 4);
  return socket;
}
inline ucma::SocketIn6 any_socket(std::uint16_t port) {
  return socket_of(srd::Address::v4(0, 0, 0, 0), port);
}

inline ucma::ConnParam parameters(std::uint32_t qpn) {
  ucma::ConnParam param{};
  param.qp_num = qpn;
  param.retry_count = 7;
  param.rnr_retry_count = 7;
  param.responder_resources = 1;
  param.initiator_depth = 1;
  param.private_data_len = 4;
  param.private_data[0] = std::byte{0x77};
  param.valid = 1;
  return param;
}

// A listener of the first process, and what the second needs to get there.
class TwoProcesses : public ::testing::Test {
 protected:
  // Everything that is on its way arrives.
  void run() {
    while (!server_process.sent.empty() || !client_process.sent.empty()) {
      pass(server_process, client_process);
      pass(client_process, server_process);
    }
  }
  std::uint32_t listen(Program& program, std::uint64_t uid,
                       cm::PortSpace space = cm::PortSpace::tcp) {
    const std::uint32_t id = program.create(uid, space);
    EXPECT_EQ(program.command(Command::bind_ip, ucma::BindIp{0, any_socket(cm::kTestPort), id}), 0);
    EXPECT_EQ(program.command(Command::listen, ucma::Listen{id, 8}), 0);
    return id;
  }
  std::uint32_t route(Program& program, std::uint64_t uid,
                      cm::PortSpace space = cm::PortSpace::tcp) {
    const std::uint32_t id = program.create(uid, space);
    const ucma::ResolveIp request{
        {}, socket_of(cm::address_of(0), cm::kTestPort), id, /*timeout_ms=*/2000};
    EXPECT_EQ(program.command(Command::resolve_ip, request), 0);
    EXPECT_EQ(program.next(cm::EventKind::address_resolved).uid, uid);
    EXPECT_EQ(program.command(Command::resolve_route, ucma::ResolveRoute{id, 2000}), 0);
    EXPECT_EQ(program.next(cm::EventKind::route_resolved).id, id);
    return id;
  }
  void request(Program& program, std::uint32_t id, std::uint32_t qpn = 0x11) {
    EXPECT_EQ(program.command(Command::connect, ucma::Connect{parameters(qpn), id, 0, {}}), 0);
    run();
  }
  int accept(Program& program, std::uint32_t id, std::uint64_t uid, std::uint32_t qpn) {
    return program.command(Command::accept, ucma::Accept{uid, parameters(qpn), id, 0, {}});
  }

  Process server_process{0};
  Process client_process{1};
  Program server{server_process};
  Program client{client_process};

 private:
  static void pass(Process& from, Process& to) {
    while (!from.sent.empty()) {
      const cm::Outgoing out = from.sent.front();
      from.sent.pop_front();
      to.exclusively([&](cm::Manager& manager, TimePoint now) {
        manager.on_mad(now, out.from, out.to, out.mad);
      });
    }
  }
};

}  // namespace weft::kernel
