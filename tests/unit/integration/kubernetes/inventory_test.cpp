// Owns which devices stand for which NICs. A kubelet knows devices by names and gives each to one
// container: either a device is a NIC (nic0), or there are so many shares of which each has them
// all (share0). The second number says how many shares; 0: no shares.
#include "integration/kubernetes/inventory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::kubernetes {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> healthy(const Inventory& inventory) {
  std::vector<std::string> ids;
  for (const auto& [id, is_healthy] : inventory.devices()) {
    if (is_healthy) {
      ids.push_back(id);
    }
  }
  return ids;
}

TEST(Inventory, EachNicIsADevice) {
  const Inventory nics({2, 0, 1}, 0);
  EXPECT_THAT(healthy(nics), ElementsAre("nic0", "nic1", "nic2"));
  EXPECT_THAT(*nics.nics_of({"nic2", "nic0"}), ElementsAre(0, 2));
}

TEST(Inventory, SharesHaveAllNics) {
  const Inventory shares({0, 1}, 3);
  EXPECT_THAT(healthy(shares), ElementsAre("share0", "share1", "share2"));
  EXPECT_THAT(*shares.nics_of({"share1"}), ElementsAre(0, 1));
  EXPECT_THAT(*shares.nics_of({"share1", "share2"}), ElementsAre(0, 1));
}

TEST(Inventory, WrongQuestionsAreRefused) {
  Inventory nics({0, 1}, 0);
  EXPECT_THAT(nics.nics_of({"nic7"}).error().message, HasSubstr("there is no device 'nic7'"));
  EXPECT_THAT(nics.nics_of({"nic0", "nic0"}).error().message, HasSubstr("twice"));
  EXPECT_THAT(nics.nics_of({}).error().message, HasSubstr("no device is asked for"));
  EXPECT_FALSE(nics.nics_of({std::string(100'000, 'x')}));
  EXPECT_TRUE(nics.set_health({{0, true}, {1, false}}));
  EXPECT_THAT(nics.nics_of({"nic1"}).error().message, HasSubstr("not healthy"));
  EXPECT_TRUE(nics.nics_of({"nic0"}));
}

TEST(Inventory, TellsWhetherHealthChanges) {
  Inventory nics({0, 1}, 0);
  // NIC 9 is none of this resource's.
  EXPECT_FALSE(nics.set_health({{0, true}, {1, true}, {9, false}}));
  EXPECT_TRUE(nics.set_health({{0, true}}));
  EXPECT_THAT(healthy(nics), ElementsAre("nic0"));
  EXPECT_TRUE(nics.set_health({}));
  EXPECT_THAT(healthy(nics), IsEmpty());
  EXPECT_TRUE(nics.set_health({{0, true}, {1, true}}));
  Inventory shares({0, 1}, 2);
  EXPECT_TRUE(shares.set_health({{0, true}, {1, false}}));
  EXPECT_THAT(healthy(shares), IsEmpty());
}

TEST(Inventory, PrefersWhatMustBeThenHealthyOnesInOrder) {
  Inventory nics({0, 1, 2, 3}, 0);
  EXPECT_THAT(nics.prefer({"nic3", "nic2", "nic1"}, {"nic3"}, 2), ElementsAre("nic3", "nic1"));
  (void)nics.set_health({{0, false}, {1, true}, {2, true}, {3, true}});
  EXPECT_THAT(nics.prefer({"nic0", "nic1", "nic2"}, {}, 2), ElementsAre("nic1", "nic2"));
  // A kubelet may ask for more than there are, and then gets those that are ill, last.
  EXPECT_THAT(nics.prefer({"nic0", "nic1"}, {}, 9), ElementsAre("nic1", "nic0"));
  EXPECT_THAT(nics.prefer({"rubbish"}, {"more", "more"}, 2), IsEmpty());
}

}  // namespace
}  // namespace weft::kubernetes
