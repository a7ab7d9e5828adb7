// Owns the tests of trimming [wire 4.9]: what may be cut, and what is left of it.
#include <gtest/gtest.h>

#include "srd/net/envelope.hpp"
#include "srd/wire/parse.hpp"
#include "srd/wire/srd_codec.hpp"
#include "tests/unit/srd/net/frames.hpp"

namespace weft::srd::wire {
namespace {

using net::test::address4;
using net::test::address6;
using net::test::Bytes;
using net::test::frame_of;

const Address kAlice = address4(10, 1, 2, 3);
const Address kBob = address4(10, 1, 2, 4);
const Address kAlice6 = address6("fd005eed000000000000000000000001");
const Address kBob6 = address6("fd005eed0000000000000000ffff0002");

TEST(Trim, LeavesAValidShorterFrame) {
  const Bytes packet = test::golden("write");
  for (const bool v4 : {true, false}) {
    Bytes frame = frame_of(v4 ? kAlice : kAlice6, v4 ? kBob : kBob6, 9, Ecn::congested,
                           wire::kDscpData, packet);
    const std::size_t size = SrdCodec::trim(frame);
    // The golden write carries four bytes of payload, which are what is cut.
    EXPECT_EQ(size, frame.size() - 4);
    frame.resize(size);
    const net::Envelope envelope = net::Envelope::parse(frame, SrdCodec::kPorts);
    ASSERT_EQ(envelope.fault(), net::EnvelopeFault::none);
    EXPECT_TRUE(SrdCodec::is_trimmed(envelope.dscp()));
    EXPECT_EQ(envelope.ecn(), Ecn::congested);
    EXPECT_EQ(envelope.path(), PathId{9});
    EXPECT_EQ(envelope.source(), v4 ? kAlice : kAlice6);
    EXPECT_EQ(envelope.destination(), v4 ? kBob : kBob6);
    EXPECT_EQ(envelope.packet().size(), sizeof(DataHeader));
    EXPECT_EQ(parse_packet(envelope.packet(), 0, SrdCodec::is_trimmed(envelope.dscp())).reason(),
              DropReason::none);
    EXPECT_EQ(SrdCodec::trim(frame), size) << "once is enough";
  }
}

TEST(Trim, LeavesEverythingElseAlone) {
  const Bytes ack = test::golden("ack");
  Bytes control = frame_of(kAlice, kBob, 9, Ecn::capable_0, wire::kDscpControl, ack);
  // A control packet, one that is shorter than a header, and one for another UDP port.
  Bytes brief = frame_of(kAlice, kBob, 9, Ecn::capable_0, wire::kDscpData, Bytes(4));
  Bytes foreign = frame_of(kAlice, kBob, 9, Ecn::capable_0, wire::kDscpData, test::golden("write"));
  foreign[net::kEnvelopeSizeV4 - net::kUdpSize + 2] = std::byte{0x12};
  for (Bytes* frame : {&control, &brief, &foreign}) {
    const Bytes before = *frame;
    EXPECT_EQ(SrdCodec::trim(*frame), before.size());
    EXPECT_EQ(*frame, before);
  }
}

}  // namespace
}  // namespace weft::srd::wire
