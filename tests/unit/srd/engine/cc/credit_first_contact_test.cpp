// Owns the tests of what leaves for a receiver that has granted nothing yet, where the network
// reports what it loses: too much of it costs headers and no time-out.
#include <gtest/gtest.h>

#include "srd/engine/cc/credit_balance.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr Bytes kPacket = 1024;
constexpr Bytes kWindow = 160 * kPacket;
constexpr Duration kRoundTrip = 10us;  // that a grant takes

CreditBalance balance_of(Bytes share = kWindow, const UsualOverdraft& usual = {}) {
  return CreditBalance{{.packet = kPacket,
                        .window = kWindow,
                        .share = share,
                        .first_grant = kRoundTrip,
                        .losses_are_reported = true},
                       usual};
}

// Sends whole packets until something holds it back; returns the bytes.
Bytes send_all(CreditBalance& balance) {
  Bytes sent = 0;
  while (balance.wants_more() && balance.may_send()) {
    balance.on_sent(kPacket);
    sent += kPacket;
  }
  return sent;
}

TEST(CreditFirstContact, SendsAllOfAShortMessage) {
  for (const Bytes share : {kWindow, kWindow / 4}) {
    CreditBalance balance = balance_of(share);
    balance.want(share / 2);
    EXPECT_EQ(send_all(balance), share / 2);
    CreditBalance longer = balance_of(share);
    longer.want(share / 2 + kPacket);
    EXPECT_EQ(send_all(longer), 2 * kPacket);
  }
}

// Several short ones at once are a long one.
TEST(CreditFirstContact, SendsNoMoreOfManyShortMessagesThanOfOne) {
  CreditBalance balance = balance_of();
  Bytes sent = 0;
  for (int i = 0; i < 40; ++i) {
    balance.want(kWindow / 8);
    sent += send_all(balance);
  }
  EXPECT_EQ(sent, kWindow);  // from there on the risk of a long one
}

// It is lost, all of it, and leaves again on the grants that were asked for already.
TEST(CreditFirstContact, AShortMessageThatIsLostWaitsForItsGrants) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(kWindow / 2);
  balance.on_requested(time_at(0us), kWindow);
  const auto asked = balance.demand();
  (void)send_all(balance);
  balance.on_lost(kWindow / 2);
  EXPECT_EQ(balance.demand(), asked);
  EXPECT_EQ(send_all(balance), 0U);
  balance.on_grant(time_at(10us), asked, usual);
  EXPECT_EQ(send_all(balance), kWindow / 2);
}

// What others grant says more than that nobody has said anything, where it is more.
TEST(CreditFirstContact, ASenderThatKnowsOthersSendsAllOfAShortMessageAllTheSame) {
  UsualOverdraft usual;
  usual.add(4 * kPacket);
  CreditBalance balance = balance_of(kWindow, usual);
  balance.want(kWindow / 2);
  EXPECT_EQ(send_all(balance), kWindow / 2);
}

}  // namespace
}  // namespace weft::srd
