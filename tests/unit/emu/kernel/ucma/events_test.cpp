// Tests of how a program waits for events: by sleeping in the command, by poll and epoll, without
// waiting; and of events that move to another file.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <thread>

#include "tests/unit/emu/kernel/ucma/program.hpp"

namespace weft::kernel {
namespace {

using Kind = cm::EventKind;

void set_nonblocking(int fd) { ASSERT_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0); }

ucma::ResolveIp resolving(std::uint32_t id) {
  return {{}, socket_of(cm::address_of(0), cm::kTestPort), id, 2000};
}

TEST_F(TwoProcesses, WithoutWaiting) {
  set_nonblocking(client.fd);
  ucma::EventReply event{};
  EXPECT_EQ(client.get_event(event), EAGAIN);
  const std::uint32_t id = client.create(1);
  ASSERT_EQ(client.command(Command::resolve_ip, resolving(id)), 0);
  EXPECT_EQ(client.get_event(event), 0);
  EXPECT_EQ(client.get_event(event), EAGAIN);
  EXPECT_FALSE(client.readable());
}

TEST_F(TwoProcesses, ASleeperIsWoken) {
  const std::uint32_t id = client.create(1);
  ucma::EventReply event{};
  int error = -1;
  std::thread sleeper([&] { error = client.get_event(event); });
  while (client_process.sleepers == 0) {  // it is about to sleep, or sleeps
    std::this_thread::yield();
  }
  EXPECT_EQ(client.command(Command::resolve_ip, resolving(id)), 0);
  sleeper.join();
  EXPECT_EQ(error, 0);
  EXPECT_EQ(event.uid, 1U);
}

TEST_F(TwoProcesses, SelectAndEdgesOfEpollTellOfEachEvent) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event interest{};
  interest.events = EPOLLIN | EPOLLET;
  ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, client.fd, &interest), 0);
  epoll_event told{};
  for (std::uint64_t uid = 1; uid <= 3; ++uid) {  // none is fetched meanwhile
    const std::uint32_t id = client.create(uid);
    ASSERT_EQ(client.command(Command::resolve_ip, resolving(id)), 0);
    EXPECT_EQ(epoll_wait(epoll, &told, 1, 0), 1);
    EXPECT_EQ(epoll_wait(epoll, &told, 1, 0), 0);
  }
  fd_set set;
  FD_ZERO(&set);
  FD_SET(client.fd, &set);
  timeval none{};
  EXPECT_EQ(select(client.fd + 1, &set, nullptr, nullptr, &none), 1);
  for (std::uint64_t uid = 1; uid <= 3; ++uid) {
    EXPECT_EQ(client.next(Kind::address_resolved).uid, uid);
  }
  EXPECT_FALSE(client.readable());
  ::close(epoll);
}

// More than the descriptor's socket has room for.
TEST_F(TwoProcesses, ManyEventsWait) {
  constexpr std::uint32_t kMany = 3000;
  for (std::uint32_t uid = 1; uid <= kMany; ++uid) {
    ASSERT_EQ(client.command(Command::resolve_ip, resolving(client.create(uid))), 0);
  }
  for (std::uint32_t uid = 1; uid <= kMany; ++uid) {
    ASSERT_EQ(client.next(Kind::address_resolved).uid, uid);
  }
  EXPECT_FALSE(client.readable());
}

TEST_F(TwoProcesses, DestroyingAnIdTakesItsEventsAway) {
  const std::uint32_t gone = client.create(1);
  const std::uint32_t stays = client.create(2);
  ASSERT_EQ(client.command(Command::resolve_ip, resolving(gone)), 0);
  ASSERT_EQ(client.command(Command::resolve_ip, resolving(stays)), 0);
  EXPECT_EQ(client.destroy(gone), 0U) << "it was not fetched";
  EXPECT_EQ(client.next(Kind::address_resolved).uid, 2U);
  EXPECT_FALSE(client.readable());
}

