// Owns the tests of weftd's control protocol and metrics, with well-behaved and with lying clients,
// and of which users may connect at all.
#include "emu/daemon/control.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "emu/attach/client.hpp"
#include "emu/attach/seqpacket.hpp"
#include "emu/daemon/daemon.hpp"
#include "emu/daemon/metrics.hpp"
#include "srd/base/rng.hpp"
#include "srd/run/clock.hpp"
#include "tests/support/pcapng_reader.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::daemon {
namespace {

using nlohmann::json;

constexpr int kRejected = 42;  // what a process of another user ends with, when all is well

// A daemon whose sockets nobody serves: lines are given to the function that answers them, which
// must answer with one line whatever they are.
class ControlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_;
    options_.event_log = directory_ + "/events.jsonl";
    options_.plant.hosts = {"h1", "h2"};
    auto daemon = Daemon::create(options_);
    ASSERT_TRUE(daemon) << daemon.error().message;
    daemon_ = std::move(*daemon);
  }
  void TearDown() override { daemon_.reset(); }
  // Every answer has to be one line of JSON.
  json say(const std::string& line) {
    const std::string answer = answer_control(daemon_->control(), line);
    EXPECT_EQ(answer.find('\n'), answer.size() - 1) << answer;
    return json::parse(answer);
  }
  json ask(json request) {
    request["v"] = 1;
    return say(request.dump());
  }

  testing::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
  DaemonOptions options_;
  std::unique_ptr<Daemon> daemon_;
};

// A later command changes the fields that it names. null takes one back.
TEST_F(ControlTest, ImpairmentsMergeAndReset) {
  json reply = ask({{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"loss", 0.01}}}});
  ASSERT_TRUE(reply["ok"]) << reply;
  reply = ask({{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"extra_delay", "50us"}}}});
  ASSERT_TRUE(reply["ok"]) << reply;
  EXPECT_EQ(reply["impairments"],
            json::array({{{"link", "h1->fabric"}, {"loss", 0.01}, {"extra_delay", "50us"}}}));
  reply = ask(
      {{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"loss", nullptr}, {"rate", "1Gbps"}}}});
  EXPECT_EQ(reply["impairments"],
            json::array({{{"link", "h1->fabric"}, {"rate", "1Gbps"}, {"extra_delay", "50us"}}}));
  reply = ask({{"cmd", "impair"}, {"reset", true}});
  EXPECT_EQ(reply["impairments"], json::array());
}

