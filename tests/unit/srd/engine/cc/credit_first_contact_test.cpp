// Owns the tests of what leaves for a receiver that has granted nothing yet, where the network
// reports what it loses.
#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/srd/engine/cc/credit_lab.hpp"

namespace weft::srd {
namespace {

CreditBalance reported_balance_of(Bytes share = kWindow, const UsualOverdraft& usual = {}) {
  return CreditBalance{{.packet = kPacket,
                        .window = kWindow,
                        .share = share,
                        .first_grant = kRoundTrip,
                        .losses_are_reported = true},
                       usual};
}

// Of half of its share, and not more than eight packets.
TEST(CreditFirstContact, SendsAllOfAShortMessage) {
  for (const auto& [share, all] : {std::pair{kWindow, 8 * kPacket},
                                   {16 * kPacket, 8 * kPacket},
                                   {10 * kPacket, 5 * kPacket}}) {
    CreditBalance balance = reported_balance_of(share);
    balance.want(all);
    EXPECT_EQ(send_all(balance), all);
    CreditBalance longer = reported_balance_of(share);
    longer.want(all + 1);
    EXPECT_EQ(send_all(longer), 2 * kPacket);
  }
}

// The share that it has now: it may have met the receiver when there was nobody else.
TEST(CreditFirstContact, ItsShareIsThatOfTheLatestRequest) {
  CreditBalance balance = reported_balance_of();
  balance.on_requested(time_at(0us), 10 * kPacket);
  balance.want(8 * kPacket);
  EXPECT_EQ(send_all(balance), 2 * kPacket);
  CreditBalance alone = reported_balance_of();
  alone.on_requested(time_at(0us), 10 * kPacket);
  alone.want(5 * kPacket);
  EXPECT_EQ(send_all(alone), 5 * kPacket);
  CreditBalance longer = reported_balance_of();
  longer.on_requested(time_at(0us), 10 * kPacket);
  longer.want(1000 * kPacket);
  EXPECT_EQ(send_all(longer), 10 * kPacket) << "the risk of a long one, too";
}

// Several short ones at once are a long one.
TEST(CreditFirstContact, SendsNoMoreOfManyShortMessagesThanOfOne) {
  CreditBalance balance = reported_balance_of();
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
  CreditBalance balance = reported_balance_of();
  balance.want(8 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  const auto asked = balance.demand();
  (void)send_all(balance);
  balance.on_lost(8 * kPacket);
  EXPECT_EQ(balance.demand(), asked);
  EXPECT_EQ(send_all(balance), 0U);
  balance.on_grant(time_at(10us), asked, usual);
  EXPECT_EQ(send_all(balance), 8 * kPacket);
}

// What others grant says more than that nobody has said anything, where it is more.
TEST(CreditFirstContact, ASenderThatKnowsOthersSendsAllOfAShortMessageAllTheSame) {
  UsualOverdraft usual;
  usual.add(4 * kPacket);
  CreditBalance balance = reported_balance_of(kWindow, usual);
  balance.want(8 * kPacket);
  EXPECT_EQ(send_all(balance), 8 * kPacket);
}

}  // namespace
}  // namespace weft::srd
