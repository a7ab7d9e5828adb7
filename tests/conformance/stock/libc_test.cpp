// Owns the tests of the interposed libc: stock tools find the emulated files and devices by
// whichever calls they make, programs may fork, and whatever else wraps libc may stand beside us.
#include <filesystem>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

struct Look {
  const char* name;
  const char* command;
  const char* expected;  // the whole output
};
// Stock tools look by the calls of libc that they happen to use; each row is a way that some tool
// goes. Two NICs, so that a tool must find the right one.
class Files : public ::testing::TestWithParam<Look> {};

TEST_P(Files, StockToolsSeeThem) {
  if (!std::filesystem::exists("/sys/devices")) {
    GTEST_SKIP() << "no /sys is mounted here, for the emulated files to stand beside";
  }
  const Outcome outcome =
      run_weft(std::string("--no-prefix -q --nics 2 -- ") + GetParam().command, 20);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, GetParam().expected);
}

// The second NIC, as a PCI device that this machine does not have.
constexpr char kDevice[] = "/sys/devices/pciefa0:01/efa0:01:00.0\n";

INSTANTIATE_TEST_SUITE_P(
    All, Files,
    ::testing::Values(
        Look{"Listed", "ls /sys/class/infiniband", "efa_0\nefa_1\n"},
        Look{"ListedByLongPath", "ls /sys/class/infiniband/efa_1/ports/", "1\n"},
        Look{"Read", "cat /sys/class/infiniband/efa_1/device/vendor", "0x1d0f\n"},
        // 231:193 in hexadecimal digits, the numbers that Linux gives the second of these devices.
        Look{"CharacterDevice", "stat -c %F:%t:%T /dev/infiniband/uverbs1",
             "character special file:e7:c1\n"},
        Look{"TestedByTheShell", "sh -c 'test -c /dev/infiniband/uverbs0 && echo yes'", "yes\n"},
        Look{"Resolved", "readlink -f /sys/class/infiniband/efa_1/device", kDevice},
        Look{"ResolvedByRealpath", "realpath /sys/class/infiniband_verbs/uverbs1/device", kDevice},
        Look{"LinkIsRelative", "readlink /sys/class/infiniband/efa_0",
             "../../devices/pciefa0:00/efa0:00:00.0/infiniband/efa_0\n"},
        Look{"Found", "find /sys/class/infiniband/efa_0/ -name fw_ver",
             "/sys/class/infiniband/efa_0/fw_ver\n"},
        Look{"DoubledSlashes", "cat //sys//class/infiniband//efa_1/device/vendor", "0x1d0f\n"},
        Look{"StepsToNowhere", "cat /sys/./class/./infiniband/efa_1/device/vendor", "0x1d0f\n"},
        Look{"StepsBack", "cat /sys/class/net/../infiniband/efa_1/device/vendor", "0x1d0f\n"},
        Look{"ChangedInto", "sh -c 'cd /sys/class/infiniband && ls && cat efa_1/device/vendor'",
             "efa_0\nefa_1\n0x1d0f\n"},
        Look{"KnowsWhereItIs", "/usr/bin/env -C /sys/class/infiniband /bin/pwd -P",
             "/sys/class/infiniband\n"},
        Look{"BelowWhereItIs", "sh -c 'cd /sys/class && cat infiniband/efa_1/device/vendor'",
             "0x1d0f\n"},
        Look{"LongListing", "sh -c 'ls -l /sys/class/infiniband/efa_0/fw_ver 2>&1 | wc -l'", "1\n"},
        Look{"ReopenedInput", "sh -c 'exec < /sys/class/infiniband/efa_0/node_type; cat'",
             "7: <unknown>\n"},
        Look{"Globbed", "sh -c 'echo /sys/class/infiniband/*'",
             "/sys/class/infiniband/efa_0 /sys/class/infiniband/efa_1\n"},
        Look{"NothingElseMoves", "sh -c 'test -d /sys/class/net && echo yes'", "yes\n"}),
    [](const auto& test) { return std::string(test.param.name); });

