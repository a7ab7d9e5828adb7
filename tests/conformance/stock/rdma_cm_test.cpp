// Owns the tests with stock programs that connect by rdma_cm, over the soft-RoCE device.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

constexpr const char* kIdeal = "--device rxe -- ";
// Two leaves, between which packets overtake each other and are lost.
constexpr const char* kLoss =
    "--device rxe --topology " WEFT_LEAF_SPINE " --fault 'link: tor0-*, loss: 0.01' -- ";

// In the commands PORT stands for a free port, SERVER and SERVER6 for the server's addresses.
struct Pair {
  const char* name;
  const char* server;
  const char* client;
  bool endless = false;  // the server serves for ever: it is killed when the client has ended
  // At 1 % some of its packets are lost in each run but one of a million: there are 1375 at least.
  bool surely_loses = false;
};

// SERVER6 comes before SERVER, with which it begins.
std::string with(std::string text, const std::string& port) {
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"PORT", port},
                                 {"SERVER6", "{h1.ip6}"},
                                 {"SERVER", "{h1.ip}"}}) {
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from)) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

// `weft run` starts a client after 5 s even if its server does not listen yet, as on a slow
// machine. So a client that is refused comes again, for as long as there is a server: 50 times at
// the most, and $n says how often it was.
std::string patiently(const std::string& command, const std::string& ended) {
  return "n=0; until " + command + "; do n=$((n + 1)); [ $n -lt 50 ] && [ ! -e " + ended +
         " ] || { n=50; break; }; sleep 0.1; done";
}

// Both ends must succeed. The end that goes first makes a file by which the other one sees it: the
// server, so that the client does not try again; or the client of an endless server, which is
// ended if it has not ended well by itself, as newer ones do.
Outcome run_pair(const char* network, const Pair& pair, int seconds = 100) {
  const std::string port = own_port();
  const auto ended = std::filesystem::temp_directory_path() / ("weft-ended-" + port);
  const std::string end = "touch " + ended.string();
  std::filesystem::remove(ended);
  std::string server = with(pair.server, port);
  std::string client = patiently(with(pair.client, port), ended.string());
  if (pair.endless) {
    server += " & until [ -e " + ended.string() +
              " ]; do sleep 0.1; done; kill $! 2>/dev/null || wait $!";
    client += "; " + end;
  } else {
    server += "; code=$?; " + end + "; exit $code";
  }
  const Outcome outcome = run_weft(
      network + ("sh -c '" + server + "' : sh -c '" + client + "; [ $n -lt 50 ]'"), seconds);
  std::filesystem::remove(ended);
  return outcome;
}

// What perftest's `-R` does not survive, whatever the device, when the acknowledgement of one of
// its messages is lost (all else is sent again):
// - Each end waits for the acknowledgement of the last message that it sends, and the other one
//   leaves when it has got that message and the acknowledgements of its own. Then nobody is there
//   who would acknowledge it once more.
// - The server listens for the second connection when the acknowledgement of its message on the
//   first one has come, after a time-out of seconds if it was lost. The client connects as soon as
//   it has the message, is refused, and perftest's second try uses an id that its first one has
//   destroyed.
bool has_lost_acknowledgement_of_perftest(const Outcome& outcome) {
  return outcome.code != 0 &&
         (outcome.says("Failed to close connection between server and client") ||
          outcome.says("Event: RDMA_CM_EVENT_REJECTED; error: 8."));
}

std::string program_of(const Pair& pair) {
  const std::string command = pair.server;
  return command.substr(0, command.find(' '));
}

class RdmaCm : public ::testing::TestWithParam<Pair> {};

