// Owns whole runs of the harness over real plugins: right data passes, planted bugs do not.
#include "integration/collectives/session.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "integration/collectives/bug_net.hpp"

namespace weft::collectives {
namespace {

SessionOptions small(const char* plugin) {
  SessionOptions options;
  options.plugin = plugin;
  options.smallest = 0;
  options.largest = 300'000;
  options.step = 100'001;
  options.iterations = 2;
  options.json = true;
  options.buffers.simple = std::size_t{256} << 10;
  return options;
}

// The ranks as processes: each plugin has one life per process. 0: all went well.
int run(const SessionOptions& options) {
  const std::size_t size = Board::bytes(options.ranks, options.channels);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Board& board = Board::create(memory, options.ranks, options.channels);
  std::vector<pid_t> ranks;
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
    ranks.push_back(::fork());
    if (ranks.back() == 0) {
      ::unsetenv("WEFT_SOCKET");
      (void)::freopen("/dev/null", "w", stdout);
      bool good = false;
      try {
        good = run_session(options, rank, board);
      } catch (const std::exception& error) {
        board.give_up(error.what());
      }
      ::_exit(good ? 0 : 1);
    }
  }
  int failed = 0;
  for (const pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed += status == 0 ? 0 : 1;
  }
  if (failed != 0) {
    ::testing::Test::RecordProperty("reason", board.reason());
  }
  ::munmap(memory, size);
  return failed;
}

class EveryOperation : public ::testing::TestWithParam<int> {};

TEST_P(EveryOperation, DISABLED_IsRightOverUdpTcpAndMemory) {
  for (const char* plugin : {WEFT_PLUGIN, WEFT_TCP_PLUGIN, WEFT_MEMORY_PLUGIN}) {
    SessionOptions options = small(plugin);
    options.operation = static_cast<Operation>(GetParam());
    options.ranks = 3;
    EXPECT_EQ(run(options), 0) << to_string(options.operation) << " over " << plugin;
  }
}
INSTANTIATE_TEST_SUITE_P(Operations, EveryOperation, ::testing::Range(0, 7));

TEST(Session, EveryVersionOfTheInterface) {
  for (int version = 6; version <= 12; ++version) {
    SessionOptions options = small(WEFT_PLUGIN);
    options.version = version;
    options.largest = 100'001;
    EXPECT_EQ(run(options), 0) << "version " << version;
  }
}

TEST(Session, DISABLED_PlantedBugsAreFound) {
  for (const std::string& bug : names_of_bugs()) {
    SessionOptions options = small(WEFT_TCP_PLUGIN);
    options.smallest = options.largest = 1 << 20;
    options.bug = bug;
    options.patience = 20;
    EXPECT_NE(run(options), 0) << bug;
  }
}

TEST(Session, PluginThatIsNotThereIsSaid) {
  EXPECT_FALSE(load_net("/nowhere/libnccl-net.so", std::nullopt).has_value());
  EXPECT_FALSE(load_net(WEFT_TCP_PLUGIN, 9).has_value());
  EXPECT_TRUE(load_net(WEFT_TCP_PLUGIN, 8).has_value());
}

}  // namespace
}  // namespace weft::collectives
