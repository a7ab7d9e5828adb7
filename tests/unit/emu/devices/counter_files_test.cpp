// Tests of the text files in which devices show their counters.
//
// Monitoring reads /sys/class/infiniband/DEVICE/.../hw_counters/NAME as text. The preload library
// leads such a path to a file below the device tree, and brings that file up to date before it is
// opened. The counters come from a shared file that the test counts in as programs do. Names are
// those of the Linux drivers, written down here once more, so that a rename is noticed.
#include "emu/devices/counter_files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "emu/devices/device_tree.hpp"
#include "emu/devices/registry.hpp"
#include "emu/roce/engine/counters.hpp"
#include "srd/engine/counters.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::devices {
namespace {

// All that such a file depends on is the kind and the name.
kernel::NicDescription nic(const std::string& kind) {
  kernel::NicDescription nic;
  nic.name = kind + "_0";
  nic.kind = kind;
  return nic;
}

class CounterFiles : public ::testing::TestWithParam<const char*> {
 protected:
  CounterFiles() {
    const kernel::NicDescription one = nic(kind);
    EXPECT_TRUE(write_device_tree(root, *find_kind(kind), {&one, 1}));
    path = kernel::statistics_path(root, one.name);
  }
  // As the text file says; "" if there is none.
  [[nodiscard]] std::string number(const std::string& file) const {
    const std::string whole = root + verbs + file;
    refresh_counter_files(root, whole.c_str());
    std::ifstream in(whole);
    std::string line;
    std::getline(in, line);
    return line;
  }
  [[nodiscard]] std::size_t files_in(const std::string& folder_name) const {
    std::error_code error;
    const std::filesystem::directory_iterator files(root + verbs + folder_name, error);
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }
  const std::string kind = GetParam();
  const std::string verbs = "/sys/class/infiniband/" + kind + "_0/";
  testing::TemporaryFolder folder;
  const std::string root = folder.path();
  std::string path;
};

// A driver's own counters, and those that every InfiniBand port has.
constexpr const char* kPort = "ports/1/hw_counters/";
constexpr const char* kStandard = "ports/1/counters/";

using EfaCounterFiles = CounterFiles;
INSTANTIATE_TEST_SUITE_P(Of, EfaCounterFiles, ::testing::Values("efa"));

TEST_P(EfaCounterFiles, HaveTheDriversNames) {
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
    EXPECT_EQ(number(std::string("hw_counters/") + name), "0") << name;
  }
  EXPECT_EQ(files_in("ports/1/hw_counters"), 22U + 1) << "and their lifespan";
  EXPECT_EQ(files_in("hw_counters"), 12U + 1);
  EXPECT_EQ(files_in("ports/1/counters"), 0U);
}

// Two processes on one NIC. Sums, but for paths, which are a set.
TEST_P(EfaCounterFiles, AreTheSumOfAllProcesses) {
  kernel::Statistics* const one = kernel::claim_statistics(path);
  kernel::Statistics* const other = kernel::claim_statistics(path);
  ASSERT_TRUE(one != nullptr && other != nullptr);
  auto& first = one->own.make<srd::Counters>();
  auto& second = other->own.make<srd::Counters>();
  first.tx_bytes = 5;
  second.tx_bytes = 1'000'000'000'000;
  second.delivered_msgs = 8;
  second.reordered_msgs = 2;
  other->commands.failed = 2;
  first.see_path(3);
  second.see_path(3);
  second.see_path(70);
  EXPECT_EQ(number(std::string(kPort) + "tx_bytes"), "1000000000005");
  EXPECT_EQ(number("hw_counters/cmds_err"), "2");
  const auto all = read_statistics(path);
  ASSERT_TRUE(all);
  const kernel::Traffic traffic = all->kind->counters().traffic(all->sum);
  EXPECT_EQ(traffic.paths, 2U) << "the same path of two processes is one path";
  EXPECT_EQ(traffic.messages_in, 8U);
  EXPECT_EQ(traffic.messages_out_of_order, 2U);
}

using RxeCounterFiles = CounterFiles;
INSTANTIATE_TEST_SUITE_P(Of, RxeCounterFiles, ::testing::Values("rxe"));

