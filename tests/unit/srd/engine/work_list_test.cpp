// Owns the proof that lists of works count requests and answers apart, and that queues take turns.
//
// A work is one request, or one answer to a peer's read. It lies in a slab and is linked into lists
// by its index: its peer's, its endpoint's, and one of the queues of what has packets to send.
#include <gtest/gtest.h>

#include <vector>

#include "srd/engine/work.hpp"

namespace weft::srd {
namespace {

class WorkListTest : public ::testing::Test {
 protected:
  std::uint32_t begin(WorkKind kind) {
    const std::uint32_t index = works_.allocate();
    works_[index].begin(kind, PeerId{0}, Qpn{1}, Qpn{2}, 8);
    return index;
  }

  WorkSlab works_{16};
};

TEST_F(WorkListTest, CountsRequestsAndAnswersApart) {
  PeerWorks list;
  const std::uint32_t request = begin(WorkKind::write);
  const std::uint32_t answer = begin(WorkKind::read_response);
  list.add(works_, request, works_[request]);
  list.add(works_, answer, works_[answer]);
  EXPECT_EQ(list.requests(), 1U);
  EXPECT_EQ(list.responses(), 1U);
  list.remove(works_, answer, works_[answer]);
  EXPECT_EQ(list.requests(), 1U);
  EXPECT_EQ(list.responses(), 0U);
}

TEST_F(WorkListTest, VisitsTheOldestFirstAndLetsItEnd) {
  EndpointWorks list;
  std::vector<std::uint32_t> added;
  for (int i = 0; i < 5; ++i) {
    added.push_back(begin(WorkKind::send));
    list.add(works_, added.back(), works_[added.back()]);
  }
  std::vector<std::uint32_t> visited;
  list.for_each(works_, [&](std::uint32_t index) {
    visited.push_back(index);
    // From within the visit, as a work that is flushed ends.
    list.remove(works_, index, works_[index]);
  });
  EXPECT_EQ(visited, added);
  EXPECT_EQ(list.requests(), 0U);
}

TEST_F(WorkListTest, AWorkKnowsItsQueue) {
  WorkQueues queues;
  const std::uint32_t index = begin(WorkKind::send);
  Work& work = works_[index];
  EXPECT_FALSE(queues.has_ready());
  queues.push_back(works_, Queue::singles, index, work);
  EXPECT_TRUE(work.queued());
  EXPECT_TRUE(queues.has_ready());
  queues.remove(works_, index, work);
  EXPECT_FALSE(work.queued());
  EXPECT_FALSE(queues.has_ready());
  queues.push_back(works_, WorkQueues::back_off(0), index, work);
  EXPECT_FALSE(queues.has_ready()) << "what waits for its back-off is not ready";
}

}  // namespace
}  // namespace weft::srd
