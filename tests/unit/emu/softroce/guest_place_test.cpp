// Owns the tests of where in a network a guest is put.
#include "emu/softroce/guest_place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "srd/io/posix.hpp"
#include "srd/net/address_text.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::softroce {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// What weftd would say of its ports is made up; whether somebody is at a port is asked of the
// kernel, so those sockets are real.
class GuestPlaceTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string port(const std::string& name, const std::string& host) const {
    const std::string path = folder_.path() + "/" + name;
    return "dgram:" + path + ".weftd," + path + ".guest" + (host.empty() ? "" : "@" + host);
  }
  // Two hosts, and ports of that name and host.
  [[nodiscard]] json status(const std::vector<std::pair<std::string, std::string>>& ports) const {
    json status{{"mtu", 4160},
                {"nics",
                 {{{"address", "10.77.1.1"}, {"host", "h1"}},
                  {{"address", "10.77.2.1"}, {"host", "h2"}},
                  {{"address", "10.77.2.2"}, {"host", "h2"}}}},
                {"ports", json::array()}};
    for (const auto& [name, host] : ports) {
      status["ports"].push_back({{"port", port(name, host)}, {"host", host}});
    }
    return status;
  }
  // A guest's end of that port.
  [[nodiscard]] srd::UniqueFd occupy(const std::string& name) const {
    srd::UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder_.path() + "/" + name + ".guest";
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  weft::testing::TemporaryFolder folder_;
};

// Hosts of a topology have names of its own.
TEST_F(GuestPlaceTest, IsOnTheLinkOfTheHostWithThatNumber) {
  json network = status({{"a", "left"}, {"b", "right"}});
  for (json& nic : network["nics"]) {
    nic["host"] = nic["host"] == "h1" ? "left" : "right";
  }
  for (const char* name : {"h2", "right"}) {
    const auto place = find_guest_place(network, name);
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(srd::to_text(place->address), "10.77.2.101");
    EXPECT_EQ(place->own_socket, folder_.path() + "/b.guest");
  }
  EXPECT_FALSE(find_guest_place(network, "middle"));
}

// Addresses of weftd are 10.77.HOST.NIC; two hosts are taken, so the guest is the third. Its MTU
// leaves room for RoCEv2's headers around weftd's payload.
TEST_F(GuestPlaceTest, IsTheNextHostOnAPortThatIsOnNoLink) {
  const auto place = find_guest_place(status({{"a", ""}}), "");
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(srd::to_text(place->address), "10.77.3.1");
  EXPECT_EQ(place->own_socket, folder_.path() + "/a.guest");
  EXPECT_EQ(place->network_socket, folder_.path() + "/a.weftd");
  EXPECT_EQ(place->mtu, 4200U);
}

// The same host with a number that no NIC of weftd's has: from 101 on.
TEST_F(GuestPlaceTest, IsBesideTheNicsOfTheHostOnWhoseLinkItIs) {
  const auto place = find_guest_place(status({{"a", "h2"}}), "");
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(srd::to_text(place->address), "10.77.2.101");
}

TEST_F(GuestPlaceTest, TakesThePortOnTheLinkOfTheHostThatIsAskedFor) {
  const auto place = find_guest_place(status({{"a", "h1"}, {"b", "h2"}}), "h2");
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->own_socket, folder_.path() + "/b.guest");
  EXPECT_EQ(srd::to_text(place->address), "10.77.2.101");
}

TEST_F(GuestPlaceTest, MayBeAHostOfItsOwnOnTheLinkOfAnother) {
  const auto place = find_guest_place(status({{"a", "h2"}}), "h7");
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(srd::to_text(place->address), "10.77.7.1");
}

// weftd does not know who is at the other end of a datagram socket; the bound socket tells.
TEST_F(GuestPlaceTest, IsNotWhereAnotherGuestIs) {
  const srd::UniqueFd other = occupy("a");
  const auto place = find_guest_place(status({{"a", "h1"}, {"b", ""}}), "");
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->own_socket, folder_.path() + "/b.guest");
  const auto none = find_guest_place(status({{"a", "h1"}}), "");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("no free port"));
}

// Names that are no host's; a network on loopback addresses, which a guest's kernel would keep to
// itself; no network at all; no number left.
TEST_F(GuestPlaceTest, SaysWhatIsWrong) {
  for (const char* host : {"3", "h", "h0", "h255", "h3x", "h-1", "host3", "h99999999999"}) {
    const auto place = find_guest_place(status({{"a", ""}}), host);
    ASSERT_FALSE(place) << host;
    EXPECT_THAT(place.error().message, HasSubstr("give h1 to h254"));
  }
  json loopback = status({{"a", ""}});
  loopback["nics"][0]["address"] = "127.78.1.1";
  const auto place = find_guest_place(loopback, "");
  ASSERT_FALSE(place);
  EXPECT_THAT(place.error().message, HasSubstr("--routable"));
  json without = status({{"a", ""}});
  without["nics"] = json::array();
  EXPECT_FALSE(find_guest_place(without, ""));
  json full = status({{"a", ""}});
  full["nics"][0]["address"] = "10.77.254.1";
  EXPECT_FALSE(find_guest_place(full, ""));
}

}  // namespace
}  // namespace weft::softroce
