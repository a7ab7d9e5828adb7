// Owns the tests of what a weftd knows of the one before it: lives that were given, and places
// whose processes still run and will ask for them.
#include "emu/daemon/places.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "emu/daemon/place_registry.hpp"
#include "emu/daemon/plant.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::daemon {
namespace {

constexpr std::uint32_t kNow = 1000;  // seconds of the calendar; the tests take no time

// Several weftds one after the other, which share nothing but a file. Whether a process runs is
// asked of the kernel, so the dead ones are real.
class PlacesTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string file() const { return directory_ + "/places"; }
  // A weftd's NICs, and which process has which place on them. Its destructor is its death: all
  // that stays is the file.
  struct Weftd {
    std::unique_ptr<Plant> plant;
    PlaceRegistry registry;

    [[nodiscard]] PlantNic& nic() const { return *plant->nics().front(); }
    [[nodiscard]] Result<PlaceRegistry::Place> occupy(const PlaceRegistry::Wish& wish,
                                                      std::uint32_t now, std::int32_t process) {
      return registry.occupy(nic(), wish, now, process);
    }
  };
  [[nodiscard]] static Weftd without_memory(std::uint32_t nics = 1) {
    Plant::Options options;
    options.nics_per_host = nics;
    auto made = Plant::make(options);
    EXPECT_TRUE(made);
    auto plant = std::make_unique<Plant>(std::move(*made));
    PlaceRegistry registry(*plant);
    return {std::move(plant), std::move(registry)};
  }
  [[nodiscard]] Weftd weftd(std::uint32_t nics = 1) const {
    Weftd made = without_memory(nics);
    EXPECT_TRUE(made.registry.remember(file()));
    return made;
  }
  // The number of a process that has ended.
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

  testing::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
};

// weftd ran in a container, and the next one in another: a number that was a process there is none
// here, or another process. So all such places are kept free, whatever their numbers are now, and
// each is given to the process that names it and its life; until weftd waits no longer.
TEST_F(PlacesTest, NumbersOfAnotherPidNamespaceMeanNobody) {
  for (const std::int32_t number : {dead(), static_cast<std::int32_t>(::getpid())}) {
    std::filesystem::remove(file());
    const auto place = weftd().occupy({}, kNow, number);
    ASSERT_TRUE(place);
    {
      // The third word of the file stands for the pid namespace of the weftd that wrote it.
      std::fstream places(file(), std::ios::in | std::ios::out | std::ios::binary);
      const std::uint64_t elsewhere = 1;
      places.seekp(2 * sizeof elsewhere);
      places.write(reinterpret_cast<const char*>(&elsewhere), sizeof elsewhere);
    }
    Weftd next = weftd();
    next.registry.keep_unknown(true);
    for (std::size_t i = 2; i < kSlotsPerNic; ++i) {
      const auto other = next.occupy({}, kNow, ::getpid());
      ASSERT_TRUE(other);
      EXPECT_NE(other->id, place->id);
    }
    EXPECT_FALSE(next.occupy({}, kNow, ::getpid()));
    EXPECT_TRUE(next.occupy({.attachment = place->id, .life = place->life.value()}, kNow, 0));
    // After a while, weftd waits no longer for processes that have not come.
    Weftd last = weftd();
    EXPECT_FALSE(last.occupy({}, kNow, ::getpid()));
    last.registry.keep_unknown(false);
    EXPECT_TRUE(last.occupy({}, kNow, ::getpid()));
  }
}

// The clock stands still, so that lives have to be counted on where a place comes round.
TEST_F(PlacesTest, NoPlaceGetsTheSameLifeTwiceHoweverQuicklyWeftdIsRestarted) {
  std::set<std::pair<unsigned, std::uint32_t>> given;
  for (int start = 0; start < 600; ++start) {  // more often than there are places
    Weftd young = weftd();
    const auto slot = young.occupy({}, kNow, dead());
    ASSERT_TRUE(slot);
    const unsigned id = slot->id;
    for (const auto& [other, life] : given) {
      if (other == id) {
        EXPECT_TRUE(srd::Life{life}.before(slot->life));
      }
    }
    EXPECT_TRUE(given.emplace(id, slot->life.value()).second);
  }
}

// As many others come as there are places: all of them get another one, and the last gets none. The
// process that had the place comes late, and finds it.
TEST_F(PlacesTest, WhoeverStillRunsFindsItsPlaceFree) {
  std::uint32_t life = 0;
  std::uint16_t place = 0;
  {
    Weftd before = weftd();
    const auto slot = before.occupy({}, kNow, ::getpid());
    ASSERT_TRUE(slot);
    life = slot->life.value();
    place = slot->id;
  }
  Weftd after = weftd();
  for (std::size_t newcomers = 0; newcomers < kSlotsPerNic - 2; ++newcomers) {
    const auto slot = after.occupy({}, kNow, ::getpid());
    ASSERT_TRUE(slot);
    EXPECT_NE(slot->id, place);
  }
  EXPECT_FALSE(after.occupy({}, kNow, ::getpid()));
  const auto back = after.occupy({.attachment = place, .life = life}, kNow, ::getpid());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->life.value(), life);
}

