// Tests of the device tree.
//
// The tree is a folder that looks like the parts of /sys and /dev that verbs libraries read. The
// test reads it as they do, by path.
#include "emu/devices/device_tree.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "emu/devices/efa/abilities.hpp"
#include "emu/devices/efa/personality.hpp"
#include "emu/kernel/sysfs/sysfs.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::devices {
namespace {

// EFA devices that are called efa_0, efa_1, ... and have neighbouring addresses.
class Tree : public ::testing::Test {
 protected:
  [[nodiscard]] std::string line(const std::string& path) const {
    std::ifstream file(root + path);
    std::string text;
    std::getline(file, text);
    return text;
  }
  static kernel::NicDescription nic(std::uint32_t index) {
    kernel::NicDescription nic;
    nic.kind = "efa";
    nic.name = "efa_" + std::to_string(index);
    nic.index = index;
    nic.address = "10.0.0." + std::to_string(index + 1);
    return nic;
  }
  testing::TemporaryFolder folder;
  const std::string root = folder.path();
};

// A file that is cut short would make a library see another device, or none; the error names the
// file.
TEST_F(Tree, ADiskThatIsFullIsNoticed) {
  const std::string file = "/sys/class/infiniband_verbs/abi_version";
  std::filesystem::create_directories((root + file).substr(0, (root + file).rfind('/')));
  // One file of the tree leads to a device on which every write fails.
  std::filesystem::create_symlink("/dev/full", root + file);
  const kernel::NicDescription one = nic(0);
  const auto written = write_device_tree(root, efa::kPersonality, {&one, 1});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find(file), std::string::npos);
}

// The provider library is chosen by modalias, so that has to be right to the letter.
TEST_F(Tree, HoldsWhatTheLibrariesRead) {
  kernel::NicDescription rails[2] = {nic(0), nic(1)};
  efa::Abilities abilities;
  abilities.part_id = 0xEFA2;
  rails[1].abilities = efa::to_text(abilities);
  ASSERT_TRUE(write_device_tree(root, efa::kPersonality, rails));
  EXPECT_EQ(line("/sys/class/infiniband_verbs/abi_version"), "6");
  EXPECT_EQ(line("/sys/class/infiniband_verbs/uverbs1/ibdev"), "efa_1");
  EXPECT_EQ(line("/sys/class/infiniband_verbs/uverbs1/dev"), "231:193");
  EXPECT_EQ(line("/sys/class/infiniband/efa_1/device/modalias"),
            "pci:v00001D0Fd0000EFA2sv00001D0Fsd0000EFA2bc02sc00i00");
  // Link-local, made of an Ethernet address that is made of 10.0.0.2.
  EXPECT_EQ(line("/sys/class/infiniband/efa_1/ports/1/gids/0"),
            "fe80:0000:0000:0000:020a:00ff:fe00:0002");
  EXPECT_NE(line("/sys/class/infiniband/efa_0/board_id").find("EMULATED"), std::string::npos);
  EXPECT_EQ(
      std::filesystem::canonical(root + "/sys/class/infiniband/efa_1/device/driver").filename(),
      "efa");
  EXPECT_EQ(std::filesystem::canonical(root + "/sys/class/infiniband/efa_1/device"),
            std::filesystem::path(root) / efa::kPersonality.device_folder(rails[1]));
  std::ifstream text(root + "/nic1");
  const std::string all(std::istreambuf_iterator<char>(text), {});
  EXPECT_EQ(kernel::nic_from_text(all).value(), rails[1]);
}

// Unknown abilities, an address that is none, a place where nothing can be written.
TEST_F(Tree, IsNotWrittenForWhatMakesNoSense) {
  kernel::NicDescription bad = nic(0);
  bad.abilities = "wings 2\n";
  EXPECT_FALSE(write_device_tree(root, efa::kPersonality, {&bad, 1}));
  bad = nic(0);
  bad.address = "nowhere";
  EXPECT_FALSE(write_device_tree(root, efa::kPersonality, {&bad, 1}));
  const kernel::NicDescription good = nic(0);
  EXPECT_FALSE(write_device_tree("/proc/version/below", efa::kPersonality, {&good, 1}));
}

// Changed while programs run: a fault takes the NIC's link down.
TEST_F(Tree, ShowsThePortsState) {
  const kernel::NicDescription one = nic(0);
  ASSERT_TRUE(write_device_tree(root, efa::kPersonality, {&one, 1}));
  const std::string port = "/sys/class/infiniband/efa_0/ports/1/";
  EXPECT_EQ(line(port + "state"), "4: ACTIVE");
  const kernel::PortStateFiles files(root, one);
  files.write(false);
  EXPECT_EQ(line(port + "state"), "1: DOWN");
  EXPECT_EQ(line(port + "phys_state"), "3: Disabled");
  files.write(true);
  EXPECT_EQ(line(port + "state"), "4: ACTIVE");
  EXPECT_EQ(line(port + "phys_state"), "5: LinkUp");
}

}  // namespace
}  // namespace weft::devices