TEST_P(RxeCounterFiles, HaveTheDriversNames) {
  for (const char* const name :
       {"sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request", "rcvd_rnr_err",
        "send_rnr_err", "rcvd_seq_err", "ack_deferred", "retry_exceeded_err",
        "retry_rnr_exceeded_err", "completer_retry_err", "send_err", "link_downed", "rdma_sends",
        "rdma_recvs"}) {
    EXPECT_EQ(number(std::string(kPort) + name), "0") << name;
  }
  EXPECT_EQ(files_in("ports/1/hw_counters"), 15U + 1) << "and their lifespan";
  EXPECT_EQ(files_in("hw_counters"), 0U);
}

// The same numbers twice: by the driver's names, and by those of every port.
TEST_P(RxeCounterFiles, ShowWhatTheEngineCounts) {
  kernel::Statistics* const own = kernel::claim_statistics(path);
  auto& counted = own->own.make<roce::Counters>();
  counted.sent_pkts = 12;
  counted.sent_bytes = 4000;
  counted.rcvd_pkts = 10;
  counted.rcvd_bytes = 400;
  counted.malformed_pkts = 1;
  counted.retrans_pkts = 3;
  counted.rdma_recvs = 6;
  own->link_downed = 2;
  EXPECT_EQ(number(std::string(kPort) + "sent_pkts"), "12");
  EXPECT_EQ(number(std::string(kPort) + "link_downed"), "2");
  EXPECT_EQ(number(std::string(kStandard) + "port_xmit_packets"), "12");
  EXPECT_EQ(number(std::string(kStandard) + "port_xmit_data"), "1000") << "words of four bytes";
  EXPECT_EQ(number(std::string(kStandard) + "port_rcv_packets"), "10");
  EXPECT_EQ(number(std::string(kStandard) + "port_rcv_data"), "100");
  EXPECT_EQ(number(std::string(kStandard) + "port_rcv_errors"), "1");
  EXPECT_EQ(number(std::string(kStandard) + "link_downed"), "2");
  const auto all = read_statistics(path);
  ASSERT_TRUE(all);
  const kernel::Traffic traffic = all->kind->counters().traffic(all->sum);
  EXPECT_EQ(traffic.packets_in, 10U);
  EXPECT_EQ(traffic.packets_sent_again, 3U);
  EXPECT_EQ(traffic.messages_in, 6U);
  EXPECT_FALSE(traffic.paths);
}

// The library asks for a refresh at each path that a program opens below the tree, whatever it is.
TEST_P(EfaCounterFiles, OddPathsAreLeftAlone) {
  for (const char* const odd :
       {"", "/counters", "/hw_counters", "/infiniband/hw_counters", "/infiniband//hw_counters/x",
        "/hw_counters/infiniband/", "/infiniband/efa_0", "/infiniband/counters",
        "/sys/class/infiniband/none/hw_counters/tx_bytes",
        "/sys/class/infiniband/../../hw_counters", "/sys/class/infiniband/../counters"}) {
    const std::string whole = root + odd;
    refresh_counter_files(root, whole.c_str());
  }
  // A file that is none of counters, and counters of a kind that nobody knows.
  EXPECT_FALSE(read_statistics(root + "/nic0"));
  ASSERT_TRUE(kernel::make_statistics_file(path, "griffin"));
  EXPECT_FALSE(read_statistics(path));
  EXPECT_EQ(number(std::string(kPort) + "tx_bytes"), "0");
}

// Exporters of any user look, and looking brings the text up to date.
TEST(SharedTree, CanBeReadAndCountedByEverybodyWhateverTheUmask) {
  const testing::TemporaryFolder folder;
  const std::string& root = folder.path();
  const kernel::NicDescription one = nic("efa");
  const mode_t before = umask(077);
  EXPECT_TRUE(write_device_tree(root, *find_kind("efa"), {&one, 1}));
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
  EXPECT_EQ(mode("/sys/class/infiniband/efa_0/ports/1/hw_counters/tx_bytes"), 0666U);
  EXPECT_EQ(mode("/sys/class/infiniband/efa_0/hw_counters/cmds_err"), 0666U);
  EXPECT_EQ(mode("/dev/infiniband/uverbs0"), 0666U);
}

}  // namespace
}  // namespace weft::devices