TEST_F(TwoProcesses, EventsMoveWithTheirId) {
  Program other{client_process};
  const std::uint32_t moves = client.create(1);
  const std::uint32_t stays = client.create(2);
  ASSERT_EQ(client.command(Command::resolve_ip, resolving(moves)), 0);
  ASSERT_EQ(client.command(Command::resolve_ip, resolving(stays)), 0);
  ucma::EventsReply reply{};
  const auto from = static_cast<std::uint32_t>(client.fd);
  ASSERT_EQ(other.command(Command::migrate_id, ucma::MigrateId{0, moves, from}, reply), 0);
  EXPECT_EQ(reply.events_reported, 0U);
  EXPECT_EQ(other.next(Kind::address_resolved).uid, 1U);
  EXPECT_EQ(client.next(Kind::address_resolved).uid, 2U);
  EXPECT_FALSE(client.readable());
  EXPECT_EQ(client.command(Command::resolve_route, ucma::ResolveRoute{moves, 1}), EINVAL);
  EXPECT_EQ(other.destroy(moves), 1U);
}

TEST_F(TwoProcesses, AnIdMovesOnlyFromItsOwnFile) {
  Program other{client_process};
  const std::uint32_t id = client.create(1);
  ucma::EventsReply reply{};
  const auto migrate = [&](Program& to, std::uint32_t which, int fd) {
    return to.command(Command::migrate_id,
                      ucma::MigrateId{0, which, static_cast<std::uint32_t>(fd)}, reply);
  };
  EXPECT_EQ(migrate(other, id, other.fd), EINVAL);
  EXPECT_EQ(migrate(other, id + 7, client.fd), ENOENT);
  EXPECT_EQ(migrate(other, id, 9999), ENOENT) << "not open";
  EXPECT_EQ(migrate(other, id, STDERR_FILENO), EINVAL) << "another kind of file";
  EXPECT_EQ(migrate(client, id, client.fd), 0);
  EXPECT_EQ(client.destroy(id), 0U);
}

// An event of a group is counted for the group and for the id; one that was not fetched goes with
// the group.
TEST_F(TwoProcesses, GroupsHaveEventsOfTheirOwn) {
  const srd::Address group = srd::Address::v4(239, 1, 1, 1);
  const std::uint32_t id = client.create(1, cm::PortSpace::udp);
  ASSERT_EQ(client.command(Command::bind_ip, ucma::BindIp{{}, socket_of(cm::address_of(1), 0), id}),
            0);
  const auto join = [&](std::uint64_t uid) {
    ucma::JoinIpMulticast command{};
    command.uid = uid;
    command.id = id;
    command.address = socket_of(group, 0);
    ucma::IdReply reply{~0U};
    EXPECT_EQ(client.command(Command::join_ip_multicast, command, reply), 0);
    return reply.id;
  };
  const auto leave = [&](std::uint32_t number) {
    ucma::EventsReply reply{~0U};
    EXPECT_EQ(client.command(Command::leave_multicast, ucma::DestroyId{0, number, 0}, reply), 0);
    return reply.events_reported;
  };
  const std::uint32_t first = join(70);
  const std::uint32_t second = join(71);
  EXPECT_NE(first, second);
  const ucma::EventReply event = client.next(Kind::multicast_join);
  EXPECT_EQ(event.uid, 70U);
  EXPECT_EQ(event.id, first);
  EXPECT_EQ(event.status, 0U);
  ucma::UdParam param{};
  std::memcpy(&param, event.param.data(), sizeof param);
  EXPECT_EQ(param.qp_num, 0xFFFFFFU);
  EXPECT_EQ(param.qkey, cm::kUdpQkey);
  EXPECT_EQ(param.ah.dgid, group.bytes);
  EXPECT_EQ(param.ah.sgid_index, 1);
  EXPECT_EQ(param.ah.is_global, 1);
  EXPECT_EQ(leave(second), 0U);
  EXPECT_FALSE(client.readable());
  EXPECT_EQ(leave(first), 1U);
  ucma::EventsReply reply{};
  EXPECT_EQ(client.command(Command::leave_multicast, ucma::DestroyId{0, first, 0}, reply), ENOENT);
  // What is left behind goes with the id.
  const std::uint32_t third = join(72);
  EXPECT_EQ(client.next(Kind::multicast_join).uid, 72U);
  EXPECT_EQ(client.destroy(id), 2U);
  EXPECT_EQ(client.command(Command::leave_multicast, ucma::DestroyId{0, third, 0}, reply), ENOENT);
}

}  // namespace
}  // namespace weft::kernel
