// Owns the tests of weftd's sockets when there is much to say, when the client does not read, and
// when weftd has no descriptors left; and of what it tells processes about their links.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "emu/attach/client.hpp"
#include "emu/attach/protocol.hpp"
#include "emu/attach/seqpacket.hpp"
#include "emu/daemon/daemon.hpp"
#include "srd/run/clock.hpp"
#include "srd/wire/srd_header.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/emu/daemon/weftd.hpp"

namespace weft::daemon {
namespace {

constexpr const char* kStatus = "{\"v\": 1, \"cmd\": \"status\"}\n";

// A weftd in a process of its own, with as many descriptors as a test gives it.
class TalksTest : public ::testing::Test {
 protected:
  void SetUp() override { options_.directory = folder_.path(); }
  void TearDown() override { weftd_.reset(); }
  void start(rlim_t descriptors = 0) {
    weftd_ = std::make_unique<Weftd>(options_, [descriptors] {
      if (descriptors != 0) {
        const rlimit files{descriptors, descriptors};
        ::setrlimit(RLIMIT_NOFILE, &files);
      }
    });
  }
  [[nodiscard]] std::string attach_socket() const { return weftd_->attach_socket(); }
  [[nodiscard]] srd::UniqueFd talk(const std::string& name = "/control.sock") const {
    return weftd_->talk(name);
  }
  static void say(const srd::UniqueFd& fd, const std::string& text) { Weftd::say(fd, text); }
  static std::string hear(const srd::UniqueFd& fd) { return Weftd::hear(fd); }

