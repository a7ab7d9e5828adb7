// Owns what the weft program promises to people: files checked, networks that stay, captures, and
// what becomes of programs under `weft run`. What is judged is what a user gets to see: exit code,
// text, files. Waits in the scripts end with what they wait for; their 200 or 300 turns only end a
// test that hangs.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/program_fixture.hpp"
#include "tests/support/pcapng_reader.hpp"

namespace weft::testing {
namespace {

TEST_F(ProgramTest, FilesAreCheckedWithFileLineAndRemedy) {
  // One file of each kind that `validate` knows, and each of the others has one mistake in it.
  write("good.yml",
        "name: lab\ntopology:\n  nodes: {h1: {kind: host}, h2: {kind: host}, sw: {}}\n"
        "  links:\n    - {endpoints: [h1, sw]}\n    - {endpoints: [h2, sw]}\n");
  write("bad.yml", "name: lab\ntopology:\n  nodes: {h1: {kind: hots}}\n  links: []\n");
  write("faults.yml", "faults:\n  - {link: h1->sw, loss: 0.1}\n  - {link: h1->sv, loss: 0.1}\n");
  write("typo.yml", "- link: h1->sw\n  losss: 0.1\n");
  write("profile.yml", "profile: mine\nfields:\n  mtuu: {value: 1, mark: fact, why: x}\n");
  write("broken.yml", "a: [1, 2\nb: 3\n");
  const Outcome good = weft("validate good.yml");
  EXPECT_EQ(good.code, 0) << good.output;
  EXPECT_TRUE(good.says("2 hosts, 1 switches, 2 cables")) << good.output;
  struct Bad {
    const char* arguments;
    const char* place;
    const char* remedy;
  };
  for (const Bad& bad :
       {Bad{"bad.yml", "bad.yml:3:", "expected host, switch"},
        Bad{"faults.yml --topology good.yml", "faults.yml:3:", "h1->sw"},
        Bad{"typo.yml", "typo.yml:2:", "did you mean 'loss'?"},
        Bad{"profile.yml", "profile.yml", "mtuu"}, Bad{"broken.yml", "broken.yml:", ""},
        Bad{"no-such-file.yml", "no-such-file.yml", ""}}) {
    const Outcome outcome = weft(std::string("validate ") + bad.arguments);
    EXPECT_EQ(outcome.code, 1) << outcome.output;
    EXPECT_TRUE(outcome.says(bad.place) && outcome.says(bad.remedy)) << outcome.output;
  }
  const auto lines = objects(weft("validate --json good.yml bad.yml").output);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["ok"], true);
  EXPECT_EQ(lines[1]["ok"], false);
}

TEST_F(ProgramTest, ImpairmentsAreSetShownAndReset) {
  up();
  // The second command changes one property and keeps the other.
  EXPECT_EQ(weft("impair " + name_ + " 'h1->fabric' --loss 1%").code, 0);
  const Outcome merged = weft("impair " + name_ + " 'h1->fabric' --delay 50us --json");
  const auto lines = objects(merged.output);
  ASSERT_EQ(lines.size(), 1U) << merged.output;
  EXPECT_EQ(lines[0], (json{{"link", "h1->fabric"}, {"loss", 0.01}, {"extra_delay", "50us"}}));
  EXPECT_TRUE(weft("impair " + name_ + " --reset").says("nothing is impaired"));
  // 2: asked in the wrong way; 1: asked properly, of something that is not there.
  EXPECT_EQ(weft("impair " + name_ + " 'h1->fabric' --loss 200%").code, 2);
  EXPECT_EQ(weft("impair " + name_ + " 'h1->fabric' --loss much").code, 2);
  const Outcome nowhere = weft("impair " + name_ + " nowhere --loss 1%");
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_TRUE(nowhere.says("no link is called 'nowhere'")) << nowhere.output;
}

// A stock program sends over a link that loses 5 %. The capture must have its frames, the lost ones
// among them with the reason, in about that share.
TEST_F(ProgramTest, ACaptureShowsFramesAndWhyTheyWereLost) {
  WEFT_NEEDS("ibv_devinfo");
  WEFT_NEEDS("ib_send_bw");
  WEFT_NEEDS_A_PLAIN_BUILD("a stock program cannot load a sanitized library");
  const Outcome started = weft("up " + name_);
  ASSERT_EQ(started.code, 0) << started.output;
  is_up_ = true;
  ASSERT_EQ(weft("impair " + name_ + " 'h1->fabric' --loss 5%").code, 0);
  ASSERT_EQ(weft("capture " + name_ + " c.pcapng").code, 0);
  const std::string port = own_port();
  const std::string command = "ib_send_bw -c SRD -x 0 -s 4096 -n 300 -p " + port + " -d ";
  const Outcome ran = run_shell(
      "cd " + directory_ + " && (" WEFT_PROGRAM " exec " + name_ + " h2 -- timeout 120 " + command +
      "{h2.dev} & for i in $(seq 600); do sleep 0.1; ss -ltn | grep -q :" + port +
      " && break; done; " WEFT_PROGRAM " exec " + name_ + " h1 -- timeout 120 " + command +
      "{h1.dev} {h2.ip}; code=$?; wait; exit $code)");
  // Whether the program copes is not the question here.
  const Outcome stopped = weft("capture " + name_ + " --stop --json");
  ASSERT_EQ(stopped.code, 0) << stopped.output;
  const CaptureFile file = read_pcapng(directory_ + "/c.pcapng");
  ASSERT_TRUE(file.well_formed);
  std::size_t sent = 0;
  std::size_t lost = 0;
  for (const CapturedFrame& frame : file.frames) {
    if (frame.interface == file.place_of("h1->fabric")) {
      ++sent;
      lost += frame.comment == "dropped: loss" ? 1 : 0;
    }
  }
  // 300 messages, and what is sent again. A share of 0.05 among so few scatters by about 0.013: the
  // bound is more than three times that.
  EXPECT_GT(sent, 200U) << ran.output;
  EXPECT_NEAR(static_cast<double>(lost) / static_cast<double>(sent), 0.05, 0.045);
  EXPECT_EQ(file.frames.size(), json::parse(stopped.output)["packets"].get<std::size_t>());
}

TEST_F(ProgramTest, MetricsAreServedOnASocket) {
  WEFT_NEEDS("curl");
  up();
  const auto status = json::parse(weft("status " + name_ + " --json").output);
  const Outcome outcome =
      run_shell("curl -s --max-time 20 --unix-socket " + status["directory"].get<std::string>() +
                "/metrics.sock http://weftd/metrics");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("weft_info{network=\"ideal\",seed=\"1\"} 1")) << outcome.output;
}

