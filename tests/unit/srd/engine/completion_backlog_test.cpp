// Owns the proof that requests and receives do not take each other's room.
//
// There are `limit` places for each of the two. `has_room_for_request(outstanding)` and its
// counterpart are asked before work is accepted, with the number of those that have yet to end: a
// completion, once it is due, must always find room.
#include "srd/engine/completion_backlog.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

constexpr std::size_t kLimit = 3;

TEST(CompletionBacklog, HandsOutWhatHasEndedInOrder) {
  CompletionBacklog completions(kLimit);
  EXPECT_EQ(completions.next(), nullptr);
  completions.push_request().cookie = 1;
  completions.push_receive().cookie = 2;
  ASSERT_NE(completions.next(), nullptr);
  EXPECT_EQ(completions.next()->cookie, 1U);
  EXPECT_EQ(completions.next()->kind, Completion::Kind::send);
  completions.pop();
  EXPECT_EQ(completions.next()->cookie, 2U);
  EXPECT_EQ(completions.next()->kind, Completion::Kind::receive);
  completions.pop();
  EXPECT_EQ(completions.next(), nullptr);
}

// All requests that there may be are under way, and what arrives is still told.
TEST(CompletionBacklog, RequestsUnderWayLeaveRoomForWhatArrives) {
  CompletionBacklog completions(kLimit);
  EXPECT_FALSE(completions.has_room_for_request(kLimit));
  for (std::size_t i = 0; i < kLimit; ++i) {
    EXPECT_TRUE(completions.has_room_for_receive(kLimit));
    (void)completions.push_receive();
  }
  EXPECT_FALSE(completions.has_room_for_receive(kLimit));
}

TEST(CompletionBacklog, WhatHasArrivedLeavesRoomForRequests) {
  CompletionBacklog completions(kLimit);
  for (std::size_t i = 0; i < kLimit; ++i) {
    completions.push_receive().kind = Completion::Kind::receive_write_imm;
  }
  EXPECT_TRUE(completions.has_room_for_request(kLimit - 1));
  EXPECT_FALSE(completions.has_room_for_request(kLimit));
}

// Ended and not yet polled, it still counts.
TEST(CompletionBacklog, ARequestKeepsItsPlaceFromPostToPoll) {
  CompletionBacklog completions(kLimit);
  (void)completions.push_request();
  EXPECT_TRUE(completions.has_room_for_request(kLimit - 2));
  EXPECT_FALSE(completions.has_room_for_request(kLimit - 1));
  completions.pop();
  EXPECT_TRUE(completions.has_room_for_request(kLimit - 1));
}

TEST(CompletionBacklog, ATakenReceiveGivesItsPlaceBack) {
  CompletionBacklog completions(1);
  (void)completions.push_receive();
  EXPECT_FALSE(completions.has_room_for_receive(0));
  completions.pop();
  EXPECT_TRUE(completions.has_room_for_receive(0));
}

}  // namespace
}  // namespace weft::srd
