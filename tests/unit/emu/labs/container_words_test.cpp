// Owns what engines are told, and how their answers are read.
//
// The commands are compared word by word, because podman and docker are not there in a test, and a
// wrong word would be noticed only by a user. What the engines answer is text, so it is read
// strictly.
#include "emu/labs/container_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace weft::labs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// One lab, one node, and the devices that weftd has made for that node.
const LabIdentity kLab{"pair", "/run/weft-0/pair"};
const NodeNics kNics{{{"WEFT_HOST", "n1"}}, "/run/weft-0/pair/share", "/run/weft"};

// Words as one text, which is easier to read in a failure. No word here has a space in it but one,
// which its test knows.
std::string line(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

LabNode image_node() {
  LabNode node;
  node.name = "n1";
  node.image = "debian";
  return node;
}

TEST(ContainerWords, AContainerHasItsNameItsLabelsItsAddressAndItsNics) {
  LabNode node = image_node();
  node.command = {"sleep", "5"};
  node.user = "1000";
  EXPECT_EQ(line(run_node(EngineKind::podman, kLab, {}, node, kNics,
                          {{"n1", "10.0.0.2"}, {"n2", "10.0.0.3"}})),
            "run --detach --name weft-pair-n1 --label weft.lab=/run/weft-0/pair "
            "--label weft.node=n1 --hostname n1 --network weft-pair --ip 10.0.0.2 "
            "--add-host n2:10.0.0.3 --env WEFT_HOST=n1 "
            "--volume /run/weft-0/pair/share:/run/weft:rw --user 1000 debian sleep 5");
}

// Labs and nodes may have hyphens in their names, and both are put together with one: so a hyphen
// of the lab's own is doubled.
TEST(ContainerWords, NoTwoLabsHaveAContainerOrANetworkOfOneName) {
  const LabIdentity one{"a", "/run/a"};
  const LabIdentity other{"a-b", "/run/a-b"};
  EXPECT_NE(one.container("b-c"), other.container("c"));
  EXPECT_NE(one.container("b"), other.network());
  EXPECT_NE((LabIdentity{"a-", "/run/a-"}.container("b")), one.container("b"));
  EXPECT_EQ(one.container("b-c"), "weft-a-b-c");
  EXPECT_EQ(other.container("c"), "weft-a--b-c");
}

// What stands behind the image is the container's command. The lab's own variables come last, so
// that they win.
TEST(ContainerWords, ANodesOwnOptionsStandBeforeTheImage) {
  LabNode node = image_node();
  node.options = {"--read-only"};
  node.ports = {"80:80"};
  node.binds = {"/a:/b"};
  node.memory = "256m";
  node.cpu = "0.5";
  node.environment = {{"A", "b c"}};
  const std::string text = line(run_node(EngineKind::docker, kLab, {}, node, kNics, {}));
  EXPECT_THAT(text, HasSubstr("--env A=b c --env WEFT_HOST=n1 "));
  EXPECT_THAT(text, HasSubstr("--volume /a:/b --publish 80:80 --memory 256m --cpus 0.5 "
                              "--read-only --interactive --tty debian"));
}

// `:O` is podman's overlay: the container may write, and the directory stays as it is.
TEST(ContainerWords, OfARootfsADirectoryIsReadOnlyBelowWhatItsContainerWrites) {
  LabNode node = image_node();
  node.image.clear();
  node.rootfs = "/";
  const std::string text = line(run_node(EngineKind::podman, kLab, {}, node, kNics, {}));
  EXPECT_TRUE(text.ends_with("--rootfs /:O sleep infinity")) << text;
}

// With the host's network there is no name of its own either: engines refuse --hostname there.
TEST(ContainerWords, WithoutANetworkOfItsOwnALabUsesTheHostsOrNone) {
  LabFile file;
  file.ip_network = IpNetwork::none;
  EXPECT_THAT(line(run_node(EngineKind::podman, kLab, file, image_node(), kNics, {})),
              HasSubstr("--network none"));
  file.ip_network = IpNetwork::host;
  EXPECT_THAT(line(run_node(EngineKind::podman, kLab, file, image_node(), kNics, {})),
              testing::AllOf(HasSubstr("--network host"), Not(HasSubstr("--hostname"))));
}

// Podman would answer names on the network itself, and wait ten seconds for a container that does
// not end; docker has neither option.
TEST(ContainerWords, PodmanAndDockerDifferInAFewWords) {
  EXPECT_THAT(line(create_network(EngineKind::podman, kLab, "weft-pair", "")),
              "network create --label weft.lab=/run/weft-0/pair --disable-dns weft-pair");
  EXPECT_THAT(line(create_network(EngineKind::docker, kLab, "weft-pair", "10.9.0.0/24")),
              "network create --label weft.lab=/run/weft-0/pair --subnet 10.9.0.0/24 weft-pair");
  EXPECT_THAT(remove_containers(EngineKind::podman, {"a", "b"}),
              ElementsAre("rm", "--force", "--volumes", "--time", "0", "a", "b"));
  EXPECT_THAT(remove_containers(EngineKind::docker, {"a"}),
              ElementsAre("rm", "--force", "--volumes", "a"));
}

// In the order in which the engine was asked for them: identifier, node, state, exit code.
TEST(ContainerWords, StatesAreReadLineByLine) {
  const auto states = parse_states("c0ffee n1 running 0\nbeef n2 exited 137\n");
  ASSERT_TRUE(states) << states.error().message;
  ASSERT_EQ(states->size(), 2U);
  EXPECT_EQ((*states)[1].id, "beef");
  EXPECT_EQ((*states)[1].node, "n2");
  EXPECT_EQ((*states)[1].state, "exited");
  EXPECT_EQ((*states)[1].exit_code, 137);
  EXPECT_EQ(parse_states("")->size(), 0U);
  for (const char* wrong : {"c0ffee", "a b c", "a b c d", "a b c 1x", "   "}) {
    EXPECT_FALSE(parse_states(wrong)) << wrong;
  }
}

// The first address is the engine's own, the last one broadcast; what is between is counted.
TEST(ContainerWords, AddressesAreTakenFromTheSubnetInOrder) {
  EXPECT_THAT(*addresses_in("10.89.3.0/24", 2), ElementsAre("10.89.3.2", "10.89.3.3"));
  EXPECT_THAT(*addresses_in("10.89.3.77/24", 1), ElementsAre("10.89.3.2"));
  EXPECT_EQ(addresses_in("10.0.0.0/16", 254)->back(), "10.0.0.255");
  EXPECT_EQ(addresses_in("10.0.0.0/23", 256)->back(), "10.0.1.1");
  EXPECT_EQ(addresses_in("10.0.0.0/29", 5)->back(), "10.0.0.6");
  EXPECT_THAT(addresses_in("10.0.0.0/29", 6).error().message, HasSubstr("has no room"));
  EXPECT_FALSE(addresses_in("10.0.0.0/32", 1));
  for (const char* wrong : {"", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0/8", "10.0.0.256/8",
                            "a.b.c.d/8", "10.0.0.0/8x", "fd00::/64", "10.0.0.0.0/8"}) {
    EXPECT_THAT(addresses_in(wrong, 1).error().message, HasSubstr("is no IPv4 subnet")) << wrong;
  }
}

}  // namespace
}  // namespace weft::labs