TEST_F(ProgramTest, ALargeNetworkIsShownAndComesUpOnce) {
  // 254 is what fits into the third byte of an address (127.B.h.n).
  up("--hosts 254 --nics 16");
  const auto nics = [&] {
    return json::parse(weft("status " + name_ + " --json").output, nullptr, false)["nics"].size();
  };
  EXPECT_EQ(nics(), 254U * 16);
  const Outcome again = weft("up " + name_ + " --device none");
  EXPECT_EQ(again.code, 1) << again.output;
  EXPECT_TRUE(again.says("is up already")) << again.output;
  EXPECT_EQ(nics(), 254U * 16);
  EXPECT_EQ(weft("down " + name_).code, 0);
  is_up_ = false;
  EXPECT_EQ(weft("status " + name_).code, 1);
}

TEST_F(ProgramTest, AShellBecomesAHost) {
  up();
  const Outcome outcome =
      run_shell("eval \"$(" WEFT_PROGRAM " env " + name_ +
                " h2 --device none)\" && echo $WEFT_HOST && test -S \"$WEFT_SOCKET\" && eval "
                "\"$(" WEFT_PROGRAM " env --unset)\" && echo \"[$WEFT_HOST$WEFT_SOCKET]\"");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "h2\n[]\n");
}

TEST_F(ProgramTest, AServerIsWaitedForEvenBehindAWrapper) {
  WEFT_NEEDS("python3");
  const std::string port = own_port();
  // It listens only after a second, and in a child of the program that weft started.
  write("server.py", "import socket, time\ntime.sleep(1)\ns = socket.create_server(('127.0.0.1', " +
                         port + "))\ns.accept()[0].sendall(b'hello')\n");
  write("client.py",
        "import socket, sys\nprint(sys.argv[1], socket.create_connection(('127.0.0.1', " + port +
            ")).recv(9).decode())\n");
  const Outcome outcome =
      weft("run --device none -- sh -c 'python3 server.py; true' : python3 client.py {h1.ip}");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(without_block(outcome.output).find("[h2] 127.B.1.1 hello\n"), std::string::npos)
      << outcome.output;
}

