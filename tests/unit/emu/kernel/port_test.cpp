// Tests of the port's link: what queries say of it, and which files are told when it changes.
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/emu/kernel/queue_client.hpp"

namespace weft::kernel {
namespace {

using Record = EventChannel::Record;
// Two events of the port; a program learns of both by reading the context's event descriptor.
constexpr auto kActive = static_cast<std::uint32_t>(abi::AsyncEvent::port_active);
constexpr auto kError = static_cast<std::uint32_t>(abi::AsyncEvent::port_error);

// The descriptor of asynchronous events is read as programs read it, so a test sees what is in it
// and nothing more.
class Port : public QueueClient {
 protected:
  ~Port() override { ::close(async_fd); }
  // What lies in the channel, in order.
  static std::vector<Record> events(int fd) {
    std::vector<Record> all;
    for (pollfd entry{fd, POLLIN, 0}; ::poll(&entry, 1, 0) == 1;) {
      Record record{};
      if (::read(fd, &record, sizeof record) != sizeof record) {
        break;
      }
      all.push_back(record);
    }
    return all;
  }
  abi::QueryPort query() {
    abi::QueryPort reply{};
    EXPECT_EQ(command_for(abi::Command::query_port, reply, std::uint8_t{1},
                          std::array<std::uint8_t, 7>{}),
              0);
    return reply;
  }
};

// The numbers are those of the InfiniBand specification: 4 active and 1 down; physically 5 link up
// and 3 disabled.
TEST_F(Port, SaysWhetherItsLinkIsUp) {
  EXPECT_EQ(query().state, 4);
  EXPECT_EQ(query().phys_state, 5);
  runner.device.set_port_state(false);
  EXPECT_EQ(query().state, 1);
  EXPECT_EQ(query().phys_state, 3);
  runner.device.set_port_state(true);
  EXPECT_EQ(query().state, 4);
  EXPECT_EQ(query().phys_state, 5);
}

TEST_F(Port, TellsEveryOpenFileOfEachChangeOnce) {
  // Three files are open on one device.
  UverbsFile silent(runner.device, runner, nullptr);  // has no context, and so is not told
  int other_fd = -1;
  {
    UverbsFile other(runner.device, runner, nullptr);
    const int file_fd = other.open();
    std::array<std::uint32_t, 8> reply{};
    const auto body = join(reinterpret_cast<std::uint64_t>(&reply), std::uint64_t{0});
    const auto bytes = join(abi::CommandHeader{0, 6, 8}, body);
    ASSERT_EQ(other.write(file_fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    other_fd = static_cast<int>(reply[0]);
    runner.device.set_port_state(true);  // as it was
    runner.device.set_port_state(false);
    runner.device.set_port_state(false);
    runner.device.set_port_state(true);
    for (const int fd : {async_fd, other_fd}) {
      const std::vector<Record> told = events(fd);
      ASSERT_EQ(told.size(), 2U);
      EXPECT_EQ(told[0].type, kError);
      EXPECT_EQ(told[0].element, 1U);  // the port
      EXPECT_EQ(told[1].type, kActive);
      EXPECT_EQ(told[1].element, 1U);
    }
  }
  runner.device.set_port_state(false);  // the other file is closed
  EXPECT_EQ(events(async_fd).size(), 1U);
  ::close(other_fd);
}

// An object whose handle looks like the port's number does not take the port's events with it.
TEST_F(Port, EventsAreNobodyElses) {
  auto request = qp_request(pd, cq.handle);
  request.user_handle = 1;
  QpHandle one;
  ASSERT_EQ(create_qp(request, qp_words(), one), 0);
  runner.device.set_port_state(false);
  std::array<std::uint32_t, 1> reported{};
  ASSERT_EQ(
      command(abi::Command::destroy_qp, join(std::uint64_t{0}, one.core.handle, std::uint32_t{0}),
              std::as_writable_bytes(std::span(reported))),
      0);
  EXPECT_EQ(reported[0], 0U);
  EXPECT_EQ(events(async_fd).size(), 1U);
}

// The channel is a socket, with room for a part of this only; the rest must wait, and
// not be lost or out of order.
TEST_F(Port, EventsThatFindNoRoomComeWhenThereIsSome) {
  constexpr std::size_t kMany = 5000;
  for (std::size_t i = 0; i < kMany; ++i) {
    runner.device.set_port_state(i % 2 == 1);
  }
  std::size_t count = 0;
  for (std::vector<Record> some = events(async_fd); !some.empty(); some = events(async_fd)) {
    for (const Record& record : some) {
      EXPECT_EQ(record.type, count++ % 2 == 1 ? kActive : kError);
    }
    runner.poll();
  }
  EXPECT_EQ(count, kMany);
}

}  // namespace
}  // namespace weft::kernel
