// Tests of NIC descriptions, GIDs, the device tree and profiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "emu/kernel/nic_description.hpp"
#include "emu/kernel/sysfs.hpp"
#include "emu/profiles/profiles.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::emu::kernel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NicText, SurvivesTheRoundTrip) {
  NicDescription nic;
  nic.name = "efa_3";
  nic.address = "fd00::1";
  nic.part_id = 0xEFA2;
  nic.rdma_write = false;
  nic.forced_reorder = 9;
  EXPECT_EQ(nic_from_text(to_text(nic)).value(), nic);
}

TEST(NicText, ErrorsNameTheLine) {
  for (const char* const bad : {"name efa\nspeed 9\n", "name efa\nmtu\n", "name efa\nmtu 12x\n",
                                "name efa\nrdma_read yes\n", "name efa\nmtu 99999999999\n"}) {
    const auto result = nic_from_text(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_NE(result.error().message.find("line 2"), std::string::npos);
  }
}

TEST(Gid, LeadsBackToTheAddress) {
  for (const char* const text : {"10.1.2.3", "127.77.1.1", "255.255.255.255", "fd00::5"}) {
    const srd::Address address = *parse_address(text);
    EXPECT_EQ(address_of(gid_of(address)), address) << text;
  }
  const srd::Address gid = gid_of(*parse_address("10.1.2.3"));
  EXPECT_EQ(gid.bytes[0], std::byte{0xFE});  // link-local, as EFA's are
  EXPECT_EQ(gid.bytes[1], std::byte{0x80});
  EXPECT_FALSE(parse_address("10.1.2"));
}

class Tree : public ::testing::Test {
 protected:
  [[nodiscard]] std::string line(const std::string& path) const {
    std::ifstream file(root + path);
    std::string text;
    std::getline(file, text);
    return text;
  }
  testing::TemporaryFolder folder;
  const std::string root = folder.path();
};

TEST_F(Tree, HoldsWhatTheLibrariesRead) {
  NicDescription rails[2];
  rails[1].index = 1;
  rails[1].name = "efa_1";
  rails[1].address = "10.0.0.2";
  rails[1].part_id = 0xEFA2;
  ASSERT_TRUE(write_device_tree(root, rails));
  EXPECT_EQ(line("/sys/class/infiniband_verbs/abi_version"), "6");
  EXPECT_EQ(line("/sys/class/infiniband_verbs/uverbs1/ibdev"), "efa_1");
  EXPECT_EQ(line("/sys/class/infiniband_verbs/uverbs1/dev"), "231:193");
  EXPECT_EQ(line("/sys/class/infiniband/efa_1/device/modalias"),
            "pci:v00001D0Fd0000EFA2sv00001D0Fsd0000EFA2bc02sc00i00");
  EXPECT_EQ(line("/sys/class/infiniband/efa_1/ports/1/gids/0"),
            "fe80:0000:0000:0000:020a:00ff:fe00:0002");
  EXPECT_NE(line("/sys/class/infiniband/efa_0/board_id").find("EMULATED"), std::string::npos);
  EXPECT_EQ(
      std::filesystem::canonical(root + "/sys/class/infiniband/efa_1/device/driver").filename(),
      "efa");
  EXPECT_EQ(std::filesystem::canonical(root + "/sys/class/infiniband/efa_1/device").filename(),
            pci_address(rails[1]));
  std::ifstream text(root + "/nic1");
  const std::string all(std::istreambuf_iterator<char>(text), {});
  EXPECT_EQ(nic_from_text(all).value(), rails[1]);
}

TEST(Profiles, AllAreReadableAndDiffer) {
  ASSERT_GE(profile_names().size(), 4U);
  for (const std::string& name : profile_names()) {
    const auto nic = load_profile(name);
    ASSERT_TRUE(nic) << nic.error().message;
    EXPECT_EQ(nic->profile, name);
    // Descriptors are counted in 16 bits, and 0xefa2 without RDMA read makes libfabric abort.
    EXPECT_LE(nic->max_rq_wr * nic->max_rq_sge, 32768U);
    EXPECT_TRUE(nic->rdma_read || nic->part_id < 0xEFA2);
  }
  EXPECT_FALSE(load_profile("base")->rdma_read);
  EXPECT_TRUE(load_profile("read")->rdma_read);
  EXPECT_FALSE(load_profile("read")->rdma_write);
  EXPECT_TRUE(load_profile("full")->unsolicited_write);
  EXPECT_GT(load_profile("reorder")->forced_reorder, 0U);
}

// A whole profile of good values, but for one field: the line of YAML instead of it, or nothing.
std::string profile_with(const std::string& field, const std::string& line) {
  std::string text = "profile: x\nfields:\n";
  const NicDescription good;
  const std::string all = to_text(good);
  for (const std::string& name : profile_fields()) {
    const std::size_t at = all.find("\n" + name + " ") + 1;
    const std::string value =
        all.substr(at + name.size() + 1, all.find('\n', at) - at - name.size() - 1);
    text += "  ";
    text += name == field ? line : name + ": {value: " + value + ", mark: fact}";
    text += "\n";
  }
  return text;
}
std::string with_value(const std::string& field, const std::string& value) {
  return profile_with(field, field + ": {value: " + value + ", mark: assumption}");
}
std::string mistake(const std::string& text) {
  const auto profile = parse_profile(text, "my.yaml");
  EXPECT_FALSE(profile) << text;
  return profile ? "" : profile.error().message;
}

TEST(Profiles, MistakesAreExplained) {
  EXPECT_NE(load_profile("nosuch").error().message.find("readwrite"), std::string::npos);
  EXPECT_FALSE(load_profile("/nonexistent/x.yaml"));
  EXPECT_FALSE(parse_profile("profile: x\n", "x"));
  EXPECT_FALSE(parse_profile(": : {", "x"));
  ASSERT_TRUE(parse_profile(profile_with("", ""), "x"));
  EXPECT_EQ(parse_profile(with_value("mtu", "0x400"), "x")->mtu, 0x400U);
  EXPECT_THAT(mistake(profile_with("mtu", "mtu: 9")),
              AllOf(HasSubstr("my.yaml:13: "), HasSubstr("field mtu")));
  EXPECT_THAT(mistake(profile_with("mtu", "mtu: {value: 900}")), HasSubstr("mark"));
  EXPECT_THAT(mistake(profile_with("mtu", "mtu: {mark: fact}")), HasSubstr("value"));
  EXPECT_THAT(mistake(profile_with("mtu", "mtu: {value: 900, mark: guess}")), HasSubstr("mark"));
  EXPECT_THAT(mistake(with_value("mtu", "many")), AllOf(HasSubstr("field mtu"), HasSubstr("many")));
  EXPECT_THAT(mistake(with_value("mtu", "0xfg")), HasSubstr("0xfg"));
  EXPECT_THAT(mistake(with_value("rdma_read", "2")), HasSubstr("field rdma_read"));
  EXPECT_THAT(mistake(with_value("mtu", "900") + "  warp: {value: 9, mark: fact}\n"),
              AllOf(HasSubstr("field warp"), HasSubstr("max_rq_sge")));
  EXPECT_THAT(mistake(with_value("mtu", "900") + "  mtu: {value: 800, mark: fact}\n"),
              AllOf(HasSubstr("field mtu"), HasSubstr("twice")));
  EXPECT_THAT(mistake(with_value("mtu", "900") + "  address: {value: 10.0.0.1, mark: fact}\n"),
              HasSubstr("field address"));
}

TEST(Profiles, SayEverything) {
  for (const std::string& field : profile_fields()) {
    EXPECT_THAT(mistake(profile_with(field, "")), AllOf(HasSubstr("missing"), HasSubstr(field)));
  }
}

struct Bound {
  const char* field;
  std::vector<const char*> allowed;
  std::vector<const char*> refused;
};
void PrintTo(const Bound& bound, std::ostream* out) { *out << bound.field; }
class ProfileBounds : public ::testing::TestWithParam<Bound> {};

TEST_P(ProfileBounds, AreCheckedWhenItIsLoaded) {
  const Bound& bound = GetParam();
  for (const char* const value : bound.allowed) {
    const auto profile = parse_profile(with_value(bound.field, value), "x");
    EXPECT_TRUE(profile) << profile.error().message;
  }
  for (const char* const value : bound.refused) {
    EXPECT_THAT(mistake(with_value(bound.field, value)),
                AllOf(HasSubstr("my.yaml"), HasSubstr(bound.field), HasSubstr("allowed")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ProfileBounds,
    ::testing::Values(Bound{"part_id", {"0xefa0", "0xefa1", "0xefa4"}, {"0xef9f", "0xefa5", "0"}},
                      Bound{"mtu", {"256", "8928"}, {"255", "8929"}},
                      Bound{"max_rdma_size", {"1", "0x40000000"}, {"0", "0x40000001"}},
                      Bound{"inline_size", {"0", "32"}, {"33", "4294967295"}},
                      Bound{"inline_size_wide", {"0", "32", "80"}, {"81", "31"}},
                      Bound{"max_sq_wr", {"1", "4096", "32768"}, {"0", "3000", "65536"}},
                      Bound{"max_rq_wr", {"1", "10922"}, {"0", "10923", "32768"}},
                      Bound{"max_sq_sge", {"1", "2"}, {"0", "3"}},
                      Bound{"max_rq_sge", {"1", "2", "3"}, {"0", "4"}},
                      Bound{"max_qp", {"1", "100", "256"}, {"0", "257"}},
                      Bound{"max_cq", {"1", "65535"}, {"0", "65536"}},
                      Bound{"max_cqe", {"1", "32768"}, {"0", "32769"}},
                      Bound{"max_mr", {"1", "65536"}, {"0", "65537"}},
                      Bound{"max_pd", {"1", "65535"}, {"0", "65536"}},
                      Bound{"max_ah", {"1", "65535"}, {"0", "65536"}},
                      Bound{"paths", {"1", "256"}, {"0", "257"}},
                      Bound{"forced_reorder", {"0", "1024"}, {"1025"}},
                      Bound{"gbps", {"1", "800"}, {"0"}},
                      Bound{"rdma_write", {"true"}, {"false"}}),  // unsolicited writes need it
    [](const auto& test) { return std::string(test.param.field); });

// libfabric takes reads for granted from 0xefa2 on, and aborts.
TEST(Profiles, NewIdsCanRead) {
  EXPECT_TRUE(parse_profile(with_value("rdma_read", "false"), "x"));  // 0xefa1
  std::string text = with_value("rdma_read", "false");
  text.replace(text.find("part_id: {value: 61345"), 22, "part_id: {value: 0xefa2");
  EXPECT_THAT(mistake(text), HasSubstr("rdma_read"));
}

}  // namespace
}  // namespace weft::emu::kernel
