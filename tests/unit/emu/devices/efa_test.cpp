// Tests of an EFA device's abilities as text, and of its GIDs.
#include <gtest/gtest.h>

#include "emu/devices/efa/abilities.hpp"
#include "emu/devices/efa/gid.hpp"
#include "emu/kernel/nic_description.hpp"
#include "srd/net/address_text.hpp"

namespace weft::devices::efa {
namespace {

// They travel as text from `weft run` to the library in each program.
TEST(Abilities, SurviveTheRoundTrip) {
  Abilities abilities;
  abilities.part_id = 0xEFA2;
  abilities.rdma_write = false;
  abilities.forced_reorder = 9;
  EXPECT_EQ(abilities_from_text(to_text(abilities)).value(), abilities);
}

TEST(Abilities, ErrorsNameTheLine) {
  for (const char* const bad : {"mtu 900\nspeed 9\n", "mtu 900\nmtu\n", "mtu 900\nmtu 12x\n",
                                "mtu 900\nrdma_read yes\n", "mtu 900\nmtu 99999999999\n"}) {
    const auto result = abilities_from_text(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_NE(result.error().message.find("line 2"), std::string::npos);
  }
}

// A program knows its peer by GID only, so the address must follow from it without asking anybody.
TEST(Gid, LeadsBackToTheAddress) {
  for (const char* const text : {"10.1.2.3", "127.77.1.1", "255.255.255.255", "fd00::5"}) {
    const srd::Address address = *srd::parse_address(text);
    EXPECT_EQ(address_of(gid_of(address)), address) << text;
  }
  const srd::Address gid = gid_of(*srd::parse_address("10.1.2.3"));
  EXPECT_EQ(gid.bytes[0], std::byte{0xFE});  // link-local, as EFA's are
  EXPECT_EQ(gid.bytes[1], std::byte{0x80});
}

}  // namespace
}  // namespace weft::devices::efa