  testing::TemporaryFolder folder_;
  DaemonOptions options_;
  std::unique_ptr<Weftd> weftd_;
};

// The status of 4064 NICs is larger than a socket's buffer. A client that asks and does not read
// must wait by itself: a second one is served meanwhile.
TEST_F(TalksTest, AnswersThatNoSocketHoldsAreGivenWhole) {
  options_.plant.hosts.clear();
  for (int host = 1; host <= 254; ++host) {
    options_.plant.hosts.push_back("h" + std::to_string(host));
  }
  options_.plant.nics_per_host = 16;
  start();
  const srd::UniqueFd slow = talk();
  for (int i = 0; i < 5; ++i) {
    say(slow, kStatus);  // not read yet
  }
  const srd::UniqueFd other = talk();
  for (int i = 0; i < 3; ++i) {
    say(other, kStatus);
    const json reply = json::parse(hear(other), nullptr, false);
    ASSERT_TRUE(reply.is_object());
    EXPECT_EQ(reply["status"]["nics"].size(), 254U * 16);
  }
  for (int i = 0; i < 5; ++i) {
    const json reply = json::parse(hear(slow), nullptr, false);
    ASSERT_TRUE(reply.is_object()) << i;
    EXPECT_EQ(reply["status"]["nics"].size(), 254U * 16);
  }
}

// A monitor must get its figures even if scripts have used up the connections for commands.
TEST_F(TalksTest, TooManyConnectionsAreToldSoAndMetricsHaveTheirOwn) {
  start();
  std::vector<srd::UniqueFd> talks;
  for (int i = 0; i < 64; ++i) {
    talks.push_back(talk());
    say(talks.back(), kStatus);
    ASSERT_NE(hear(talks.back()).find("\"ok\":true"), std::string::npos);
  }
  EXPECT_NE(hear(talk()).find("64 such connections"), std::string::npos);
  const srd::UniqueFd metrics = talk("/metrics.sock");
  say(metrics, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(hear(metrics), "HTTP/1.1 200 OK\r\n");
}

// 40 descriptors, and clients that only connect. weftd keeps one in reserve to accept a client,
// tell it, and close. The first 20 connections are taken for granted, and not waited for.
TEST_F(TalksTest, WithoutDescriptorsItSaysSoAndServesAgainLater) {
  start(40);
  std::vector<srd::UniqueFd> newcomers;
  bool told = false;
  for (int i = 0; i < 60 && !told; ++i) {
    auto socket = attach::connect_seqpacket(attach_socket());
    ASSERT_TRUE(socket);
    const auto refused =
        attach::await_message(socket->get(), i < 20 ? 0 : 200).as<attach::RefusedReply>();
    told = refused && std::strstr(refused->text.data(), "file descriptor") != nullptr;
    newcomers.push_back(std::move(*socket));
  }
  EXPECT_TRUE(told);
  EXPECT_NE(hear(talk()).find("file descriptor"), std::string::npos);
  newcomers.clear();
  EXPECT_TRUE(eventually(
      [&] { return attach::attach({.socket = attach_socket(), .host = "h1"}).has_value(); }));
}

// Attached processes take all descriptors. A client that has said something before it is refused
// has to be read first, in case it passes descriptors, and that on a side thread; until then no
// other client can be refused. Each gets its answer all the same, one after the other.
TEST_F(TalksTest, WithoutDescriptorsItSaysSoToWhomeverSpeaksFirst) {
  start(40);
  std::vector<Result<attach::Attachment>> processes;
  do {
    processes.push_back(attach::attach({.socket = attach_socket(), .host = "h1"}));
  } while (processes.back());
  std::vector<srd::UniqueFd> newcomers;
  for (int i = 0; i < 40; ++i) {
    newcomers.push_back(talk());
    (void)::send(newcomers.back().get(), kStatus, std::strlen(kStatus), MSG_NOSIGNAL);
  }
  int refused = 0;
  for (const srd::UniqueFd& newcomer : newcomers) {
    const std::string answer = hear(newcomer);
    ASSERT_FALSE(answer.empty());
    refused += answer.find("file descriptor") == std::string::npos ? 0 : 1;
  }
  EXPECT_GT(refused, 20);
}

// With any number of descriptors weftd starts, or says that it needs more. Exit codes of the child:
// 0 it has started, 1 it has said so, 2 neither. The numbers tried have to reach from one to the
// other.
TEST_F(TalksTest, WithTooFewDescriptorsItSaysSo) {
  int refused = 0;
  for (rlim_t files = 3; files < 24; ++files) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit few{files, files};
      const bool limited = ::setrlimit(RLIMIT_NOFILE, &few) == 0;
      const auto daemon = Daemon::create(options_);
      const bool says =
          daemon || daemon.error().message.find("Too many open files") != std::string::npos;
      ::_exit(limited && says ? (daemon ? 0 : 1) : 2);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << files << " files: " << status;
    refused += WEXITSTATUS(status);
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 21);
}

// The second one must not take over, or remove, the sockets of the first.
TEST_F(TalksTest, ADirectoryHasOneWeftd) {
  start();
  const auto second = Daemon::create(options_);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("another weftd"), std::string::npos);
  const srd::UniqueFd control = talk();
  say(control, kStatus);
  EXPECT_NE(hear(control).find("\"ok\":true"), std::string::npos);
}

// A process that weftd cannot tell anything: it reads nothing, and its socket is full. It must not
// go on by direct rings past a network that has changed. It is on h2; its peers are on h1.
class UntoldTest : public TalksTest {
 protected:
  void SetUp() override {
    TalksTest::SetUp();
    options_.plant.hosts = {"h1", "h2"};
    options_.event_log = options_.directory + "/events.jsonl";
    start();
  }
  [[nodiscard]] Result<attach::Attachment> join(const std::string& host) const {
    return attach::attach({.socket = options_.directory + "/attach.sock", .host = host});
  }
  static void send(attach::Attachment& from, const attach::Attachment& to) {
    static const std::array<std::byte, 64> payload{};
    srd::TxPacket packet;
    srd::wire::CommonHeader header{};
    header.version = srd::wire::kVersion;
    header.type = 1;
    header.destination_attachment = to.id.value();
    header.source_attachment = from.id.value();
    header.source_life = from.life.value();
    packet.to = to.address;
    packet.header_size = sizeof header;
    srd::wire::store(packet.header.data(), header);
    packet.payload[0] = payload;
    [[maybe_unused]] const auto taken = from.io->transmit({&packet, 1});
  }
  static void poll_once(attach::Attachment& attachment) {
    [[maybe_unused]] const auto packets = attachment.io->receive();
    attachment.io->release();
  }
  // A process that is talked to gets a ring, whether it looks or not.
  static bool gets_ring(attach::Attachment& from, const attach::Attachment& to) {
    return eventually([&] {
      send(from, to);
      poll_once(from);
      return from.io->direct_ports() == 1;
    });
  }
  // Peers come and go, and each time weftd tells the silent one of a ring. Its socket is full when
  // a peer has no ring after 2 s: weftd gives none to a process that it cannot tell.
  void fill(const attach::Attachment& silent) const {
    for (int round = 0; round < 2000; ++round) {
      auto peer = join("h1");
      ASSERT_TRUE(peer) << peer.error().message;
      const auto patience = srd::monotonic_now() + std::chrono::seconds{2};
      while (peer->io->direct_ports() == 0) {
        send(*peer, silent);
        poll_once(*peer);
        if (srd::monotonic_now() > patience) {
          return;
        }
        std::this_thread::yield();
      }
    }
    FAIL() << "no socket is that large";
  }
  // How often weftd has written down that the process lost its place.
  [[nodiscard]] std::size_t detached(const attach::Attachment& who) const {
    std::ifstream file(options_.event_log);
    std::size_t times = 0;
    for (std::string line; std::getline(file, line);) {
      const auto event = nlohmann::json::parse(line);
      times += event["event"] == "detach" && event["host"] == "h2" &&
                       event["attachment"] == who.id.value()
                   ? 1U
                   : 0U;
    }
    return times;
  }
};

// The silent process would keep a ring to a peer that is gone, and its memory. So it is detached,
// and has to attach again.
TEST_F(UntoldTest, APeersEndThatCannotBeToldCostsThePlace) {
  auto silent = join("h2");
  auto friendly = join("h1");
  ASSERT_TRUE(silent && friendly);
  ASSERT_TRUE(gets_ring(*friendly, *silent));
  fill(*silent);
  *friendly = attach::Attachment{};  // its ring has to be taken back
  EXPECT_TRUE(eventually([&] { return detached(*silent) == 1; }));
  // It comes back to the same place as soon as it looks at its socket.
  auto other = join("h1");
  ASSERT_TRUE(other);
  EXPECT_TRUE(eventually([&] {
    send(*other, *silent);
    const bool got = !silent->io->receive().empty();
    silent->io->release();
    poll_once(*other);
    return got;
  }));
}

// Its direct ring goes around the network that has the fault. What cannot be taken back in words is
// taken back by detaching.
TEST_F(UntoldTest, WhoCannotBeToldOfAFaultDoesNotBypassIt) {
  auto silent = join("h2");
  auto friendly = join("h1");
  ASSERT_TRUE(silent && friendly);
  ASSERT_TRUE(gets_ring(*friendly, *silent));
  fill(*silent);
  const srd::UniqueFd control = talk();
  say(control, "{\"v\":1,\"cmd\":\"fault\",\"fault\":{\"link\":\"h1-fabric\",\"loss\":0.1}}\n");
  ASSERT_NE(hear(control).find("\"ok\":true"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return detached(*silent) == 1; }));
}

