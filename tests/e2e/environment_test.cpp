// Owns what is promised about the surroundings of networks: directories, device trees, descriptors
// and the variables of a shell. Each test is a script of a shell, as a user would type it, with a
// runtime directory of its own (r): whatever is found in it afterwards, weft has left there.
#include <fcntl.h>

#include "tests/e2e/program_fixture.hpp"

namespace weft::testing {
namespace {

// Everything below in a place where no other networks are.
class SurroundingsTest : public ProgramTest {
 protected:
  Outcome here(const std::string& script) {
    std::filesystem::create_directories(directory_ + "/r");
    std::filesystem::permissions(directory_ + "/r", std::filesystem::perms::owner_all);
    return run_shell("cd " + directory_ + " && export XDG_RUNTIME_DIR=" + directory_ +
                     "/r; unset WEFT_NETWORK WEFT_HOST; weft=" WEFT_PROGRAM "; " + script);
  }
};

TEST_F(SurroundingsTest, DeviceTreesFollowDeviceAndNetwork) {
  WEFT_NEEDS("ibv_devinfo");
  WEFT_NEEDS_A_PLAIN_BUILD("a stock program cannot load a sanitized library");
  const std::string part = "| grep -E 'vendor_part_id|hca_id' | tr -s '\\t ' ' '; ";
  const Outcome outcome = here(
      "$weft up lab >/dev/null; for kind in efa:first efa:newest efa:first; do $weft exec --device "
      "$kind lab h1 -- ibv_devinfo " +
      part +
      "done; kill -9 $(pgrep -f \"weftd --dir $XDG_RUNTIME_DIR\"); sleep 0.3; "
      "$weft up lab --nics 2 >/dev/null; $weft exec lab h1 -- ibv_devinfo | grep -c hca_id; "
      "ls r/weft-*/lab/devices/h1 | wc -l; $weft down lab");
  EXPECT_EQ(outcome.output,
            "hca_id: efa_0\n vendor_part_id: 61344\nhca_id: efa_0\n vendor_part_id: 61346\n"
            "hca_id: efa_0\n vendor_part_id: 61344\n2\n1\n");
}

TEST_F(SurroundingsTest, DevicesAreThoseThatTheNetworkWasMadeFor) {
  WEFT_NEEDS("ibv_devices");
  WEFT_NEEDS_A_PLAIN_BUILD("a stock program cannot load a sanitized library");
  // `exec` and `env` say in two ways what a program sees; both must follow the network's kind.
  const std::string kinds = "; ibv_devices 2>/dev/null | grep -oE '(rxe|efa)_0' || echo none";
  const std::string asked = "$weft exec lab h1 -- sh -c \"true" + kinds +
                            "\"; (eval \"$($weft env lab h1)\"" + kinds + "); ";
  const Outcome outcome = here("$weft up lab --device rxe >/dev/null; " + asked +
                               "$weft exec --device efa lab h1 -- ibv_devices | grep -o efa_0; "
                               "$weft exec lab h1 -- echo {h1.dev}; $weft down lab; "
                               "$weft up lab >/dev/null; " +
                               asked + "$weft down lab; $weft up lab --device none >/dev/null; " +
                               asked + "$weft down lab");
  EXPECT_EQ(outcome.output, "rxe_0\nrxe_0\nefa_0\nrxe_0\nefa_0\nefa_0\nnone\nnone\n");
}

// A list of names that is too short is refused when the network starts, not when a program does.
TEST_F(SurroundingsTest, EveryNicOfTheNetworkHasAName) {
  const Outcome outcome = here(
      "$weft up lab --names a,b --nics 3; echo $?; ls r/weft-*; $weft up lab --names a,b --nics 2 "
      ">/dev/null; $weft exec lab h1 -- echo {h1.dev}; $weft down lab");
  EXPECT_EQ(outcome.output,
            "weft: host h1: NIC 2 has no name: there are 2, and a host has more NICs\n1\na\n");
}

// A profile's file is found from wherever the other commands are called.
TEST_F(SurroundingsTest, AProfilesFileIsRemembered) {
  WEFT_NEEDS("ibv_devinfo");
  WEFT_NEEDS_A_PLAIN_BUILD("a stock program cannot load a sanitized library");
  const Outcome outcome =
      here("cp " WEFT_PROFILES
           "/first.yaml own.yaml; $weft up lab --device efa:own.yaml "
           ">/dev/null; cd r; $weft exec lab h1 -- ibv_devinfo | grep -oE '61344'; $weft down lab");
  EXPECT_EQ(outcome.output, "61344\n");
}

TEST_F(SurroundingsTest, OnlyDirectoriesOfOnesOwnAreUsed) {
  // What another user could prepare in a shared /tmp: a link, or a folder that others may write to.
  const std::string parent = "r/weft-" + std::to_string(::geteuid());
  // A link in place of the parent, or of the network.
  EXPECT_EQ(here("mkdir -m 700 elsewhere && ln -s ../elsewhere " + parent +
                 " && $weft up lab --device none")
                .code,
            1);
  EXPECT_EQ(here("rm " + parent + "; mkdir -m 700 " + parent + " && ln -s ../../elsewhere " +
                 parent + "/lab && $weft up lab --device none")
                .code,
            1);
  for (const char* command : {"status lab", "down lab", "exec lab h1 -- true"}) {
    EXPECT_EQ(here("$weft " + std::string(command)).code, 1) << command;
  }
  const Outcome open = here("rm " + parent + "/lab; chmod 777 " + parent +
                            "; $weft up lab --device none; code=$?; ls elsewhere; exit $code");
  EXPECT_EQ(open.code, 1);
  EXPECT_TRUE(open.says("0700")) << open.output;
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/elsewhere"));
}

TEST_F(SurroundingsTest, WhatCannotBeANameIsSaidToBeNone) {
  // 63 is the longest name that is allowed; refused are a line break, one byte more, far more,
  // nothing, and a way out of the directory.
  const std::string longest(63, 'n');
  for (const std::string& name : {std::string("\"$(printf 'a\\nb')\""), longest + "n",
                                  std::string(300, 'n'), std::string("''"), std::string("..")}) {
    for (const char* command : {"up --device none", "status", "down"}) {
      const Outcome outcome = here("$weft " + std::string(command) + " " + name);
      EXPECT_EQ(outcome.code, 1) << command << " " << name;
      EXPECT_TRUE(outcome.says("is no name of a network")) << outcome.output;
    }
  }
  EXPECT_EQ(here("$weft up --device none " + longest + " && $weft down " + longest).code, 0);
}

TEST_F(SurroundingsTest, AnothersRuntimeDirectoryIsNotUsed) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can make a directory another user's";
  }
  const Outcome outcome = here(
      "chown 65534 r; $weft run --device none -q -- sh -c 'echo "
      "$WEFT_SOCKET'; ls r | wc -l");
  EXPECT_TRUE(outcome.says("/tmp/weft-") && outcome.says("\n0\n")) << outcome.output;
}

