// Owns the shape of the files that container engines read.
#include "emu/launch/cdi.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft::launch {
namespace {

using nlohmann::json;

TEST(Cdi, ADeviceIsAnEnvironmentAndAMount) {
  const std::vector<ContainerDevice> devices{
      {"h1", {{"WEFT_HOST", "h1"}, {"LD_PRELOAD", "/run/weft/a \"b\".so"}}}, {"any", {}}};
  const json file = json::parse(cdi_text("efa", "lab.", "/tmp/a b/share", devices));
  EXPECT_EQ(file["cdiVersion"], "0.5.0");
  EXPECT_EQ(file["kind"], "weft.dev/efa");
  EXPECT_EQ(file.size(), 3U);
  ASSERT_EQ(file["devices"].size(), 2U);
  const json& first = file["devices"][0];
  EXPECT_EQ(first["name"], "lab.h1");
  EXPECT_EQ(first["containerEdits"]["env"],
            json::array({"WEFT_HOST=h1", "LD_PRELOAD=/run/weft/a \"b\".so"}));
  ASSERT_EQ(first["containerEdits"]["mounts"].size(), 1U);
  const json& mount = first["containerEdits"]["mounts"][0];
  EXPECT_EQ(mount["hostPath"], "/tmp/a b/share");
  EXPECT_EQ(mount["containerPath"], "/run/weft");
  EXPECT_EQ(first["containerEdits"].size(), 2U);
  EXPECT_EQ(file["devices"][1]["name"], "lab.any");
}

TEST(Cdi, NothingThatIsGoneIsRemovedTwice) { remove_cdi("/nowhere"); }

}  // namespace
}  // namespace weft::launch