// Half of the processes are dead, and the others gave their places back: all are free again.
TEST_F(PlacesTest, TheDeadAndTheDepartedLeaveTheirPlaces) {
  {
    Weftd before = weftd();
    for (std::size_t i = 0; i < kSlotsPerNic - 1; ++i) {
      const auto slot = before.occupy({}, kNow, i % 2 == 0 ? dead() : ::getpid());
      ASSERT_TRUE(slot);
      if (i % 2 != 0) {
        before.registry.vacate(*slot);
      }
    }
  }
  Weftd after = weftd();
  for (std::size_t i = 0; i < kSlotsPerNic - 1; ++i) {
    EXPECT_TRUE(after.occupy({}, kNow, ::getpid()));
  }
}

// Whether they still run cannot be asked: they keep all places at first, and none later on.
TEST_F(PlacesTest, ProcessesOfOtherNamespacesAreWaitedForOnlySoLong) {
  {
    Weftd before = weftd();
    for (std::size_t i = 0; i < kSlotsPerNic - 1; ++i) {
      ASSERT_TRUE(before.occupy({}, kNow, Places::kUnknown));
    }
  }
  Weftd after = weftd();
  EXPECT_FALSE(after.occupy({}, kNow, ::getpid()));
  after.registry.keep_unknown(false);
  EXPECT_TRUE(after.occupy({}, kNow, ::getpid()));
}

// The file was written for two NICs. Read for one, it would give a later life than the clock says.
TEST_F(PlacesTest, AnotherNetworksFileOrNonsenseIsForgotten) {
  {
    Weftd before = weftd(2);
    ASSERT_TRUE(before.occupy({}, 5 * kNow, ::getpid()));
  }
  Weftd smaller = weftd(1);
  const auto first = smaller.occupy({}, kNow, ::getpid());
  ASSERT_TRUE(first);
  EXPECT_EQ(first->life.value(), kNow);
  std::ofstream(file(), std::ios::trunc) << "garbage";
  Weftd after = weftd(1);
  EXPECT_TRUE(after.occupy({}, kNow, ::getpid()));
}

// A process in another one's place would get its packets, and speak in its name. The owner is the
// parent of this process, which still runs.
TEST_F(PlacesTest, NobodyGetsAPlaceBackThatWasNotItsOwn) {
  const pid_t owner = ::getppid();
  PlaceRegistry::Place had;
  {
    Weftd before = weftd();
    const auto place = before.occupy({}, kNow, owner);
    ASSERT_TRUE(place);
    had = *place;
  }
  const std::uint32_t life = had.life.value();
  Weftd after = weftd();
  const auto asks = [&](std::uint32_t id, std::uint32_t of_life, pid_t process) {
    const auto place = after.occupy({.attachment = id, .life = of_life}, kNow, process);
    if (place) {
      after.registry.vacate(*place);
    }
    return place.has_value();
  };
  EXPECT_FALSE(asks(had.id, life, ::getpid()));  // its owner still runs
  EXPECT_FALSE(asks(had.id, life + 1, owner));   // that life was never given out
  EXPECT_FALSE(asks(had.id, life - 1, owner));
  EXPECT_FALSE(asks(had.id, 0, owner));
  EXPECT_FALSE(asks(kSlotsPerNic, life, owner));
  EXPECT_FALSE(asks(0xFFFFFFFF, life, owner));
  // Of other places nothing is known, so a process is believed; but not a life of the far future.
  const std::uint32_t other = had.id + 1U;
  EXPECT_FALSE(asks(other, kNow + (1U << 30), owner));
  EXPECT_FALSE(asks(other, kNow + 0x7FFFFFFFU, owner));
  EXPECT_TRUE(asks(other, kNow + 5, owner));
  EXPECT_TRUE(asks(had.id, life, owner));
}

// In places that are looked at for one that is free: the control thread is busy meanwhile.
TEST_F(PlacesTest, TheCostOfOneMorePlaceIsBounded) {
  Weftd busy = without_memory();
  std::vector<PlaceRegistry::Place> places;
  for (std::size_t i = 1; i < kSlotsPerNic; ++i) {
    const std::uint64_t before = busy.registry.looked_at();
    const auto place = busy.occupy({}, kNow, ::getpid());
    ASSERT_TRUE(place);
    EXPECT_EQ(busy.registry.looked_at() - before, 1U);
    places.push_back(*place);
  }
  // Full: everything is looked at once. One free place: found again, however many come and go.
  std::uint64_t before = busy.registry.looked_at();
  EXPECT_FALSE(busy.occupy({}, kNow, ::getpid()));
  EXPECT_EQ(busy.registry.looked_at() - before, kSlotsPerNic - 1);
  before = busy.registry.looked_at();
  for (int round = 0; round < 100; ++round) {
    busy.registry.vacate(places[7]);
    ASSERT_TRUE(busy.occupy({}, kNow, ::getpid()));
  }
  EXPECT_LE(busy.registry.looked_at() - before, 100U * (kSlotsPerNic - 1));
}

TEST_F(PlacesTest, AFileThatCannotBeMadeIsSaidSo) {
  Weftd made = without_memory();
  const auto remembered = made.registry.remember(directory_ + "/not/there");
  ASSERT_FALSE(remembered);
  EXPECT_NE(remembered.error().message.find("/not/there"), std::string::npos);
}

}  // namespace
}  // namespace weft::daemon