// The first two of the cores that the test may use, as the machine that the rule is made for.
TEST_F(ProgramTest, WeftdInTheMiddleOfTwoProgramsOnTwoCoresGetsOneOfThem) {
  WEFT_NEEDS("taskset");
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) {
    GTEST_SKIP() << "this machine has one core";
  }
  std::vector<std::string> cores;
  for (int core = 0; core < CPU_SETSIZE && cores.size() < 2; ++core) {
    if (CPU_ISSET(core, &allowed)) {
      cores.push_back(std::to_string(core));
    }
  }
  const auto cores_of_programs = [&](const std::string& options) {
    const Outcome outcome = run_shell("taskset -c " + cores[0] + "," + cores[1] +
                                      " " WEFT_PROGRAM " run --device none -q --no-prefix " +
                                      options + " -- sh -c 'echo $(nproc)'");
    return outcome.output;
  };
  EXPECT_EQ(cores_of_programs("-n 2"), "2\n2\n");
  EXPECT_EQ(cores_of_programs("-n 2 --through-weftd"), "1\n1\n");
  EXPECT_EQ(cores_of_programs("-n 2 --through-weftd --no-pin"), "2\n2\n");
  EXPECT_EQ(cores_of_programs("-n 3 --through-weftd"), "2\n2\n2\n");
  EXPECT_EQ(cores_of_programs("-n 3 --through-weftd --pin"), "1\n1\n1\n");
}

TEST_F(ProgramTest, OutputIsPrefixedLineByLineAndStreamsStayApart) {
  const Outcome outcome = run_shell(
      "{ " WEFT_PROGRAM
      " run --device none -q -n 2 -- sh -c 'printf a; sleep 0.1; echo b; echo c >&2; printf d' "
      "2>/dev/null; } | sort");
  EXPECT_EQ(outcome.output, "[h1] ab\n[h1] d\n[h2] ab\n[h2] d\n");
  const Outcome plain = run_shell(WEFT_PROGRAM " run --device none -q --no-prefix -- printf 'a b'");
  EXPECT_EQ(plain.output, "a b");
}

TEST_F(ProgramTest, SignalsReachThePrograms) {
  const Outcome outcome = weft(
      "run --device none -q -- sh -c 'trap \"echo got it; exit 5\" USR1; echo ready >&2; "
      "while :; do sleep 0.05; done' & pid=$!; sleep 1; "
      "kill -USR1 $(pgrep -P $pid weft); wait $pid; exit $?");
  EXPECT_EQ(outcome.code, 5) << outcome.output;
  EXPECT_TRUE(outcome.says("[h1] got it\n")) << outcome.output;
}

TEST_F(ProgramTest, WhenOneFailsTheOthersEndAndNobodyElseDoes) {
  const Outcome outcome = run_shell(
      // The first is no program of the run, but as like its programs as can be.
      "sleep 300 & other=$!; " WEFT_PROGRAM
      " run --device none -q --grace 0.1 -- sleep 300 : sh -c 'exit 9' : sleep 300; code=$?; "
      "kill -0 $other && kill $other && exit $code");
  EXPECT_EQ(outcome.code, 9)
      << outcome.output;  // of the one that failed first, not of those ended for it
}

