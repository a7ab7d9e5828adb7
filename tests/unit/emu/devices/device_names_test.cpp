// Tests of the names that users give to devices.
//
// Programs are configured for devices by name (mlx5_0 in a cluster's settings, for instance), so
// users may name ours like those that their programs ask for.
#include "emu/devices/device_names.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weft::devices {
namespace {

std::string name_of(const char* names, std::size_t nic) {
  const auto read = DeviceNames::parse(names);
  EXPECT_TRUE(read) << names;
  return read ? read->of(nic).value_or("none") : "";
}

// `{n}` is the number of the NIC on its host; `{n+16}` begins at 16.
TEST(DeviceNames, ArePatternsOrLists) {
  EXPECT_EQ(name_of("mlx5_{n}", 0), "mlx5_0");
  EXPECT_EQ(name_of("mlx5_{n}", 15), "mlx5_15");
  EXPECT_EQ(name_of("mlx5_{n+16}", 0), "mlx5_16");
  EXPECT_EQ(name_of("mlx5_{n+16}", 3), "mlx5_19");
  EXPECT_EQ(name_of("rocep{n+1}s0", 2), "rocep3s0");
  EXPECT_EQ(name_of("mlx5_0", 0), "mlx5_0");
  EXPECT_EQ(name_of("mlx5_0,mlx5_16", 1), "mlx5_16");
  EXPECT_EQ(name_of("mlx5_0,mlx5_16", 2), "none") << "the list is too short";
}

// A name becomes a folder of the device tree, and two devices must not become one folder. The last
// one is too long with its number.
TEST(DeviceNames, AreNamesOfFiles) {
  for (const std::string& names :
       {std::string(), std::string("mlx5_{m}"), std::string("mlx5_{n"), std::string("mlx5_{n+}"),
        std::string("mlx5_{n+-1}"), std::string("mlx5_{n+99999}"), std::string("mlx5_{n}{n}"),
        std::string("mlx5_{n},mlx4_{n}"), std::string("a,a"), std::string("a,"), std::string("a b"),
        std::string("../{n}"), std::string(".{n}"), std::string("-{n}"), std::string("a/{n}"),
        std::string(62, 'a') + "{n}"}) {
    const auto read = DeviceNames::parse(names);
    ASSERT_FALSE(read) << names;
    EXPECT_NE(read.error().message.find("'" + names + "' names no devices"), std::string::npos)
        << read.error().message;
  }
}

}  // namespace
}  // namespace weft::devices
