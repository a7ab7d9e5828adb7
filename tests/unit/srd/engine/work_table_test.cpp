// Owns the proof that each work ends once, and that requests and answers do not take each other's
// records.
#include "srd/engine/work_table.hpp"

#include <gtest/gtest.h>

#include "srd/engine/engine_parts.hpp"

namespace weft::srd {
namespace {

constexpr std::uint32_t kMaxRequests = 2;
constexpr Qpn kQpn{1};

// Two requests at most, so that full tables are easily reached.
class WorkTableTest : public ::testing::Test {
 protected:
  WorkTableTest() {
    parts_.endpoints.insert(kQpn, {});
    peer_ = parts_.peers.find_or_make(PeerKey{});
    (void)parts_.sender(*peer_);
  }
  static EngineConfig configure() {
    EngineConfig config;
    config.max_work_requests = kMaxRequests;
    config.max_completions = 4;
    return config;
  }
  WorkTable::NewWork request(WorkKind kind = WorkKind::write) {
    const WorkTable::NewWork made =
        works().begin_request(*peer_, *parts_.endpoints.find(kQpn), kind, kQpn, 8);
    if (made.work != nullptr && kind == WorkKind::read) {
      works().number_read(made.index, *made.work, peer_->sender->next_read());
    }
    return made;
  }
  WorkTable::NewWork response() { return works().begin_response(*peer_, kQpn, kQpn, 8); }
  WorkTable& works() { return parts_.works; }

  EngineParts parts_{configure(), nullptr, nullptr};
  Peer* peer_ = nullptr;
};

TEST_F(WorkTableTest, CountsWhatIsOutstanding) {
  EXPECT_EQ(works().outstanding(), 0U);
  EXPECT_EQ(works().busy_peers(), 0U);
  const auto first = request();
  const auto second = request();
  EXPECT_EQ(works().outstanding(), 2U);
  EXPECT_EQ(works().busy_peers(), 1U);
  works().abandon(first.index, Status::flushed);
  EXPECT_EQ(works().busy_peers(), 1U);
  works().abandon(second.index, Status::flushed);
  EXPECT_EQ(works().outstanding(), 0U);
  EXPECT_EQ(works().busy_peers(), 0U);
}

TEST_F(WorkTableTest, EachRequestGivesOneCompletion) {
  const auto made = request();
  made.work->cookie = 7;
  works().abandon(made.index, Status::flushed);
  ASSERT_NE(parts_.completions.next(), nullptr);
  EXPECT_EQ(parts_.completions.next()->cookie, 7U);
  EXPECT_EQ(parts_.completions.next()->status, Status::flushed);
  EXPECT_EQ(parts_.completions.next()->kind, Completion::Kind::write);
  parts_.completions.pop();
  EXPECT_EQ(parts_.completions.next(), nullptr);
}

// A peer that asks for many reads must not keep the program from posting.
TEST_F(WorkTableTest, RequestsAndAnswersHaveRecordsOfTheirOwn) {
  for (std::uint32_t i = 0; i < kMaxRequests; ++i) {
    EXPECT_NE(response().work, nullptr);
  }
  EXPECT_EQ(response().work, nullptr);
  EXPECT_EQ(peer_->works.responses(), kMaxRequests);
  for (std::uint32_t i = 0; i < kMaxRequests; ++i) {
    EXPECT_NE(request().work, nullptr);
  }
  EXPECT_EQ(request().work, nullptr);
}

TEST_F(WorkTableTest, AnAnswerThatEndsTellsNobody) {
  works().abandon(response().index, Status::flushed);
  EXPECT_EQ(parts_.completions.next(), nullptr);
  EXPECT_EQ(peer_->works.responses(), 0U);
}

// `outstanding` counts packets that are not settled.
TEST_F(WorkTableTest, AWorkEndsWhenNothingOfItIsUnderWay) {
  const auto made = request();
  made.work->outstanding = 1;
  works().finish_if_done(made.index, *made.work);
  EXPECT_EQ(works().outstanding(), 1U);
  made.work->outstanding = 0;
  works().finish_if_done(made.index, *made.work);
  EXPECT_EQ(works().outstanding(), 0U);
}

TEST_F(WorkTableTest, AReadEndsWhenItsBytesHaveComeToo) {
  const auto made = request(WorkKind::read);
  works().finish_if_done(made.index, *made.work);
  EXPECT_EQ(works().outstanding(), 1U);
  made.work->answered = true;
  works().finish_if_done(made.index, *made.work);
  EXPECT_EQ(works().outstanding(), 0U);
}

TEST_F(WorkTableTest, NoTwoReadsHaveOneNumber) {  // [wire 4.5]
  const auto first = request(WorkKind::read);
  const std::uint32_t number = first.work->message;
  EXPECT_EQ(works().find_read(peer_->id, number), first.index);
  peer_->sender->next_read() = number;  // numbers have come round
  const auto second = request(WorkKind::read);
  EXPECT_NE(second.work->message, number);
  works().abandon(first.index, Status::flushed);
  EXPECT_EQ(works().find_read(peer_->id, number), WorkTable::kNoRead);
}

TEST_F(WorkTableTest, AbandonsThoseThatAreConcerned) {
  (void)request(WorkKind::send);
  (void)request(WorkKind::write);
  works().abandon_if(*peer_, Status::peer_restarted,
                     [](const Work& work) { return work.kind == WorkKind::write; });
  EXPECT_EQ(works().outstanding(), 1U);
  ASSERT_NE(parts_.completions.next(), nullptr);
  EXPECT_EQ(parts_.completions.next()->kind, Completion::Kind::write);
}

}  // namespace
}  // namespace weft::srd
