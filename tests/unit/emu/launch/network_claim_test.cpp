// Owns what a claim of a network promises: one at a time, and no directory without a network.
//
// `weft up` and `weft down` of one name may run at the same time. A claim is a lock on the
// network's directory; it is let go at the end of the claim, or of its process.
#include "emu/launch/network_claim.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <utility>

#include "srd/io/posix.hpp"
#include "tests/unit/emu/launch/runtime_folder.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

class NetworkClaimTest : public InRuntimeFolder {
 protected:
  // As another process would find it: flock() belongs to an open file, so this one counts as
  // another's.
  static bool is_free(const std::string& directory) {
    const srd::UniqueFd other(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return other && ::flock(other.get(), LOCK_EX | LOCK_NB) == 0;
  }
};

TEST_F(NetworkClaimTest, OfANetworkThatDidNotComeUpNothingStays) {
  std::string directory;
  {
    const auto claim = NetworkClaim::take("lab", true);
    ASSERT_TRUE(claim) << claim.error().message;
    directory = claim->directory();
    EXPECT_TRUE(fs::is_directory(directory));
    EXPECT_FALSE(is_free(directory));
    std::ofstream(directory + "/weftd.log") << "it did not start\n";
  }
  EXPECT_FALSE(fs::exists(directory));
}

TEST_F(NetworkClaimTest, WhatIsKeptOrWasThereBeforeStays) {
  std::string directory;
  {
    auto claim = NetworkClaim::take("lab", true);
    ASSERT_TRUE(claim) << claim.error().message;
    directory = claim->directory();
    std::ofstream(directory + "/weftd.log") << "it serves\n";
    claim->keep();
  }
  EXPECT_TRUE(is_free(directory));
  {
    const auto again = NetworkClaim::take("lab", false);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_FALSE(is_free(directory));
  }
  EXPECT_TRUE(fs::exists(directory + "/weftd.log"));
}

TEST_F(NetworkClaimTest, WithoutANetworkThereIsNothingToClaim) {
  const auto claim = NetworkClaim::take("lab", false);
  ASSERT_FALSE(claim);
  EXPECT_EQ(claim.error().code, ErrorCode::not_found);
  EXPECT_FALSE(NetworkClaim::take("../lab", true));
}

// Also where the first one takes the directory away that the second one waits for.
TEST_F(NetworkClaimTest, TheSecondComesAfterTheFirst) {
  for (const bool kept : {false, true}) {
    auto first = NetworkClaim::take("lab", true);
    ASSERT_TRUE(first) << first.error().message;
    std::optional<NetworkClaim> holder(std::move(*first));
    const std::string directory = holder->directory();
    std::ofstream(directory + "/weftd.log") << "first\n";
    // It waits in a thread for the lock of a directory that the first one may remove meanwhile:
    // then it must not take the lock of a directory that is gone.
    auto second = std::async(std::launch::async, [] { return NetworkClaim::take("lab", true); });
    if (kept) {
      holder->keep();
    }
    holder.reset();
    const auto claim = second.get();
    ASSERT_TRUE(claim) << claim.error().message;
    EXPECT_EQ(claim->directory(), directory);
    EXPECT_FALSE(is_free(directory));
    EXPECT_EQ(fs::exists(directory + "/weftd.log"), kept);
  }
}

}  // namespace
}  // namespace weft::launch
