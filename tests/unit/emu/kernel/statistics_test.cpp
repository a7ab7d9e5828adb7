// Tests of the counters that all processes on a NIC share, and of the files made from them.
#include "emu/kernel/statistics.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "emu/devices/device_tree.hpp"
#include "emu/devices/efa/personality.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/emu/kernel/raw_client.hpp"

namespace weft::kernel {
namespace {

NicDescription efa_nic() {
  NicDescription nic;
  nic.name = "efa_0";
  nic.kind = "efa";
  return nic;
}

class StatisticsFile : public ::testing::Test {
 protected:
  StatisticsFile() {
    const NicDescription nic = efa_nic();
    EXPECT_TRUE(devices::write_device_tree(root, efa::kPersonality, {&nic, 1}));
    path = statistics_path(root, nic.name);
  }
  // As the text file says.
  [[nodiscard]] std::string number(const std::string& file) const {
    const std::string whole = root + file;
    refresh_counter_files(root, whole.c_str());
    std::ifstream in(whole);
    std::string line;
    std::getline(in, line);
    return line;
  }
  testing::TemporaryFolder folder;
  const std::string root = folder.path();
  std::string path;
};

constexpr const char* kPort = "/sys/class/infiniband/efa_0/ports/1/hw_counters/";

TEST_F(StatisticsFile, SumsUpOverProcessesDeadOrAlive) {
  Statistics* const own = claim_statistics(path);
  ASSERT_NE(own, nullptr);
  own->transport.tx_bytes = 5;
  own->transport.see_path(3);
  const pid_t child = fork();
  if (child == 0) {
    Statistics* const other = claim_statistics(path);
    other->transport.tx_bytes = 1'000'000'000'000;
    other->transport.see_path(3);
    other->transport.see_path(70);
    other->device.cmds_err = 2;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto sum = read_statistics(path);
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->transport.tx_bytes, 1'000'000'000'005U);
  EXPECT_EQ(sum->transport.paths_seen[0], 1U << 3);
  EXPECT_EQ(sum->transport.paths_seen[1], 1U << 6);
  EXPECT_EQ(number(std::string(kPort) + "tx_bytes"), "1000000000005");
  EXPECT_EQ(number("/sys/class/infiniband/efa_0/hw_counters/cmds_err"), "2");
}

TEST_F(StatisticsFile, TheNamesAreTheDriversNames) {
  for (const char* const name : {"tx_bytes",
                                 "tx_pkts",
                                 "rx_bytes",
                                 "rx_pkts",
                                 "rx_drops",
                                 "send_bytes",
                                 "send_wrs",
                                 "recv_bytes",
                                 "recv_wrs",
                                 "rdma_read_wrs",
                                 "rdma_read_bytes",
                                 "rdma_read_wr_err",
                                 "rdma_read_resp_bytes",
                                 "rdma_write_wrs",
                                 "rdma_write_bytes",
                                 "rdma_write_wr_err",
                                 "rdma_write_recv_bytes",
                                 "retrans_bytes",
                                 "retrans_pkts",
                                 "retrans_timeout_events",
                                 "unresponsive_remote_events",
                                 "impaired_remote_conn_events"}) {
    EXPECT_EQ(number(std::string(kPort) + name), "0") << name;
  }
  for (const char* const name :
       {"submitted_cmds", "completed_cmds", "cmds_err", "no_completion_cmds", "keep_alive_rcvd",
        "alloc_pd_err", "create_qp_err", "create_cq_err", "reg_mr_err", "alloc_ucontext_err",
        "create_ah_err", "mmap_err"}) {
    EXPECT_EQ(number(std::string("/sys/class/infiniband/efa_0/hw_counters/") + name), "0") << name;
  }
}

TEST_F(StatisticsFile, OddPathsAreLeftAlone) {
  for (const char* const odd :
       {"", "/hw_counters", "/infiniband/hw_counters", "/infiniband//hw_counters/x",
        "/hw_counters/infiniband/", "/sys/class/infiniband/none/hw_counters/tx_bytes",
        "/sys/class/infiniband/../../hw_counters"}) {
    const std::string whole = root + odd;
    refresh_counter_files(root, whole.c_str());
  }
  EXPECT_EQ(claim_statistics(root + "/none"), nullptr);
  EXPECT_FALSE(read_statistics(root + "/nic0"));
}

// Exporters of any user look, and whoever looks brings the text up to date.
TEST(SharedTree, CanBeReadAndCountedByEverybodyWhateverTheUmask) {
  const testing::TemporaryFolder folder;
  const std::string& root = folder.path();
  const NicDescription nic = efa_nic();
  const mode_t before = umask(077);
  EXPECT_TRUE(devices::write_device_tree(root, efa::kPersonality, {&nic, 1}));
  umask(before);
  const auto mode = [&root](const std::string& path) {
    struct stat status {};
    EXPECT_EQ(stat((root + path).c_str(), &status), 0) << path;
    return status.st_mode & 0777;
  };
  EXPECT_EQ(mode(""), 0755U);
  EXPECT_EQ(mode("/nic0"), 0644U);
  EXPECT_EQ(mode("/statistics"), 0755U);
  EXPECT_EQ(mode("/statistics/efa_0"), 0666U);
  EXPECT_EQ(mode("/sys/class/infiniband/efa_0"), 0755U);
  EXPECT_EQ(mode("/sys/class/infiniband/efa_0/node_guid"), 0644U);
  EXPECT_EQ(mode(std::string(kPort) + "tx_bytes"), 0666U);
  EXPECT_EQ(mode("/sys/class/infiniband/efa_0/hw_counters/cmds_err"), 0666U);
  EXPECT_EQ(mode("/dev/infiniband/uverbs0"), 0666U);
}

class CountedCommands : public RawClient {};

TEST_F(CountedCommands, ErrorsAreCountedByKind) {
  open_context();
  const std::uint32_t pd = alloc_pd();
  std::array<std::uint32_t, 3> keys{};
  EXPECT_EQ(reg_mr(pd + 9, &keys, sizeof keys, 1, keys), EINVAL);
  const DeviceCounters& counters = runner.device.counters();
  EXPECT_EQ(counters.submitted_cmds, 3U);
  EXPECT_EQ(counters.cmds_err, 1U);
  EXPECT_EQ(counters.reg_mr_err, 1U);
  EXPECT_EQ(counters.create_qp_err, 0U);
}

}  // namespace
}  // namespace weft::kernel
