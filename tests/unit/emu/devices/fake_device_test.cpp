// Tests that nothing outside a device's own folder knows which kinds of devices there are: the
// smallest kind is described, comes up, and answers commands.
#include "tests/unit/emu/devices/fake_device.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <tuple>

#include "emu/devices/device_tree.hpp"
#include "emu/devices/profiles.hpp"
#include "emu/kernel/uverbs/file.hpp"
#include "srd/io/memory_io.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::devices {
namespace {

// It is in no list of kinds: what works with it works with any that a folder may bring.
const fake::FakePersonality kFake;

// A profile is read by the fields that the kind says it has; the tree gets the files that all kinds
// have, and those that this one writes.
TEST(FakeDevice, HasProfilesAndATree) {
  const auto profile =
      parse_profile(kFake, "profile: odd\nfields: {wings: {value: 2, mark: fact}}\n", "x");
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->abilities, "wings 2\n");
  EXPECT_FALSE(
      parse_profile(kFake, "profile: odd\nfields: {wings: {value: 3, mark: fact}}\n", "x"));
  EXPECT_TRUE(profile_names(kFake).empty());

  const testing::TemporaryFolder folder;
  kernel::NicDescription nic;
  nic.kind = kFake.kind();
  nic.name = kFake.device_name(0);
  nic.abilities = profile->abilities;
  ASSERT_TRUE(write_device_tree(folder.path(), kFake, {&nic, 1}));
  EXPECT_TRUE(
      std::filesystem::exists(folder.path() + "/sys/class/infiniband/fake_0/ports/1/state"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/dev/infiniband/uverbs0"));
  EXPECT_TRUE(std::filesystem::exists(
      folder.path() + "/sys/class/infiniband/fake_0/ports/1/hw_counters/wing_beats"));
}

// As the preload library does it for a process that joins no network, whatever the kind.
TEST(FakeDevice, ComesUpOverACarrierOfItsProtocol) {
  Network network;
  network.address = srd::Address::v4(127, 1, 0, 9);
  // A socket on a loopback address, which needs nobody's permission.
  auto io = kFake.protocol().open_loopback(network.address, 9000);
  ASSERT_TRUE(io) << io.error().message;
  network.io = std::move(*io);
  const auto runner = kFake.start({}, std::move(network), nullptr);
  ASSERT_TRUE(runner) << runner.error().message;
  (*runner)->poll();
  EXPECT_EQ((*runner)->device().gids().size(), 2U);
}

// The fake device behind a device file, as a program would have it open.
class FakeFile : public ::testing::Test {
 protected:
  FakeFile() {
    Network network;
    network.address.bytes[15] = std::byte{9};
    std::tie(network.io, peer) = srd::MemoryIo::create_pair({}, {});
    auto started = kFake.start({}, std::move(network), nullptr);
    EXPECT_TRUE(started);
    runner = std::move(*started);
    file = std::make_unique<kernel::UverbsFile>(runner->device(), *runner, nullptr);
    fd = file->open();
  }
  template <class Reply>
  // As bytes: header, response address, words. Returns what write() would.
  int command(kernel::abi::Command number, Reply& reply, std::vector<std::uint32_t> words) {
    std::vector<std::uint32_t> bytes{static_cast<std::uint32_t>(number), 0, 0, 0};
    const auto address = reinterpret_cast<std::uint64_t>(&reply);
    std::memcpy(&bytes[2], &address, sizeof address);
    bytes.insert(bytes.end(), words.begin(), words.end());
    bytes[1] = static_cast<std::uint32_t>(bytes.size() | sizeof reply / 4 << 16);
    return static_cast<int>(file->write(fd, bytes.data(), bytes.size() * 4));
  }

  std::unique_ptr<srd::PacketIo> peer;
  std::unique_ptr<NicRunner> runner;
  std::unique_ptr<kernel::UverbsFile> file;
  int fd = -1;
};

// What the fake does not override is refused as Linux refuses what a driver lacks.
TEST_F(FakeFile, AnswersWhatItKnowsAndRefusesTheRest) {
  struct {
    std::uint32_t async_fd, vectors;
  } context{};
  ASSERT_GT(command(kernel::abi::Command::get_context, context, {0, 0}), 0);
  EXPECT_EQ(context.vectors, 1U);
  kernel::abi::QueryPort port{};
  ASSERT_GT(command(kernel::abi::Command::query_port, port, {1, 0}), 0);
  EXPECT_EQ(port.gid_tbl_len, 2U);
  std::uint32_t pd = 77;
  ASSERT_GT(command(kernel::abi::Command::alloc_pd, pd, {}), 0);
  std::array<std::uint32_t, 3> mr{};
  std::array<std::byte, 64> memory{};
  const auto start = reinterpret_cast<std::uint64_t>(&memory);
  const auto low = static_cast<std::uint32_t>(start);
  const auto high = static_cast<std::uint32_t>(start >> 32);
  EXPECT_EQ(command(kernel::abi::Command::reg_mr, mr, {low, high, 64, 0, low, high, pd, 0}),
            -EOPNOTSUPP);
}

struct GidTableCall {
  kernel::abi::IoctlHeader header{};
  kernel::abi::IoctlAttribute attributes[4] = {};
};

TEST_F(FakeFile, ShowsAllGids) {
  struct {
    std::uint32_t async_fd, vectors;
  } context{};
  ASSERT_GT(command(kernel::abi::Command::get_context, context, {0, 0}), 0);
  std::array<kernel::abi::GidEntry, 3> table{};
  std::uint64_t count = 0;
  const auto query = [&](std::size_t room) {
    GidTableCall call;
    call.header.length = sizeof call;
    // QUERY_GID_TABLE of the device; the attributes are the size of an entry, flags, the table, and
    // how many there are.
    call.header.method_id = 5;
    call.header.attributes = 4;
    call.header.driver_id = fake::kDriverId;
    const auto pointer = [](auto& to) { return reinterpret_cast<std::uint64_t>(&to); };
    const auto entries = static_cast<std::uint16_t>(room * sizeof table[0]);
    call.attributes[0] = {0, 8, 1, 0, sizeof table[0]};
    call.attributes[1] = {1, 4, 1, 0, 0};
    call.attributes[2] = {2, entries, 1, 0, pointer(table)};
    call.attributes[3] = {3, 8, 1, 0, pointer(count)};
    return file->ioctl(kernel::abi::kIoctl, reinterpret_cast<std::uint64_t>(&call));
  };
  EXPECT_EQ(query(1), -EINVAL);
  EXPECT_EQ(count, 0U);
  ASSERT_EQ(query(3), 0);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(table[1].index, 1U);
  EXPECT_EQ(table[1].type, 1U);
  EXPECT_EQ(table[1].interface, 7U);
  EXPECT_EQ(table[2].port, 0U);
}

// They are the methods of some other kind, though the number is in the range that kinds may use.
TEST_F(FakeFile, HasNoIoctlMethodsOfItsOwn) {
  struct {
    std::uint32_t async_fd, vectors;
  } context{};
  ASSERT_GT(command(kernel::abi::Command::get_context, context, {0, 0}), 0);
  kernel::abi::IoctlHeader call{};
  call.length = sizeof call;
  call.object_id = static_cast<std::uint16_t>(kernel::abi::IoctlObject::mr);
  call.method_id = kernel::abi::kFirstOwnIoctl;
  call.driver_id = fake::kDriverId;
  EXPECT_EQ(file->ioctl(kernel::abi::kIoctl, reinterpret_cast<std::uint64_t>(&call)),
            -EPROTONOSUPPORT);
}

// A device without a program that polls has a thread; its receiving is seen by the count of
// packets.
TEST_F(FakeFile, MakesProgressByItself) {
  // It waits there before the thread begins: the carrier is not made for two.
  srd::TxPacket packet;
  packet.header.fill(std::byte{0});
  packet.header_size = 64;
  ASSERT_EQ(peer->transmit({&packet, 1}), 1U);
  const auto received = [&] {
    std::size_t packets = 0;
    runner->exclusively(
        [&] { packets = static_cast<fake::FakeDevice&>(runner->device()).packets(); });
    return packets;
  };
  EXPECT_EQ(received(), 0U);
  runner->need_background();
  // Up to 20 s on a machine that is busy; usually one round.
  for (int i = 0; i < 20'000 && received() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  EXPECT_EQ(received(), 1U);
  runner->finish_before_exit(srd::kLongestEnd);
}

}  // namespace
}  // namespace weft::devices