// What the processes of a NIC hear of its own link.
class LinkTest : public TalksTest {
 protected:
  void SetUp() override {
    TalksTest::SetUp();
    options_.plant.hosts = {"h1", "h2"};
    options_.plant.nics_per_host = 2;
    start();
  }
  // A process that keeps what it was told; only when it looks.
  struct Listener {
    std::vector<bool> heard;
    std::optional<attach::Attachment> attachment;
    void look() {
      [[maybe_unused]] const auto packets = attachment->io->receive();
      attachment->io->release();
    }
    bool hears(std::vector<bool> what) {
      return eventually([&] {
        look();
        return heard == what;
      });
    }
  };
  void join(Listener& listener, const std::string& host, std::uint32_t nic) const {
    attach::AttachOptions options;
    options.socket = attach_socket();
    options.host = host;
    options.nic = nic;
    options.on_link = [&listener](bool up) { listener.heard.push_back(up); };
    auto attached = attach::attach(options);
    ASSERT_TRUE(attached) << attached.error().message;
    listener.attachment.emplace(std::move(*attached));
  }
  json ask(const json& request) const {
    const srd::UniqueFd control = talk();
    json versioned = request;
    versioned["v"] = 1;
    say(control, versioned.dump() + "\n");
    const json reply = json::parse(hear(control), nullptr, false);
    EXPECT_TRUE(reply.value("ok", false)) << reply;
    return reply;
  }
  std::uint32_t fault(const json& what) const {
    return ask({{"cmd", "fault"}, {"fault", what}})["fault"].get<std::uint32_t>();
  }
  void heal(std::uint32_t number) const { (void)ask({{"cmd", "heal"}, {"fault", number}}); }
};

