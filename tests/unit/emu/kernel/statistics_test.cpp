// Tests of the counters that all processes on a NIC share.
//
// A NIC's counters (those below /sys and `rdma statistic`) are the NIC's, not a process's. Every
// process counts in a slot of its own in a mapped file, without locks; whoever asks gets the sum.
// Slots of processes that have ended still count.
#include "emu/kernel/statistics.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/emu/kernel/raw_client.hpp"

namespace weft::kernel {
namespace {

struct Sheep {
  std::uint64_t black = 0;
  std::uint64_t white = 0;
};

class SheepCounters final : public CounterSet {
 public:
  void visit(Place /*place*/, const Statistics& statistics, const Visit& visit) const override {
    visit("white", statistics.own.as<Sheep>().white);
  }
  [[nodiscard]] Traffic traffic(const Statistics& /*statistics*/) const override { return {}; }
};

// A kind of device that counts sheep: the file knows nothing of what is counted.
class SharedCounters : public ::testing::Test {
 protected:
  SharedCounters() { EXPECT_TRUE(make_statistics_file(path, "sheep")); }
  [[nodiscard]] Statistics sum() const {
    const auto file = StatisticsFile::open(path);
    EXPECT_TRUE(file);
    return file->sum(SheepCounters());
  }
  // As another process on the NIC, which has ended when this returns.
  template <class Work>
  void in_a_child(const Work& work) {
    const pid_t child = fork();
    if (child == 0) {
      Statistics* const own = claim_statistics(path);
      work(*own);
      _exit(0);
    }
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/nic";
};

TEST_F(SharedCounters, AreTheSumOverProcessesDeadOrAlive) {
  Statistics* const own = claim_statistics(path);
  ASSERT_NE(own, nullptr);
  own->own.make<Sheep>().white = 5;
  own->commands.failed = 1;
  own->live.qps = 3;
  in_a_child([](Statistics& other) {
    other.own.make<Sheep>() = {.black = 7, .white = 1'000'000'000'000};
    other.commands.failed = 2;
    other.live.qps = 4;
  });
  const Statistics all = sum();
  EXPECT_EQ(all.own.as<Sheep>().black, 7U);
  EXPECT_EQ(all.own.as<Sheep>().white, 1'000'000'000'005U);
  EXPECT_EQ(all.commands.failed, 3U);
  EXPECT_EQ(all.live.qps, 3U) << "objects of dead processes are no more";
}

// Every process sees the link go down; a process that comes later has missed it.
TEST_F(SharedCounters, ALinkThatWentDownOnceIsCountedOnce) {
  Statistics* const first = claim_statistics(path);
  Statistics* const second = claim_statistics(path);
  ++first->link_downed;
  // Both have seen the same link go down.
  ++second->link_downed;
  EXPECT_EQ(sum().link_downed, 1U);
  in_a_child([](Statistics& later) { ++later.link_downed; });
  EXPECT_EQ(sum().link_downed, 2U);
  Statistics* const last = claim_statistics(path);
  ++last->link_downed;
  EXPECT_EQ(sum().link_downed, 3U);
}

// Who touches a hole of a mapped file where there is no room is killed by the kernel.
TEST_F(SharedCounters, OnAFullDiskAProcessIsNotCountedAndLives) {
  // The code of a test that was skipped.
  constexpr int kCannot = 77;
  const pid_t child = fork();
  if (child == 0) {
    const std::string disk = folder.path() + "/disk";
    std::filesystem::create_directory(disk);
    if (::unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
      _exit(kCannot);
    }
    const std::string counters = disk + "/nic";
    int code = make_statistics_file(counters, "sheep") ? 0 : 1;
    std::ofstream filler(disk + "/filler");
    // Until there is no room: the counters' file exists, but has no blocks of the disk.
    while (filler << std::string(512, 'x') << std::flush) {
    }
    std::size_t counted = 0;
    for (int i = 0; i < 100; ++i) {
      Statistics* const own = claim_statistics(counters);
      counted += own != nullptr ? 1 : 0;
    }
    const Statistics all = StatisticsFile::open(counters)->sum(SheepCounters());
    code += counted == 100 ? 2 : 0;  // then it was not full
    code += static_cast<int>(all.link_downed);
    filler.close();
    std::filesystem::remove(disk + "/filler");
    code += claim_statistics(counters) == nullptr ? 4 : 0;
    _exit(code);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) {
    GTEST_SKIP() << "this machine does not allow mounts in a namespace";
  }
  EXPECT_EQ(status, 0);
}

// A name has 28 bytes with its end; a longer one is cut and does not run into what follows.
TEST_F(SharedCounters, KnowTheirKind) {
  EXPECT_EQ(StatisticsFile::open(path)->kind(), "sheep");
  ASSERT_TRUE(make_statistics_file(path, std::string(1000, 'x')));
  EXPECT_EQ(StatisticsFile::open(path)->kind(), std::string(27, 'x'));
}

TEST_F(SharedCounters, AreNotInOtherFiles) {
  EXPECT_FALSE(StatisticsFile::open(folder.path() + "/none"));
  EXPECT_EQ(claim_statistics(folder.path() + "/none"), nullptr);
  EXPECT_FALSE(StatisticsFile::open(folder.path()));
  const auto whole = std::filesystem::file_size(path);
  // A file that is too short would be a crash at the first count.
  for (const auto size : {std::uintmax_t{0}, std::uintmax_t{1}, whole - 1, whole + 1}) {
    std::filesystem::resize_file(path, size);
    EXPECT_FALSE(StatisticsFile::open(path)) << size;
    EXPECT_EQ(claim_statistics(path), nullptr) << size;
  }
}

TEST_F(SharedCounters, GoNowhereWhenAllSlotsAreTaken) {
  std::vector<Statistics*> slots;
  for (Statistics* slot = claim_statistics(path); slot != nullptr; slot = claim_statistics(path)) {
    slot->own.make<Sheep>().white = 1;
    slots.push_back(slot);
    ASSERT_LT(slots.size(), 10'000U);
  }
  EXPECT_EQ(claim_statistics(path), nullptr);
  EXPECT_EQ(sum().own.as<Sheep>().white, slots.size());
}

class CountedCommands : public RawClient {};

TEST_F(CountedCommands, ErrorsAreCountedByKind) {
  open_context();
  const std::uint32_t pd = alloc_pd();
  std::array<std::uint32_t, 3> keys{};
  EXPECT_EQ(reg_mr(pd + 9, &keys, sizeof keys, 1, keys), ENOENT);
  const CommandCounters& counters = runner.device.statistics().commands;
  // The context, the domain, and the region that was refused.
  EXPECT_EQ(counters.submitted, 3U);
  EXPECT_EQ(counters.failed, 1U);
  EXPECT_EQ(counters.failed_mrs, 1U);
  EXPECT_EQ(counters.failed_qps, 0U);
}

class CountedPort : public RawClient {};

TEST_F(CountedPort, TheLinkIsCountedWhenItGoesDownAndNotAsItWasFound) {
  Device& device = runner.device;
  device.begin_with_port_state(false);
  EXPECT_EQ(device.statistics().link_downed, 0U);
  device.set_port_state(true);
  device.set_port_state(false);
  device.set_port_state(false);
  EXPECT_EQ(device.statistics().link_downed, 1U);
}

}  // namespace
}  // namespace weft::kernel
