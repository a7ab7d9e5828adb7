// Owns what the device plugin's configuration may say. Names of resources are those of real
// hardware's plugins, because pods ask for these; each becomes the name of a socket in the
// kubelet's folder.
#include "integration/kubernetes/plugin_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace weft::kubernetes {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PluginConfig, NamesResourcesAsHardwareHasThem) {
  const auto config = read_plugin_config("c.yaml", R"(network: lab
host: h2
kubelet: /plugins
resources:
  - {name: vpc.amazonaws.com/efa}
  - {name: rdma/hca_shared_devices_a, device: rxe, shares: 64}
  - {name: openshift.io/mlnxnics, device: rxe, nics: [0, 3]}
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->network, "lab");
  EXPECT_EQ(config->host, "h2");
  EXPECT_EQ(config->folder, "/plugins");
  ASSERT_EQ(config->resources.size(), 3U);
  EXPECT_EQ(config->resources[1].shares, 64U);
  EXPECT_THAT(config->resources[2].nics, ElementsAre(0, 3));
}

TEST(PluginConfig, WrongOnesAreRefusedWithTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "expected 'resources:'"},
      {"resources: []", "expected 'resources:'"},
      {"resources:\n  - {name: efa}\n", "c.yaml:2: resources[0].name: expected DOMAIN/NAME"},
      {"resources:\n  - {name: a/b/c}\n", "expected DOMAIN/NAME"},
      {"resources:\n  - {name: a_b/c}\n", "expected DOMAIN/NAME"},  // its socket is that of a/b_c
      {"resources:\n  - {name: Vpc/efa}\n", "expected DOMAIN/NAME"},
      {"resources:\n  - {name: ../b}\n", "expected DOMAIN/NAME"},
      {"resources:\n  - {name: a/-b}\n", "expected DOMAIN/NAME"},
      {"resources:\n  - {name: a/" + std::string(64, 'b') + "}\n", "expected DOMAIN/NAME"},
      // The path of a unix socket has 107 bytes at the most.
      {"kubelet: /" + std::string(100, 'k') + "\nresources:\n  - {name: a/b}\n",
       "too long for a socket"},
      {"resources:\n  - {name: a/b}\n  - {name: a/b}\n", "c.yaml:3: resources[1]"},
      {"resources:\n  - {name: a/b, share: 3}\n", "did you mean 'shares'?"},
      {"resources:\n  - {name: a/b, nics: [0, 0]}\n", "each once"},
      {"resources:\n  - {name: a/b, nics: [99]}\n", "number of a NIC"},
      {"resources:\n  - {name: a/b, shares: 100001}\n", "from 0 to 10000"},
      {"[", "not valid YAML"},
  };
  for (const auto& [text, said] : cases) {
    const auto config = read_plugin_config("c.yaml", text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(said)) << text;
  }
}

}  // namespace
}  // namespace weft::kubernetes