TEST_F(SurroundingsTest, WeftdInheritsNothing) {
  const Outcome outcome = here(
      // A lock and a pipe of the caller's, which a weftd that kept its descriptors would hold for
      // as long as it lives; and not the folder that it was started in, which could then not be
      // unmounted.
      "exec 9>lock; flock 9; mkfifo pipe; (exec 8>pipe; $weft up lab --device none >/dev/null) & "
      "timeout 20 cat pipe; echo ended:$?; exec 9>&-; flock -n lock true; echo free:$?; "
      "readlink /proc/$(pgrep -f \"weftd --dir $XDG_RUNTIME_DIR\")/cwd; $weft down lab");
  EXPECT_EQ(outcome.output, "ended:0\nfree:0\n/\n");
  // Relative names mean what they meant where they were said.
  write("net.yml",
        "name: lab\ntopology:\n  nodes: {h1: {kind: host}, sw: {}}\n"
        "  links:\n    - {endpoints: [h1, sw]}\n");
  EXPECT_EQ(
      here("$weft up lab --device none --topology net.yml --events events.jsonl >/dev/null && "
           "$weft down lab && test -s events.jsonl")
          .code,
      0);
}

TEST_F(SurroundingsTest, DirectoriesThatOnlyLookLikeOursStay) {
  const Outcome outcome = here(
      // It has the prefix of ours and is old, but no lock of a run.
      "mkdir r/weft-backup; touch r/weft-backup/owner; touch -d '1 hour ago' r/weft-backup; "
      "$weft run --device none -q -- true; ls r/weft-backup");
  EXPECT_EQ(outcome.output, "owner\n");
}

