// Owns the tests of what the plugin through shared memory leaves behind. It is one of the
// yardsticks beside weft's own plugin; nothing in /dev/shm may outlive a job.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "integration/collectives/net.hpp"

namespace weft::collectives {
namespace {

std::set<std::string> names_of_shared_memory() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find("nccl") != std::string::npos) {
      names.insert(name);
    }
  }
  return names;
}

TEST(MemoryPlugin, LeavesNothingOfAListenerThatWasKilled) {
  const auto before = names_of_shared_memory();
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto loaded = load_net(WEFT_MEMORY_PLUGIN, std::nullopt);
    Handle handle{};
    void* listener = nullptr;
    if (loaded && loaded->net->listen(0, handle, listener) == nccl::abi::kSuccess) {
      ::raise(SIGKILL);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it could not listen";
  EXPECT_EQ(names_of_shared_memory(), before);
}

TEST(MemoryPlugin, RefusesAHandleThatLeadsToSomethingElse) {
  auto loaded = load_net(WEFT_MEMORY_PLUGIN, std::nullopt);
  ASSERT_TRUE(loaded);
  for (const int fd : {-1, 0, 1}) {
    Handle handle{};
    // A handle says in which process which descriptor is; here it is one that leads to no memory of
    // the plugin's.
    const std::int32_t place[] = {::getpid(), fd};
    std::memcpy(handle.data(), place, sizeof place);
    void* connection = nullptr;
    EXPECT_EQ(loaded->net->connect(0, handle, connection), nccl::abi::kRemoteError) << fd;
    EXPECT_EQ(connection, nullptr);
  }
}

}  // namespace
}  // namespace weft::collectives
