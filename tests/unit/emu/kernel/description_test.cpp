// Tests of NIC descriptions, GIDs, the device tree and profiles.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "emu/kernel/nic_description.hpp"
#include "emu/kernel/sysfs.hpp"
#include "emu/profiles/profiles.hpp"

namespace weft::emu::kernel {
namespace {

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
  Tree() {
    std::string pattern = ::testing::TempDir() + "weft-tree-XXXXXX";
    root = mkdtemp(pattern.data());
  }
  ~Tree() override { std::filesystem::remove_all(root); }
  [[nodiscard]] std::string line(const std::string& path) const {
    std::ifstream file(root + path);
    std::string text;
    std::getline(file, text);
    return text;
  }
  std::string root;
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

TEST(Profiles, MistakesAreExplained) {
  EXPECT_NE(load_profile("nosuch").error().message.find("readwrite"), std::string::npos);
  EXPECT_FALSE(load_profile("/nonexistent/x.yaml"));
  EXPECT_FALSE(parse_profile("profile: x\n", "x"));
  EXPECT_FALSE(parse_profile("profile: x\nfields: {mtu: 9}\n", "x"));
  EXPECT_FALSE(parse_profile("profile: x\nfields: {mtu: {value: 9, mark: guess}}\n", "x"));
  EXPECT_FALSE(parse_profile("profile: x\nfields: {warp: {value: 9, mark: fact}}\n", "x"));
  EXPECT_FALSE(parse_profile(": : {", "x"));
  EXPECT_TRUE(parse_profile("profile: x\nfields: {mtu: {value: 0x400, mark: fact}}\n", "x"));
}

}  // namespace
}  // namespace weft::emu::kernel
