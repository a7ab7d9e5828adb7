// Owns the proof that wrong data is counted: the harness is only as good as its check.
#include "integration/collectives/data.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace weft::collectives {
namespace {

TEST(Data, ReductionsOfEveryType) {
  for (int type = 0; type < 9; ++type) {
    for (int reduction = 0; reduction < 5; ++reduction) {
      Problem problem{.operation = NcclOperation::all_reduce, .ranks = 3};
      problem.element = size_of(static_cast<Type>(type));
      problem.bytes = 1000 * problem.element;
      const Pattern pattern{static_cast<Type>(type), static_cast<Reduction>(reduction), 4};
      std::vector<std::byte> result(problem.bytes);
      fill_input(pattern, problem, result);
      for (problem.rank = 1; problem.rank < 3; ++problem.rank) {
        std::vector<std::byte> other(problem.bytes);
        fill_input(pattern, problem, other);
        reduce(pattern.type, pattern.reduction, result.data(), other.data(), 1000);
      }
      finish(pattern.type, pattern.reduction, problem.ranks, result.data(), 1000);
      problem.rank = 0;
      EXPECT_EQ(count_wrong(pattern, problem, result), 0U) << type << " " << reduction;
      // The least that can be wrong: one bit of one element.
      result[problem.element * 500] ^= std::byte{1};
      EXPECT_EQ(count_wrong(pattern, problem, result), 1U);
    }
  }
}

TEST(Data, SumsOfManyRanksAreExactInEveryType) {
  for (int type = 0; type < 9; ++type) {
    // Sums of 64 ranks must still be exact in the smallest type: else rounding, which depends on
    // the order, would look like damage.
    Problem problem{.operation = NcclOperation::all_reduce, .ranks = 64};
    problem.element = size_of(static_cast<Type>(type));
    problem.bytes = 256 * problem.element;
    const Pattern pattern{static_cast<Type>(type), Reduction::sum, 2};
    std::vector<std::byte> result(problem.bytes);
    for (problem.rank = 64; problem.rank-- > 0;) {  // in another order than the check's
      std::vector<std::byte> other(problem.bytes);
      fill_input(pattern, problem, other);
      reduce(pattern.type, pattern.reduction, result.data(), other.data(), 256);
    }
    problem.rank = 0;
    EXPECT_EQ(count_wrong(pattern, problem, result), 0U) << kTypeNames[type];
  }
}

TEST(Data, WrongRoundRankOrPlaceIsSeen) {
  const Problem problem{.operation = NcclOperation::sendrecv, .bytes = 4096, .ranks = 2, .rank = 1};
  Problem sender = problem;
  sender.rank = 0;
  const Pattern pattern{Type::float32, Reduction::sum, 7};
  std::vector<std::byte> data(4096);
  fill_input(pattern, sender, data);
  EXPECT_EQ(count_wrong(pattern, problem, data), 0U);
  fill_input({Type::float32, Reduction::sum, 6}, sender, data);
  // Of 1024 elements. Some are equal by chance, for small numbers are all that is ever sent.
  EXPECT_GT(count_wrong(pattern, problem, data), 800U) << "an earlier round";
  fill_input(pattern, problem, data);
  EXPECT_GT(count_wrong(pattern, problem, data), 800U) << "another rank";
  fill_input(pattern, sender, data);
  // 256 elements come 16 places too early.
  std::memmove(data.data(), data.data() + 64, 1024);
  EXPECT_GT(count_wrong(pattern, problem, data), 200U) << "another place";
}

}  // namespace
}  // namespace weft::collectives