TEST_P(RdmaCm, BothEndsSucceed) {
  const std::string program = program_of(GetParam());
  if (!has(program)) {
    GTEST_SKIP() << "this machine has no " << program
                 << "; install rdmacm-utils and perftest to run this test";
  }
  const Outcome outcome = run_pair(kIdeal, GetParam(), 300);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    All, RdmaCm,
    ::testing::Values(
        Pair{"Rping", "rping -s -p PORT -V -C 10 -v", "rping -c -a SERVER -p PORT -V -C 10 -v"},
        Pair{"Ucmatose", "ucmatose -p PORT", "ucmatose -p PORT -s SERVER"},
        Pair{"UcmatoseThatMigrates", "ucmatose -p PORT -c 10 -m",
             "ucmatose -p PORT -c 10 -m -s SERVER"},
        Pair{"RpingOverIpv6", "rping -s -a ::0 -p PORT -V -C 10 -v",
             "rping -c -a SERVER6 -p PORT -V -C 10 -v"},
        Pair{"UcmatoseOverIpv6", "ucmatose -b SERVER6 -p PORT", "ucmatose -p PORT -s SERVER6"},
        Pair{"Udaddy", "udaddy -c 5", "udaddy -c 5 -s SERVER"},
        Pair{"UdaddyOverIpv6", "udaddy -b SERVER6 -c 5", "udaddy -c 5 -s SERVER6"},
        // Both are members; the sender hears itself, too.
        Pair{"Mckey", "mckey -m 239.7.7.7 -b SERVER -C 20",
             "sh -c \"sleep 1; exec mckey -m 239.7.7.7 -s -b {h2.ip} -C 20\""},
        Pair{"RstreamOfAllSizes", "rstream -p PORT", "rstream -p PORT -s SERVER"},
        Pair{"RstreamVerified", "rstream -p PORT -S 100000 -C 10 -I 10 -T v -T b",
             "rstream -p PORT -S 100000 -C 10 -I 10 -T v -T b -s SERVER"},
        Pair{"RstreamWithoutWaiting", "rstream -p PORT -S 1000 -C 10 -I 20 -T n",
             "rstream -p PORT -S 1000 -C 10 -I 20 -T n -s SERVER"},
        Pair{"Riostream", "riostream -p PORT -S 4096 -C 10 -I 20 -T v",
             "riostream -p PORT -S 4096 -C 10 -I 20 -T v -s SERVER"},
        Pair{"Cmtime", "cmtime -p PORT -c 100", "cmtime -p PORT -c 100 -s SERVER", true},
        Pair{"WriteBandwidth", "ib_write_bw -R -F -p PORT -n 500",
             "ib_write_bw -R -F -p PORT -n 500 SERVER"},
        Pair{"SendLatency", "ib_send_lat -R -F -p PORT -n 500",
             "ib_send_lat -R -F -p PORT -n 500 SERVER"},
        Pair{"ReadBandwidth", "ib_read_bw -R -F -p PORT -n 200",
             "ib_read_bw -R -F -p PORT -n 200 SERVER"}),
    [](const auto& test) { return std::string(test.param.name); });

// Eight time-outs of a connection take 34 s (2^20 * 4.096 us each), and perftest ends with them at
// worst.
constexpr int kSecondsOfLoss = 200;

// Requests to connect are datagrams, sent again by rdma_cm; what follows is repeated by the device.
class RdmaCmLoss : public ::testing::TestWithParam<Pair> {};

TEST_P(RdmaCmLoss, ConnectionsGetThroughOnePercent) {
  const std::string program = program_of(GetParam());
  if (!has(program)) {
    GTEST_SKIP() << "this machine has no " << program
                 << "; install rdmacm-utils and perftest to run this test";
  }
  Outcome outcome = run_pair(kLoss, GetParam(), kSecondsOfLoss);
  for (int again = 0; again < 3 && has_lost_acknowledgement_of_perftest(outcome); ++again) {
    outcome = run_pair(kLoss, GetParam(), kSecondsOfLoss);  // both ends, in a network of their own
  }
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  if (GetParam().surely_loses) {
    EXPECT_TRUE(outcome.says("(loss ")) << "nothing was lost\n" << outcome.output;
  }
}

// The writes have 64 KiB each, which is 16 packets of the largest MTU: 3200 in all. Of the
// others none is sure to send so many.
INSTANTIATE_TEST_SUITE_P(
    All, RdmaCmLoss,
    ::testing::Values(Pair{"Rping", "rping -s -p PORT -V -C 30",
                           "rping -c -a SERVER -p PORT -V -C 30"},
                      Pair{"Ucmatose", "ucmatose -p PORT -c 5", "ucmatose -p PORT -c 5 -s SERVER"},
                      Pair{"Rstream", "rstream -p PORT -S 4096 -C 10 -I 20 -T v",
                           "rstream -p PORT -S 4096 -C 10 -I 20 -T v -s SERVER"},
                      Pair{"WriteBandwidth", "ib_write_bw -R -F -p PORT -n 200",
                           "ib_write_bw -R -F -p PORT -n 200 SERVER", false, true}),
    [](const auto& test) { return std::string(test.param.name); });

// The device number is 10:122 in sysfs, and a:7a, the same in hexadecimal, of the file.
TEST(RdmaCm, ItsFilesAreThere) {
  const std::string look =
      "sh -c 'stat -c \"%F %t:%T\" /dev/infiniband/rdma_cm; cd /sys/class; "
      "cat misc/rdma_cm/abi_version misc/rdma_cm/dev'";
  const Outcome outcome = run_weft("--no-prefix --device rxe -- " + look);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("character special file a:7a\n4\n10:122\n")) << outcome.output;
  EXPECT_NE(run_weft("--device efa -- " + look).code, 0) << "not where nobody answers to it";
}