// A link is up only if both directions are. A process that attaches later hears at once that it is
// down; a state that does not change is not told again.
TEST_F(LinkTest, TheProcessesOfANicHearOfItsOwnLinkAndOfNoOther) {
  Listener first;
  Listener second;
  Listener peer;
  join(first, "h2", 0);
  join(second, "h2", 1);
  join(peer, "h1", 1);
  const std::uint32_t cut = fault({{"link", "h2-fabric#1"}, {"down", true}});
  EXPECT_TRUE(second.hears({false}));
  Listener late;
  join(late, "h2", 1);
  EXPECT_TRUE(late.hears({false}));
  const json nics = ask({{"cmd", "status"}})["status"]["nics"];
  EXPECT_EQ(nics[2]["link_up"], true);
  EXPECT_EQ(nics[3]["link_up"], false);
  const std::uint32_t one_way = fault({{"link", "fabric->h2#1"}, {"down", true}});
  heal(cut);  // one direction is still missing
  const std::uint32_t other = fault({{"link", "h1->fabric#1"}, {"down", true}});
  EXPECT_TRUE(peer.hears({false}));
  second.look();
  EXPECT_EQ(second.heard, std::vector<bool>{false});
  heal(one_way);
  EXPECT_TRUE(second.hears({false, true}));
  EXPECT_TRUE(late.hears({false, true}));
  heal(other);
  EXPECT_TRUE(peer.hears({false, true}));
  first.look();
  EXPECT_TRUE(first.heard.empty());
}

// Loss of all frames is no link that is down: a NIC sees light, and only its peers miss something.
TEST_F(LinkTest, FaultsInTimeAndDyingSwitchesTakeLinksToo) {
  Listener listener;
  join(listener, "h1", 0);
  const std::uint32_t planned =
      fault({{"link", "h1->fabric#0"}, {"down", true}, {"at", "10ms"}, {"lasts", "3600s"}});
  EXPECT_TRUE(listener.hears({false}));
  heal(planned);
  EXPECT_TRUE(listener.hears({false, true}));
  const std::uint32_t death = fault({{"switch", "fabric"}});
  EXPECT_TRUE(listener.hears({false, true, false}));
  heal(death);
  EXPECT_TRUE(listener.hears({false, true, false, true}));
  (void)fault({{"link", "h1->fabric#0"}, {"loss", 1}});  // trouble, but light is on
  const std::uint32_t last = fault({{"switch", "fabric"}});
  EXPECT_TRUE(listener.hears({false, true, false, true, false}));
  // The next weftd has a network without faults.
  weftd_->kill(SIGKILL);
  start();
  EXPECT_TRUE(listener.hears({false, true, false, true, false, true})) << last;
}

}  // namespace
}  // namespace weft::daemon
