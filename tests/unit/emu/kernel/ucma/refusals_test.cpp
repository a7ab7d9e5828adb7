// Tests of what is refused, and how: the errors are those of Linux.
#include "tests/unit/emu/kernel/ucma/program.hpp"

namespace weft::kernel {
namespace {

constexpr std::uint32_t kNoSuchId = 12345;

std::uint32_t number(Command command) { return static_cast<std::uint32_t>(command); }

class Refusals : public ::testing::Test {
 protected:
  Process process{0};
  Program program{process};
};

TEST_F(Refusals, Framing) {
  CmFile& file = *process.files.at(program.fd);
  ucma::Header header{number(Command::disconnect), 4, 0};
  EXPECT_EQ(file.write(&header, 7), -EINVAL) << "shorter than a header";
  EXPECT_EQ(file.write(&header, sizeof header), -EINVAL) << "says that more follows";
  EXPECT_EQ(file.write(nullptr, 64), -EFAULT);
  const std::array<std::byte, 600> body{};
  EXPECT_EQ(program.write_bytes(23, body.data(), 16, 16), EINVAL) << "no such command";
  EXPECT_EQ(program.write_bytes(~0U, body.data(), 16, 16), EINVAL);
  EXPECT_EQ(program.write_bytes(number(Command::get_option), body.data(), 24, 8), ENOSYS);
  EXPECT_EQ(program.write_bytes(number(Command::disconnect), body.data(), 600, 0), ENOENT)
      << "longer than it need be";
}

// Each with a body that is one byte too short, and with a room for the reply that is.
TEST_F(Refusals, Sizes) {
  struct Shape {
    Command command;
    std::uint16_t body;
    std::uint16_t reply;
  };
  constexpr Shape kShapes[] = {
      {Command::create_id, 24, 4},       {Command::destroy_id, 16, 4},
      {Command::bind_ip, 40, 0},         {Command::resolve_ip, 64, 0},
      {Command::resolve_route, 8, 0},    {Command::query_route, 16, 200},
      {Command::connect, 280, 0},        {Command::listen, 8, 0},
      {Command::accept, 288, 0},         {Command::reject, 264, 0},
      {Command::disconnect, 4, 0},       {Command::init_qp_attr, 16, 144},
      {Command::get_event, 8, 324},      {Command::set_option, 24, 0},
      {Command::notify, 8, 0},           {Command::join_ip_multicast, 48, 4},
      {Command::leave_multicast, 16, 4}, {Command::migrate_id, 16, 4},
      {Command::query, 16, 8},           {Command::bind, 136, 0},
      {Command::resolve_addr, 272, 0},   {Command::join_multicast, 152, 4},
  };
  const std::array<std::byte, 512> zeros{};
  for (const Shape& shape : kShapes) {
    const std::uint32_t command = number(shape.command);
    const auto shorter = static_cast<std::uint16_t>(shape.body - 1);
    EXPECT_EQ(program.write_bytes(command, zeros.data(), shorter, 1024), EINVAL) << command;
    if (shape.reply > 0) {
      const auto less = static_cast<std::uint16_t>(shape.reply - 1);
      EXPECT_EQ(program.write_bytes(command, zeros.data(), shape.body, less), ENOSPC) << command;
      // A descriptor that is another kind of file is noticed before.
      const int error = shape.command == Command::migrate_id ? EINVAL : EFAULT;
      EXPECT_EQ(program.write_bytes(command, zeros.data(), shape.body, 1024), error)
          << command << ": its reply goes nowhere";
    }
  }
  EXPECT_EQ(process.manager.ids(), 0U) << "what was refused is not done";
}

TEST_F(Refusals, IdsThatAreNotThere) {
  alignas(8) std::array<std::byte, 1024> room{};
  const auto response = reinterpret_cast<std::uint64_t>(room.data());
  const auto refused = [&](Command command, const auto& body) {
    EXPECT_EQ(program.write_bytes(number(command), &body, sizeof body, 1024), ENOENT)
        << number(command);
  };
  refused(Command::destroy_id, ucma::DestroyId{response, kNoSuchId, 0});
  refused(Command::bind_ip, ucma::BindIp{0, any_socket(1), kNoSuchId});
  refused(Command::resolve_ip, ucma::ResolveIp{{}, any_socket(1), kNoSuchId, 1});
  refused(Command::resolve_route, ucma::ResolveRoute{kNoSuchId, 1});
  refused(Command::query_route, ucma::Query{response, kNoSuchId, 0});
  refused(Command::query, ucma::Query{response, kNoSuchId, 0});
  refused(Command::connect, ucma::Connect{parameters(1), kNoSuchId, 0, {}});
  refused(Command::listen, ucma::Listen{kNoSuchId, 1});
  refused(Command::accept, ucma::Accept{1, parameters(1), kNoSuchId, 0, {}});
  ucma::Reject reject{};
  reject.id = kNoSuchId;
  refused(Command::reject, reject);
  refused(Command::disconnect, ucma::Disconnect{kNoSuchId});
  refused(Command::init_qp_attr, ucma::InitQpAttr{response, kNoSuchId, 1});
  refused(Command::set_option, ucma::SetOption{response, kNoSuchId, 0, 1, 4});
  refused(Command::notify, ucma::Notify{kNoSuchId, ucma::kCommunicationEstablished});
}

TEST_F(Refusals, AnIdEndsOnce) {
  const std::uint32_t id = program.create(1);
  EXPECT_EQ(program.destroy(id), 0U);
  ucma::EventsReply reply{};
  EXPECT_EQ(program.command(Command::destroy_id, ucma::DestroyId{0, id, 0}, reply), ENOENT);
}

TEST_F(Refusals, AnIdIsItsFiles) {
  Program other{process};
  const std::uint32_t id = program.create(1);
  ucma::EventsReply reply{};
  EXPECT_EQ(other.command(Command::destroy_id, ucma::DestroyId{0, id, 0}, reply), EINVAL);
  EXPECT_EQ(other.command(Command::listen, ucma::Listen{id, 1}), EINVAL);
  other.close();
  EXPECT_EQ(program.destroy(id), 0U);
}

TEST_F(Refusals, PortSpaces) {
  ucma::IdReply reply{};
  ucma::CreateId request{};
  request.port_space = 0x9999;
  EXPECT_EQ(program.command(Command::create_id, request, reply), EINVAL);
  request.port_space = static_cast<std::uint16_t>(cm::PortSpace::ib);
  request.qp_type = 8;  // raw packets
  EXPECT_EQ(program.command(Command::create_id, request, reply), EINVAL);
}

// By which the library finds out which commands to use.
TEST_F(Refusals, AddressesOfInfiniBand) {
  ucma::Bind bind{program.create(1), ucma::kInfiniBandSize, 0, {}};
  bind.address[0] = std::byte{ucma::kInfiniBand};
  EXPECT_EQ(program.command(Command::bind, bind), EINVAL);
}

TEST_F(Refusals, Addresses) {
  const std::uint32_t id = program.create(1);
  EXPECT_EQ(program.command(Command::bind_ip, ucma::BindIp{0, {}, id}), EINVAL) << "no family";
  const auto strange = socket_of(srd::Address::v4(10, 200, 0, 1), 7);
  EXPECT_EQ(program.command(Command::bind_ip, ucma::BindIp{0, strange, id}), EADDRNOTAVAIL);
  const auto own = socket_of(cm::address_of(0), 7);
  process.claims.taken.insert(cm::service_id(cm::PortSpace::tcp, 7));
  EXPECT_EQ(program.command(Command::bind_ip, ucma::BindIp{0, own, id}), EADDRINUSE)
      << "another process has it";
  process.claims.taken.clear();
  EXPECT_EQ(program.command(Command::bind_ip, ucma::BindIp{0, own, id}), 0);
  EXPECT_EQ(program.command(Command::bind_ip, ucma::BindIp{0, own, id}), EINVAL) << "twice";
  const std::uint32_t second = program.create(2);
  EXPECT_EQ(program.command(Command::bind_ip, ucma::BindIp{0, own, second}), EADDRINUSE);
  ucma::Bind bind{second, 8, 0, {}};
  std::memcpy(bind.address.data(), own.data(), own.size());
  EXPECT_EQ(program.command(Command::bind, bind), EINVAL) << "not the size of its family";
}

TEST_F(Refusals, WhatComesTooEarly) {
  const std::uint32_t id = program.create(1);
  EXPECT_EQ(program.command(Command::resolve_route, ucma::ResolveRoute{id, 1}), EINVAL);
  EXPECT_EQ(program.command(Command::connect, ucma::Connect{parameters(1), id, 0, {}}), EINVAL);
  EXPECT_EQ(program.command(Command::accept, ucma::Accept{1, parameters(1), id, 0, {}}), EINVAL);
  EXPECT_EQ(program.command(Command::disconnect, ucma::Disconnect{id}), EINVAL);
  ucma::Connect invalid{};
  invalid.id = id;
  EXPECT_EQ(program.command(Command::connect, invalid), EINVAL) << "without valid parameters";
  ucma::QpAttributes attributes{};
  EXPECT_EQ(program.command(Command::init_qp_attr, ucma::InitQpAttr{0, id, 7}, attributes), EINVAL);
  ucma::Notify notify{id, 1};
  EXPECT_EQ(program.command(Command::notify, notify), EINVAL);
}

TEST_F(Refusals, Options) {
  const std::uint32_t id = program.create(1);
  std::uint32_t value = 1;
  const auto set = [&](std::uint32_t level, std::uint32_t name, std::uint32_t length) {
    return program.command(
        Command::set_option,
        ucma::SetOption{reinterpret_cast<std::uint64_t>(&value), id, level, name, length});
  };
  EXPECT_EQ(set(ucma::kLevelId, ucma::kOptionTos, 1), 0);
  EXPECT_EQ(set(ucma::kLevelId, ucma::kOptionTos, 4), EINVAL);
  EXPECT_EQ(set(ucma::kLevelId, ucma::kOptionReuseAddress, 4), 0);
  EXPECT_EQ(set(ucma::kLevelId, ucma::kOptionReuseAddress, 1), EINVAL);
  EXPECT_EQ(set(ucma::kLevelId, ucma::kOptionAfOnly, 4), 0);
  EXPECT_EQ(set(ucma::kLevelId, ucma::kOptionAckTimeout, 1), 0);
  EXPECT_EQ(set(ucma::kLevelId, 9, 4), ENOSYS);
  EXPECT_EQ(set(7, 0, 1), ENOSYS);
  EXPECT_EQ(program.command(Command::set_option, ucma::SetOption{8, id, 0, 1, 4}), EFAULT);
}

// As Linux: groups are joined on a NIC, by ids for datagrams, and those of IPv6 not at all.
TEST_F(Refusals, OfGroups) {
  constexpr int kNotSupported = 524;
  const srd::Address group = srd::Address::v4(239, 1, 1, 1);
  ucma::IdReply reply{};
  const auto joined = [&](std::uint32_t id, const ucma::SocketIn6& socket) {
    ucma::JoinIpMulticast join{};
    join.uid = 7;
    join.id = id;
    join.address = socket;
    return program.command(Command::join_ip_multicast, join, reply);
  };
  const std::uint32_t stream = program.create(1);
  const std::uint32_t id = program.create(2, cm::PortSpace::udp);
  EXPECT_EQ(joined(id + 100, socket_of(group, 0)), ENOENT);
  EXPECT_EQ(joined(id, socket_of(group, 0)), EINVAL);  // it has no NIC
  ASSERT_EQ(
      program.command(Command::bind_ip, ucma::BindIp{{}, socket_of(cm::address_of(0), 0), stream}),
      0);
  ASSERT_EQ(
      program.command(Command::bind_ip, ucma::BindIp{{}, socket_of(cm::address_of(0), 0), id}), 0);
  EXPECT_EQ(joined(stream, socket_of(group, 0)), EINVAL);
  EXPECT_EQ(joined(id, ucma::SocketIn6{}), EINVAL);
  ucma::SocketIn6 six{};
  six[0] = std::byte{ucma::kIpv6};
  EXPECT_EQ(joined(id, six), EINVAL);
  six[8] = std::byte{0xFF};
  EXPECT_EQ(joined(id, six), kNotSupported);

  ucma::JoinMulticast join{};
  join.id = id;
  const ucma::SocketIn6 socket = socket_of(group, 0);
  std::memcpy(join.address.data(), socket.data(), socket.size());
  join.address_size = ucma::kIpv4Size;
  join.join_flags = 2;
  EXPECT_EQ(program.command(Command::join_multicast, join, reply), EINVAL);
  join.join_flags = ucma::kJoinSendOnly;
  join.address_size = 0;
  EXPECT_EQ(program.command(Command::join_multicast, join, reply), EINVAL);
  EXPECT_EQ(program.command(Command::leave_multicast, ucma::DestroyId{0, 0, 0}, reply), ENOENT);
}

}  // namespace
}  // namespace weft::kernel
