// Owns the comparison with Linux: a manager of ours takes either side of captured exchanges, and
// says the same, field by field.
#include <gmock/gmock.h>

#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/packet.hpp"
#include "tests/unit/emu/roce/captures.hpp"
#include "tests/unit/emu/roce/cm/world.hpp"

namespace weft::roce::cm {
namespace {

using ::testing::ElementsAreArray;

constexpr std::size_t kClient = 1;  // 10.9.0.2 asks, 10.9.0.1 listens

std::vector<Outgoing> captured(const char* name) {
  std::vector<Outgoing> found;
  for (const auto& frame : roce_frames(name)) {
    wire::Datagram datagram;
    wire::Packet packet;
    EXPECT_EQ(wire::parse_datagram(frame, datagram), wire::DatagramFault::none);
    EXPECT_EQ(wire::parse_packet(datagram.packet, 0, packet), wire::PacketFault::none);
    if (packet.destination_qpn == 1) {
      Outgoing& one = found.emplace_back();
      one.from = datagram.header.source;
      one.to = datagram.header.destination;
      const auto mad = datagram.packet.subspan(packet.header_size);
      std::copy_n(mad.begin(), one.mad.size(), one.mad.begin());
    }
  }
  return found;
}

wire::CmMessage parsed(const Outgoing& message) {
  wire::CmMessage parsed;
  EXPECT_EQ(wire::parse_cm(message.mad, parsed), wire::MadFault::none);
  return parsed;
}

// Ours, with the numbers that each side draws for itself replaced by those of the capture: the rest
// must be the same, byte for byte.
void expect_same(const Outgoing& ours, const Outgoing& theirs) {
  wire::CmMessage mine = parsed(ours);
  const wire::CmMessage linux_said = parsed(theirs);
  ASSERT_EQ(mine.kind, linux_said.kind);
  mine.transaction = linux_said.transaction;
  mine.local_id = linux_said.local_id;
  mine.remote_id = linux_said.remote_id;
  mine.starting_psn = linux_said.starting_psn;
  std::array<std::byte, wire::kMadSize> bytes;
  wire::write_cm(mine, bytes);
  EXPECT_THAT(bytes, ElementsAreArray(theirs.mad)) << static_cast<unsigned>(mine.kind);
  EXPECT_EQ(ours.from, theirs.from);
  EXPECT_EQ(ours.to, theirs.to);
}

// The peer of a manager is the capture, whose messages name ids that our side has drawn anew.
class Side {
 public:
  Side(std::size_t host, const char* name) : messages_(captured(name)), world_(2), host_(host) {}

  Manager& manager() { return *world_.managers[host_]; }
  TimePoint now() const { return world_.now; }
  // The capture's next message is Linux's: as an answer to our `local_id`.
  void hear(std::uint32_t our_id) {
    Outgoing message = messages_[at_++];
    wire::CmMessage said = parsed(message);
    (said.kind == wire::CmKind::sidr_reply ? said.local_id : said.remote_id) = our_id;
    wire::write_cm(said, message.mad);
    manager().on_mad(now(), message.from, message.to, message.mad);
  }
  // The next message should be ours.
  void say() {
    Outgoing message;
    ASSERT_TRUE(manager().next_mad(now(), message));
    expect_same(message, messages_[at_++]);
  }
  void skip(std::size_t count) { at_ += count; }
  [[nodiscard]] wire::CmMessage coming() const { return parsed(messages_[at_]); }
  Event event() {
    Event event;
    EXPECT_TRUE(manager().next_event(event));
    return event;
  }

