// Owns the proof that tokens go to different experts, and that what experts make of them is exact.
#include "integration/workloads/tokens.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace weft::workloads {
namespace {

// Every rank computes the routes of all ranks for itself, so they must not depend on the rank that
// asks.
TEST(Router, GivesEachTokenDifferentExpertsAndIsTheSameForAll) {
  const ExpertProblem problem{.tokens = 200, .topk = 8, .experts = 64};
  const Router router(problem);
  const auto route = router.route(3, 1);
  ASSERT_EQ(route.size(), 1600U);
  std::set<std::uint32_t> all;
  for (std::size_t token = 0; token < 200; ++token) {
    std::set<std::uint32_t> experts;
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_LT(route[token * 8 + i].expert, 64U);
      experts.insert(route[token * 8 + i].expert);
    }
    EXPECT_EQ(experts.size(), 8U);
    all.insert(experts.begin(), experts.end());
  }
  EXPECT_EQ(all.size(), 64U);
  const auto again = Router(problem).route(3, 1);
  EXPECT_TRUE(std::equal(route.begin(), route.end(), again.begin(), [](auto a, auto b) {
    return a.expert == b.expert && a.weight == b.weight;
  }));
  const auto neighbour = router.route(2, 1);
  EXPECT_FALSE(std::equal(route.begin(), route.end(), neighbour.begin(),
                          [](auto a, auto b) { return a.expert == b.expert; }));
  EXPECT_TRUE(std::ranges::any_of(route, [](auto one) { return one.weight == 0.25F; }));
  EXPECT_TRUE(std::ranges::any_of(route, [](auto one) { return one.weight == 0.5F; }));
  const auto other = router.route(3, 2);
  EXPECT_FALSE(std::equal(route.begin(), route.end(), other.begin(),
                          [](auto a, auto b) { return a.expert == b.expert; }));
}

// 2000 selections of 64 experts: 31 each without skew; with it the first of them gets ten times
// that.
TEST(Router, SkewMakesSomeExpertsPopular) {
  const auto most = [](double skew) {
    const ExpertProblem problem{.tokens = 1000, .topk = 2, .experts = 64, .skew = skew};
    std::vector<std::uint32_t> counts(64);
    for (const Selection& one : Router(problem).route(0, 0)) {
      ++counts[one.expert];
    }
    return *std::max_element(counts.begin(), counts.end());
  };
  EXPECT_LT(most(0), 100U);
  EXPECT_GT(most(1.2), 300U);
}

// All of them taken, and as many as there are: that ends, too.
TEST(Router, ATokenMayGoToAllExperts) {
  const ExpertProblem problem{.ranks = 2, .tokens = 3, .topk = 4, .experts = 4, .skew = 3};
  EXPECT_EQ(Router(problem).route(0, 0).size(), 12U);
}

// Also where one of the ranks has nearly all of the popular experts.
TEST(Router, GroupsLimitTheRanksOfAToken) {
  for (const double skew : {0.0, 4.0}) {
    for (const std::uint32_t groups : {1U, 3U, 7U, 8U, 64U}) {
      const ExpertProblem problem{
          .tokens = 100, .topk = 6, .experts = 64, .skew = skew, .groups = groups};
      ASSERT_EQ(mistake_in(problem), "");
      const auto route = Router(problem).route(1, 1);
      std::set<std::uint32_t> all;
      std::size_t most = 0;
      for (std::size_t token = 0; token < 100; ++token) {
        std::set<std::uint32_t> owners;
        for (std::size_t i = 0; i < 6; ++i) {
          owners.insert(problem.owner_of(route[token * 6 + i].expert));
        }
        most = std::max(most, owners.size());
        all.insert(owners.begin(), owners.end());
      }
      EXPECT_LE(most, groups);
      EXPECT_GE(most, std::min(groups, 4U)) << "fewer than there may be";
      EXPECT_TRUE(skew > 0 || all.size() == 8) << "not the same ranks for all tokens";
    }
  }
  EXPECT_EQ(mistake_in({.topk = 8, .experts = 32, .groups = 1}),
            "a token cannot go to 8 experts of 1 ranks with 4 each");
}

// The check at the end of a run must find a single wrong column, a token of another round, and
// another token; and nothing else, so the arithmetic is chosen to be exact.
TEST(Tokens, WhatExpertsMakeOfThemIsExact) {
  for (const Precision precision : {Precision::fp8, Precision::bf16}) {
    const ExpertProblem problem{.tokens = 4, .hidden = 512, .precision = precision};
    const auto route = Router(problem).route(1, 5);
    for (std::uint32_t token = 0; token < 4; ++token) {
      std::vector<std::byte> data(payload_bytes(precision, 512));
      write_token(problem, 1, 5, token, data);
      const std::span selections{route.data() + std::size_t{token} * 8, 8};
      std::vector<float> sum(512);
      for (const Selection& one : selections) {
        std::vector<float> columns(512);
        add_token(precision, data, factor_of(one.expert), columns);
        std::vector<std::byte> result(1024);
        write_result(columns, result);
        add_token(Precision::bf16, result, one.weight, sum);
      }
      EXPECT_EQ(count_wrong_columns(problem, 1, 5, token, selections, sum), 0U);
      EXPECT_GT(count_wrong_columns(problem, 1, 5, token + 1, selections, sum), 300U)
          << "another token has other columns";
      EXPECT_GT(count_wrong_columns(problem, 1, 4, token, selections, sum), 300U);
      EXPECT_GT(count_wrong_columns(problem, 2, 5, token, selections, sum), 300U);
      sum[7] += 0.25F;
      EXPECT_EQ(count_wrong_columns(problem, 1, 5, token, selections, sum), 1U);
    }
  }
}

TEST(Tokens, SizesAreThoseOfDeepEp) {
  EXPECT_EQ(payload_bytes(Precision::fp8, 7168) + 16, 7408U);
  EXPECT_EQ(payload_bytes(Precision::bf16, 7168) + 16, 14352U);
}

TEST(ExpertProblem, MistakesAreSaid) {
  EXPECT_EQ(mistake_in({}), "");
  EXPECT_NE(mistake_in({.ranks = 3, .experts = 256}), "");
  EXPECT_NE(mistake_in({.ranks = 2, .topk = 8, .experts = 4}), "");
  EXPECT_NE(mistake_in({.hidden = 100}), "");
}

}  // namespace
}  // namespace weft::workloads