// The loader takes a space or a colon in LD_PRELOAD for the end of a name.
TEST(Files, AnInstallationMayHaveSpacesAndColonsInItsPath) {
  WEFT_NEEDS("ibv_devices");
  const Outcome outcome = run_shell(
      "dir=$(mktemp -d) && mkdir \"$dir/a b:c\" && cp " WEFT_PROGRAM " $(dirname " WEFT_PROGRAM
      ")/../daemon/weftd " WEFT_PRELOAD
      " \"$dir/a b:c\" && timeout 30 \"$dir/a b:c/weft\" run -q --no-prefix -- ibv_devices; "
      "code=$?; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("efa_0")) << outcome.output;
}

// Programs of a run without devices are not to carry our library at all.
TEST(Files, WithoutADeviceTreeNothingChanges) {
  const Outcome outcome =
      run_weft("--device none -- sh -c 'echo preload=$LD_PRELOAD devices=$WEFT_DEVICES'", 20);
  EXPECT_TRUE(outcome.says("preload= devices=")) << outcome.output;
}

// A context belongs to the process that has opened it. A command of a child on the parent's file
// has to fail, a file of the child's own has to work, and neither that nor a child of vfork() may
// harm the parent's.
TEST(Fork, ChildrenOpenTheDeviceForThemselves) {
  if (run_shell("/usr/bin/python3 -c 'import pyverbs.device'").code != 0) {
    GTEST_SKIP() << "this machine has no python3-pyverbs; install it to run this test";
  }
  const Outcome outcome =
      run_shell("dir=$(mktemp -d) && cat > $dir/fork.py <<'END' && timeout 60 " WEFT_PROGRAM
                " run -- /usr/bin/python3 $dir/fork.py; code=$?; rm -r $dir; exit $code\n"
                "import os, subprocess\n"
                "from pyverbs.device import Context\n"
                "from pyverbs.pd import PD\n"
                "context = Context(name='efa_0')\n"
                "PD(context)\n"
                "child = os.fork()\n"
                "if child == 0:\n"
                "    try:\n"
                "        PD(context)\n"
                "        os._exit(2)  # the parent's file is the parent's\n"
                "    except Exception:\n"
                "        pass\n"
                "    PD(Context(name='efa_0'))\n"
                "    os._exit(0)\n"
                "assert os.waitpid(child, 0)[1] == 0\n"
                "subprocess.run(['true'], close_fds=True, check=True)  # vfork\n"
                "PD(context)\n"
                "END");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// The runtime of a sanitizer wraps calls of libc itself. It comes before our wrappers if it is
// linked statically, which is clang's default, and behind them if it is a library, which is gcc's:
// either way calls have to reach both.
class Sanitizers : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, Sanitizers, ::testing::Values("-static-libasan", ""),
                         [](const auto& test) { return *test.param == 0 ? "Shared" : "Static"; });

TEST_P(Sanitizers, ProgramsWithAsanSeeDevices) {
  WEFT_NEEDS("gcc");
  if (run_shell("test -e /usr/include/infiniband/verbs.h").code != 0) {
    GTEST_SKIP() << "this machine has no libibverbs-dev; install it to run this test";
  }
  const Outcome outcome = run_shell(
      "dir=$(mktemp -d) && cat > $dir/a.c <<'END' && gcc -fsanitize=address " +
      std::string(GetParam()) +
      " -o $dir/a $dir/a.c -libverbs && ASAN_OPTIONS=detect_leaks=0 timeout 60 " WEFT_PROGRAM
      " run -- $dir/a; code=$?; rm -r $dir; exit $code\n"
      "#include <infiniband/verbs.h>\n"
      "int main(void) {\n"
      "  int n = 0;\n"
      "  struct ibv_device** list = ibv_get_device_list(&n);\n"
      "  struct ibv_context* c = n == 1 ? ibv_open_device(list[0]) : 0;\n"
      "  struct ibv_pd* pd = c ? ibv_alloc_pd(c) : 0;\n"
      "  struct ibv_cq* cq = c ? ibv_create_cq(c, 16, 0, 0, 0) : 0;\n"
      "  struct ibv_wc wc;\n"
      "  return !(pd && cq && ibv_poll_cq(cq, 1, &wc) == 0 && !ibv_destroy_cq(cq) &&\n"
      "           !ibv_dealloc_pd(pd) && !ibv_close_device(c));\n"
      "}\n"
      "END");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// A host that has RDMA devices of its own is played by a second preloaded library, behind ours: it
// lists mlx5_0 in sysfs and lets sockets for RDMA's netlink be opened (family 16, protocol 20).
// Below `weft run` programs see our devices only. The first look, without weft, shows that the
// stand-in works.
TEST(OtherDevices, AreNotSeenBesideOurs) {
  WEFT_NEEDS("gcc");
  WEFT_NEEDS("ibv_devices");
  WEFT_NEEDS("/usr/bin/python3");
  const std::string list =
      "/usr/bin/python3 -c 'import os; print(*os.listdir(\"/sys/class/infiniband\"))'";
  const std::string look =
      list + "; ibv_devices; /usr/bin/python3 -c 'import socket; socket.socket(16, 3, 20)'";
  const Outcome outcome = run_shell(
      "dir=$(mktemp -d) && mkdir -p $dir/tree/mlx5_0 && cat > $dir/look <<'END' && cat > "
      "$dir/host.c <<'END2' && gcc -shared -fPIC -o $dir/host.so $dir/host.c -ldl && export "
      "HOST_TREE=$dir/tree LD_PRELOAD=$dir/host.so && " +
      list + " && timeout 30 " WEFT_PROGRAM " run -q --no-prefix -- sh $dir/look; rm -r $dir\n" +
      look +
      "\nEND\n"
      "#define _GNU_SOURCE\n"
      "#include <dirent.h>\n"
      "#include <dlfcn.h>\n"
      "#include <stdlib.h>\n"
      "#include <string.h>\n"
      "#include <sys/socket.h>\n"
      "static const char class_folder[] = \"/sys/class/infiniband\";\n"
      "DIR* opendir(const char* path) {\n"
      "  DIR* (*stock)(const char*) = dlsym(RTLD_NEXT, \"opendir\");\n"
      "  const int here = strncmp(path, class_folder, sizeof class_folder - 1) == 0;\n"
      "  return stock(here ? getenv(\"HOST_TREE\") : path);\n"
      "}\n"
      "int socket(int domain, int type, int protocol) {\n"
      "  int (*stock)(int, int, int) = dlsym(RTLD_NEXT, \"socket\");\n"
      "  return domain == 16 && protocol == 20 ? stock(AF_UNIX, SOCK_DGRAM, 0)\n"
      "                                        : stock(domain, type, protocol);\n"
      "}\n"
      "END2");
  // Once, by the first look.
  const std::size_t first = outcome.output.find("mlx5_0");
  EXPECT_EQ(first, 0U) << "the test's own host shows no device: " << outcome.output;
  EXPECT_EQ(outcome.output.find("mlx5_0", 1), std::string::npos) << outcome.output;
  EXPECT_TRUE(outcome.says("efa_0")) << outcome.output;
  EXPECT_FALSE(outcome.says("Error")) << outcome.output;
}

// `rdma` of iproute2 knows devices by netlink only, and never looks into sysfs.
struct Asked {
  const char* name;
  const char* command;
  const char* expected;
};
class Netlink : public ::testing::TestWithParam<Asked> {};

TEST_P(Netlink, TellsOfTheDevices) {
  WEFT_NEEDS("rdma");
  WEFT_NEEDS("ibv_devices");
  const Outcome outcome =
      run_weft(std::string("--no-prefix -q --nics 2 -- ") + GetParam().command, 20);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says(GetParam().expected)) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    All, Netlink,
    ::testing::Values(
        Asked{"Devices", "rdma dev show", "1: efa_1: node_type unspecified"},
        Asked{"OneDevice", "rdma dev show efa_1", "1: efa_1: "},
        Asked{"Links", "rdma link show", "link efa_1/1 state ACTIVE physical_state LINK_UP"},
        Asked{"OneLink", "rdma link show efa_0/1", "link efa_0/1 state ACTIVE"},
        Asked{"LinksAsJson", "rdma link show -j", "\"ifname\":\"efa_0\",\"port\":1"},
        // Newer ones give each counter a line.
        Asked{"Counters", "sh -c 'rdma statistic show | tr -s \"\\n \" \" \"'",
              "link efa_0/1 tx_pkts 0 "},
        Asked{"Resources", "rdma resource show", "0: efa_0: pd 0 cq 0 qp 0 cm_id 0 mr 0"},
        Asked{"ResourcesOfALivingProgram",
              // A program that has the device open, which takes it a moment.
              "sh -c '(ibv_asyncwatch -d efa_1 & echo $! > /tmp/weft-watch.$$; wait) & "
              "for i in $(seq 50); do rdma resource show | grep \"ctx 1\" && break; sleep 0.1; "
              "done; kill $(cat /tmp/weft-watch.$$); rm /tmp/weft-watch.$$'",
              "1: efa_1: pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 1"},
        Asked{"System", "rdma system show", "netns shared"},
        Asked{"Libibverbs", "ibv_devices", "efa_1"}),
    [](const auto& test) { return std::string(test.param.name); });

// A preloaded library comes before the program's others: whatever else it exported, of the C++ that
// it is made of, would take the place of symbols of theirs.
TEST(Library, ExportsTheWrappersAndNothingElse) {
  WEFT_NEEDS("nm");
  // The exit code of a pipe is that of its end, so `nm` is asked alone.
  const Outcome exported = run_shell("names=$(nm -D --defined-only " WEFT_PRELOAD
                                     ") && echo \"$names\" | awk '{print $NF}' | sort");
  const Outcome listed = run_shell("sed -n '/global:/,/local:/p' " WEFT_EXPORTS
                                   " | grep -v : | tr -d ' \\n' | tr ';' '\\n' | sort");
  ASSERT_EQ(exported.code, 0) << exported.output;
  EXPECT_TRUE(exported.says("open\n"));
  EXPECT_EQ(exported.output, listed.output);
}

}  // namespace
}  // namespace weft::testing
