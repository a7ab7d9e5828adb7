// Owns whole runs of the harness over real plugins: right data passes, planted bugs do not.
//
// The ranks are real processes, the plugins real libraries: weft's over UDP, the TCP yardstick, and
// the one in memory. Sizes are small and odd, so that every border of a slot is passed.
#include "integration/collectives/session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "integration/collectives/bug_net.hpp"
#include "integration/collectives/rank_processes.hpp"
#include "integration/collectives/trace_net.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::collectives {
namespace {

using ::testing::HasSubstr;

SessionOptions small(const char* plugin) {
  SessionOptions options;
  options.plugin = plugin;
  options.smallest = 0;
  options.largest = 300'000;
  options.step = 100'001;
  options.iterations = 2;
  options.json = true;
  options.buffers.simple = std::size_t{256} << 10;
  options.buffers.ll = std::size_t{64} << 10;
  options.buffers.ll128 = std::size_t{128} << 10;
  return options;
}

struct Outcome {
  bool good = false;
  std::string reason;
};

// The ranks as processes: each plugin has one life per process.
Outcome run(const SessionOptions& options) {
  const std::size_t size = Board::bytes(options.ranks, options.channels);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Board& board = Board::create(memory, options.ranks, options.channels);
  RankProcesses ranks(board, {.run =
                                  [&](std::uint32_t rank) {
                                    // Once in a process, whose ranks may be threads.
                                    static const bool quiet = [] {
                                      ::unsetenv("WEFT_SOCKET");
                                      return ::freopen("/dev/null", "w", stdout) != nullptr;
                                    }();
                                    (void)quiet;
                                    try {
                                      return run_session(options, rank, board) ? 0 : 1;
                                    } catch (const std::exception& error) {
                                      board.give_up(error.what());
                                      return 1;
                                    }
                                  },
                              .threads = options.threads});
  std::string complaints;
  const bool good =
      ranks.wait({.patience = options.patience_time(),
                  .complain = [&](const std::string& text) { complaints += text + "\n"; }});
  const Outcome outcome{good, board.reason() + complaints};
  ::munmap(memory, size);
  return outcome;
}

class EveryOperation : public ::testing::TestWithParam<int> {};

TEST_P(EveryOperation, IsRightOverUdpTcpAndMemory) {
  for (const char* plugin : {WEFT_PLUGIN, WEFT_TCP_PLUGIN, WEFT_MEMORY_PLUGIN}) {
    SessionOptions options = small(plugin);
    options.operation = static_cast<NcclOperation>(GetParam());
    options.ranks = options.operation == NcclOperation::hypercube ? 4 : 3;
    const Outcome outcome = run(options);
    EXPECT_TRUE(outcome.good) << to_string(options.operation) << " over " << plugin << ": "
                              << outcome.reason;
  }
}
INSTANTIATE_TEST_SUITE_P(Operations, EveryOperation, ::testing::Range(0, 10));

// The receiver looks into its slots before anybody has told it that a message is complete.
TEST(Session, LowLatencyProtocolsAndTreesAreRight) {
  for (const char* plugin : {WEFT_PLUGIN, WEFT_TCP_PLUGIN, WEFT_MEMORY_PLUGIN}) {
    for (int protocol = 0; protocol < 3; ++protocol) {
      for (const NcclOperation operation :
           {NcclOperation::all_reduce, NcclOperation::reduce_scatter, NcclOperation::broadcast,
            NcclOperation::reduce}) {
        SessionOptions options = small(plugin);
        options.operation = operation;
        options.protocol = static_cast<Protocol>(protocol);
        options.algorithm =
            operation == NcclOperation::all_reduce ? Algorithm::tree : Algorithm::ring;
        options.ranks = 3;
        options.type = Type::bfloat16;
        options.reduction = Reduction::avg;
        const Outcome outcome = run(options);
        EXPECT_TRUE(outcome.good) << to_string(operation) << " by " << kProtocolNames[protocol]
                                  << " over " << plugin << ": " << outcome.reason;
      }
    }
  }
}

// Also with a number of ranks that is no power of two.
TEST(Session, PatIsRight) {
  for (const char* plugin : {WEFT_PLUGIN, WEFT_TCP_PLUGIN, WEFT_MEMORY_PLUGIN}) {
    for (const std::uint32_t ranks : {2U, 3U, 5U, 8U}) {
      for (const NcclOperation operation :
           {NcclOperation::all_gather, NcclOperation::reduce_scatter}) {
        SessionOptions options = small(plugin);
        options.operation = operation;
        options.algorithm = Algorithm::pat;
        options.ranks = ranks;
        options.threads = ranks == 8 ? 4 : 1;
        options.reduction = Reduction::avg;
        const Outcome outcome = run(options);
        EXPECT_TRUE(outcome.good) << to_string(operation) << " of " << ranks << " over " << plugin
                                  << ": " << outcome.reason;
      }
    }
  }
}

// Ranks of one process share a NIC, its lock and its connections to itself.
TEST(Session, RanksAreRightAsThreadsOfOneProcessAndOfTwo) {
  for (const char* plugin : {WEFT_PLUGIN, WEFT_TCP_PLUGIN, WEFT_MEMORY_PLUGIN}) {
    for (const std::uint32_t threads : {4U, 2U}) {
      for (const NcclOperation operation :
           {NcclOperation::all_reduce, NcclOperation::alltoall, NcclOperation::hypercube}) {
        SessionOptions options = small(plugin);
        options.operation = operation;
        options.ranks = 4;
        options.threads = threads;
        const Outcome outcome = run(options);
        EXPECT_TRUE(outcome.good) << to_string(operation) << " of " << threads << " threads over "
                                  << plugin << ": " << outcome.reason;
      }
    }
  }
}

// NCCL may call in any order that the interface allows: chaos refuses, delays and reorders calls by
// a seed. The result must be the same.
TEST(Session, ChaosOfCallsChangesNothing) {
  for (const char* plugin : {WEFT_PLUGIN, WEFT_TCP_PLUGIN, WEFT_MEMORY_PLUGIN}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SessionOptions options = small(plugin);
      options.operation = seed % 2 == 0 ? NcclOperation::all_reduce : NcclOperation::alltoall;
      options.protocol = seed == 4 ? Protocol::ll : Protocol::simple;
      options.ranks = 3;
      options.threads = seed == 3 ? 3 : 1;
      options.chaos = seed;
      const Outcome outcome = run(options);
      EXPECT_TRUE(outcome.good) << plugin << ", seed " << seed << ": " << outcome.reason;
    }
  }
}

