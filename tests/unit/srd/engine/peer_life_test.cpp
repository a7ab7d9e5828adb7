// Owns the proof that a peer's life only moves forward. [wire 4.2]
//
// A process has a life number, and a higher one after each restart. Packets of a former life may
// still travel when the next one begins, and must have no effect any more.
#include "srd/engine/peer_life.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

TEST(PeerLife, IsUnknownUntilItIsAdopted) {
  PeerLife life;
  EXPECT_FALSE(life.known());
  EXPECT_FALSE(life.is(Life{0}));
  EXPECT_FALSE(life.has_ended(Life{0}));
  EXPECT_FALSE(life.is_followed_by(Life{5}));
  EXPECT_EQ(life.addressed(), Life{0});
  life.adopt(Life{5});
  EXPECT_TRUE(life.is(Life{5}));
  EXPECT_EQ(life.addressed(), Life{5});
  EXPECT_EQ(life.restarts(), 0U);
}

TEST(PeerLife, TellsFormerLivesFromLaterOnes) {
  PeerLife life;
  life.adopt(Life{5});
  EXPECT_TRUE(life.has_ended(Life{4}));
  EXPECT_FALSE(life.has_ended(Life{5}));
  EXPECT_TRUE(life.is_followed_by(Life{6}));
  EXPECT_FALSE(life.is_followed_by(Life{5}));
}

// 0 is never a life: it means "not known".
TEST(PeerLife, ComparesAcrossTheWrap) {
  PeerLife life;
  life.adopt(Life{0xFFFFFFFF});
  EXPECT_TRUE(life.is_followed_by(Life{1}));
  EXPECT_TRUE(life.has_ended(Life{0xFFFFFFFE}));
}

TEST(PeerLife, CountsLaterLives) {
  PeerLife life;
  life.adopt(Life{5});
  life.adopt(Life{5});
  EXPECT_EQ(life.restarts(), 0U);
  life.adopt(Life{7});
  EXPECT_EQ(life.restarts(), 1U);
  EXPECT_TRUE(life.has_ended(Life{5}));
}

TEST(PeerLife, AStrangerIsIntroducedByItsLifeOrByTheProgram) {
  PeerLife met;
  EXPECT_TRUE(met.is_stranger());
  met.hint(Life{5});
  EXPECT_TRUE(met.is_stranger());
  met.adopt(Life{5});
  EXPECT_FALSE(met.is_stranger());
  PeerLife asked_for;
  asked_for.introduce();
  EXPECT_FALSE(asked_for.is_stranger());
  EXPECT_FALSE(asked_for.known());
}

// A packet that cannot be verified names a life: an answer may go to it, but nothing else follows.
TEST(PeerLife, AHintIsAnsweredAndNotBelieved) {  // [wire 4.9]
  PeerLife life;
  life.hint(Life{5});
  EXPECT_EQ(life.answered(), Life{5});
  EXPECT_EQ(life.addressed(), Life{0});
  life.adopt(Life{6});
  EXPECT_EQ(life.answered(), Life{6});
}

TEST(PeerLife, ANoticeGoesOnceAndToTheLifeThatSpoke) {  // [wire 3.7]
  PeerLife life;
  life.adopt(Life{5});
  EXPECT_FALSE(life.owes_notice());
  life.refuse(Life{1}, Life{7});
  EXPECT_TRUE(life.owes_notice());
  const PeerLife::Notice notice = life.take_notice();
  EXPECT_EQ(notice.refused, Life{1});
  EXPECT_EQ(notice.addressee, Life{7});
  EXPECT_FALSE(life.owes_notice());
  EXPECT_TRUE(life.is(Life{5}));
}

}  // namespace
}  // namespace weft::srd
