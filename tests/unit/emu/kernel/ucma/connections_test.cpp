// Owns the tests of connections as their two programs make them, command by command. A server on
// host 0 listens, a client on host 1 asks; 100, 200 and 300 are names that the programs give to
// their ids and hear again with each event. destroy() answers with the number of events that the id
// has reported, as in Linux, where a program waits until it has acknowledged so many.
#include "tests/unit/emu/kernel/ucma/program.hpp"

namespace weft::kernel {
namespace {

using Kind = cm::EventKind;

TEST_F(TwoProcesses, ConnectAndDisconnect) {
  const std::uint32_t listener = listen(server, 100);
  const std::uint32_t active = route(client, 200);
  request(client, active);

  const ucma::EventReply asked = server.next(Kind::connect_request);
  EXPECT_EQ(asked.uid, 100U);
  EXPECT_NE(asked.id, listener);
  ucma::ConnParam seen{};
  std::memcpy(&seen, asked.param.data(), sizeof seen);
  EXPECT_EQ(seen.qp_num, 0x11U);
  EXPECT_EQ(seen.private_data[0], std::byte{0x77});
  ASSERT_EQ(accept(server, asked.id, 300, 0x22), 0);
  run();

  EXPECT_EQ(client.next(Kind::connect_response).uid, 200U);
  ucma::QpAttributes attributes{};
  ASSERT_EQ(
      client.command(Command::init_qp_attr, ucma::InitQpAttr{0, active, cm::kQpRtr}, attributes),
      0);
  EXPECT_EQ(attributes.dest_qp_num, 0x22U);
  EXPECT_EQ(attributes.ah.dgid, cm::address_of(0).bytes);
  EXPECT_EQ(attributes.ah.is_global, 1);
  // The library says that the queue pair is ready, without parameters.
  ASSERT_EQ(client.command(Command::accept, ucma::Accept{0, {}, active, 0, {}}), 0);
  run();
  EXPECT_EQ(server.next(Kind::established).uid, 300U);

  ASSERT_EQ(client.command(Command::disconnect, ucma::Disconnect{active}), 0);
  run();
  EXPECT_EQ(server.next(Kind::disconnected).uid, 300U);
  ASSERT_EQ(server.command(Command::disconnect, ucma::Disconnect{asked.id}), 0);
  run();
  EXPECT_EQ(client.next(Kind::disconnected).uid, 200U);

  EXPECT_EQ(server.destroy(asked.id), 2U);  // established, disconnected
  EXPECT_EQ(server.destroy(listener), 1U);  // the request counts for the listener
  // Address and route resolved, the response, the end.
  EXPECT_EQ(client.destroy(active), 4U);
  EXPECT_EQ(server_process.manager.ids(), 0U);
  EXPECT_TRUE(server_process.claims.own.empty());
}

// Destructors of the program run after the process has taken its leave.
TEST_F(TwoProcesses, IdsOfAProcessThatHasLeftCanBeDestroyed) {
  const std::uint32_t listener = listen(server, 100);
  const std::uint32_t active = route(client, 200);
  request(client, active);
  const std::uint32_t passive = server.next(Kind::connect_request).id;
  ASSERT_EQ(accept(server, passive, 300, 0x22), 0);
  run();
  EXPECT_EQ(client.next(Kind::connect_response).uid, 200U);
  ASSERT_EQ(client.command(Command::accept, ucma::Accept{0, {}, active, 0, {}}), 0);
  run();
  EXPECT_EQ(server.next(Kind::established).uid, 300U);

  server_process.exclusively([&](cm::Manager& manager, TimePoint now) {
    server_process.contexts.leave_all(manager, now);
  });
  EXPECT_FALSE(server_process.manager.listens());
  run();
  EXPECT_EQ(client.next(Kind::disconnected).uid, 200U);
  EXPECT_EQ(server.destroy(passive), 1U);   // established
  EXPECT_EQ(server.destroy(listener), 1U);  // the request
  EXPECT_EQ(server_process.manager.ids(), 0U);
}

TEST_F(TwoProcesses, NobodyHearsOfAConnectionThatWasNotAccepted) {
  (void)listen(server, 100);
  const std::uint32_t active = route(client, 200);
  request(client, active);
  const ucma::EventReply asked = server.next(Kind::connect_request);
  EXPECT_EQ(client.destroy(active), 2U);  // tells the server that it has given up
  run();
  EXPECT_FALSE(server.readable());  // as its new id has no name of the program's yet
  EXPECT_EQ(accept(server, asked.id, 300, 0x22), EINVAL);
  EXPECT_EQ(server.destroy(asked.id), 0U);
}

TEST_F(TwoProcesses, RejectTellsWhy) {
  (void)listen(server, 100);
  const std::uint32_t active = route(client, 200);
  request(client, active);
  ucma::Reject reject{};
  reject.id = server.next(Kind::connect_request).id;
  reject.private_data_len = 2;
  reject.private_data[0] = std::byte{9};
  reject.reason = 8;  // only the program's own reasons
  EXPECT_EQ(server.command(Command::reject, reject), EINVAL);
  reject.reason = 0;
  ASSERT_EQ(server.command(Command::reject, reject), 0);
  run();
  const ucma::EventReply rejected = client.next(Kind::rejected);
  // 28: the reason "consumer defined" of InfiniBand, which is what a program's own rejection has.
  EXPECT_EQ(rejected.status, 28U);
  ucma::ConnParam seen{};
  std::memcpy(&seen, rejected.param.data(), sizeof seen);
  EXPECT_EQ(seen.private_data[0], std::byte{9});
}

TEST_F(TwoProcesses, RequestsThatWereNotFetchedEndWithTheListener) {
  const std::uint32_t listener = listen(server, 100);
  for (std::uint32_t i = 0; i < 3; ++i) {
    request(client, route(client, 200 + i), 0x11 + i);
  }
  EXPECT_EQ(server.next(Kind::connect_request).uid, 100U);
  EXPECT_EQ(server.destroy(listener), 1U);
  EXPECT_FALSE(server.readable());
  run();
  EXPECT_EQ(client.next(Kind::rejected).uid, 201U);
  EXPECT_EQ(client.next(Kind::rejected).uid, 202U);
  EXPECT_FALSE(client.readable());
  EXPECT_EQ(server_process.manager.ids(), 1U) << "the one that was fetched";
}

TEST_F(TwoProcesses, ClosingTheFileEndsItsConnections) {
  (void)listen(server, 100);
  const std::uint32_t active = route(client, 200);
  request(client, active);
  ASSERT_EQ(accept(server, server.next(Kind::connect_request).id, 300, 0x22), 0);
  run();
  (void)client.next(Kind::connect_response);
  ASSERT_EQ(client.command(Command::accept, ucma::Accept{0, {}, active, 0, {}}), 0);
  run();
  server.close();
  EXPECT_EQ(server_process.manager.ids(), 0U);
  run();
  EXPECT_EQ(client.next(Kind::disconnected).uid, 200U);
}

TEST_F(TwoProcesses, DatagramsFindTheirService) {
  (void)listen(server, 100, cm::PortSpace::udp);
  const std::uint32_t active = route(client, 200, cm::PortSpace::udp);
  request(client, active);
  ASSERT_EQ(accept(server, server.next(Kind::connect_request).id, 300, 0x22), 0);
  run();
  const ucma::EventReply found = client.next(Kind::established);
  ucma::UdParam param{};
  std::memcpy(&param, found.param.data(), sizeof param);
  EXPECT_EQ(param.qp_num, 0x22U);
  EXPECT_EQ(param.qkey, cm::kUdpQkey);
  EXPECT_EQ(param.ah.dgid, cm::address_of(0).bytes);
  EXPECT_EQ(param.ah.port_num, 1);
}

TEST_F(TwoProcesses, RouteIsAsTheLibraryReadsIt) {
  const std::uint32_t active = route(client, 200);
  ucma::QueryRouteReply reply{};
  ASSERT_EQ(client.command(Command::query_route, ucma::Query{0, active, 0}, reply), 0);
  EXPECT_EQ(reply.num_paths, 1U);
  EXPECT_EQ(reply.port_num, 1);
  EXPECT_EQ(reply.node_guid, big_endian(std::uint64_t{0x505400FFFE000002}));
  EXPECT_EQ(reply.route[0].dgid, cm::address_of(0).bytes);
  EXPECT_EQ(reply.route[0].sgid, cm::address_of(1).bytes);
  EXPECT_EQ(reply.destination[0], std::byte{ucma::kIpv4});

  ucma::QueryAddrReply address{};
  ASSERT_EQ(client.command(Command::query, ucma::Query{0, active, ucma::kQueryAddr}, address), 0);
  EXPECT_EQ(address.source_size, ucma::kIpv4Size);
  ASSERT_EQ(client.command(Command::query, ucma::Query{0, active, ucma::kQueryGid}, address), 0);
  EXPECT_EQ(address.source_size, ucma::kInfiniBandSize);
  ucma::QueryPathReply path{};
  ASSERT_EQ(client.command(Command::query, ucma::Query{0, active, ucma::kQueryPath}, path), 0);
  EXPECT_EQ(path.num_paths, 1U);
}

}  // namespace
}  // namespace weft::kernel
