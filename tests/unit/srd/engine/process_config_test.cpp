// Owns what carriers ask of configurations.
#include "srd/engine/process_config.hpp"

#include <gtest/gtest.h>

#include <array>

#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

Address address(std::uint8_t last) { return Address::v4(127, 0, 91, last); }

// Over sockets each path is a socket of its own, so a carrier may have few.
TEST(ProcessConfig, HasNoMorePathsThanItsCarrier) {
  for (const std::uint16_t paths : std::array<std::uint16_t, 3>{1, 2, 16}) {
    const auto io = test::SrdSockets::create({.own = address(1), .paths = paths});
    ASSERT_TRUE(io) << io.error().message;
    const IoCapabilities carrier = (*io)->capabilities();
    EXPECT_EQ(carrier.paths, paths);
    EngineConfig config = process_config(carrier, AttachmentId{1}, Life{1});
    EXPECT_LE(config.paths, paths);
    EXPECT_TRUE(validate(config, carrier));
    config.paths = static_cast<std::uint16_t>(paths + 1);
    const auto valid = validate(config, carrier);
    ASSERT_FALSE(valid);
    EXPECT_EQ(valid.error().code, ErrorCode::invalid_argument);
  }
}

// The kernel cuts what goes along one path; a ring takes each packet by itself.
TEST(ProcessConfig, KeepsToAPathForARunWhereThatSavesCalls) {
  const auto io = test::SrdSockets::create({.own = address(1)});
  ASSERT_TRUE(io) << io.error().message;
  const EngineConfig config = process_config((*io)->capabilities(), AttachmentId{1}, Life{1});
  EXPECT_EQ(config.path_run, 65000U);
  EXPECT_EQ(config.paths, 16);
  const IoCapabilities ring{.mtu = 8192, .lossless_memory = true};
  EXPECT_EQ(process_config(ring, AttachmentId{1}, Life{1}).path_run, 0U);
}

}  // namespace
}  // namespace weft::srd
