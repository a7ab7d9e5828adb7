// Owns what passes between the device plugin and a kubelet.
#include "integration/kubernetes/plugin.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "srd/io/posix.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/integration/kubernetes/fake_kubelet.hpp"

namespace weft::kubernetes {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Health = std::map<std::string, std::string>;

constexpr const char* kResource = "vpc.amazonaws.com/efa";

// In place of weftd's: a variable that names the NICs shows which were given.
Result<ContainerEdits> edits_of(const std::vector<std::size_t>& nics) {
  std::string text;
  for (const std::size_t nic : nics) {
    text += std::to_string(nic) + ",";
  }
  return ContainerEdits{{{"WEFT_DEVICES", text}}, "/host/share", "/run/weft"};
}

// A plugin for three NICs, and a kubelet that is the test (FakeKubelet): between them real gRPC
// over sockets in a folder.
class PluginTest : public ::testing::Test {
 protected:
  std::unique_ptr<Plugin> plugin(std::size_t shares = 0, EditsFor edits = edits_of) {
    return std::make_unique<Plugin>(folder_.path(), kResource, Inventory({0, 1, 2}, shares),
                                    std::move(edits));
  }

  static grpc::Status allocate(FakeKubelet& kubelet, const std::vector<std::string>& ids,
                               v1beta1::AllocateResponse& response) {
    v1beta1::AllocateRequest request;
    auto* const container = request.add_container_requests();
    container->mutable_devicesids()->Assign(ids.begin(), ids.end());
    grpc::ClientContext context;
    return kubelet.plugin()->Allocate(&context, request, &response);
  }