// Many small messages with flags, looked at by two threads while a third one receives.
TEST(Session, LinesAreWholeWhereThreadsShareANic) {
  for (const Protocol protocol : {Protocol::ll, Protocol::ll128}) {
    SessionOptions options = small(WEFT_PLUGIN);
    options.protocol = protocol;
    options.algorithm = Algorithm::tree;
    options.ranks = 4;
    options.threads = 2;
    options.iterations = 20;
    const Outcome outcome = run(options);
    EXPECT_TRUE(outcome.good) << kProtocolNames[static_cast<int>(protocol)] << ": "
                              << outcome.reason;
  }
}

// The plugins of others make progress in their calls alone: nothing of theirs can linger.
TEST(Session, WhatLingersAfterItsEndIsFound) {
  for (const std::uint64_t seed : {1U, 2U}) {
    SessionOptions options = small(WEFT_PLUGIN);
    options.largest = 100'001;
    options.chaos = seed;
    options.bug = "linger";
    const Outcome outcome = run(options);
    EXPECT_FALSE(outcome.good) << seed;
    EXPECT_THAT(outcome.reason, HasSubstr("after deregMr")) << seed;
  }
}

// One plugin exports a table for each; NCCL takes the newest that it knows.
TEST(Session, EveryVersionOfTheInterface) {
  for (int version = 6; version <= 12; ++version) {
    SessionOptions options = small(WEFT_PLUGIN);
    options.version = version;
    options.largest = 100'001;
    const Outcome outcome = run(options);
    EXPECT_TRUE(outcome.good) << "version " << version << ": " << outcome.reason;
  }
}

// Only a rank that looks into a buffer before its message is complete sees what is torn.
TEST(Session, TornLinesAreFound) {
  for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
    for (const char* plugin : {WEFT_PLUGIN, WEFT_TCP_PLUGIN}) {
      SessionOptions options = small(plugin);
      options.protocol = protocol;
      options.bug = "torn";
      const Outcome outcome = run(options);
      EXPECT_EQ(outcome.good, protocol == Protocol::simple)
          << kProtocolNames[static_cast<int>(protocol)];
      EXPECT_EQ(outcome.reason, "") << "it is a matter of data";
    }
  }
}

