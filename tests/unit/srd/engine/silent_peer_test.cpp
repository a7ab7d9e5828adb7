// Owns the proof of how much a sender sends to a peer that is silent until it is given up.
#include <gtest/gtest.h>

#include "tests/unit/srd/engine/sender_lab.hpp"

namespace weft::srd {
namespace {

// A host of a fast network that trims, where a round trip is a hundred thousandth of the time after
// which a peer is dead.
class SilentPeer : public SenderTest {
 protected:
  SilentPeer() : SenderTest(like_a_host()) {}

  static EngineConfig like_a_host() {
    EngineConfig config = configure();
    config.paths = 64;
    config.max_rto = 100ms;
    config.peer_timeout = 500ms;
    config.base_rtt = 5us;
    config.trimming = true;
    return config;
  }
  // The packet of that type that leaves now is answered after a round trip.
  void answer_one(PacketType type) {
    for (const wire::DataHeader& packet : transmit_all()) {
      if (type_of(packet) == type) {
        now_ += parts_.config.base_rtt;
        tell(Psn{packet.psn.value()}.plus(1), 0, {}, &packet);
      }
    }
  }
  // So that round trips are known.
  void hear() {
    for (int i = 0; i < 4; ++i) {
      (void)request(WorkKind::write);
      answer_one(PacketType::write);
      ASSERT_EQ(ended(), Status::ok);
    }
  }
  std::size_t packets_until_given_up() {
    std::size_t packets = transmit_all().size();
    for (int i = 0; i < 100'000; ++i) {
      if (ended()) {
        return packets;
      }
      pass();
      packets += transmit_all().size();
    }
    ADD_FAILURE() << "it was never given up";
    return packets;
  }
  // Four at a time, at half of the longest distance of a packet that times out, which is 64 times
  // the first one.
  static constexpr Duration kLongestWait = 64 * 15us;
  [[nodiscard]] std::size_t most_questions() const {
    return 4 * static_cast<std::size_t>(2 * parts_.config.peer_timeout / kLongestWait) + 100;
  }
};

TEST_F(SilentPeer, IsAskedNoMoreOftenThanForTheBytesOfARead) {
  hear();
  (void)request(WorkKind::read);
  answer_one(PacketType::read_request);
  EXPECT_LT(packets_until_given_up(), most_questions());
}

TEST_F(SilentPeer, ThatWasNeverHeardIsAskedNoMoreOften) {
  (void)request(WorkKind::write);
  EXPECT_LT(packets_until_given_up(), most_questions());
}

// Its packet leaves again and again, each time with a probe along an abandoned path or two.
TEST_F(SilentPeer, WithATailIsAskedNoMoreOften) {
  hear();
  (void)request(WorkKind::write);
  EXPECT_LT(packets_until_given_up(), most_questions());
  EXPECT_LE(parts_.counters.tail_probes, 20U);
}

}  // namespace
}  // namespace weft::srd
