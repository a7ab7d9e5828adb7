// Owns the tests of the process to which a management datagram (MAD) goes: requests to the process
// that has claimed their method, answers to the one that has asked. What connections send is tested
// with a weftd (roce_test.cpp), but for requests that are taken back.
#include "emu/daemon/management.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "emu/roce/wire/mad.hpp"
#include "emu/roce/wire/mad_header.hpp"
#include "emu/roce/wire/mad_owners.hpp"
#include "emu/roce/wire/packet.hpp"

namespace weft::daemon {
namespace {

namespace wire = roce::wire;

constexpr std::uint8_t kClass = 0x32;  // a class of vendors, told apart by OUI
constexpr std::uint64_t kService = 0x1060000 + 7471;
constexpr std::uint32_t kOui = 0x001405;
constexpr std::uint16_t kOwner = 7;  // attachments
constexpr std::uint8_t kAsker = 9;

// kOwner has claimed method 1 of that class and vendor. `mad` is a request for it, from an agent of
// kAsker: the transaction id, from byte 8 on, begins with the attachment of the agent's process.
class ManagementRouteTest : public ::testing::Test {
 protected:
  ManagementRouteTest() {
    EXPECT_TRUE(services.claim(wire::method_service(kClass, 1, 1, kOui), kOwner));
    mad[0] = mad[2] = mad[3] = std::byte{1};
    mad[1] = std::byte{kClass};
    mad[8] = std::byte{kAsker};
    mad[38] = std::byte{0x14};
    mad[39] = std::byte{0x05};
  }
  // The route of the first `size` bytes of `mad`, in a packet to queue pair 1, from the BTH to the
  // ICRC.
  [[nodiscard]] ManagementRoute route(std::size_t size = wire::kMadSize) {
    wire::Packet headers;
    headers.opcode = wire::opcode_of(wire::Transport::ud, wire::Operation::send_only);
    headers.destination_qpn = headers.source_qpn = 1;
    headers.qkey = wire::kGsiQkey;
    std::vector<std::byte> packet(wire::kLargestHeader);
    packet.resize(wire::write_headers(headers, packet.data()));
    packet.insert(packet.end(), mad.begin(), mad.begin() + static_cast<std::ptrdiff_t>(size));
    packet.resize(packet.size() + wire::kIcrcSize);
    return route_management(services, requests, from, packet);
  }
  // The same with one byte changed.
  [[nodiscard]] ManagementRoute route_with(std::size_t at, unsigned value) {
    const std::byte before = std::exchange(mad[at], static_cast<std::byte>(value));
    const ManagementRoute found = route();
    mad[at] = before;
    return found;
  }

  // Of a REQ, or of the REJ that takes it back.
  [[nodiscard]] std::uint32_t place_of(wire::CmKind kind, std::uint32_t id) {
    wire::CmMessage message;
    message.kind = kind;
    message.local_id = id;
    message.service_id = kService;
    wire::write_cm(message, mad);
    return route().place;
  }

  ServiceOwners services;
  RecentRequests requests;
  srd::Address from = srd::Address::v4(10, 0, 0, 1);
  std::array<std::byte, wire::kMadSize> mad{};
};

// With another version, class, class version, method or vendor they are for no process, and are not
// answered either.
TEST_F(ManagementRouteTest, RequestsGoToWhoHasTheirMethod) {
  EXPECT_EQ(route().place, kOwner);
  for (const std::size_t at : {0, 1, 2, 3, 37, 38, 39}) {
    const ManagementRoute other = route_with(at, 0x42);
    EXPECT_EQ(other.place, 0U) << at;
    EXPECT_FALSE(other.refuse || other.ends) << at;
  }
}

// Byte 3 is the method, whose upper bit says that it is an answer.
TEST_F(ManagementRouteTest, AnswersGoToTheProcessThatHasAsked) {
  EXPECT_EQ(route_with(3, 0x81).place, kAsker);
  EXPECT_EQ(route_with(3, 0xFF).place, kAsker);
  EXPECT_EQ(route_with(3, 7).place, kAsker) << "a trap's repression";
  mad[3] = std::byte{0x81};
  EXPECT_EQ(route_with(8, 0).place, 0U);
}

// Too short; or of a subnet manager, which queue pair 1 has nothing to do with.
TEST_F(ManagementRouteTest, WhatIsNoneGoesNowhere) {
  EXPECT_EQ(route(wire::kMadSize - 4).place, 0U);
  EXPECT_EQ(route(0).place, 0U);
  EXPECT_EQ(route_with(1, wire::kSubnetLidRouted).place, 0U);
  EXPECT_EQ(route_with(1, wire::kSubnetDirected).place, 0U);
}

// Methods are claimed under numbers that no service has. A request for a connection that names such
// a number must not reach the process that has the method.
TEST_F(ManagementRouteTest, MethodsAreNoServices) {
  wire::CmMessage request;
  request.kind = wire::CmKind::request;
  request.service_id = wire::method_service(kClass, 1, 1, kOui);
  wire::write_cm(request, mad);
  const ManagementRoute found = route();
  EXPECT_EQ(found.place, 0U);
  EXPECT_TRUE(found.refuse);
}

TEST_F(ManagementRouteTest, WhatTakesARequestBackFollowsIt) {
  ASSERT_TRUE(services.claim(kService, kOwner));
  EXPECT_EQ(place_of(wire::CmKind::reject, 5), 0U) << "nobody has been asked";
  EXPECT_EQ(place_of(wire::CmKind::request, 5), kOwner);
  EXPECT_EQ(place_of(wire::CmKind::reject, 5), kOwner);
  EXPECT_EQ(place_of(wire::CmKind::reject, 6), 0U);
  from = srd::Address::v4(10, 0, 0, 2);
  EXPECT_EQ(place_of(wire::CmKind::reject, 5), 0U) << "another sender's";
  from = srd::Address::v4(10, 0, 0, 1);
  services.release(kService, kOwner);
  EXPECT_EQ(place_of(wire::CmKind::reject, 5), kOwner) << "it need not listen any more";
  EXPECT_EQ(place_of(wire::CmKind::request, 7), 0U);
  EXPECT_EQ(place_of(wire::CmKind::reject, 7), 0U) << "it was refused";
}

// A flood pushes out what was there before it, and holds no more memory than that.
TEST_F(ManagementRouteTest, SoManyRequestsAreRemembered) {
  ASSERT_TRUE(services.claim(kService, kOwner));
  for (std::uint32_t id = 1; id <= RecentRequests::kMax; ++id) {
    (void)place_of(wire::CmKind::request, id);
  }
  (void)place_of(wire::CmKind::request, 2);  // a repeated one takes no place
  EXPECT_EQ(place_of(wire::CmKind::reject, 1), kOwner);
  (void)place_of(wire::CmKind::request, RecentRequests::kMax + 1);
  EXPECT_EQ(place_of(wire::CmKind::reject, 1), 0U);
  EXPECT_EQ(place_of(wire::CmKind::reject, 2), kOwner);
}

}  // namespace
}  // namespace weft::daemon
