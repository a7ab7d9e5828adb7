// Owns the table of transitions, written down a second time.
#include "emu/roce/engine/attributes.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace weft::roce {
namespace {

// The masks that perftest uses with RC.
constexpr std::uint32_t kInitRc = 0x39;
constexpr std::uint32_t kRtrRc = 0x129181;
constexpr std::uint32_t kRtsRc = 0x12E01;

int modify(QpType type, QpState from, QpState to, std::uint32_t mask) {
  QpAttributes attributes;
  attributes.state = to;
  return check_modify(type, from, mask, attributes, {});
}

TEST(Attributes, TakesWhatPerftestGives) {
  EXPECT_EQ(modify(QpType::rc, QpState::reset, QpState::init, kInitRc), 0);
  EXPECT_EQ(modify(QpType::rc, QpState::init, QpState::rtr, kRtrRc), 0);
  EXPECT_EQ(modify(QpType::rc, QpState::rtr, QpState::rts, kRtsRc), 0);
}

TEST(Attributes, MissesEachRequiredOne) {
  const auto each = [](QpType type, QpState from, QpState to, std::uint32_t mask) {
    for (std::uint32_t bit = 2; bit < (1U << 21); bit <<= 1) {
      if ((mask & bit) != 0) {
        EXPECT_EQ(modify(type, from, to, mask & ~bit), EINVAL) << bit;
      }
    }
  };
  each(QpType::rc, QpState::reset, QpState::init, kInitRc);
  each(QpType::rc, QpState::init, QpState::rtr, kRtrRc);
  each(QpType::rc, QpState::rtr, QpState::rts, kRtsRc);
  each(QpType::uc, QpState::init, QpState::rtr,
       kMaskState | kMaskAddress | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn);
  each(QpType::ud, QpState::reset, QpState::init,
       kMaskState | kMaskPkeyIndex | kMaskPort | kMaskQkey);
  each(QpType::ud, QpState::rtr, QpState::rts, kMaskState | kMaskSqPsn);
}

TEST(Attributes, RefusesWhatIsForAnother) {
  EXPECT_EQ(modify(QpType::uc, QpState::init, QpState::rtr, kRtrRc), EINVAL);
  EXPECT_EQ(modify(QpType::rc, QpState::reset, QpState::init, kInitRc | kMaskQkey), EINVAL);
  EXPECT_EQ(modify(QpType::ud, QpState::rtr, QpState::rts, kRtsRc), EINVAL);
}

// From (rows) to (columns): reset, init, rtr, rts, sqd, sqe, error; with no attributes but what is
// required.
TEST(Attributes, AllowsTheseTransitions) {
  constexpr bool kLegal[7][7] = {{true, true, false, false, false, false, false},
                                 {true, true, true, false, false, false, true},
                                 {true, false, false, true, false, false, true},
                                 {true, false, false, true, true, false, true},
                                 {true, false, false, true, true, false, true},
                                 {true, false, false, false, false, false, true},
                                 {true, false, false, false, false, false, true}};
  for (std::uint8_t from = 0; from < 7; ++from) {
    for (std::uint8_t to = 0; to < 7; ++to) {
      std::uint32_t mask = kMaskState;
      if (to == 1 && from == 0) {
        mask = kInitRc;
      } else if (to == 2) {
        mask = kRtrRc;
      } else if (to == 3 && from == 2) {
        mask = kRtsRc;
      }
      const int error =
          modify(QpType::rc, static_cast<QpState>(from), static_cast<QpState>(to), mask);
      EXPECT_EQ(error == 0, kLegal[from][to]) << int{from} << " to " << int{to};
    }
  }
  EXPECT_EQ(modify(QpType::ud, QpState::sqe, QpState::rts, kMaskState), 0);
  EXPECT_EQ(modify(QpType::uc, QpState::sqe, QpState::rts, kMaskState), 0);
}

TEST(Attributes, RefusesBadValues) {
  const auto with = [](auto change) {
    QpAttributes attributes;
    attributes.state = QpState::rtr;
    change(attributes);
    return check_modify(QpType::rc, QpState::init, kRtrRc, attributes, {.max_path_mtu = 3});
  };
  EXPECT_EQ(with([](QpAttributes&) {}), 0);
  EXPECT_EQ(with([](QpAttributes& to) { to.path_mtu = 0; }), EINVAL);
  EXPECT_EQ(with([](QpAttributes& to) { to.path_mtu = 4; }), EINVAL);
  EXPECT_EQ(with([](QpAttributes& to) { to.min_rnr_timer = 32; }), EINVAL);
  EXPECT_EQ(with([](QpAttributes& to) { to.max_dest_reads = 129; }), EINVAL);
  EXPECT_EQ(with([](QpAttributes& to) { to.address.source_index = 1; }), EINVAL);
  // Where a transition has room for it.
  QpAttributes claimed;
  claimed.state = QpState::rtr;
  claimed.current_state = QpState::init;
  EXPECT_EQ(check_modify(QpType::rc, QpState::init, kRtrRc, claimed, {}), 0);
  EXPECT_EQ(check_modify(QpType::rc, QpState::init, kRtrRc | kMaskCurrentState, claimed, {}),
            EINVAL);
  QpAttributes attributes;
  attributes.state = QpState::rts;
  attributes.current_state = QpState::sqd;
  EXPECT_EQ(check_modify(QpType::rc, QpState::rts, kMaskState | kMaskCurrentState, attributes, {}),
            EINVAL);
}

}  // namespace
}  // namespace weft::roce
