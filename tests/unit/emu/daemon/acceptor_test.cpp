// Owns the test that accepting connections leaves the rest of the control thread its turn, however
// many clients connect at once.
#include "emu/daemon/acceptor.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "srd/io/posix.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::daemon {
namespace {

constexpr int kCrowd = 100;  // several turns, and less than a listener's backlog may be
constexpr int kTurn = 16;    // connections that one turn accepts, as docs/security.md says

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  return address;
}

srd::UniqueFd new_socket() { return srd::UniqueFd(::socket(AF_UNIX, SOCK_STREAM, 0)); }

// All clients have connected before the acceptor is made, so that every turn finds more of them
// than it may take. Handlers run one by one: what each of them accepted is counted.
TEST(Acceptor, LeavesOthersTheirTurnHoweverManyConnect) {
  const testing::TemporaryFolder folder;
  const sockaddr_un address = address_of(folder.path() + "/s");
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  srd::UniqueFd listener = new_socket();
  ASSERT_EQ(::bind(listener.get(), name, sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), kCrowd), 0);
  std::vector<srd::UniqueFd> crowd;
  for (int i = 0; i < kCrowd; ++i) {
    crowd.push_back(new_socket());
    ASSERT_EQ(::connect(crowd.back().get(), name, sizeof address), 0);
  }

  boost::asio::io_context io;
  SideThreads side(io);
  ASSERT_TRUE(side.start());
  std::vector<ClientSocket> taken;
  const Acceptor acceptor(io, side, std::move(listener),
                          {.take = [&](ClientSocket socket) { taken.push_back(std::move(socket)); },
                           .refuse = [](int, std::string_view) { FAIL(); }});
  // What another client has asked for: it waits in the same queue as the next turn of accepting.
  std::size_t turns_of_others = 0;
  while (taken.size() < kCrowd) {
    const std::size_t before = taken.size();
    boost::asio::post(io, [&] { ++turns_of_others; });
    ASSERT_GT(io.run_one_for(std::chrono::seconds{20}), 0U);
    ASSERT_LE(taken.size() - before, std::size_t{kTurn});
  }
  EXPECT_GE(turns_of_others, std::size_t{kCrowd / kTurn});
}

}  // namespace
}  // namespace weft::daemon
