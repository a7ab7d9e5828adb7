// Owns the stories of remote memory through a messenger.
#include <gtest/gtest.h>

#include <array>

#include "tests/support/message_lab.hpp"

namespace weft::testing {
namespace {

using srd::Access;
using srd::MessageCompletion;
using srd::PostResult;
using srd::Status;

// Station 1 shares memory; station 0 writes and reads it.
class Memory : public ::testing::Test {
 protected:
  Memory() : lab(2), shared(10000), local(10000) {
    key = lab[1].messenger().share(shared, Access::remote_read | Access::remote_write).value();
  }
  // Waits for the next completion of the station.
  MessageCompletion next(Station& station) {
    const std::size_t before = station.completions().size();
    EXPECT_TRUE(lab.run_until([&] { return station.completions().size() > before; }));
    return station.completions().back();
  }
  MessageCompletion write(std::size_t offset, std::size_t size) {
    EXPECT_EQ(lab[0].messenger().post_write({.to = lab[0].address(lab[1]),
                                             .data = std::span{local}.first(size),
                                             .key = key,
                                             .offset = offset,
                                             .cookie = 7}),
              PostResult::accepted);
    return next(lab[0]);
  }
  MessageCompletion read(std::size_t offset, std::size_t size) {
    EXPECT_EQ(lab[0].messenger().post_read({.from = lab[0].address(lab[1]),
                                            .data = std::span{local}.first(size),
                                            .key = key,
                                            .offset = offset,
                                            .cookie = 8}),
              PostResult::accepted);
    return next(lab[0]);
  }
  MessageLab lab;
  Bytes8 shared;
  Bytes8 local;
  srd::RegionKey key;
};

// 9000 bytes at 100: several packets, and room on both sides in which a wrong offset would show.
TEST_F(Memory, IsWritten) {
  fill(local, 1);
  const MessageCompletion done = write(100, 9000);
  EXPECT_EQ(done.kind, MessageCompletion::Kind::write);
  EXPECT_EQ(done.status, Status::ok);
  EXPECT_EQ(done.cookie, 7U);
  EXPECT_EQ(first_difference(std::span{shared}.subspan(100, 9000), 1), 9000U);
  EXPECT_EQ(shared[99], std::byte{0});
  EXPECT_EQ(shared[9100], std::byte{0});
}

TEST_F(Memory, IsRead) {
  fill(std::span{shared}.subspan(50), 2);
  const MessageCompletion done = read(50, 9950);
  EXPECT_EQ(done.kind, MessageCompletion::Kind::read);
  EXPECT_EQ(done.status, Status::ok);
  EXPECT_EQ(done.cookie, 8U);
  EXPECT_EQ(first_difference(std::span{local}.first(9950), 2), 9950U);
}

TEST_F(Memory, TellsItsOwnerOfAWriteWithAnImmediate) {
  fill(local, 3);
  ASSERT_EQ(lab[0].messenger().post_write(
                {.to = lab[0].address(lab[1]), .data = local, .key = key, .immediate = 0xBEEF}),
            PostResult::accepted);
  const MessageCompletion told = next(lab[1]);
  EXPECT_EQ(told.kind, MessageCompletion::Kind::written);
  EXPECT_EQ(told.immediate, 0xBEEFU);
  EXPECT_EQ(told.length, 10000U);
  EXPECT_EQ(told.peer.peer, lab[1].address(lab[0]).peer);
  EXPECT_EQ(first_difference(shared, 3), 10000U) << "all bytes are there when it is told";
}

// Beyond its end, after it was taken back, and against its rights: each is refused with its own
// status.
TEST_F(Memory, IsSafeFromOutside) {
  EXPECT_EQ(write(9999, 2).status, Status::out_of_bounds);
  EXPECT_EQ(read(10000, 1).status, Status::out_of_bounds);
  EXPECT_TRUE(lab[1].messenger().unshare(key));
  EXPECT_FALSE(lab[1].messenger().unshare(key));
  EXPECT_EQ(write(0, 1).status, Status::bad_key);
  key = lab[1].messenger().share(shared, Access::remote_read).value();
  EXPECT_EQ(write(0, 1).status, Status::access_denied);
  EXPECT_EQ(read(0, 1).status, Status::ok);
}

// The next life gives its keys to other memory.
TEST_F(Memory, OfAFormerLifeIsNotMistakenForThatOfTheNext) {
  EXPECT_EQ(read(0, 100).status, Status::ok);
  lab.restart(lab[1]);
  Bytes8 other(10000);
  const srd::RegionKey other_key = lab[1].messenger().share(other, Access::remote_read).value();
  EXPECT_NE(other_key, key);
  EXPECT_EQ(read(0, 100).status, Status::peer_restarted);
  EXPECT_EQ(read(0, 100).status, Status::bad_key) << "kept from the former life";
}

TEST_F(Memory, OfADeadPeerIsNotWaitedForForEver) {
  EXPECT_EQ(read(0, 100).status, Status::ok);
  lab.network().lose_next(world::Packet::read_response, 1000000);
  ASSERT_EQ(
      lab[0].messenger().post_read({.from = lab[0].address(lab[1]), .data = local, .key = key}),
      PostResult::accepted);
  lab.run_for(50us);  // the request has been acknowledged: nothing of ours is under way
  lab.crash(lab[1]);
  EXPECT_EQ(next(lab[0]).status, Status::unresponsive);
}

}  // namespace
}  // namespace weft::testing
