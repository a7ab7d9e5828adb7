// Owns what `weft run` promises about the files around it, its output, its signals and the
// terminal. The programs are lines of a shell; where a test has to know that one runs, it first
// writes its number into a file (pid).
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>

#include "tests/e2e/program_fixture.hpp"
#include "tests/support/pcapng_reader.hpp"

namespace weft::testing {
namespace {

using std::chrono::steady_clock;

constexpr const char* kNetwork =
    "name: lab\ntopology:\n  nodes: {h1: {kind: host}, h2: {kind: host}, sw: {}}\n"
    "  links:\n    - {endpoints: [h1, sw]}\n    - {endpoints: [h2, sw]}\n";

// A program on a terminal of its own, as a person has it.
class OnTerminal {
 public:
  explicit OnTerminal(const std::string& command) {
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::fcntl(terminal_, F_SETFL, O_NONBLOCK);
  }
  ~OnTerminal() {
    ::close(terminal_);  // a hang-up
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void type(const std::string& text) {
    ASSERT_EQ(::write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Reads until the text is there. A terminal echoes what is typed: tests look for what only the
  // program can have said.
  [[nodiscard]] bool shows(const std::string& text) {
    const auto patience = steady_clock::now() + std::chrono::seconds{30};
    while (shown_.find(text) == std::string::npos && steady_clock::now() < patience) {
      pollfd ready{terminal_, POLLIN, 0};
      ::poll(&ready, 1, 100);
      char piece[4096];
      if (const ssize_t size = ::read(terminal_, piece, sizeof piece); size > 0) {
        shown_.append(piece, static_cast<std::size_t>(size));
      } else if (size < 0 && errno == EIO) {
        break;  // everybody has closed it
      }
    }
    return shown_.find(text) != std::string::npos;
  }
  [[nodiscard]] int wait() {
    int status = -1;
    const auto patience = steady_clock::now() + std::chrono::seconds{30};
    while (!ended_ && steady_clock::now() < patience) {
      ended_ = ::waitpid(pid_, &status, WNOHANG) == pid_;
      ::usleep(10'000);
    }
    return ended_ && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  [[nodiscard]] const std::string& shown() const { return shown_; }

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string shown_;
};

// The run writes a topology.yml, too: over a file of the user's with that name only if it is the
// same.
TEST_F(ProgramTest, FilesOfTheUserSurviveARunInTheirDirectory) {
  write("topology.yml", kNetwork);
  const Outcome same = weft("run --device none --topology topology.yml --out . -- true");
  EXPECT_EQ(same.code, 0) << same.output;
  EXPECT_EQ(read("topology.yml"), kNetwork);
  EXPECT_NE(read("config.resolved.yml"), "");
  // The run's own files are the next run's to replace, the user's never.
  EXPECT_EQ(weft("run --device none --out . -- true").code, 1);
  write("topology.yml", "mine\n");
  const Outcome refused = weft("run --device none --out . -- true");
  EXPECT_EQ(refused.code, 1) << refused.output;
  EXPECT_TRUE(refused.says("topology.yml") && refused.says("--out")) << refused.output;
  EXPECT_EQ(read("topology.yml"), "mine\n");
  // A single file with the name of one of the run's, in a directory that no run has made.
  std::filesystem::create_directory(directory_ + "/fresh");
  write("fresh/metrics.prom", "mine\n");
  EXPECT_EQ(weft("run --device none --out fresh -- true").code, 1);
  EXPECT_EQ(read("fresh/metrics.prom"), "mine\n");
}

// As under nohup: the signal was ignored before weft began, and stays so.
TEST_F(ProgramTest, AHangUpThatIsIgnoredIsNoInterrupt) {
  const char* program = "run --device none -q -- sh -c 'kill -HUP $PPID; sleep 0.2; echo lives'";
  const Outcome ignored =
      run_shell("cd " + directory_ + "; trap '' HUP; " WEFT_PROGRAM " " + std::string(program));
  EXPECT_EQ(ignored.code, 0) << ignored.output;
  EXPECT_TRUE(ignored.says("lives")) << ignored.output;
  EXPECT_EQ(weft(program).code, 128 + SIGHUP);
}

// The program is not trusted: a link in the run's directory must not lead weft to overwrite other
// files.
TEST_F(ProgramTest, WhatARunWritesGoesThroughNoLink) {
  for (const char* name : {"result.json", "events.jsonl", "network.jsonl", "metrics.prom"}) {
    const std::string mine = "mine-" + std::string(name);
    write(mine, "mine\n");
    const Outcome outcome =
        weft("run --device none -q --out linked -- sh -c 'rm -f linked/" + std::string(name) +
             " && ln -s ../" + mine + " linked/" + name + "'");
    EXPECT_EQ(read(mine), "mine\n") << outcome.output;
    std::filesystem::remove_all(directory_ + "/linked");
  }
}

TEST_F(ProgramTest, ACaptureOfARunIsInItsDirectory) {
  // The first four bytes are the block type of a pcapng file's section header.
  for (int turn = 0; turn < 2; ++turn) {  // the second one replaces the first one's
    const Outcome outcome = weft("run --capture --device none -q --out captured -- true");
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(read("captured/capture.pcapng").substr(0, 4), "\x0a\x0d\x0d\x0a");
  }
  std::filesystem::create_directory(directory_ + "/own");
  write("own/capture.pcapng", "mine\n");
  EXPECT_NE(weft("run --capture --device none -q --out own -- true").code, 0);
  EXPECT_EQ(read("own/capture.pcapng"), "mine\n");
}

// Old directories are swept when there are more than twenty. One whose run goes on is not old.
TEST_F(ProgramTest, ARunThatGoesOnKeepsItsDirectory) {
  const Outcome outcome = run_shell(
      "cd " + directory_ + " && export TMPDIR=" + directory_ +
      " && unset WEFT_RUNS; " WEFT_PROGRAM
      " run --device none -q --seed 4242 -- sh -c 'while ! test -e go; do sleep 0.05; done' & "
      "for i in $(seq 200); do ls weft-runs-*/*-4242-* >/dev/null 2>&1 && break; sleep 0.05; done; "
      "for i in $(seq 24); do " WEFT_PROGRAM
      " run --device none -q -- true; done; "
      "ls weft-runs-*/*-4242-*/config.resolved.yml; touch go; wait; "
      "test $(ls -d weft-runs-*/* | wc -l) -le 21 && echo few");
  EXPECT_TRUE(outcome.says("config.resolved.yml\n")) << outcome.output;
  EXPECT_TRUE(outcome.says("few\n")) << outcome.output;  // the latest twenty, and that one
  const Outcome twice =
      weft("run --device none -q --out one -- sleep 3 & sleep 1; cd " + directory_ +
           "; " WEFT_PROGRAM " run --device none --out one -- true; code=$?; wait; exit $code");
  EXPECT_EQ(twice.code, 1) << twice.output;
  EXPECT_TRUE(twice.says("still goes on")) << twice.output;
}

// Braces are only special around what weft knows; all else reaches the program as it was given.
TEST_F(ProgramTest, ArgumentsAreAnyBytes) {
  const Outcome bytes =
      weft("run --device none -q --no-prefix --out bytes -- printf '%s' \"$(printf '\\377')\"");
  EXPECT_EQ(bytes.code, 0) << bytes.output;
  EXPECT_EQ(bytes.output, "\xFF");
  EXPECT_EQ(objects(read("bytes/events.jsonl")).size(), 2U);
  const auto said = [&](const std::string& word) {
    return without_block(
        weft("run --device none -q --no-prefix -- printf '%s' '" + word + "'").output);
  };
  // JSON and other text with braces goes through, a word in them that weft knows is replaced.
  EXPECT_EQ(said("{a}{h1.ip}"), "{a}127.B.1.1");
  EXPECT_EQ(said("{\"a\": {h1.ip}}"), "{\"a\": 127.B.1.1}");
  EXPECT_EQ(said("{{h1.ip}"), "{127.B.1.1");
  EXPECT_EQ(said("{x.dev} {h1.ip"), "{x.dev} {h1.ip");
  EXPECT_EQ(said("}{h1.ip}{"), "}127.B.1.1{");
  // This looks like one of weft's and names no host: to hand it on would hide the mistake.
  EXPECT_EQ(weft("run --device none -- echo {h9.ip}").code, 1);
  const std::string run = "run --device none -q --no-prefix ";
  EXPECT_EQ(weft(run + "-- printf '<%s>' '[a,b]' '[]' x '{}' '' %%").output,
            "<[a,b]><[]><x><{}><><%%>");
  EXPECT_EQ(weft(run + "-- '{}'").code, 127);
}

TEST_F(ProgramTest, AReaderThatDoesNotReadHoldsNobody) {
  // The pipe is full after 64 KiB, and it is never read.
  const std::string stalled =
      "cd " + directory_ +
      "; mkfifo pipe; sleep 300 <pipe & reader=$!; timeout 60 " WEFT_PROGRAM
      " run --device none -q -- sh -c 'echo $$ >pid; exec yes' >pipe 2>errors & "
      "for i in $(seq 200); do test -s pid && break; sleep 0.05; done; sleep 1; ";
  const Outcome ended = run_shell(stalled +
                                  "kill -TERM $(pgrep -P $! weft); wait $!; code=$?; "
                                  "kill $reader; exit $code");
  EXPECT_EQ(ended.code, 128 + SIGTERM) << ended.output;
}

TEST_F(ProgramTest, TheOutputsOfProgramsComeWholeWhenTheReaderIsSlow) {
  const Outcome outcome = run_shell(WEFT_PROGRAM
                                    " run --device none -q -n 2 -- seq 100000 | "
                                    // Each number must come twice, once of each host, whatever
                                    // waited where.
                                    "(sleep 1; cat) | sed 's/.* //' | sort -n | uniq -c | "
                                    "awk '$1 != 2' | wc -l");
  EXPECT_EQ(outcome.output, "0\n");
  const Outcome lines =
      run_shell(WEFT_PROGRAM
                " run --device none -q -- sh -c 'head -c 3000000 /dev/zero' | "
                "tr -d '\\000' | awk '{ total += length($0) } END { print (NR > 9) }'");
  EXPECT_EQ(lines.output, "1\n");  // a line without an end is cut, not kept
}

// A child that goes on after its parent, also one that ignores the polite signal.
TEST_F(ProgramTest, WhatProgramsLeaveBehindEndsWithThem) {
  write("stubborn.sh", "trap : TERM\nwhile :; do sleep 0.2; done\n");
  for (const char* child : {"sleep 300", "sh stubborn.sh"}) {
    const Outcome outcome =
        weft(std::string("run --device none -q -- sh -c '") + child + " & echo $! >pid; exit 3'");
    EXPECT_EQ(outcome.code, 3) << outcome.output;
    // The process that adopts it may not have waited for it yet.
    const Outcome state = run_shell("grep State: /proc/$(cat " + directory_ + "/pid)/status");
    EXPECT_TRUE(state.code != 0 || state.says("zombie")) << child << ": " << state.output;
  }
}

// No zombie: another program of the run may wait for its number to disappear.
TEST_F(ProgramTest, AProgramThatHasEndedIsGone) {
  const Outcome outcome = weft(
      "run --device none -q -- sh -c 'echo $$ >pid' : sh -c 'while ! test -s pid; do sleep 0.05; "
      "done; for i in $(seq 200); do kill -0 $(cat pid) 2>/dev/null || exit 0; sleep 0.05; done; "
      "exit 1'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// A program that ignores the first two would otherwise have to be killed by hand.
TEST_F(ProgramTest, TheThirdInterruptKills) {
  const Outcome outcome = run_shell(
      "cd " + directory_ +
      "; timeout 60 " WEFT_PROGRAM
      " run --device none -q -- sh -c 'trap : INT TERM; echo $$ >pid; while :; do sleep 0.1; done' "
      "& "
      "for i in $(seq 200); do test -s pid && break; sleep 0.05; done; weft=$(pgrep -P $! weft); "
      "for i in 1 2 3; do kill -INT $weft; sleep 0.3; done; wait $!");
  EXPECT_EQ(outcome.code, 128 + SIGKILL) << outcome.output;
}

TEST_F(ProgramTest, InterruptedCommandsLeaveNoDirectories) {
  for (const char* arguments : {"perf --seconds 60 --rounds 1 --op send --size 64",
                                "demo --seconds 60 --no-program --out out"}) {
    for (const char* signal : {"INT", "TERM"}) {
      // As a shell starts it: background commands of scripts ignore interrupts.
      const Outcome outcome =
          run_shell("cd " + directory_ + " && mkdir -p r && export XDG_RUNTIME_DIR=" + directory_ +
                    "/r && chmod 700 r && timeout -s " + signal + " 2 " WEFT_PROGRAM " " +
                    arguments + " >said 2>&1; echo $?; ls r | wc -l");
      // 124 is that of `timeout` itself: the command has ended in time after the signal.
      EXPECT_EQ(outcome.output, "124\n0\n") << arguments << " " << signal << read("said");
    }
  }
}

// By its lock a directory says that its maker is gone; one without that file is not weft's.
TEST_F(ProgramTest, DirectoriesOfKilledCommandsAreSweptLater) {
  const Outcome outcome = run_shell(
      "cd " + directory_ + " && mkdir r && chmod 700 r && export XDG_RUNTIME_DIR=" + directory_ +
      "/r; timeout -s KILL 2 " WEFT_PROGRAM
      " perf --seconds 60 --rounds 1 --op send --size 64 >/dev/null 2>&1; ls r | wc -l; "
      "touch -d '1 minute ago' r/weft-*; mkdir r/weft-mineXX; " WEFT_PROGRAM
      " run --device none -q -- true; ls r");
  EXPECT_EQ(outcome.output, "1\nweft-mineXX\n");
}

TEST_F(ProgramTest, ASingleProgramHasTheTerminal) {
  OnTerminal shell(WEFT_PROGRAM
                   " run --device none -q -- sh -c 'test -t 0 && test -t 1 && read line && echo "
                   "got:$line; read line; echo got:$line'; echo code:$?");
  shell.type("hello\n");
  EXPECT_TRUE(shell.shows("got:hello")) << shell.shown();
  EXPECT_EQ(shell.shown().find("[h1]"), std::string::npos) << shell.shown();
  shell.type("\x03");  // an interrupt is the program's
  EXPECT_TRUE(shell.shows("code:130")) << shell.shown();
  EXPECT_EQ(shell.wait(), 0);
}

TEST_F(ProgramTest, SeveralProgramsDoNotWaitForTheTerminal) {
  OnTerminal several(WEFT_PROGRAM " run --device none -n 2 -q -- sh -c 'read line; echo end:$?'");
  EXPECT_TRUE(several.shows("[h1] end:1") && several.shows("[h2] end:1")) << several.shown();
  EXPECT_EQ(several.wait(), 0);
}

// `stty tostop` stops jobs in the background that write. The programs of a run in the foreground
// are none, although only one of them could have the terminal.
TEST_F(ProgramTest, ProgramsWithoutTheTerminalMayWriteToIt) {
  OnTerminal several("stty tostop; " WEFT_PROGRAM
                     " run --device none -n 2 --no-prefix -q -- sh -c 'echo $WEFT_HOST-says'; "
                     "echo code:$?");
  EXPECT_TRUE(several.shows("code:0")) << several.shown();
  EXPECT_TRUE(several.shows("h1-says") && several.shows("h2-says")) << several.shown();
  EXPECT_EQ(several.wait(), 0);
}

TEST_F(ProgramTest, AJobStopsAndGoesOnAsOne) {
  WEFT_NEEDS("bash");
  OnTerminal shell("PS1='$ ' exec bash --norc --noprofile -i");
  shell.type(WEFT_PROGRAM
             " run --device none -q -- sh -c 'echo rea\"\"dy; read line; echo got:$line'\n");
  ASSERT_TRUE(shell.shows("ready")) << shell.shown();
  // Ctrl-Z.
  shell.type("\x1A");
  EXPECT_TRUE(shell.shows("Stopped")) << shell.shown();
  shell.type("fg\n");
  shell.type("again\n");
  EXPECT_TRUE(shell.shows("got:again")) << shell.shown();
  shell.type("exit\n");
  EXPECT_EQ(shell.wait(), 0);
}

// Signals that are ignored, and closed standard streams, come from whatever started weft.
TEST_F(ProgramTest, WhatWeftInheritsDoesNotHoldIt) {
  // With SIGCHLD ignored the kernel keeps no exit code for who waits.
  const Outcome ignored = run_shell("timeout -s KILL 20 env --ignore-signal=CHLD " WEFT_PROGRAM
                                    " run --device none -q -- sh -c 'exit 6'");
  EXPECT_EQ(ignored.code, 6) << ignored.output;
  // Files of the run do not become its standard streams.
  const Outcome closed =
      run_shell("cd " + directory_ +
                " && timeout -s KILL 20 " WEFT_PROGRAM
                " run --device none --out out -q -- sh -c 'echo said; echo said >&2; read line; "
                "test $? = 1 && exit 5' <&- >&- 2>&-");
  EXPECT_EQ(closed.code, 5) << closed.output;
  EXPECT_EQ(read("out/.weft-run").find("said"), std::string::npos) << read("out/.weft-run");
}

// A file that may not become so large is an error, not the end of weft or of weftd, which would
// leave what they have made. Programs have the signal as they would without weft.
TEST_F(ProgramTest, ALimitForFilesEndsNoRun) {
  const Outcome refused = run_shell("cd " + directory_ +
                                    "; mkdir -m 700 rundir; export XDG_RUNTIME_DIR=$PWD/rundir; "
                                    "(ulimit -f 8; " WEFT_PROGRAM
                                    " run -q -- true); echo $?; "
                                    "ls rundir | grep -v weft-0");
  EXPECT_TRUE(refused.says("is there room?")) << refused.output;
  EXPECT_TRUE(refused.output.ends_with("\n1\n")) << refused.output;
  const std::string run =
      "; exec " WEFT_PROGRAM " run --device none -q -- sh -c 'kill -XFSZ $$; echo alive'";
  EXPECT_FALSE(run_shell("cd " + directory_ + run).says("alive"));
  EXPECT_TRUE(run_shell("cd " + directory_ + "; trap '' XFSZ" + run).says("alive"));
}

// A capture that lacks frames must not pass for all that was sent.
TEST_F(ProgramTest, FramesThatTheDiskDoesNotTakeAreSaidToBeMissing) {
  WEFT_NEEDS("ibv_devinfo");
  WEFT_NEEDS("ib_write_bw");
  WEFT_NEEDS_A_PLAIN_BUILD("a stock program cannot load a sanitized library");
  // 200 messages of 64 KiB are 13 MB, more than the file may become: the measurement ends well, and
  // the capture does not hold all of it.
  const std::string words = "ib_write_bw -x 0 -F -n 200 -p " + own_port();
  const Outcome outcome = run_shell("cd " + directory_ +
                                    "; ulimit -f 12000; timeout 60 " WEFT_PROGRAM
                                    " run --capture --device rxe -q --out captured -- " +
                                    words + " : " + words + " {h1.ip}");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("the capture lacks ")) << outcome.output;
  EXPECT_TRUE(read_pcapng(directory_ + "/captured/capture.pcapng").well_formed);
}

TEST_F(ProgramTest, OutputThatCannotBeWrittenIsAFailureAndNoCrash) {
  EXPECT_EQ(weft("run --device none -- sh -c 'exit 7' 2>/dev/full").code, 7);
  const Outcome lost = weft("run --device none -q -- echo hello >/dev/full");
  EXPECT_EQ(lost.code, 1) << lost.output;
  EXPECT_TRUE(lost.says("lost: No space left")) << lost.output;
  EXPECT_EQ(weft("completions bash >/dev/full").code, 1);
}

// `head` leaves after a line. Standard error goes on, and so does the program.
TEST_F(ProgramTest, AReaderOfOneStreamThatLeavesTakesOnlyThat) {
  const Outcome outcome = run_shell(
      "{ " WEFT_PROGRAM
      " run --device none -q -- sh -c 'trap : PIPE; for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; "
      "sleep 0.1; done 2>/dev/null; echo important >&2; exit 3' | head -n 1; } 2>&1");
  EXPECT_TRUE(outcome.says("[h1] important\n")) << outcome.output;
}

TEST_F(ProgramTest, NothingStartsAfterAnInterrupt) {
  const Outcome outcome = weft(
      "run --device none -q -- sh -c 'trap \"exit 0\" TERM; echo $$ >pid; while :; do sleep 0.1; "
      "done' : sh -c 'echo late {h1.ip}' & for i in $(seq 200); do test -s " +
      directory_ + "/pid && break; sleep 0.05; done; kill -TERM $(pgrep -P $! weft); wait $!");
  EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.output;
  EXPECT_FALSE(outcome.says("late")) << outcome.output;
}

// A fork that fails must not turn into a signal for everybody.
TEST_F(ProgramTest, ADemoWithoutProcessesEndsOnlyItself) {
  WEFT_NEEDS("cc");
  WEFT_NEEDS_A_PLAIN_BUILD("the sanitizer's library wants to be loaded first");
  write(
      "fork.c",
      // The third fork fails; a kill of everybody (a number below 1 that nobody checked) ends the
      // program with 99 instead of all that this user runs.
      "#include <errno.h>\n#include <stdlib.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"
      "static int forks;\n"
      "int fork(void) { if (++forks < 3) return syscall(SYS_fork); errno = EAGAIN; return -1; }\n"
      "int kill(int pid, int signal) { if (pid < 1 && write(2, \"everybody\\n\", 10)) _exit(99);\n"
      "  return syscall(SYS_kill, pid, signal); }\n");
  const Outcome outcome = run_shell(
      "cd " + directory_ +
      " && cc -shared -fPIC -o fork.so fork.c && LD_PRELOAD=./fork.so timeout 20 " WEFT_PROGRAM
      " demo --seconds 1 --no-program --out out");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(outcome.says("starting a process")) << outcome.output;
}

TEST_F(ProgramTest, AScriptHasItsTerminalBackAfterEveryRun) {
  OnTerminal script("for i in 1 2 3 4 5; do " WEFT_PROGRAM
                    " run --device none -q -- true; done; read line; echo got:$line");
  script.type("hello\n");
  EXPECT_TRUE(script.shows("got:hello")) << script.shown();
  EXPECT_EQ(script.wait(), 0);
}

TEST_F(ProgramTest, AStoppedProgramIsReported) {
  const Outcome outcome = run_shell(
      "cd " + directory_ +
      "; timeout 60 " WEFT_PROGRAM
      " run --device none -q -- sh -c 'echo $$ >pid; while ! test -e go; do sleep 0.05; done' "
      "2>said & for i in $(seq 200); do test -s pid && break; sleep 0.05; done; "
      "kill -STOP $(cat pid); for i in $(seq 200); do grep -q stopped said && break; sleep 0.05; "
      "done; touch go; kill -CONT -$(cat pid); wait $!; cat said");
  EXPECT_TRUE(outcome.says("h1 is stopped")) << outcome.output;
}

// Without an answer there are no counters; zeros would look like a network that nobody used.
TEST_F(ProgramTest, AWeftdThatDiedIsNoIdleOne) {
  const Outcome outcome =
      weft("run --device none --json -- sh -c 'kill -KILL $(pgrep -P $PPID weftd)'");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(outcome.says("weftd did not answer: ")) << outcome.output;
  const auto lines = objects(outcome.output);
  ASSERT_EQ(lines.size(), 2U) << outcome.output;
  EXPECT_EQ(lines[0]["exit_code"], 0);
  EXPECT_TRUE(lines[1].at("network").is_null()) << lines[1];
}

TEST_F(ProgramTest, AWeftdThatIsStoppedDoesNotHoldTheRun) {
  const Outcome outcome =
      weft("run --device none -q -- sh -c 'pgrep -P $PPID weftd >pid; kill -STOP $(cat pid)'");
  EXPECT_EQ(outcome.code, 1) << outcome.output;  // and not that of `timeout`
  const Outcome state = run_shell("grep State: /proc/$(cat " + directory_ + "/pid)/status");
  EXPECT_TRUE(state.code != 0 || state.says("zombie")) << state.output;
}

}  // namespace
}  // namespace weft::testing
