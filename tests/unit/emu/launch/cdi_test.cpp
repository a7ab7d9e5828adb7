// Owns the shape of the files that container engines read (CDI, the Container Device Interface).
//
// The engines are not there in a test, and an engine that does not like a file says so only to its
// user: so the text is read back as JSON and compared with what the specification of CDI 0.5.0 asks
// for.
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
  // A quote and a space are in the values on purpose: they must be JSON's, not ours.
  EXPECT_EQ(first["containerEdits"]["env"],
            json::array({"WEFT_HOST=h1", "LD_PRELOAD=/run/weft/a \"b\".so"}));
  ASSERT_EQ(first["containerEdits"]["mounts"].size(), 1U);
  const json& mount = first["containerEdits"]["mounts"][0];
  EXPECT_EQ(mount["hostPath"], "/tmp/a b/share");
  EXPECT_EQ(mount["containerPath"], "/run/weft");
  EXPECT_EQ(first["containerEdits"].size(), 2U);
  EXPECT_EQ(file["devices"][1]["name"], "lab.any");
}

// `weft down` may come after somebody has removed the file by hand.
TEST(Cdi, NothingThatIsGoneIsRemovedTwice) { remove_cdi("/nowhere"); }

}  // namespace
}  // namespace weft::launch