TEST_F(ProgramTest, TheEndOfWeftRunIsTheEndOfItsProgramsAndItsWeftd) {
  const Outcome outcome = weft(
      "run --device none -q -- sh -c 'echo $$ >pid; echo $WEFT_SOCKET >socket; exec sleep 300' & "
      "pid=$!; for i in $(seq 200); do test -s socket && break; sleep 0.05; done; "
      "kill -9 $(pgrep -P $pid weft); sleep 0.1; for i in $(seq 200); do "
      "kill -0 $(cat pid) 2>/dev/null || break; sleep 0.05; done; "
      "! kill -0 $(cat pid) 2>/dev/null");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST_F(ProgramTest, ARunLeavesWhatItTakesToRepeatIt) {
  write("net.yml",
        "name: lab\ntopology:\n  nodes: {h1: {kind: host}, h2: {kind: host}, sw: {}}\n"
        "  links:\n    - {endpoints: [h1, sw]}\n    - {endpoints: [h2, sw]}\n");
  const Outcome outcome = weft(
      "run --device none --topology net.yml --fault 'link: h1->sw, loss: 0.5' --seed 77 --out out "
      "--no-pin --grace 1.5 --no-prefix -- true : sh -c 'exit 4'");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_TRUE(outcome.output.starts_with("weft run: seed 77\n")) << outcome.output;
  EXPECT_TRUE(outcome.says("weft run: h2 ended with 4; seed 77; events in out\n"))
      << outcome.output;
  const std::string config = read("out/config.resolved.yml");
  EXPECT_NE(config.find("seed: 77\n"), std::string::npos) << config;
  EXPECT_NE(config.find("netns: false\npin: false\ngrace: 1.5\nno_prefix: true\n"),
            std::string::npos)
      << config;
  EXPECT_NE(config.find("- [\"sh\",\"-c\",\"exit 4\"]\n"), std::string::npos) << config;
  EXPECT_EQ(read("out/topology.yml"), read("net.yml"));
  const auto events = objects(read("out/events.jsonl"));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[3]["exit_code"], 4);
  EXPECT_EQ(objects(read("out/network.jsonl")).front()["seed"], 77);
  EXPECT_NE(read("out/metrics.prom").find("weft_info{network=\"lab\",seed=\"77\"}"),
            std::string::npos);
}

TEST_F(ProgramTest, ADirectoryOfARunHoldsOneRun) {
  // More hosts and a fault: whatever of this run were still there after the second would be seen.
  ASSERT_EQ(weft("run --device none --fault 'link: h1-*, loss: 0.1' --out out -n 2 -- true").code,
            0);
  const Outcome outcome = weft("run --device none --no-prefix --json --out out -- true");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(objects(outcome.output).at(0)["host"], "h1") << outcome.output;
  EXPECT_EQ(objects(read("out/events.jsonl")).size(), 2U) << read("out/events.jsonl");
  std::size_t beginnings = 0;
  for (const json& event : objects(read("out/network.jsonl"))) {
    beginnings += event["event"] == "weftd" ? 1U : 0U;
    EXPECT_NE(event["event"], "fault");
  }
  EXPECT_EQ(beginnings, 1U) << read("out/network.jsonl");
}

