// Owns what command lines and options say about hosts and their devices.
//
// `{h1.ip}` and its like in a program's words, `--device efa:first` and lists of kinds, and what a
// network that is up has been told about its devices.
#include "emu/launch/host_environment.hpp"

#include <gtest/gtest.h>

#include <string>

#include "emu/attach/protocol.hpp"
#include "emu/devices/registry.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/emu/daemon/weftd.hpp"

namespace weft::launch {
namespace {

// Addresses are asked of a weftd, so a test needs one.
class PlaceholderTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string filled(const std::string& word) const {
    const auto text = fill_placeholders(folder_.path(), word, DeviceKind{});
    EXPECT_TRUE(text) << word << ": " << text.error().message;
    return text.value_or("");
  }
  static daemon::DaemonOptions options(const std::string& directory) {
    daemon::DaemonOptions options;
    options.directory = directory;
    options.plant.hosts = {"h1", "h2"};
    return options;
  }

  const testing::TemporaryFolder folder_;
  const daemon::Weftd weftd_{options(folder_.path())};
};

TEST_F(PlaceholderTest, HostsGetTheirAddresses) {
  EXPECT_EQ(filled("{h1.ip}"), "127.77.1.1");
  EXPECT_EQ(filled("to={h2.ip}:5000,{h1.ip}"), "to=127.77.2.1:5000,127.77.1.1");
  EXPECT_EQ(filled("{h1.gid}").substr(0, 6), "fe80::");
  EXPECT_EQ(filled("[{h1.dev}]"), "[]");  // there is none
}

// Shells, JSON and format strings have braces of their own; only what is exactly a host's
// placeholder is replaced.
TEST_F(PlaceholderTest, OtherBracesAreThePrograms) {
  for (const char* word : {"", "{", "}", "{}", "{h1}", "{h1.ip", "{h1.mac}", "{x.ip}", "{.ip}",
                           "{ h1.ip }", "a{b}c", "${HOME}", "{\"a\": 1}"}) {
    EXPECT_EQ(filled(word), word);
  }
  EXPECT_EQ(filled("{{h1.ip}}"), "{127.77.1.1}");
  EXPECT_EQ(filled("{a}{h1.ip}{"), "{a}127.77.1.1{");
}

// Unlike other braces, this one can only be meant for us.
TEST_F(PlaceholderTest, AHostThatIsNotThereIsAMistake) {
  const auto text = fill_placeholders(folder_.path(), "{h3.ip}", DeviceKind{});
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("there is no host 'h3'"), std::string::npos)
      << text.error().message;
}

TEST(Devices, AreKindsWithProfilesOrNone) {
  EXPECT_FALSE(*parse_device_kind("none"));
  for (const char* name : {"efa", "efa:first"}) {
    const auto kind = parse_device_kind(name);
    ASSERT_TRUE(kind && *kind) << name;
    EXPECT_EQ((*kind)->kind->kind(), "efa");
  }
  const auto none = parse_device_kind("ufo");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("efa, efa:PROFILE, rxe, rxe:PROFILE, or none"),
            std::string::npos)
      << none.error().message;
  EXPECT_FALSE(parse_device_kind("efa:nosuch"));
}

TEST(Devices, HaveTheNamesOfTheirKindOrTheUsers) {
  EXPECT_EQ(parse_device_kind("rxe").value()->device_name(1), "rxe_1");
  EXPECT_EQ(parse_device_kind("rxe", "mlx5_{n}").value()->device_name(1), "mlx5_1");
  EXPECT_FALSE(parse_device_kind("rxe", "a/b"));
  EXPECT_FALSE(parse_device_kind("none", "mlx5_{n}"));
}

// A host with several NICs gets the kinds one after the other, and each kind counts its own
// devices, as a driver does: so rxe_0, efa_0, rxe_1.
TEST(Devices, OfSeveralKindsTakeTurns) {
  const auto kinds = parse_device_kind("rxe,efa:first");
  ASSERT_TRUE(kinds && *kinds);
  EXPECT_EQ(least_nics(*kinds), 2U);
  const auto name = [&](std::size_t nic) { return (*kinds)->device_name(nic).value_or("none"); };
  EXPECT_EQ(name(0), "rxe_0");
  EXPECT_EQ(name(1), "efa_0");
  EXPECT_EQ(name(2), "rxe_1");
  EXPECT_EQ((*kinds)->of_nic(3).name, "first");
  EXPECT_EQ(payload_of(*kinds), payload_of(*parse_device_kind("efa:first")));
  // A kind that comes twice in a turn goes on counting.
  const auto twice = parse_device_kind("rxe,efa,rxe").value();
  for (const auto& [nic, wanted] :
       {std::pair{0, "rxe_0"}, {1, "efa_0"}, {2, "rxe_1"}, {3, "rxe_2"}, {4, "efa_1"}}) {
    EXPECT_EQ(twice->device_name(static_cast<std::size_t>(nic)).value(), wanted) << nic;
  }
  EXPECT_FALSE(parse_device_kind("rxe,ufo"));
  EXPECT_FALSE(parse_device_kind("rxe,none"));
  EXPECT_FALSE(parse_device_kind("rxe,"));
}

// Those that `weft up` was told; of other devices than its, their own.
TEST(Devices, OfANetworkThatIsUpAreWhatHasBeenNoted) {
  const testing::TemporaryFolder folder;
  const auto name = [&](const char* device, const char* names) {
    const auto kind = device_of_network(folder.path(), device, names);
    return kind && *kind ? (*kind)->device_name(0).value_or("none") : "";
  };
  EXPECT_EQ(name("", ""), "efa_0");
  ASSERT_TRUE(note_device(folder.path(), "rxe", "mlx5_{n}"));
  EXPECT_EQ(name("", ""), "mlx5_0");
  EXPECT_EQ(name("", "mlx4_{n}"), "mlx4_0");
  EXPECT_EQ(name("efa", ""), "efa_0");
  ASSERT_TRUE(note_device(folder.path(), "efa"));
  EXPECT_EQ(name("", ""), "efa_0");
}

// The transport's own packets have to pass, too.
TEST(Devices, AreOnANetworkThatCarriesAcknowledgements) {
  EXPECT_EQ(payload_of(DeviceKind{}), 0U);  // weftd's own choice
  auto kind = parse_device_kind("efa").value();
  // The MTU of an EFA device; what is larger never leaves it.
  EXPECT_EQ(payload_of(kind), 8928U);
  const std::string large = "\nmtu 8928\n";
  // A device with so small an MTU needs less than the transport's largest acknowledgement does.
  kind->abilities.replace(kind->abilities.find(large), large.size(), "\nmtu 300\n");
  ASSERT_TRUE(kind->kind->validate(kind->abilities));
  EXPECT_EQ(payload_of(kind), attach::kLeastPayload);
}

}  // namespace
}  // namespace weft::launch