 private:
  std::vector<Outgoing> messages_;
  World world_;
  std::size_t host_;
  std::size_t at_ = 0;
};

ConnectParameters as_in(const wire::CmMessage& message) {
  ConnectParameters parameters = parameters_of(message.qpn);
  parameters.responder_resources = message.responder_resources;
  parameters.initiator_depth = message.initiator_depth;
  parameters.retry_count = message.retry_count;
  parameters.rnr_retry_count = message.rnr_retry;
  return parameters;
}

// Which port the client had, and where it went.
Handle routed(Side& side, PortSpace space, Transport transport) {
  const wire::CmMessage request = side.coming();
  wire::CmIpHeader header;
  EXPECT_TRUE(wire::read_ip_header(request, header));
  Manager& manager = side.manager();
  const Handle id = *manager.create(space, transport);
  EXPECT_EQ(manager.bind(id, {header.source, header.port}), 0);
  EXPECT_EQ(manager.resolve_address(
                id, {}, {header.destination, static_cast<std::uint16_t>(request.service_id)}),
            0);
  EXPECT_EQ(side.event().kind, EventKind::address_resolved);
  EXPECT_EQ(manager.resolve_route(id), 0);
  EXPECT_EQ(side.event().kind, EventKind::route_resolved);
  return id;
}

Handle listening(Side& side, PortSpace space, Transport transport) {
  Manager& manager = side.manager();
  const Handle id = *manager.create(space, transport);
  const auto port = static_cast<std::uint16_t>(side.coming().service_id);
  EXPECT_EQ(manager.bind(id, {srd::Address::v4(0, 0, 0, 0), port}), 0);
  EXPECT_EQ(manager.listen(id, 1), 0);
  return id;
}

TEST(Capture, WeAskAsRpingDoes) {
  Side side(kClient, "rxe61-rping-C2");
  const Handle id = routed(side, PortSpace::tcp, Transport::rc);
  Manager& manager = side.manager();
  ASSERT_EQ(manager.connect(side.now(), id, as_in(side.coming())), 0);
  side.say();
  const wire::CmMessage reply = side.coming();
  side.hear(manager.look(id).local_id);
  const Event response = side.event();
  EXPECT_EQ(response.kind, EventKind::connect_response);
  EXPECT_EQ(response.parameters.qpn, reply.qpn);
  QpSettings settings;
  ASSERT_EQ(manager.qp_settings(id, kQpRts, settings), 0);
  EXPECT_EQ(settings.sq_psn, 0x44C6EFU);
  ASSERT_EQ(manager.accept(side.now(), id, nullptr), 0);
  side.say();
  ASSERT_EQ(manager.disconnect(side.now(), id), 0);
  side.say();
  side.hear(manager.look(id).local_id);
  EXPECT_EQ(side.event().kind, EventKind::disconnected);
}

TEST(Capture, WeAnswerRping) {
  Side side(0, "rxe61-rping-C2");
  (void)listening(side, PortSpace::tcp, Transport::rc);
  Manager& manager = side.manager();
  side.hear(0);
  const Event request = side.event();
  ASSERT_EQ(request.kind, EventKind::connect_request);
  const Handle id = request.connection;
  QpSettings settings;
  ASSERT_EQ(manager.qp_settings(id, kQpRts, settings), 0);
  EXPECT_EQ(settings.sq_psn, 0xB676B8U);
  EXPECT_EQ(settings.timeout, 19);
  ASSERT_EQ(manager.qp_settings(id, kQpRtr, settings), 0);
  EXPECT_EQ(settings.path.flow_label, 0xB7B7AU);
  const ConnectParameters parameters = as_in(side.coming());
  ASSERT_EQ(manager.accept(side.now(), id, &parameters), 0);
  side.say();
  side.hear(manager.look(id).local_id);
  EXPECT_EQ(side.event().kind, EventKind::established);
  side.hear(manager.look(id).local_id);
  EXPECT_EQ(side.event().kind, EventKind::disconnected);
  ASSERT_EQ(manager.disconnect(side.now(), id), 0);
  side.say();
}

TEST(Capture, WeAskAsUcmatoseDoes) {
  Side side(kClient, "rxe61-ucmatose-udaddy");
  const Handle id = routed(side, PortSpace::tcp, Transport::rc);
  Manager& manager = side.manager();
  ASSERT_EQ(manager.connect(side.now(), id, as_in(side.coming())), 0);
  side.say();
  side.hear(manager.look(id).local_id);
  (void)side.event();
  ASSERT_EQ(manager.accept(side.now(), id, nullptr), 0);
  side.say();
  side.hear(manager.look(id).local_id);  // here the passive side disconnects
  EXPECT_EQ(side.event().kind, EventKind::disconnected);
  ASSERT_EQ(manager.disconnect(side.now(), id), 0);
  side.say();
}

TEST(Capture, WeAnswerUcmatose) {
  Side side(0, "rxe61-ucmatose-udaddy");
  (void)listening(side, PortSpace::tcp, Transport::rc);
  Manager& manager = side.manager();
  side.hear(0);
  const Handle id = side.event().connection;
  const ConnectParameters parameters = as_in(side.coming());
  ASSERT_EQ(manager.accept(side.now(), id, &parameters), 0);
  side.say();
  side.hear(manager.look(id).local_id);
  EXPECT_EQ(side.event().kind, EventKind::established);
  ASSERT_EQ(manager.disconnect(side.now(), id), 0);
  side.say();
  side.hear(manager.look(id).local_id);
  EXPECT_EQ(side.event().kind, EventKind::disconnected);
}

TEST(Capture, WeAskAsUdaddyDoes) {
  Side side(kClient, "rxe61-ucmatose-udaddy");
  side.skip(5);
  const Handle id = routed(side, PortSpace::udp, Transport::ud);
  Manager& manager = side.manager();
  ASSERT_EQ(manager.connect(side.now(), id, {}), 0);
  side.say();
  side.hear(manager.look(id).local_id);
  const Event event = side.event();
  EXPECT_EQ(event.kind, EventKind::established);
  EXPECT_EQ(event.parameters.qpn, 0x14U);
  EXPECT_EQ(event.parameters.qkey, 0x01234567U);
}

TEST(Capture, WeAnswerUdaddy) {
  Side side(0, "rxe61-ucmatose-udaddy");
  side.skip(5);
  (void)listening(side, PortSpace::udp, Transport::ud);
  Manager& manager = side.manager();
  side.hear(0);
  const Event request = side.event();
  ASSERT_EQ(request.kind, EventKind::connect_request);
  const ConnectParameters parameters = parameters_of(0x14);
  ASSERT_EQ(manager.accept(side.now(), request.connection, &parameters), 0);
  side.say();
}

}  // namespace
}  // namespace weft::roce::cm
