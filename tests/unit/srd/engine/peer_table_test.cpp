// Owns the proof that peers are found by their keys for as long as they are kept.
#include "srd/engine/peer_table.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

// Address and attachment together are a peer.
PeerKey key(std::uint8_t number) {
  PeerKey key;
  key.address.bytes[0] = static_cast<std::byte>(number);
  key.attachment = AttachmentId{number};
  return key;
}

TEST(PeerTable, FindsWhatItHasMade) {
  PeerTable peers(4);
  EXPECT_EQ(peers.find(key(1)), nullptr);
  Peer* const first = peers.find_or_make(key(1));
  Peer* const second = peers.find_or_make(key(2));
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(peers.find_or_make(key(1)), first);
  EXPECT_EQ(peers.find(key(1)), first);
  EXPECT_EQ(peers.find(key(2)), second);
  EXPECT_EQ(peers.peek(key(1)), first);
  EXPECT_EQ(first->key, key(1));
  EXPECT_EQ(&peers[first->id], first);
}

TEST(PeerTable, TellsOneAttachmentOfAnAddressFromAnother) {
  PeerTable peers(4);
  PeerKey other = key(1);
  other.attachment = AttachmentId{7};
  EXPECT_NE(peers.find_or_make(key(1)), peers.find_or_make(other));
}

TEST(PeerTable, IsFullAtItsLimit) {
  PeerTable peers(2);
  EXPECT_NE(peers.find_or_make(key(1)), nullptr);
  EXPECT_NE(peers.find_or_make(key(2)), nullptr);
  EXPECT_EQ(peers.find_or_make(key(3)), nullptr);
  EXPECT_EQ(peers.find(key(3)), nullptr);
}

TEST(PeerTable, KnowsOnlyIdsOfRecordsInUse) {
  PeerTable peers(16);
  EXPECT_FALSE(peers.knows(PeerId{0}));
  const PeerId id = peers.find_or_make(key(1))->id;
  EXPECT_TRUE(peers.knows(id));
  EXPECT_FALSE(peers.knows(PeerId{id.value() + 1}));  // its record exists, unused
  EXPECT_FALSE(peers.knows(PeerId{16}));
}

// The table remembers the peer that was found last, and must forget that, too.
TEST(PeerTable, KeepsNothingOfAPeerThatWasForgotten) {
  PeerTable peers(1);
  Peer* const peer = peers.find_or_make(key(1));
  ASSERT_EQ(peers.find(key(1)), peer);  // so that it is the latest
  const PeerId id = peer->id;
  peers.forget(*peer);
  EXPECT_EQ(peers.find(key(1)), nullptr);
  EXPECT_EQ(peers.peek(key(1)), nullptr);
  EXPECT_FALSE(peers.knows(id));
  Peer* const next = peers.find_or_make(key(2));
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->key, key(2));
  EXPECT_EQ(peers.find(key(1)), nullptr);
}

}  // namespace
}  // namespace weft::srd
