// Owns whose socket a unix datagram carrier may take: only one that nobody holds any more. A name
// in the file system stays when its process is killed, and cannot be bound again before it is
// removed; but one that is in use must not be taken from under its owner.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "srd/io/dgram_io.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::srd {
namespace {

class DgramTest : public ::testing::Test {
 protected:
  weft::testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string own_ = folder_ + "/own";
  const std::string peer_ = folder_ + "/peer";
};

TEST_F(DgramTest, ASocketThatIsInUseIsRefusedAndStays) {
  auto first = DgramIo::create({.local = own_, .remote = peer_});
  ASSERT_TRUE(first);
  const auto second = DgramIo::create({.local = own_, .remote = folder_ + "/another"});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("socket '" + own_ + "' is another process's"),
            std::string::npos)
      << second.error().message;
  EXPECT_TRUE(std::filesystem::is_socket(own_));
  first->reset();
  EXPECT_TRUE(DgramIo::create({.local = own_, .remote = peer_}));
}

// A datagram socket cannot connect to these, which must not be taken for a sign that nobody holds
// them.
TEST_F(DgramTest, SocketsOfOtherTypesStay) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, own_.c_str(), own_.size());
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const int listener = ::socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener, 1), 0);
    EXPECT_FALSE(DgramIo::create({.local = own_, .remote = peer_}));
    EXPECT_TRUE(std::filesystem::is_socket(own_));
    ::close(listener);
    ::unlink(own_.c_str());
  }
}

TEST_F(DgramTest, ASocketThatNobodyHoldsIsReplaced) {
  const int left = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, own_.c_str(), own_.size());
  ASSERT_EQ(::bind(left, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(left);  // without removing the name, as when a process is killed
  EXPECT_TRUE(DgramIo::create({.local = own_, .remote = peer_}));
}

}  // namespace
}  // namespace weft::srd
