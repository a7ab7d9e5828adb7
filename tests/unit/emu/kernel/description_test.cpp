// Tests of NIC descriptions.
#include <gtest/gtest.h>

#include "emu/kernel/nic_description.hpp"

namespace weft::kernel {
namespace {

TEST(NicText, SurvivesTheRoundTrip) {
  NicDescription nic;
  nic.name = "efa_3";
  nic.kind = "efa";
  nic.address = "fd00::1";
  nic.index = 3;
  nic.abilities = "mtu 4096\nrdma_read false\n";
  EXPECT_EQ(nic_from_text(to_text(nic)).value(), nic);
}

TEST(NicText, ErrorsNameTheLine) {
  for (const char* const bad : {"name efa\nindex\n", "name efa\nindex 12x\n",
                                "name efa\nnuma_node 99999999999\n", "kind efa\nname\n"}) {
    const auto result = nic_from_text(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_NE(result.error().message.find("line 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft::kernel