// One is set first, which must be there unchanged after all that was refused.
TEST_F(ControlTest, AWrongImpairmentChangesNothingAndSaysWhatIsKnown) {
  ASSERT_TRUE(ask({{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"loss", 0.5}}}})["ok"]);
  for (const json& set : {json{{"los", 0.1}}, json{{"loss", 7}}, json{{"rate", "fast"}},
                          json{{"extra_delay", 3}}, json::object(), json::array(), json(5)}) {
    const json reply = ask({{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", set}});
    EXPECT_FALSE(reply["ok"]) << set;
    EXPECT_FALSE(reply["error"].get<std::string>().empty());
  }
  EXPECT_FALSE(ask({{"cmd", "impair"}, {"link", "nowhere"}, {"set", {{"loss", 0.1}}}})["ok"]);
  EXPECT_FALSE(ask({{"cmd", "impair"}, {"link", "h9-fabric"}, {"reset", true}})["ok"]);
  EXPECT_EQ(ask({{"cmd", "impair"}})["impairments"],
            json::array({{{"link", "h1->fabric"}, {"loss", 0.5}}}));
}

// A request that asks for two things at once must not do half of it: the running capture goes on,
// and no file is made.
TEST_F(ControlTest, ACaptureBeginsAndEnds) {
  const std::string file = directory_ + "/c.pcapng";
  EXPECT_FALSE(ask({{"cmd", "capture"}, {"start", file}, {"links", {"nowhere"}}})["ok"]);
  EXPECT_FALSE(ask({{"cmd", "capture"}, {"start", directory_}})["ok"]);
  ASSERT_TRUE(ask({{"cmd", "capture"}, {"start", file}, {"links", {"h1->*"}}})["ok"]);
  EXPECT_FALSE(ask({{"cmd", "capture"}, {"start", file}})["ok"]);  // one at a time
  EXPECT_EQ(ask({{"cmd", "capture"}})["capture"]["links"], 1);
  const std::string next = directory_ + "/next.pcapng";
  EXPECT_FALSE(ask({{"cmd", "capture"}, {"stop", true}, {"start", next}})["ok"]);
  EXPECT_FALSE(std::filesystem::exists(next));
  EXPECT_EQ(ask({{"cmd", "capture"}})["capture"]["file"], file);  // it goes on
  const json stopped = ask({{"cmd", "capture"}, {"stop", true}});
  ASSERT_TRUE(stopped["ok"]) << stopped;
  EXPECT_EQ(stopped["capture"]["file"], file);
  EXPECT_EQ(stopped["capture"]["complete"], true);
  EXPECT_TRUE(ask({{"cmd", "capture"}})["capture"].is_null());
  EXPECT_FALSE(ask({{"cmd", "capture"}, {"stop", true}})["ok"]);
  const auto read = weft::testing::read_pcapng(file);
  EXPECT_TRUE(read.well_formed);
  EXPECT_EQ(read.interfaces, (std::vector<std::string>{"h1->fabric", "weftd"}));
}

// weftd must not wait for a reader of a pipe. The same holds for the log of events, which is opened
// at the start.
TEST_F(ControlTest, ACaptureGoesIntoNothingButAFile) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto refused = [&](const std::string& file) {
    const json reply = ask({{"cmd", "capture"}, {"start", file}});
    return !reply["ok"].get<bool>() &&
           reply["error"].get<std::string>().find("no regular file") != std::string::npos;
  };
  EXPECT_TRUE(refused(pipe));  // it has no reader: opening would wait
  const srd::UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  EXPECT_TRUE(refused(pipe));
  EXPECT_TRUE(refused("/dev/null"));
  DaemonOptions other = options_;
  other.directory = directory_ + "/other";
  other.event_log = pipe;
  const auto daemon = Daemon::create(other);
  ASSERT_FALSE(daemon);
  EXPECT_NE(daemon.error().message.find("no regular file"), std::string::npos);
}

// The long lines nest deeply, or name a command of 60 KB: within the limit of a line, and no reason
// to end.
TEST_F(ControlTest, NonsenseGetsAnAnswerAndHasNoEffect) {
  std::vector<std::string> lines{"",
                                 "{",
                                 "null",
                                 "[]",
                                 "\"\"",
                                 "{\"v\":1}",
                                 "{\"v\":2,\"cmd\":\"stop\"}",
                                 "{\"v\":\"1\",\"cmd\":\"stop\"}",
                                 "{\"v\":1,\"cmd\":7}",
                                 "{\"v\":1,\"cmd\":\"heal\"}",
                                 "{\"v\":1,\"cmd\":\"heal\",\"fault\":-1}",
                                 "{\"v\":1,\"cmd\":\"heal\",\"fault\":1e300}",
                                 "{\"v\":1,\"cmd\":\"capture\",\"start\":7}",
                                 "{\"v\":1,\"cmd\":\"fault\",\"fault\":[]}",
                                 "{\"v\":1,\"cmd\":\"capture\",\"start\":\"/x\",\"links\":7}",
                                 "{\"v\":1,\"cmd\":\"impair\",\"link\":7,\"set\":{}}",
                                 "\xff\xfe\x00 \x01"};
  lines.push_back(std::string(60'000, '['));
  lines.push_back("{\"v\":1,\"cmd\":\"" + std::string(60'000, 'x') + "\"}");
  for (const std::string& line : lines) {
    EXPECT_FALSE(say(line)["ok"]) << line.substr(0, 80);
  }
  EXPECT_EQ(ask({{"cmd", "status"}})["status"]["network"], "ideal");
}

// A good request, of which a few bytes at a time are replaced by any others: most of these lines
// are nearly right and get far into the code that reads them.
TEST_F(ControlTest, AnythingBetweenRightAndNonsenseIsSurvived) {
  const std::string seedling =
      "{\"v\":1,\"cmd\":\"impair\",\"link\":\"h1->fabric\",\"set\":{\"loss\":0.5,\"rate\":\"1G\"}}";
  const std::uint64_t seed = 20260801;
  RecordProperty("seed", static_cast<int>(seed));
  Rng rng(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string line = seedling;
    for (std::uint32_t i = 0; i <= rng.below(4); ++i) {
      line[rng.below(static_cast<std::uint32_t>(line.size()))] = static_cast<char>(rng.below(256));
    }
    EXPECT_TRUE(say(line).contains("ok")) << line;
  }
}

// All occurrences of a fault are planned at once, so they take memory: ten faults of 100000
// occurrences are the limit.
TEST_F(ControlTest, FaultsHaveAnEnd) {
  json reply;
  int accepted = 0;
  for (; accepted < 100; ++accepted) {
    reply = ask({{"cmd", "fault"},
                 {"fault",
                  {{"link", "h1->fabric"},
                   {"loss", 0.1},
                   {"lasts", "1us"},
                   {"every", "1s"},
                   {"times", 100'000}}}});
    if (!reply["ok"].get<bool>()) {
      break;
    }
  }
  EXPECT_EQ(accepted, 10) << reply;
}

// The first fault turns an ideal network, with direct rings, into a modelled one, for good. A
// mistake in a command must not do that.
TEST_F(ControlTest, WhatFailsLeavesAnIdealNetworkIdeal) {
  for (const json& request :
       {json{{"cmd", "impair"}, {"link", "nowhere"}, {"set", {{"loss", 0.1}}}},
        json{{"cmd", "impair"}, {"link", "nowhere"}, {"set", {{"rate", "1Gbps"}}}},
        json{{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"loss", 7}}}},
        json{{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"rate", "fast"}}}},
        json{{"cmd", "fault"}, {"fault", {{"link", "nowhere"}, {"down", true}}}},
        json{{"cmd", "fault"}, {"fault", {{"switch", "nowhere"}}}},
        json{{"cmd", "capture"}, {"start", directory_ + "/c.pcapng"}, {"links", {"nowhere"}}},
        json{{"cmd", "capture"}, {"start", directory_}}}) {
    const json reply = ask(request);
    EXPECT_FALSE(reply["ok"]) << request;
    EXPECT_EQ(ask({{"cmd", "status"}})["status"]["network"], "ideal") << request;
  }
  // Nor does what asks for nothing.
  EXPECT_TRUE(ask({{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"loss", nullptr}}}})["ok"]);
  EXPECT_EQ(ask({{"cmd", "status"}})["status"]["network"], "ideal");
  EXPECT_TRUE(ask({{"cmd", "fault"}, {"fault", {{"link", "h1->fabric"}, {"down", true}}}})["ok"]);
  EXPECT_EQ(ask({{"cmd", "status"}})["status"]["network"], "star");
}

// The fault makes the network a modelled one, which is an event as well.
TEST_F(ControlTest, EventsAreWrittenDown) {
  ASSERT_TRUE(ask({{"cmd", "fault"}, {"fault", {{"link", "h1-fabric"}, {"down", true}}}})["ok"]);
  ASSERT_TRUE(ask({{"cmd", "heal"}, {"fault", 0}})["ok"]);
  std::ifstream file(options_.event_log);
  std::vector<std::string> events;
  double before = 0;
  for (std::string line; std::getline(file, line);) {
    const json event = json::parse(line);
    EXPECT_GE(event["t"].get<double>(), before);
    before = event["t"].get<double>();
    events.push_back(event["event"]);
  }
  EXPECT_EQ(events, (std::vector<std::string>{"weftd", "network", "fault", "heal"}));
}

// Half a request waits for the rest; two in one buffer are answered one by one. What is no HTTP is
// answered once, and the connection closed.
TEST_F(ControlTest, MetricsAreServedOverHttp) {
  (void)ask({{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"loss", 0.5}}}});
  bool close = false;
  std::string input = "GET /metrics HTTP/1.1\r\nHost: x\r\n";
  EXPECT_FALSE(answer_http(daemon_->control(), input, close));  // the empty line is missing
  input += "\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n";
  const auto first = answer_http(daemon_->control(), input, close);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->starts_with("HTTP/1.1 200 OK\r\n")) << *first;
  EXPECT_NE(first->find("weft_link_dropped_total{link=\"h1->fabric\"} 0\n"), std::string::npos);
  EXPECT_FALSE(close);
  const auto second = answer_http(daemon_->control(), input, close);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->starts_with("HTTP/1.1 404")) << *second;
  for (std::string bad : {std::string("\r\n\r\n\r\n"), std::string("POST / HTTP/1.1\r\n\r\n"),
                          std::string(20'000, 'A'), std::string("GET / HTTP/9.9\r\n\r\n"),
                          "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'y') + "\r\n\r\n"}) {
    close = false;
    const auto answer = answer_http(daemon_->control(), bad, close);
    ASSERT_TRUE(answer) << bad.substr(0, 40);
    EXPECT_TRUE(answer->starts_with("HTTP/1.1 4")) << *answer;
    EXPECT_TRUE(close);
  }
}

// Its rules: what is called a counter ends in _total, and all lines of a metric follow its TYPE
// line.
TEST_F(ControlTest, MetricsAreWhatPrometheusReads) {
  (void)ask({{"cmd", "impair"}, {"link", "h1->fabric"}, {"set", {{"loss", 0.5}}}});
  std::istringstream text(metrics_text(daemon_->control()));
  std::string name;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("# TYPE ")) {
      name = line.substr(7, line.find(' ', 7) - 7);
      const bool counter = line.ends_with(" counter");
      EXPECT_EQ(counter, name.ends_with("_total")) << line;
    } else if (!line.starts_with("# HELP ")) {
      EXPECT_TRUE(line.starts_with(name)) << line;  // the lines of a metric stand together
      EXPECT_NE(line.find_last_of(' '), std::string::npos);
    }
  }
  EXPECT_FALSE(name.empty()) << "there is no metric at all";
}

// Runs `body` in a child as user nobody; its result is the exit code. 99: that user cannot be had.
template <class Body>
int as_nobody(const Body& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) {
      ::_exit(99);
    }
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(ControlTest, SocketsAreForTheirOwnerOnly) {
  for (const char* name : {"/attach.sock", "/control.sock", "/metrics.sock"}) {
    struct stat info {};
    ASSERT_EQ(::stat((directory_ + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U) << name;
  }
}

// File modes are the first barrier; the check of the peer's user is the second. The first is taken
// away here, to see that the second holds by itself. A client of the wrong user asks weftd to stop,
// on both text sockets: it must hear nothing, and weftd must go on.
TEST_F(ControlTest, AnotherUserIsRefusedEvenIfTheSocketsWereOpenToAll) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become somebody else";
  }
  daemon_.reset();  // its loop belongs to the process that made it
  const pid_t weftd = ::fork();
  if (weftd == 0) {
    auto daemon = Daemon::create(options_);
    ::_exit(daemon && (*daemon)->run() ? 0 : 1);
  }
  const auto patience = srd::monotonic_now() + std::chrono::seconds{20};
  while (!attach::connect_seqpacket(directory_ + "/attach.sock") &&
         srd::monotonic_now() < patience) {
    std::this_thread::yield();
  }
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  for (const char* name : {"/attach.sock", "/control.sock", "/metrics.sock"}) {
    ASSERT_EQ(::chmod((directory_ + name).c_str(), 0666), 0);
  }
  const int attached = as_nobody([&] {
    const auto attachment = attach::attach({.socket = directory_ + "/attach.sock", .host = "h1"});
    const bool told =
        !attachment && attachment.error().message.find("another user") != std::string::npos;
    return told ? kRejected : 1;
  });
  EXPECT_EQ(attached, kRejected);
  for (const char* name : {"/control.sock", "/metrics.sock"}) {
    EXPECT_EQ(as_nobody([&] {
                const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
                sockaddr_un address{};
                address.sun_family = AF_UNIX;
                std::strcpy(address.sun_path, (directory_ + name).c_str());
                if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
                  return 1;
                }
                const std::string line = "{\"v\":1,\"cmd\":\"stop\"}\nGET / HTTP/1.1\r\n\r\n";
                (void)!::send(fd, line.data(), line.size(), MSG_NOSIGNAL);
                char byte;
                return ::recv(fd, &byte, 1, 0) <= 0 ? kRejected : 2;
              }),
              kRejected)
        << name;
  }
  EXPECT_EQ(::waitpid(weftd, nullptr, WNOHANG), 0);  // the stop was not heard
  // Its own user may attach all the same.
  EXPECT_TRUE(attach::attach({.socket = directory_ + "/attach.sock", .host = "h1"}));
  ::kill(weftd, SIGTERM);
  ::waitpid(weftd, nullptr, 0);
}

}  // namespace
}  // namespace weft::daemon