TEST_F(ProgramTest, WhatIsAskedTheWrongWayIsSaidSo) {
  write("net.yml",
        "name: lab\ntopology:\n  nodes: {a: {kind: host}, b: {kind: host}, sw: {}}\n"
        "  links:\n    - {endpoints: [a, sw]}\n    - {endpoints: [b, sw]}\n");
  for (const char* arguments :
       {"run --device none -n 300 -- true", "run --netns --device none -n 65 -- true",
        "run --device none --nics 2 --topology net.yml -- true",
        "up x --hosts 3 --topology net.yml", "up x --nics 2 --topology net.yml", "exec",
        "exec x h1", "run --device none -n 4 -- true : true", "impair x h1 --reset --loss 1%",
        "impair x --reset --down", "bench engine --packets 0", "bench engine --case write:64abc",
        "bench engine --case write:", "bench engine --case write:8193"}) {
    const Outcome outcome = weft(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << ": " << outcome.output;
  }
  EXPECT_TRUE(weft("run --device none -n 300 -- true").says("--per-host"));
  const std::string weftd =
      " $(dirname " WEFT_PROGRAM ")/../daemon/weftd --dir " + directory_ + "/d ";
  for (const char* arguments : {"--hosts 0", "--no-such-option", "--port nonsense:1",
                                "--hosts 200 --first-host 100", "--hosts 2 --topology net.yml"}) {
    EXPECT_EQ(run_shell("timeout 20" + weftd + arguments).code, 2) << arguments;
  }
}

TEST_F(ProgramTest, HostsOfATopologyHaveTheNumbersThatWereAskedFor) {
  write("net.yml",
        "name: lab\ntopology:\n  nodes: {a: {kind: host}, b: {kind: host}, sw: {}}\n"
        "  links:\n    - {endpoints: [a, sw]}\n    - {endpoints: [b, sw]}\n");
  up("--topology net.yml --first-host 3");
  const Outcome there = weft("exec " + name_ + " h4 --device none -- echo {h4.ip} {b.ip} {a.ip}");
  EXPECT_EQ(without_block(there.output), "127.B.4.1 127.B.4.1 127.B.3.1\n");
  const Outcome nobody = weft("exec " + name_ + " b --device none -- echo {h1.ip}");
  EXPECT_EQ(nobody.code, 1);
  EXPECT_TRUE(nobody.says("there is no host 'h1'")) << nobody.output;
}

TEST_F(ProgramTest, WhenNobodyReadsTheProgramsEndAndNothingStays) {
  for (const char* arguments : {"run --device none -n 2 -- yes", "run --device none -- yes",
                                "run --device none --no-prefix -- yes"}) {
    const Outcome outcome =
        run_shell("mkdir -p " + directory_ + "/r && export XDG_RUNTIME_DIR=" + directory_ +
                  "/r && timeout 60 " WEFT_PROGRAM " " + arguments + " 2>/dev/null | head -1");
    EXPECT_TRUE(outcome.says("y\n")) << outcome.output;
    EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/r")) << arguments;
  }
  // What the programs get is not what weft ignores.
  EXPECT_EQ(weft("run --device none -q -- sh -c 'kill -PIPE $$'").code, 128 + SIGPIPE);
}

// Variables that the user had set keep their values through any number of `env`s, and come back
// after `--unset`.
TEST_F(ProgramTest, AShellIsLeftAsItWas) {
  const Outcome started = weft("up " + name_);
  ASSERT_EQ(started.code, 0) << started.output;
  is_up_ = true;
  const std::string show = "env | grep -E '^(WEFT|FI_|LD_PRELOAD)' | sort";
  const auto env = [&](const std::string& arguments) {
    return "eval \"$(" WEFT_PROGRAM " env " + arguments + ")\"; ";
  };
  write("script",
        "export FI_EFA_RX_SIZE=77 FI_LOG_LEVEL=warn LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6; " +
            show + "; echo; " + env(name_ + " h1") + show + "; echo; " +
            env(name_ + " h2 --device none") + show + "; echo; " + env(name_ + " h2") +
            env("--unset") + show + "; echo; unset LD_PRELOAD; " + env(name_ + " h1") +
            env("--unset") + show + "; echo " + env("--unset"));
  const Outcome outcome = run_shell("sh " + directory_ + "/script");
  std::vector<std::string> parts(1);
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      parts.emplace_back();
    } else {
      parts.back() += line + "\n";
    }
  }
  ASSERT_EQ(parts.size(), 5U) << outcome.output;
  EXPECT_NE(parts[0].find("libm"), std::string::npos);
  EXPECT_NE(parts[1].find("libweft-preload.so:/lib"), std::string::npos) << parts[1];
  EXPECT_NE(parts[1].find("FI_EFA_RX_SIZE=77"), std::string::npos) << parts[1];
  EXPECT_EQ(parts[2].find("FI_EFA_ENABLE"), std::string::npos) << parts[2];
  EXPECT_NE(parts[2].find("WEFT_HOST=h2"), std::string::npos) << parts[2];
  EXPECT_EQ(parts[3], parts[0]);
  EXPECT_TRUE(parts[4].starts_with("FI_EFA_RX_SIZE=77\nFI_LOG_LEVEL=warn\n")) << parts[4];
  EXPECT_EQ(parts[4].find("WEFT_HOST"), std::string::npos) << parts[4];
}