// Runs that script so often for each `$wait` within which a command starts.
std::string after_short_waits(int rounds, const std::string& script) {
  return "for round in $(seq " + std::to_string(rounds) +
         "); do for wait in 0.005 0.01 0.015 0.02 0.025 0.03 0.05 0.08; do " + script +
         "; done; done";
}

TEST_F(SurroundingsTest, AnInterruptAtTheStartLeavesNothing) {
  const Outcome outcome =
      here("for signal in INT QUIT; do " +
           after_short_waits(3, "timeout -s $signal $wait $weft run --device none -q -- sleep 5") +
           "; done; ls r | wc -l");
  EXPECT_EQ(outcome.output, "0\n");
}

// The second one leaves all that the first one has alone, from the devices of a program that runs
// there already to the log.
TEST_F(SurroundingsTest, OfTwoWhoStartANetworkOfOneNameOneWins) {
  const Outcome outcome = here(
      "start() { $weft up lab >said$1 2>&1 && $weft exec lab h1 -- sh -c 'for i in 1 2 3 4 5 6 7 "
      "8; "
      "do sleep 0.01; test -e $WEFT_DEVICES/nic0 || exit 9; done' >>said$1 2>&1; echo $? >code$1; "
      "}; "
      "for round in $(seq 30); do start 1 & start 2 & wait; sort code1 code2 | tr '\\n' ' '; "
      "cat said1 said2 | grep -c 'lab. is up already'; $weft down lab; done | sort | uniq -c | tr "
      "-s "
      "' '; ls r/weft-*");
  EXPECT_EQ(outcome.output, " 30 0 1 1\n");
}

TEST_F(SurroundingsTest, AnInterruptedUpLeavesNothing) {
  const Outcome outcome = here(after_short_waits(
      5,
      "timeout --preserve-status -s INT $wait $weft up lab >/dev/null; code=$?; "
      "if test $code = 0; then $weft down lab; continue; fi; test $code = 130 || echo $code; "
      "ls r/weft-* 2>/dev/null; pgrep -f \"weftd --dir $XDG_RUNTIME_DIR\""));
  EXPECT_EQ(outcome.output, "");
}

TEST_F(SurroundingsTest, DevicesForWhichThereIsNoRoomAreRefusedWhole) {
  const Outcome outcome = here(
      "$weft up lab >/dev/null; (trap '' XFSZ; ulimit -f 1; $weft exec lab h1 -- true); echo $?; "
      "ls -d r/weft-*/lab/tree* r/weft-*/lab/devices/h1/* 2>/dev/null; $weft down lab");
  EXPECT_TRUE(outcome.says("is there room?")) << outcome.output;
  EXPECT_TRUE(outcome.output.ends_with("\n1\n")) << outcome.output;
}

TEST_F(SurroundingsTest, AShellGetsItsOldValuesBack) {
  const Outcome outcome = here(
      "$weft up lab >/dev/null; export ASAN_OPTIONS=\"a=b:it's\" WEFT_HOST=mine; "
      "eval \"$($weft env lab h2)\"; echo $WEFT_HOST; eval \"$($weft env lab h1)\"; "
      "echo $WEFT_HOST; eval \"$($weft env --unset)\"; echo \"$ASAN_OPTIONS $WEFT_HOST\"; "
      "env | grep -c WEFT_SAVED; $weft down lab");
  EXPECT_EQ(outcome.output, "h2\nh1\na=b:it's mine\n0\n");
}

TEST_F(SurroundingsTest, OnlyNamesOfVariablesAreEvaluated) {
  const Outcome outcome = here(
      "export WEFT_ENV='A;touch${IFS}hacked $(touch hacked) B-C 1D WEFT_HOST'; "
      "eval \"$($weft env --unset)\"; ls");
  EXPECT_EQ(outcome.output, "r\n");
}

}  // namespace
}  // namespace weft::testing
