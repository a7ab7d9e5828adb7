// Tests of every transition of SRD and UD queue pairs against the specification's tables.
#include "emu/nic/qp_attributes.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace weft::nic {
namespace {

constexpr std::uint32_t kInit = kMaskPkeyIndex | kMaskPort | kMaskQkey;
constexpr std::uint32_t kEvery = kMaskCurrentState | kMaskSqdNotify | kMaskPkeyIndex | kMaskPort |
                                 kMaskQkey | kMaskSqPsn | kMaskRnrRetry;
enum S { reset, init, rtr, rts, sqd, sqe, err };

struct Rule {
  std::uint32_t required;
  std::uint32_t optional;
};
using Book = std::map<std::pair<int, int>, Rule>;

// Written down a second time, from the documented tables, transition by transition.
Book book(QpType type) {
  const std::uint32_t rnr = type == QpType::srd ? std::uint32_t{kMaskRnrRetry} : 0;
  const std::uint32_t keys = kMaskPkeyIndex | kMaskQkey;
  const std::uint32_t late = kMaskCurrentState | kMaskQkey;
  Book rules{{{reset, init}, {kInit, 0}}, {{init, init}, {0, kInit}},
             {{init, rtr}, {0, keys}},    {{rtr, rts}, {kMaskSqPsn, late | rnr}},
             {{rts, rts}, {0, late}},     {{rts, sqd}, {0, kMaskSqdNotify}},
             {{sqd, rts}, {0, late}},     {{sqd, sqd}, {0, keys}},
             {{sqe, rts}, {0, late}}};
  for (int from = reset; from <= err; ++from) {
    rules[{from, reset}] = {0, 0};
    if (type == QpType::ud || from != reset) {
      rules[{from, err}] = {0, 0};
    }
  }
  return rules;
}

QpAttributes attributes_for(int from, int to) {
  return {.state = static_cast<std::uint8_t>(to),
          .current_state = static_cast<std::uint8_t>(from),
          .port = 1,
          .rnr_retry = 3};
}

class Transitions : public ::testing::TestWithParam<QpType> {};

TEST_P(Transitions, EveryPairAndEverySingleAttribute) {
  const Book rules = book(GetParam());
  int checked = 0;
  for (int from = reset; from <= err; ++from) {
    for (int to = reset; to <= err; ++to) {
      const auto rule = rules.find({from, to});
      const bool legal = rule != rules.end();
      const std::uint32_t required = legal ? rule->second.required : 0;
      for (std::uint32_t bit = 0; bit <= kMaskSqPsn; bit = bit == 0 ? 1 : bit << 1) {
        const std::uint32_t extra = bit & kEvery & ~kMaskState;
        if (bit != 0 && extra == 0) {
          continue;
        }
        const auto outcome = check_modify({.type = GetParam()}, static_cast<QpState>(from),
                                          kMaskState | required | extra, attributes_for(from, to));
        const bool allowed = legal && (extra & ~(required | rule->second.optional)) == 0;
        EXPECT_EQ(outcome.has_value(), allowed) << from << "->" << to << " with " << extra;
        if (!allowed && !outcome) {
          EXPECT_EQ(outcome.error(), EINVAL);
        }
        ++checked;
      }
      // Each required attribute is missed.
      for (std::uint32_t bit = 1; bit != 0; bit <<= 1) {
        if ((required & bit) != 0) {
          EXPECT_EQ(check_modify({.type = GetParam()}, static_cast<QpState>(from),
                                 kMaskState | (required & ~bit), attributes_for(from, to))
                        .error(),
                    EINVAL);
        }
      }
    }
  }
  EXPECT_GT(checked, 300);
}

INSTANTIATE_TEST_SUITE_P(Types, Transitions, ::testing::Values(QpType::srd, QpType::ud));

// Bits of the mask that mean something to RC and UC only: access flags, paths, MTU, atomics and the
// like.
TEST(ModifyQp, AttributesOfOtherTransportsAreNotSupported) {
  for (const unsigned bit : {3U, 7U, 8U, 9U, 10U, 12U, 13U, 14U, 15U, 17U, 18U, 19U, 20U, 25U}) {
    EXPECT_EQ(
        check_modify({}, QpState::init, kMaskState | 1U << bit, attributes_for(init, rtr)).error(),
        EOPNOTSUPP)
        << bit;
  }
}

// A port and a P_Key index that the NIC does not have, a state that is none, a retry count of 4
// bits, and a current state that is not the current one.
TEST(ModifyQp, ValuesAreChecked) {
  const auto outcome = [](std::uint32_t mask, const QpAttributes& attributes) {
    return check_modify({}, QpState::reset, mask, attributes).error();
  };
  EXPECT_EQ(outcome(kMaskState | kInit, {.state = 1, .port = 2}), EOPNOTSUPP);
  EXPECT_EQ(outcome(kMaskState | kInit, {.state = 1, .port = 1, .pkey_index = 1}), EOPNOTSUPP);
  EXPECT_EQ(outcome(kMaskState | kInit, {.state = 7, .port = 1}), EINVAL);
  EXPECT_EQ(check_modify({}, QpState::rtr, kMaskState | kMaskSqPsn | kMaskRnrRetry,
                         {.state = 3, .rnr_retry = 8})
                .error(),
            EINVAL);
  EXPECT_EQ(check_modify({.rnr_retry = false}, QpState::rtr,
                         kMaskState | kMaskSqPsn | kMaskRnrRetry, {.state = 3})
                .error(),
            EOPNOTSUPP);
  EXPECT_EQ(check_modify({}, QpState::rts, kMaskCurrentState, {.current_state = 2}).error(),
            EINVAL);
}

}  // namespace
}  // namespace weft::nic