// Both ends on one NIC, in two processes.
TEST(RdmaCm, TwoProcessesOfAHost) {
  WEFT_NEEDS("rping");
  const std::string port = own_port();
  const Outcome outcome = run_weft(
      "--device rxe -- sh -c 'rping -s -p " + port + " -C 10 & n=0; until rping -c -a {h1.ip} -p " +
      port + " -V -C 10 -v; do n=$((n + 1)); [ $n -lt 100 ] || exit 1; sleep 0.1; done; wait $!'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// Two servers on one port: one of them is told that it is in use, and the other one waits for a
// client until `timeout` ends it (124).
TEST(RdmaCm, APortIsOneProcess) {
  WEFT_NEEDS("rping");
  const std::string port = own_port();
  const std::string listens = "timeout 5 rping -s -p " + port + " -C 1";
  const Outcome outcome =
      run_weft("--device rxe -- sh -c '" + listens + " & " + listens +
               "; a=$?; wait $!; b=$?; [ $a = 124 ] || [ $b = 124 ] && [ $a != $b ]'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("Address already in use")) << outcome.output;
}

// weftd answers for a host on which no process listens, as a kernel does. A client that got no
// answer would go on trying.
TEST(RdmaCm, NobodyListens) {
  WEFT_NEEDS("rping");
  const Outcome outcome =
      run_weft("--device rxe -- true : rping -c -a {h1.ip} -C 1 -p " + own_port(), 30);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124) << "it hangs\n" << outcome.output;
  EXPECT_TRUE(outcome.says("REJECTED")) << outcome.output;
}

// Its ports must be free when its process is gone, without a word from it. The first client shows
// that it did listen; the second comes from the other host when it is dead.
TEST(RdmaCm, AListenerThatWasKilledListensNoMore) {
  WEFT_NEEDS("rping");
  const std::string port = own_port();
  const auto killed = std::filesystem::temp_directory_path() / ("weft-killed-" + port);
  std::filesystem::remove(killed);
  const Outcome outcome = run_weft(
      "--device rxe -- sh -c 'rping -s -P -p " + port + " & until rping -c -a {h1.ip} -p " + port +
          " -C 1; do sleep 0.1; done; kill -9 $!; "
          "wait $!; touch " +
          killed.string() + "' : sh -c 'until [ -e " + killed.string() +
          " ]; do sleep 0.1; done; exec rping -c -a {h1.ip} -C 1 -p " + port + "'",
      60);
  std::filesystem::remove(killed);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124) << "it hangs\n" << outcome.output;
  EXPECT_TRUE(outcome.says("REJECTED")) << outcome.output;
}

// rdma-core's own tests, as Debian ships them. They look for a network interface of the device to
// learn its address; there is none, so that a copy is told (pyverbs_rxe.py runs all of them so).
TEST(RdmaCm, Pyverbs) {
  if (run_shell("/usr/bin/python3 -c 'import pyverbs.device'").code != 0 ||
      !std::filesystem::exists("/usr/share/doc/rdma-core/tests/test_rdmacm.py")) {
    GTEST_SKIP() << "this machine has no python3-pyverbs, or not rdma-core's tests";
  }
  const Outcome outcome =
      run_shell("tests/conformance/stock/pyverbs_rxe.py " WEFT_PROGRAM " test_rdmacm");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("| `rdmacm` | 10 | 0 |")) << outcome.output;
}

// cmtime asks for all of them at once. Requests that find no room on their way are dropped, and
// have to be sent again.
TEST(RdmaCm, AThousandConnections) {
  WEFT_NEEDS("cmtime");
  const Outcome outcome = run_pair(
      kIdeal, {"Storm", "cmtime -p PORT -c 1000", "cmtime -p PORT -c 1000 -s SERVER", true});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// 16 MiB of words that are all different, by rsockets: a piece that is missing, comes twice or in
// another place is seen by comparing.
TEST(RdmaCm, AFileArrivesWhole) {
  WEFT_NEEDS("rcopy");
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("weft-rcopy-" + own_port());
  fs::create_directories(folder);
  {
    std::ofstream file(folder / "from", std::ios::binary);
    for (std::uint32_t i = 0; i < (1U << 22); ++i) {
      const std::uint32_t word = i * 2654435761U;
      file.write(reinterpret_cast<const char*>(&word), sizeof word);
    }
  }
  const std::string here = folder.string();
  const std::string copies = "rcopy " + here + "/from SERVER:" + here + "/to -p PORT";
  const Outcome outcome = run_pair(kIdeal, {"Rcopy", "rcopy -p PORT", copies.c_str(), true});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(run_shell("cmp " + here + "/from " + here + "/to").code, 0) << outcome.output;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace weft::testing