// In this order: what the command line says, the environment of an earlier `env`, the rank of a
// launcher, the only network that is up.
TEST_F(ProgramTest, ExecFindsNetworkAndHostByItself) {
  // In a place where no other networks are.
  const std::string in = "cd " + directory_ + " && export XDG_RUNTIME_DIR=" + directory_ +
                         "; unset WEFT_NETWORK WEFT_HOST; ";
  const std::string exec = WEFT_PROGRAM " exec --device none ";
  const auto said = [&](const std::string& command) { return run_shell(in + command); };
  EXPECT_EQ(said(exec + "-- true").code, 2);  // nothing is up
  ASSERT_EQ(said(WEFT_PROGRAM " up one --device none --hosts 3").code, 0);
  const std::string show = "-- sh -c 'echo $WEFT_HOST'";
  EXPECT_EQ(said(exec + "one h2 " + show).output, "h2\n");
  EXPECT_EQ(said("WEFT_HOST=h3 " + exec + show).output, "h3\n");
  EXPECT_EQ(said("WEFT_HOST=h3 " + exec + "one " + show).output, "h3\n");
  // Ranks begin at 0, hosts at 1, and a rank beyond the last host begins again at h1. With several
  // of the variables set the first of those that weft knows counts.
  EXPECT_EQ(said("OMPI_COMM_WORLD_RANK=1 PMI_RANK=2 " + exec + show).output, "h2\n");
  EXPECT_EQ(said("OMPI_COMM_WORLD_RANK=1x " + exec + show).code, 2) << "no number";
  for (const char* variable : {"PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    EXPECT_EQ(said(std::string(variable) + "=3 " + exec + show).output, "h1\n") << variable;
  }
  const Outcome no_host = said(exec + show);
  EXPECT_EQ(no_host.code, 2);
  EXPECT_TRUE(no_host.says("WEFT_HOST")) << no_host.output;
  ASSERT_EQ(said(WEFT_PROGRAM " up two --device none").code, 0);
  const Outcome which = said("WEFT_HOST=h1 " + exec + show);
  EXPECT_EQ(which.code, 2);
  EXPECT_TRUE(which.says("one, two")) << which.output;
  EXPECT_EQ(said("WEFT_NETWORK=two WEFT_HOST=h1 " + exec + show).output, "h1\n");
  // Brackets mean something to the parser of the command line; behind -- nothing may.
  EXPECT_EQ(said(exec + "one h2 -- printf '<%s>' '[a,b]' '[]' x").output, "<[a,b]><[]><x>");
  EXPECT_EQ(said("WEFT_HOST=h3 " + exec + "one -- printf '<%s>' '[a,b]'").output, "<[a,b]>");
  EXPECT_EQ(said(exec + "one h2 -- '{}'").code, 127);
  for (const char* name : {"one", "two"}) {
    EXPECT_EQ(said(WEFT_PROGRAM " down " + std::string(name)).code, 0);
  }
}

TEST_F(ProgramTest, RanksOfMpirunAreHostsOfTheirOwn) {
  WEFT_NEEDS("mpirun.openmpi");
  WEFT_NEEDS("mpicc.openmpi");
  WEFT_NEEDS_A_PLAIN_BUILD("a stock program cannot load a sanitized library");
  write("a.c",
        // Each rank adds its rank + 99 in the last round: 0+1+2+3 + 4*99 = 402.
        "#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\nint main(int c, char** v) {\n"
        "int rank, size, sum; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n"
        "MPI_Comm_size(MPI_COMM_WORLD, &size);\n"
        "for (int i = 0; i < 100; i++) { int one = rank + i;\n"
        "MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); }\n"
        "printf(\"%s: rank %d of %d, %d\\n\", getenv(\"WEFT_HOST\"), rank, size, sum);\n"
        "MPI_Finalize(); }\n");
  const Outcome outcome =
      run_shell("cd " + directory_ + " && export XDG_RUNTIME_DIR=" + directory_ +
                " && unset WEFT_NETWORK WEFT_HOST; mpicc.openmpi -o a a.c && " WEFT_PROGRAM
                " up lab --hosts 4 >/dev/null && export OMPI_ALLOW_RUN_AS_ROOT=1 "
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tmpdir_base=" +
                directory_ +
                " OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=efa; timeout 120 mpirun.openmpi "
                "--oversubscribe -n 4 " WEFT_PROGRAM " exec -- ./a 2>errors | sort; " WEFT_PROGRAM
                " status lab | grep forwarded; " WEFT_PROGRAM " down lab >/dev/null; cat errors");
  EXPECT_TRUE(
      outcome.output.starts_with("h1: rank 0 of 4, 402\nh2: rank 1 of 4, 402\n"
                                 "h3: rank 2 of 4, 402\nh4: rank 3 of 4, 402\n"))
      << outcome.output;
}

TEST_F(ProgramTest, AnMpiProgramWithoutALauncherIsPointedToOne) {
  WEFT_NEEDS("mpicc.openmpi");
  // It is linked against MPI, which is what weft looks at, and never calls it.
  write("a.c", "#include <mpi.h>\nint main(int c, char** v) { if (c > 9) MPI_Init(&c, &v); }\n");
  ASSERT_EQ(run_shell("cd " + directory_ + " && mpicc.openmpi -o a a.c").code, 0);
  const Outcome alone = weft("run --device none -n 2 -- ./a");
  EXPECT_EQ(alone.code, 0) << alone.output;
  EXPECT_TRUE(alone.says("mpirun -n 2 weft exec")) << alone.output;
  EXPECT_FALSE(weft("run --device none -n 2 -- true").says("mpirun"));
  EXPECT_FALSE(weft("run --device none -- ./a").says("mpirun -n"));
}

// One rail of two, at run time, seen by stock programs.
TEST_F(ProgramTest, AProgramSeesItsPortGoDownAndComeBack) {
  WEFT_NEEDS("ibv_asyncwatch");
  WEFT_NEEDS("stdbuf");
  WEFT_NEEDS_A_PLAIN_BUILD("a stock program cannot load a sanitized library");
  const Outcome started = weft("up " + name_ + " --nics 2");
  ASSERT_EQ(started.code, 0) << started.output;
  is_up_ = true;
  const std::string here = WEFT_PROGRAM " exec " + name_ + " h2 -- ";
  const auto until = [](const std::string& condition) {
    return "for i in $(seq 300); do " + condition + " && break; sleep 0.1; done; ";
  };
  const std::string state = here + "ibv_devinfo -d efa_";
  const Outcome outcome = run_shell(
      "cd " + directory_ + "; for i in 0 1; do " + here +
      "timeout 100 stdbuf -oL ibv_asyncwatch -d efa_$i > seen$i 2>&1 & pids=\"$pids $!\"; done; " +
      until("test $(" WEFT_PROGRAM " status " + name_ +
            " --json | grep -o '\"pid\"' | wc -l) = 3") +
      WEFT_PROGRAM " fault " + name_ + " 'link: h2-fabric#1, down: true'; " +
      until("grep -q PORT_ERR seen1") + state + "1 | grep state:; " + state + "0 | grep state:; " +
      WEFT_PROGRAM " heal " + name_ + " 0; " + until("grep -q EVENT_PORT_ACTIVE seen1") + state +
      "1 | grep state:; kill $pids; echo rail 0; cat seen0; echo rail 1; cat seen1");
  const auto at = [&](const std::string& text, std::size_t from = 0) {
    return outcome.output.find(text, from);
  };
  const std::size_t down = at("PORT_DOWN");
  const std::size_t other = at("PORT_ACTIVE");
  const std::size_t rail1 = at("rail 1");
  ASSERT_NE(rail1, std::string::npos) << outcome.output;
  // First the states of rail 1 and rail 0 while rail 1 is down, then rail 1's after it came back.
  EXPECT_LT(down, other) << outcome.output;
  EXPECT_LT(at("PORT_ACTIVE", other + 1), rail1) << outcome.output;
  EXPECT_EQ(at("PORT_DOWN", down + 1), std::string::npos) << outcome.output;
  EXPECT_LT(rail1, at("EVENT_PORT_ERR")) << outcome.output;  // and nothing on rail 0
  EXPECT_LT(at("EVENT_PORT_ERR"), at("EVENT_PORT_ACTIVE")) << outcome.output;
}

TEST_F(ProgramTest, PeersAreMeasuredInTheSameSession) {
  WEFT_NEEDS("fi_pingpong");
  const Outcome outcome =
      weft("perf --op send --size 64 --rounds 1 --seconds 0.05 --peers 'tcp;ofi_rxm' --json", 100);
  const auto lines = objects(outcome.output);
  ASSERT_EQ(lines.size(), 2U) << outcome.output;
  EXPECT_EQ(lines[1]["io"], "tcp;ofi_rxm");
  EXPECT_GT(lines[1]["latency_us_p50"], 0);
}

TEST_F(ProgramTest, AnInterruptEndsAllPeers) {
  // A peer that never ends. Of the three only the first is started.
  write("fi_pingpong", "#!/bin/sh\necho started >>" + directory_ + "/said\nexec sleep 60\n");
  std::filesystem::permissions(directory_ + "/fi_pingpong", std::filesystem::perms::owner_all);
  const Outcome outcome =
      run_shell("cd " + directory_ + "; PATH=" + directory_ +
                ":$PATH timeout 60 " WEFT_PROGRAM
                " perf --op send --size 64 --rounds 1 --seconds 0.02 --peers a,b,c & "
                "for i in $(seq 200); do test -s said && break; sleep 0.05; done; "
                "kill -TERM $(pgrep -P $! weft); wait $!");
  EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.output;
  EXPECT_EQ(read("said"), "started\n");
}

TEST_F(ProgramTest, CompletionsKnowEveryCommand) {
  const Outcome bash = run_shell(
      "bash -c 'source <(" WEFT_PROGRAM
      " completions bash); COMP_WORDS=(weft do); COMP_CWORD=1; _weft; echo ${COMPREPLY[*]}; "
      "COMP_WORDS=(weft impair x --lo); COMP_CWORD=3; _weft; echo ${COMPREPLY[*]}'");
  EXPECT_EQ(bash.output, "doctor down\n--loss\n");
  for (const char* shell : {"zsh", "fish"}) {
    const Outcome outcome = weft(std::string("completions ") + shell);
    EXPECT_TRUE(outcome.says("impair") && outcome.says("swarm")) << outcome.output;
    if (has(shell)) {
      EXPECT_EQ(run_shell(WEFT_PROGRAM " completions " + std::string(shell) + " | " + shell +
                          " -n /dev/stdin")
                    .code,
                0);
    }
  }
  EXPECT_EQ(weft("completions tcsh").code, 2);
}

}  // namespace
}  // namespace weft::testing