  // How many files there are beside the kubelet.
  [[nodiscard]] std::size_t folder_entries() const {
    const std::filesystem::directory_iterator entries(folder_.path());
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(PluginTest, RegistersAndListsItsDevices) {
  FakeKubelet kubelet(folder_.path());
  const auto efa = plugin();
  EXPECT_TRUE(efa->is_lost());
  const auto done = efa->serve_and_register();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE(efa->is_lost());
  EXPECT_EQ(kubelet.resource(), kResource);
  EXPECT_EQ(kubelet.endpoint(), efa->socket());
  EXPECT_TRUE(kubelet.sees({{"nic0", "Healthy"}, {"nic1", "Healthy"}, {"nic2", "Healthy"}}));
}

TEST_F(PluginTest, GivesOneOrSeveralDevicesToEachContainer) {
  FakeKubelet kubelet(folder_.path());
  const auto efa = plugin();
  ASSERT_TRUE(efa->serve_and_register());
  v1beta1::AllocateRequest request;
  request.add_container_requests()->add_devicesids("nic1");
  request.add_container_requests()->add_devicesids("nic2");
  request.mutable_container_requests(1)->add_devicesids("nic0");
  v1beta1::AllocateResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(kubelet.plugin()->Allocate(&context, request, &response).ok());
  ASSERT_EQ(response.container_responses_size(), 2);
  EXPECT_EQ(response.container_responses(0).envs().at("WEFT_DEVICES"), "1,");
  EXPECT_EQ(response.container_responses(1).envs().at("WEFT_DEVICES"), "0,2,");
  EXPECT_EQ(response.container_responses(1).mounts(0).host_path(), "/host/share");
  EXPECT_EQ(response.container_responses(1).mounts(0).container_path(), "/run/weft");
  EXPECT_FALSE(response.container_responses(1).mounts(0).read_only());
}

TEST_F(PluginTest, PrefersDevicesInOrder) {
  FakeKubelet kubelet(folder_.path());
  const auto efa = plugin();
  ASSERT_TRUE(efa->serve_and_register());
  v1beta1::PreferredAllocationRequest request;
  auto* const container = request.add_container_requests();
  for (const char* id : {"nic2", "nic1", "nic0"}) {
    container->add_available_deviceids(id);
  }
  container->add_must_include_deviceids("nic2");
  container->set_allocation_size(2);
  v1beta1::PreferredAllocationResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(kubelet.plugin()->GetPreferredAllocation(&context, request, &response).ok());
  EXPECT_THAT(response.container_responses(0).deviceids(), ElementsAre("nic2", "nic0"));
  container->set_allocation_size(-1);
  grpc::ClientContext again;
  EXPECT_EQ(kubelet.plugin()->GetPreferredAllocation(&again, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(PluginTest, TellsWhichDevicesAreNotHealthyAndKeepsThem) {
  FakeKubelet kubelet(folder_.path());
  const auto efa = plugin();
  ASSERT_TRUE(efa->serve_and_register());
  efa->set_health({{0, true}, {1, false}, {2, true}});
  EXPECT_TRUE(kubelet.sees({{"nic0", "Healthy"}, {"nic1", "Unhealthy"}, {"nic2", "Healthy"}}));
  v1beta1::AllocateResponse response;
  const auto refused = allocate(kubelet, {"nic1"}, response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("nic1"));
  efa->set_health({});  // weftd does not answer
  EXPECT_TRUE(kubelet.sees({{"nic0", "Unhealthy"}, {"nic1", "Unhealthy"}, {"nic2", "Unhealthy"}}));
  efa->set_health({{0, true}, {1, true}, {2, true}});
  EXPECT_TRUE(kubelet.sees({{"nic0", "Healthy"}, {"nic1", "Healthy"}, {"nic2", "Healthy"}}));
  EXPECT_TRUE(allocate(kubelet, {"nic1"}, response).ok());
}

TEST_F(PluginTest, AKubeletThatIsStartedAgainIsToldAgain) {
  const auto efa = plugin();
  for (int turn = 0; turn < 5; ++turn) {
    FakeKubelet kubelet(folder_.path());
    EXPECT_TRUE(efa->is_lost());
    const auto done = efa->serve_and_register();
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_FALSE(efa->is_lost());
    EXPECT_TRUE(kubelet.sees({{"nic0", "Healthy"}, {"nic1", "Healthy"}, {"nic2", "Healthy"}}));
  }
}

// Its socket may have the number of the former one's file.
TEST_F(PluginTest, AKubeletWithTheSameFileNumberIsAnotherKubelet) {
  FakeKubelet kubelet(folder_.path());
  const auto efa = plugin();
  ASSERT_TRUE(efa->serve_and_register());
  EXPECT_FALSE(efa->is_lost());
  const std::string path = folder_.path() + "/kubelet.sock";
  // The number of a file can be used again at once; its time of change then tells the two apart.
  const timespec later[2]{{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {.tv_sec = 4, .tv_nsec = 2}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), later, 0), 0);
  EXPECT_TRUE(efa->is_lost());
  ASSERT_TRUE(efa->serve_and_register());
  EXPECT_FALSE(efa->is_lost());
}

TEST_F(PluginTest, APluginThatIsStartedAgainTakesThePlaceOfItsFormerSelf) {
  FakeKubelet kubelet(folder_.path());
  for (int turn = 0; turn < 5; ++turn) {
    auto efa = plugin();
    ASSERT_TRUE(efa->serve_and_register());
    EXPECT_TRUE(kubelet.sees({{"nic0", "Healthy"}, {"nic1", "Healthy"}, {"nic2", "Healthy"}}));
    efa.reset();
    EXPECT_TRUE(kubelet.sees_the_end());
    EXPECT_NE(::access(kubelet.endpoint().c_str(), F_OK), 0);
  }
  // One that was killed leaves its socket.
  std::ofstream(kubelet.endpoint()) << "";
  const auto efa = plugin();
  EXPECT_TRUE(efa->serve_and_register());
}

TEST_F(PluginTest, OfTwoPluginsWithOneResourceTheSecondWaits) {
  FakeKubelet kubelet(folder_.path());
  auto first = plugin();
  ASSERT_TRUE(first->serve_and_register());
  auto second = plugin(4);
  auto third = plugin(4);
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_THAT(second->serve_and_register().error().message,
                HasSubstr("another device plugin serves"));
    EXPECT_FALSE(first->is_lost());
  }
  third.reset();  // takes nothing with it
  EXPECT_FALSE(first->is_lost());
  EXPECT_TRUE(kubelet.sees({{"nic0", "Healthy"}, {"nic1", "Healthy"}, {"nic2", "Healthy"}}));
  first.reset();
  EXPECT_TRUE(kubelet.sees_the_end());
  ASSERT_TRUE(second->serve_and_register());
  EXPECT_TRUE(kubelet.sees({{"share0", "Healthy"},
                            {"share1", "Healthy"},
                            {"share2", "Healthy"},
                            {"share3", "Healthy"}}));
}

// gRPC takes the name of a socket away, whosever it is by then.
TEST_F(PluginTest, APluginThatIsReplacedLeavesTheOnesSocketThatReplacedIt) {
  FakeKubelet kubelet(folder_.path());
  auto first = plugin();
  ASSERT_TRUE(first->serve_and_register());
  // By which the second takes the place although the first is still there.
  ::unlink(first->socket().c_str());
  auto second = plugin(4);
  ASSERT_TRUE(second->serve_and_register());
  EXPECT_TRUE(first->is_lost());
  EXPECT_FALSE(first->serve_and_register());
  EXPECT_FALSE(second->is_lost());
  first.reset();
  EXPECT_FALSE(second->is_lost());
  EXPECT_EQ(::access(second->socket().c_str(), F_OK), 0);
  EXPECT_EQ(folder_entries(), 2U);  // that one, and the kubelet's
}

TEST_F(PluginTest, WithoutAKubeletOrWithARefusalItIsLost) {
  const auto efa = plugin();
  EXPECT_THAT(efa->serve_and_register().error().message, HasSubstr("does not take resource"));
  EXPECT_TRUE(efa->is_lost());
  EXPECT_NE(::access(efa->socket().c_str(), F_OK), 0);
  FakeKubelet kubelet(folder_.path());
  kubelet.refuse("a bad name");
  EXPECT_THAT(efa->serve_and_register().error().message, HasSubstr("a bad name"));
  kubelet.refuse("");
  EXPECT_TRUE(efa->serve_and_register());
}

// Whatever stood in errno before: of the three steps only two leave one.
TEST_F(PluginTest, WhyItCannotServeIsSaid) {
  const auto why = [](const std::string& folder) {
    Plugin plugin(folder, kResource, Inventory({0}, 0), edits_of);
    errno = EDOM;
    const auto done = plugin.serve_and_register();
    return done ? "it serves" : done.error().message;
  };
  const std::string gone = folder_.path() + "/gone";
  EXPECT_EQ(why(gone), "cannot make a socket in '" + gone + "': No such file or directory");
  // The place of the socket is taken by what no file replaces.
  ASSERT_TRUE(std::filesystem::create_directory(plugin()->socket()));
  EXPECT_EQ(why(folder_.path()), "cannot serve on '" + plugin()->socket() + "': Is a directory");
  // Longer than the path of a socket may be, which only gRPC finds.
  const std::string deep = folder_.path() + "/" + std::string(100, 'd');
  ASSERT_TRUE(std::filesystem::create_directory(deep));
  EXPECT_THAT(why(deep), HasSubstr(".sock': gRPC cannot listen in the folder"));
  EXPECT_TRUE(std::filesystem::is_empty(deep));
  EXPECT_EQ(folder_entries(), 2U) << "a socket under its first name was left";
}

TEST_F(PluginTest, GarbageIsRefusedAndHurtsNobody) {
  FakeKubelet kubelet(folder_.path());
  const auto efa = plugin(0, [](const std::vector<std::size_t>& nics) -> Result<ContainerEdits> {
    // For three NICs there is no answer from weftd.
    return nics.size() == 3 ? fail(ErrorCode::io_error, "weftd has gone") : edits_of(nics);
  });
  ASSERT_TRUE(efa->serve_and_register());
  v1beta1::AllocateResponse response;
  EXPECT_EQ(allocate(kubelet, {"nic7"}, response).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(allocate(kubelet, {}, response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(allocate(kubelet, {"nic0", "nic0"}, response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(allocate(kubelet, {"nic0", "nic1", "nic2"}, response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(
      allocate(kubelet, std::vector<std::string>(100'000, "nic0 and so on"), response).error_code(),
      grpc::StatusCode::RESOURCE_EXHAUSTED);
  // Bytes that are no gRPC at all, and connections that say nothing.
  std::vector<srd::UniqueFd> open;
  for (int i = 0; i < 50; ++i) {
    open.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, efa->socket().c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(::connect(open.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              0);
    const std::string garbage(static_cast<std::size_t>(i) * 100, static_cast<char>(i));
    (void)::send(open.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(allocate(kubelet, {"nic0"}, response).ok());
  EXPECT_TRUE(kubelet.sees({{"nic0", "Healthy"}, {"nic1", "Healthy"}, {"nic2", "Healthy"}}));
}

TEST_F(PluginTest, SharesAreDevicesOfWhichEachHasAllNics) {
  FakeKubelet kubelet(folder_.path());
  const auto shared = plugin(2);
  ASSERT_TRUE(shared->serve_and_register());
  EXPECT_TRUE(kubelet.sees({{"share0", "Healthy"}, {"share1", "Healthy"}}));
  v1beta1::AllocateResponse response;
  ASSERT_TRUE(allocate(kubelet, {"share1"}, response).ok());
  EXPECT_EQ(response.container_responses(0).envs().at("WEFT_DEVICES"), "0,1,2,");
}

}  // namespace
}  // namespace weft::kubernetes
