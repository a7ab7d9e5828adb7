// Owns what a weftd knows of the one before it: lives that were given, places whose processes still
// run.
#include "emu/daemon/places.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "emu/daemon/plant.hpp"

namespace weft::emu {
namespace {

constexpr std::uint32_t kNow = 1000;  // of the calendar: all that happens here does at once

class PlacesTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/weft-places-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string file() const { return directory_ + "/places"; }
  [[nodiscard]] Plant plant(std::uint32_t nics = 1) const {
    Plant::Options options;
    options.nics_per_host = nics;
    auto made = Plant::make(options);
    EXPECT_TRUE(made);
    EXPECT_TRUE(made->remember(file()));
    return std::move(*made);
  }
  static Nic& nic_of(Plant& plant) { return *plant.nics().front(); }
  // A process that has ended.
  static std::int32_t dead() {
    static const pid_t once = [] {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::_exit(0);
      }
      ::waitpid(pid, nullptr, 0);
      return pid;
    }();
    return once;
  }

  std::string directory_;
};

TEST_F(PlacesTest, NoPlaceGetsTheSameLifeTwiceHoweverQuicklyWeftdIsRestarted) {
  std::set<std::pair<unsigned, std::uint32_t>> given;
  for (int start = 0; start < 600; ++start) {  // more often than there are places
    Plant young = plant();
    const auto slot = young.occupy(nic_of(young), {}, kNow, dead());
    ASSERT_TRUE(slot);
    const unsigned id = (*slot)->id;
    for (const auto& [other, life] : given) {
      if (other == id) {
        EXPECT_TRUE(srd::Life{life}.before((*slot)->life));
      }
    }
    EXPECT_TRUE(given.emplace(id, (*slot)->life.value()).second);
  }
}

TEST_F(PlacesTest, WhoeverStillRunsFindsItsPlaceFree) {
  std::uint32_t life = 0;
  std::uint16_t place = 0;
  {
    Plant before = plant();
    const auto slot = before.occupy(nic_of(before), {}, kNow, ::getpid());
    ASSERT_TRUE(slot);
    life = (*slot)->life.value();
    place = (*slot)->id;
  }
  Plant after = plant();
  for (std::size_t newcomers = 0; newcomers < kSlotsPerNic - 2; ++newcomers) {
    const auto slot = after.occupy(nic_of(after), {}, kNow, ::getpid());
    ASSERT_TRUE(slot);
    EXPECT_NE((*slot)->id, place);
  }
  EXPECT_FALSE(after.occupy(nic_of(after), {}, kNow, ::getpid()));
  const auto back =
      after.occupy(nic_of(after), {.attachment = place, .life = life}, kNow, ::getpid());
  ASSERT_TRUE(back);
  EXPECT_EQ((*back)->life.value(), life);
}

TEST_F(PlacesTest, TheDeadAndTheDepartedLeaveTheirPlaces) {
  {
    Plant before = plant();
    for (std::size_t i = 0; i < kSlotsPerNic - 1; ++i) {
      const auto slot = before.occupy(nic_of(before), {}, kNow, i % 2 == 0 ? dead() : ::getpid());
      ASSERT_TRUE(slot);
      if (i % 2 != 0) {
        before.vacate(**slot);
      }
    }
  }
  Plant after = plant();
  for (std::size_t i = 0; i < kSlotsPerNic - 1; ++i) {
    EXPECT_TRUE(after.occupy(nic_of(after), {}, kNow, ::getpid()));
  }
}

TEST_F(PlacesTest, ProcessesOfOtherNamespacesAreWaitedForOnlySoLong) {
  {
    Plant before = plant();
    for (std::size_t i = 0; i < kSlotsPerNic - 1; ++i) {
      ASSERT_TRUE(before.occupy(nic_of(before), {}, kNow, Places::kUnknown));
    }
  }
  Plant after = plant();
  EXPECT_FALSE(after.occupy(nic_of(after), {}, kNow, ::getpid()));
  after.keep_unknown(false);
  EXPECT_TRUE(after.occupy(nic_of(after), {}, kNow, ::getpid()));
}

TEST_F(PlacesTest, AnotherNetworksFileOrNonsenseIsForgotten) {
  {
    Plant before = plant(2);
    ASSERT_TRUE(before.occupy(nic_of(before), {}, 5 * kNow, ::getpid()));
  }
  Plant smaller = plant(1);
  const auto first = smaller.occupy(nic_of(smaller), {}, kNow, ::getpid());
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)->life.value(), kNow);
  std::ofstream(file(), std::ios::trunc) << "garbage";
  Plant after = plant(1);
  EXPECT_TRUE(after.occupy(nic_of(after), {}, kNow, ::getpid()));
}

TEST_F(PlacesTest, AFileThatCannotBeMadeIsSaidSo) {
  auto made = Plant::make(Plant::Options{});
  ASSERT_TRUE(made);
  const auto remembered = made->remember(directory_ + "/not/there");
  ASSERT_FALSE(remembered);
  EXPECT_NE(remembered.error().message.find("/not/there"), std::string::npos);
}

}  // namespace
}  // namespace weft::emu