// One line of JSON for each request of each rank, and each of them ended.
TEST(Session, TraceHasEveryRequest) {
  const std::string file = ::testing::TempDir() + "weft-trace-" + std::to_string(::getpid());
  SessionOptions options = small(WEFT_TCP_PLUGIN);
  options.smallest = options.largest = 100'000;
  options.iterations = 1;
  options.warm_up = 0;
  options.check = false;
  options.trace = file;
  begin_trace(file);
  EXPECT_TRUE(run(options).good);
  end_trace(file);
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  ::unlink(file.c_str());
  const auto count = [&](const std::string& word) {
    std::size_t found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_TRUE(text.starts_with("[\n{")) << text.substr(0, 80);
  EXPECT_TRUE(text.ends_with("}\n]\n"));
  EXPECT_EQ(count("process_name"), 2U);
  EXPECT_GT(count("isend"), 0U);
  EXPECT_EQ(count("isend"), count("irecv"));
  EXPECT_EQ(count("{\"ph\""), count("\n{\"ph\"")) << "one entry to a line";
  EXPECT_EQ(count("{\"ph\":\"X\""), count("isend") + count("irecv"));
}

// A harness that finds nothing wrong is worth nothing until it is shown that it would. Two bugs
// need chaos or flags, and have tests of their own.
TEST(Session, PlantedBugsAreFound) {
  for (const std::string& bug : names_of_bugs()) {
    if (bug == "torn" || bug == "linger") {
      continue;
    }
    SessionOptions options = small(WEFT_TCP_PLUGIN);
    options.smallest = options.largest = 1 << 20;
    options.bug = bug;
    options.patience = bug == "hang" ? 1 : 20;
    const Outcome outcome = run(options);
    EXPECT_FALSE(outcome.good) << bug;
    if (bug == "hang") {
      EXPECT_THAT(outcome.reason, HasSubstr("in a call of test that does not return"));
    }
  }
}

// By wrong data or a plugin's error, not by a rank that crashes.
TEST(Session, PlantedBugsAreFoundWithFlagsInTheData) {
  for (const Protocol protocol : {Protocol::ll, Protocol::ll128}) {
    for (const std::string bug : {"matching", "order", "reuse", "torn"}) {
      SessionOptions options = small(WEFT_TCP_PLUGIN);
      options.protocol = protocol;
      options.smallest = options.largest = 1 << 20;
      options.bug = bug;
      options.patience = 2;
      const Outcome outcome = run(options);
      EXPECT_FALSE(outcome.good) << bug << kProtocolNames[static_cast<int>(protocol)];
      EXPECT_THAT(outcome.reason, Not(HasSubstr("signal"))) << bug;
    }
  }
}

// They have the oldest table alone.
TEST(Session, PluginWithoutDevicesOrInitIsSaid) {
  const auto loaded = load_net(WEFT_PLUGIN_WITHOUT_DEVICES, std::nullopt);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->version, 6);
  const Outcome empty = run(small(WEFT_PLUGIN_WITHOUT_DEVICES));
  EXPECT_FALSE(empty.good);
  EXPECT_THAT(empty.reason, HasSubstr("has no device"));
  const Outcome failing = run(small(WEFT_PLUGIN_WITHOUT_INIT));
  EXPECT_FALSE(failing.good);
  EXPECT_THAT(failing.reason, HasSubstr("init: ncclInternalError"));
}

// Returns what went wrong first; 0: nothing.
int live_three_times(const char* plugin) {
  ::unsetenv("WEFT_SOCKET");
  for (int life = 0; life < 3; ++life) {
    const auto first = load_net(plugin, std::nullopt);
    const auto second = load_net(plugin, std::nullopt);
    if (!first || !second) {
      return 1;
    }
    for (const auto* one : {&*first, &*second}) {
      int devices = 0;
      if (one->net->init() != nccl::abi::kSuccess ||
          one->net->devices(devices) != nccl::abi::kSuccess || devices < 1) {
        return 2;
      }
    }
    if (first->net->finalize() != nccl::abi::kSuccess) {
      return 3;
    }
    Properties properties;  // the other one goes on
    if (second->net->properties(0, properties) != nccl::abi::kSuccess || properties.name.empty()) {
      return 4;
    }
    if (second->net->finalize() != nccl::abi::kSuccess) {
      return 5;
    }
  }
  return 0;
}

// The first init finds no network, the second one does, and the only finalize() is the last one:
// that one writes the report. Returns what went wrong first; 0: nothing.
int live_after_a_failure(const std::string& report) {
  ::setenv("WEFT_SOCKET", "/nonexistent/socket", 1);
  ::setenv("WEFT_NCCL_REPORT", report.c_str(), 1);
  const auto loaded = load_net(WEFT_PLUGIN, std::nullopt);
  if (!loaded || loaded->net->init() == nccl::abi::kSuccess) {
    return 1;
  }
  ::unsetenv("WEFT_SOCKET");
  Handle handle{};
  void* listener = nullptr;
  if (loaded->net->init() != nccl::abi::kSuccess ||
      loaded->net->listen(0, handle, listener) != nccl::abi::kSuccess ||
      loaded->net->close_listener(listener) != nccl::abi::kSuccess) {
    return 2;
  }
  return loaded->net->finalize() == nccl::abi::kSuccess && std::filesystem::exists(report) ? 0 : 3;
}

TEST(Session, AnInitThatFailsIsNoUser) {
  const weft::testing::TemporaryFolder folder;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit(live_after_a_failure(folder.path() + "/report.json"));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "step " << WEXITSTATUS(status);
}

// NCCL opens the same file again for other tables of its, and a communicator may come when the last
// one has gone.
TEST(Session, PluginLivesThroughSeveralLivesOfItsUsers) {
  for (const char* plugin : {WEFT_PLUGIN, WEFT_TCP_PLUGIN, WEFT_MEMORY_PLUGIN}) {
    const pid_t pid = ::fork();  // so that this process has no device that its children may not use
    if (pid == 0) {
      ::_exit(live_three_times(plugin));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status)) << plugin;
    EXPECT_EQ(WEXITSTATUS(status), 0) << plugin;
  }
}

TEST(Session, PluginThatIsNotThereIsSaid) {
  EXPECT_FALSE(load_net("/nowhere/libnccl-net.so", std::nullopt).has_value());
  EXPECT_FALSE(load_net(WEFT_TCP_PLUGIN, 9).has_value());
  EXPECT_TRUE(load_net(WEFT_TCP_PLUGIN, 8).has_value());
}

}  // namespace
}  // namespace weft::collectives
