// Owns the proof that requests and receives do not take each other's room.
//
// A queue has `limit` places for each of the two. `has_room_for_request(outstanding)` and its
// counterpart are asked before work is accepted, with the number of those that have yet to end: a
// completion, once it is due, must never find the queue full.
#include "srd/engine/completion_queue.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

constexpr std::size_t kLimit = 3;

TEST(CompletionQueue, HandsOutWhatHasEndedInOrder) {
  CompletionQueue queue(kLimit);
  EXPECT_EQ(queue.next(), nullptr);
  queue.push_request().cookie = 1;
  queue.push_receive().cookie = 2;
  ASSERT_NE(queue.next(), nullptr);
  EXPECT_EQ(queue.next()->cookie, 1U);
  EXPECT_EQ(queue.next()->kind, Completion::Kind::send);
  queue.pop();
  EXPECT_EQ(queue.next()->cookie, 2U);
  EXPECT_EQ(queue.next()->kind, Completion::Kind::receive);
  queue.pop();
  EXPECT_EQ(queue.next(), nullptr);
}

// All requests that there may be are under way, and what arrives is still told.
TEST(CompletionQueue, RequestsUnderWayLeaveRoomForWhatArrives) {
  CompletionQueue queue(kLimit);
  EXPECT_FALSE(queue.has_room_for_request(kLimit));
  for (std::size_t i = 0; i < kLimit; ++i) {
    EXPECT_TRUE(queue.has_room_for_receive(kLimit));
    (void)queue.push_receive();
  }
  EXPECT_FALSE(queue.has_room_for_receive(kLimit));
}

TEST(CompletionQueue, WhatHasArrivedLeavesRoomForRequests) {
  CompletionQueue queue(kLimit);
  for (std::size_t i = 0; i < kLimit; ++i) {
    queue.push_receive().kind = Completion::Kind::receive_write_imm;
  }
  EXPECT_TRUE(queue.has_room_for_request(kLimit - 1));
  EXPECT_FALSE(queue.has_room_for_request(kLimit));
}

// Ended and not yet polled, it still counts.
TEST(CompletionQueue, ARequestKeepsItsPlaceFromPostToPoll) {
  CompletionQueue queue(kLimit);
  (void)queue.push_request();
  EXPECT_TRUE(queue.has_room_for_request(kLimit - 2));
  EXPECT_FALSE(queue.has_room_for_request(kLimit - 1));
  queue.pop();
  EXPECT_TRUE(queue.has_room_for_request(kLimit - 1));
}

TEST(CompletionQueue, ATakenReceiveGivesItsPlaceBack) {
  CompletionQueue queue(1);
  (void)queue.push_receive();
  EXPECT_FALSE(queue.has_room_for_receive(0));
  queue.pop();
  EXPECT_TRUE(queue.has_room_for_receive(0));
}

}  // namespace
}  // namespace weft::srd
