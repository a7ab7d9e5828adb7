// Owns what processes see of weftd: places, frames, direct rings, and what becomes of those that
// die or cheat.
#include "emu/daemon/daemon.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "emu/daemon/attach_protocol.hpp"
#include "emu/daemon/client.hpp"
#include "srd/base/rng.hpp"
#include "srd/io/ring_io.hpp"
#include "srd/run/clock.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::emu {
namespace {

using nlohmann::json;

// A weftd in a process of its own, so that it can be killed.
class Weftd {
 public:
  explicit Weftd(DaemonOptions options) : options_(std::move(options)) { start(); }
  ~Weftd() { kill(SIGTERM); }

  void start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      auto daemon = Daemon::create(options_);
      _exit(daemon && (*daemon)->run() ? 0 : 1);
    }
    const auto patience = srd::monotonic_now() + std::chrono::seconds{10};
    while (!connect_seqpacket(options_.directory + "/attach.sock") &&
           srd::monotonic_now() < patience) {
      std::this_thread::yield();
    }
  }
  // Returns its exit status as waitpid() tells it.
  int kill(int signal) {
    int status = -1;
    if (pid_ > 0) {
      ::kill(pid_, signal);
      ::waitpid(pid_, &status, 0);
      pid_ = -1;
    }
    return status;
  }
  [[nodiscard]] bool alive() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  [[nodiscard]] const DaemonOptions& options() const { return options_; }

 private:
  DaemonOptions options_;
  pid_t pid_ = -1;
};

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/weft-test-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override {
    weftd_.reset();
    std::filesystem::remove_all(directory_);
  }
  void start(bool direct_rings) {
    DaemonOptions options;
    options.directory = directory_;
    options.plant.hosts = {"h1", "h2"};
    options.plant.nics_per_host = 2;
    options.direct_rings = direct_rings;
    weftd_ = std::make_unique<Weftd>(options);
  }
  [[nodiscard]] Result<Attachment> join(const std::string& host, std::uint32_t nic = 0) const {
    AttachOptions options;
    options.socket = directory_ + "/attach.sock";
    options.host = host;
    options.nic = nic;
    return attach(options);
  }
  json ask(const json& request) const { return ask_line(request.dump()); }
  json ask_line(std::string line) const {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (directory_ + "/control.sock").c_str());
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    line += "\n";
    EXPECT_EQ(::write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    std::string reply;
    char buffer[4096];
    while (reply.find('\n') == std::string::npos) {
      const ssize_t size = ::read(fd, buffer, sizeof buffer);
      if (size <= 0) {
        break;
      }
      reply.append(buffer, static_cast<std::size_t>(size));
    }
    ::close(fd);
    return json::parse(reply, nullptr, false);
  }
  json status() const { return ask({{"v", 1}, {"cmd", "status"}})["status"]; }

  static srd::TxPacket packet(const Attachment& to, std::uint32_t number, std::size_t size = 64) {
    static const std::vector<std::byte> payload(5000, std::byte{0x5A});
    srd::TxPacket packet;
    srd::wire::CommonHeader header{};
    header.version = srd::wire::kVersion;
    header.type = 1;
    header.destination_attachment = to.id.value();
    header.source_life = number;
    packet.to = to.address;
    packet.header_size = sizeof header;
    srd::wire::store(packet.header.data(), header);
    packet.payload[0] = {payload.data(), size - sizeof header};
    return packet;
  }
  static std::uint32_t number_of(const srd::RxPacket& packet) {
    srd::wire::CommonHeader header{};
    EXPECT_TRUE(srd::wire::load(packet.bytes, header));
    return header.source_life.value();
  }
  // Sends one packet and waits for it at the other end.
  static testing::AssertionResult passes(Attachment& from, Attachment& to, std::uint32_t number) {
    const srd::TxPacket sent = packet(to, number);
    if (from.io->transmit({&sent, 1}) != 1) {
      return testing::AssertionFailure() << "not taken";
    }
    return arrives(to, number);
  }
  static testing::AssertionResult arrives(Attachment& to, std::uint32_t number) {
    const auto patience = srd::monotonic_now() + std::chrono::seconds{5};
    while (srd::monotonic_now() < patience) {
      for (const srd::RxPacket& received : to.io->receive()) {
        if (number_of(received) == number) {
          to.io->release();
          return testing::AssertionSuccess();
        }
      }
      to.io->release();
      std::this_thread::yield();
    }
    return testing::AssertionFailure() << "packet " << number << " did not arrive";
  }
  template <class Condition>
  static bool eventually(Condition&& condition) {
    const auto patience = srd::monotonic_now() + std::chrono::seconds{10};
    while (!condition()) {
      if (srd::monotonic_now() > patience) {
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }
  static void poll_once(Attachment& attachment) {
    [[maybe_unused]] const auto packets = attachment.io->receive();
    attachment.io->release();
  }

  std::string directory_;
  std::unique_ptr<Weftd> weftd_;
};

TEST_F(DaemonTest, GivesEveryProcessItsOwnPlace) {
  start(true);
  auto first = join("h1");
  auto second = join("h1");
  auto other_nic = join("h1", 1);
  auto other_host = join("h2");
  ASSERT_TRUE(first && second && other_nic && other_host);
  EXPECT_EQ(first->address, second->address);
  EXPECT_NE(first->id, second->id);
  EXPECT_NE(first->address, other_nic->address);
  EXPECT_NE(first->address, other_host->address);
  EXPECT_EQ(first->first_qpn, first->id.value() * 256U);
  EXPECT_EQ(first->qpn_count, 256U);
  EXPECT_LT(first->first_qpn + first->qpn_count - 1, 1U << 16);
  EXPECT_EQ(to_text(other_host->address), "127.77.2.1");
  const auto nics = describe_host({.socket = directory_ + "/attach.sock", .host = "h1"});
  ASSERT_TRUE(nics) << nics.error().message;
  ASSERT_EQ(nics->size(), 2U);
  EXPECT_EQ((*nics)[1], other_nic->address);
}

TEST(Plant, CountsHostsWithNamesOfTheirOwnFromTheFirstNumber) {
  Plant::Options options;
  options.hosts = {"left", "right"};
  options.first_host = 3;
  auto own = Plant::make(options);
  ASSERT_TRUE(own);
  ASSERT_TRUE(own->nics_of("h4"));
  EXPECT_EQ(own->nics_of("h4")->front()->host, "right");
  EXPECT_EQ(to_text(own->nics_of("right")->front()->address), "127.77.4.1");
  EXPECT_FALSE(own->nics_of("h1"));  // another weftd's
  EXPECT_FALSE(own->nics_of("h5"));
  options.hosts = {"h3", "h4"};
  auto generated = Plant::make(options);
  ASSERT_TRUE(generated);
  EXPECT_EQ(generated->nics_of("h3")->front()->host, "h3");
  const auto other = generated->nics_of("h1");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("h3 ... h4"), std::string::npos) << other.error().message;
  options.hosts = {"h0", "h1"};
  options.first_host = 1;
  EXPECT_FALSE(Plant::make(options)->nics_of("h2"));  // and not h1 a second time
}

TEST(Plant, RefusesAHostWithMoreLinksThanNicsThereCanBe) {
  Topology topology;
  const NodeId middle = topology.add_switch("sw");
  const NodeId first = topology.add_host("thin");
  const NodeId second = topology.add_host("thick");
  topology.connect(first, middle, {});
  for (std::size_t i = 0; i <= kMaxNicsPerHost; ++i) {
    topology.connect(second, middle, {});
  }
  DaemonOptions options;
  options.directory = "/nonexistent";
  options.topology = topology;
  const auto daemon = Daemon::create(options);
  ASSERT_FALSE(daemon);
  EXPECT_NE(daemon.error().message.find("'thick' has 17 links"), std::string::npos)
      << daemon.error().message;
}

TEST_F(DaemonTest, ATopologysHostsHaveTheAddressesThatWereAskedFor) {
  Topology topology;
  const NodeId middle = topology.add_switch("sw");
  for (const char* name : {"left", "right"}) {
    topology.connect(topology.add_host(name), middle, {});
  }
  DaemonOptions options;
  options.directory = directory_;
  options.topology = topology;
  options.plant.prefix = {10, 77};
  options.plant.first_host = 3;
  weftd_ = std::make_unique<Weftd>(options);
  const auto nics = describe_host({.socket = directory_ + "/attach.sock", .host = "right"});
  ASSERT_TRUE(nics) << nics.error().message;
  EXPECT_EQ(to_text(nics->front()), "10.77.4.1");
}

TEST_F(DaemonTest, SaysWhyItRefuses) {
  start(true);
  const auto nobody = join("h9");
  ASSERT_FALSE(nobody);
  EXPECT_NE(nobody.error().message.find("h9"), std::string::npos) << nobody.error().message;
  EXPECT_FALSE(join("h1", 2));
  weftd_.reset();
  const auto gone = join("h1");
  ASSERT_FALSE(gone);
  EXPECT_NE(gone.error().message.find("weft up"), std::string::npos) << gone.error().message;
}

TEST_F(DaemonTest, CarriesPacketsThroughTheMiddle) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  for (std::uint32_t i = 1; i < 200; ++i) {
    ASSERT_TRUE(passes(*a, *b, i));
    ASSERT_TRUE(passes(*b, *a, i));
  }
  EXPECT_EQ(a->io->direct_ports(), 0U);
  EXPECT_EQ(status()["counters"]["frames"], 398);
}

TEST_F(DaemonTest, GivesTwoLocalProcessesADirectRing) {
  start(true);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(passes(*a, *b, 1));
  EXPECT_TRUE(eventually([&] {
    poll_once(*a);
    poll_once(*b);
    return a->io->direct_ports() == 1 && b->io->direct_ports() == 1;
  }));
  const auto before = status()["counters"]["frames"].get<int>();
  for (std::uint32_t i = 2; i < 100; ++i) {
    ASSERT_TRUE(passes(*a, *b, i));
    ASSERT_TRUE(passes(*b, *a, i));
  }
  EXPECT_EQ(status()["counters"]["frames"].get<int>(), before);
}

TEST_F(DaemonTest, TwoProcessesOfOneNicReachEachOtherAndThemselves) {
  start(true);
  auto a = join("h1");
  auto b = join("h1");
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(passes(*a, *b, 1));
  EXPECT_TRUE(passes(*b, *a, 2));
  EXPECT_TRUE(passes(*a, *a, 3));
}

TEST_F(DaemonTest, ASleepingProcessIsWoken) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  for (std::uint32_t i = 1; i < 20; ++i) {
    ASSERT_TRUE(eventually([&] {
      poll_once(*b);
      return b->io->arm();
    }));
    const srd::TxPacket sent = packet(*b, i);
    ASSERT_EQ(a->io->transmit({&sent, 1}), 1U);
    pollfd fd{b->io->wait_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&fd, 1, 5000), 1);
    b->io->disarm();
    EXPECT_TRUE(arrives(*b, i));
  }
}

TEST_F(DaemonTest, PlacesOfTheDeadAreGivenAgainInALaterLife) {
  start(true);
  std::map<std::uint16_t, srd::Life> lives;
  for (int i = 0; i < 600; ++i) {
    auto a = join("h1");
    ASSERT_TRUE(a) << a.error().message;
    const auto [before, fresh] = lives.try_emplace(a->id.value(), a->life);
    if (!fresh) {
      EXPECT_TRUE(before->second.before(a->life));
      before->second = a->life;
    }
  }
  EXPECT_GT(lives.size(), 100U);  // not the same place at once: late packets meet nobody
}

TEST_F(DaemonTest, AKilledProcessLeavesAndItsPeersLoseTheRing) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  const pid_t child = ::fork();
  if (child == 0) {
    auto b = join("h2");
    const srd::TxPacket sent = packet(*a, 7);
    while (b) {  // the rings of `a` are the parent's
      [[maybe_unused]] const auto taken = b->io->transmit({&sent, 1});
      poll_once(*b);
      std::this_thread::yield();
    }
    _exit(1);
  }
  ASSERT_TRUE(arrives(*a, 7));
  ASSERT_TRUE(eventually([&] {
    poll_once(*a);
    return a->io->direct_ports() == 1;
  }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(eventually([&] {
    poll_once(*a);
    return a->io->direct_ports() == 0;
  }));
  EXPECT_EQ(status()["direct_pairs"], 0);
  auto c = join("h2");
  ASSERT_TRUE(c);
  EXPECT_TRUE(passes(*c, *a, 9));
}

// They hand in a frame and are gone before weftd gets round to giving them a ring.
TEST_F(DaemonTest, OfThoseWhoDieAtOnceNoRingsStay) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  for (std::uint32_t i = 1; i <= 100; ++i) {
    auto b = join("h2");
    ASSERT_TRUE(b);
    const srd::TxPacket sent = packet(*a, i);
    ASSERT_EQ(b->io->transmit({&sent, 1}), 1U);
  }
  EXPECT_TRUE(eventually([&] {
    poll_once(*a);
    return status()["direct_pairs"] == 0;
  }));
  auto last = join("h2");
  ASSERT_TRUE(last);
  ASSERT_TRUE(passes(*last, *a, 1000));
  EXPECT_TRUE(eventually([&] {
    poll_once(*a);
    poll_once(*last);
    return a->io->direct_ports() == 1 && last->io->direct_ports() == 1;
  }));
}

TEST_F(DaemonTest, MorePeersThanAProcessHasRoomForReachItAllTheSame) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  std::vector<Attachment> peers;
  for (std::uint32_t i = 0; i < srd::RingIo::kMaxDirectPorts + 6; ++i) {
    auto peer = join("h2");
    ASSERT_TRUE(peer) << peer.error().message;
    peers.push_back(std::move(*peer));
    ASSERT_TRUE(passes(peers.back(), *a, i + 1));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < peers.size(); ++i) {
      poll_once(peers[i]);  // hears of its ring
      ASSERT_TRUE(passes(peers[i], *a, 1000 + i)) << "peer " << i;
      ASSERT_TRUE(passes(*a, peers[i], 2000 + i)) << "peer " << i;
    }
  }
  EXPECT_EQ(a->io->direct_ports(), srd::RingIo::kMaxDirectPorts);
}

TEST_F(DaemonTest, AFloodStarvesNobody) {
  start(true);
  auto a = join("h1");
  ASSERT_TRUE(a);
  std::vector<Attachment> peers;
  for (std::uint32_t i = 0; i < 6; ++i) {
    auto peer = join("h2");
    ASSERT_TRUE(peer);
    peers.push_back(std::move(*peer));
    ASSERT_TRUE(passes(peers.back(), *a, i + 1));
    ASSERT_TRUE(eventually([&] {
      poll_once(*a);
      poll_once(peers.back());
      return a->io->direct_ports() == i + 1 && peers.back().io->direct_ports() == 1;
    }));
  }
  const auto send = [&](Attachment& from, std::uint32_t number) {
    const srd::TxPacket sent = packet(*a, number);
    EXPECT_EQ(from.io->transmit({&sent, 1}), 1U);
  };
  for (std::uint32_t i = 0; i < 1000; ++i) {
    send(peers[0], 0);
    send(peers[1], 0);
  }
  for (std::uint32_t i = 2; i < peers.size(); ++i) {
    send(peers[i], i);
  }
  std::set<std::uint32_t> heard;
  for (int burst = 0; burst < 4; ++burst) {
    for (const srd::RxPacket& received : a->io->receive()) {
      heard.insert(number_of(received));
    }
    a->io->release();
  }
  EXPECT_EQ(heard, (std::set<std::uint32_t>{0, 2, 3, 4, 5}));
}

TEST_F(DaemonTest, ProcessesOutliveWeftdAndRejoin) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(passes(*a, *b, 1));
  for (std::uint32_t round = 2; round < 6; ++round) {
    weftd_->kill(SIGKILL);
    const srd::TxPacket lost = packet(*b, 1000);
    EXPECT_TRUE(eventually([&] {
      [[maybe_unused]] const auto taken = a->io->transmit({&lost, 1});
      poll_once(*a);
      poll_once(*b);
      return a->io->counters().tx_unroutable >= round;
    }));
    weftd_->start();
    // Both knock ten times a second.
    EXPECT_TRUE(eventually([&] {
      const srd::TxPacket again = packet(*b, round);
      [[maybe_unused]] const auto taken = a->io->transmit({&again, 1});
      poll_once(*a);
      bool got = false;
      for (const srd::RxPacket& received : b->io->receive()) {
        got = got || number_of(received) == round;
      }
      b->io->release();
      return got;
    })) << "round "
        << round;
  }
}

TEST_F(DaemonTest, GarbageInARingHurtsOnlyItsOwner) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    auto socket = connect_seqpacket(directory_ + "/attach.sock");
    ASSERT_TRUE(socket);
    ASSERT_TRUE(send_struct(socket->get(), AttachRequest{}));
    Received received = await_message(socket->get(), 5000);
    const auto reply = received.as<AttachReply>();
    ASSERT_TRUE(reply && received.fds.size() == 3);
    auto memory = srd::Mapping::map(received.fds[0].get(), srd::ring_pair_bytes(reply->ring_bytes));
    ASSERT_TRUE(memory);
    Rng rng(seed);
    for (std::size_t i = 0; i + 8 <= memory->size(); i += 8) {
      const std::uint64_t word = rng.chance(0.3) ? rng.below(6000) : rng.next();
      std::memcpy(memory->data() + i, &word, sizeof word);
    }
    srd::ring_doorbell(received.fds[2].get());
    ASSERT_TRUE(passes(*a, *b, static_cast<std::uint32_t>(seed))) << "seed " << seed;
    ASSERT_TRUE(weftd_->alive()) << "seed " << seed;
  }
}

TEST_F(DaemonTest, SpoofedAndLostFramesAreCounted) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  srd::TxPacket stray = packet(*b, 1);
  stray.to.bytes[15] = std::byte{99};
  EXPECT_EQ(a->io->transmit({&stray, 1}), 1U);
  stray = packet(*b, 1);
  stray.header[4] = std::byte{0xEE};
  EXPECT_EQ(a->io->transmit({&stray, 1}), 1U);
  EXPECT_TRUE(passes(*a, *b, 2));
  const json dropped = status()["counters"]["dropped"];
  EXPECT_EQ(dropped["no_nic"], 1);
  EXPECT_EQ(dropped["no_process"], 1);
}

TEST_F(DaemonTest, AProcessThatNeverReadsBlocksNobodyForLong) {
  start(false);
  auto a = join("h1");
  auto deaf = join("h2");
  auto b = join("h2");
  ASSERT_TRUE(a && deaf && b);
  const srd::TxPacket flood = packet(*deaf, 1, 1000);
  const std::size_t more_than_all_rings_hold = 3 * weftd_->options().ring_bytes / 1000;
  std::size_t taken = 0;
  EXPECT_TRUE(eventually([&] {
    taken += a->io->transmit({&flood, 1});
    return taken > more_than_all_rings_hold;
  }));
  EXPECT_TRUE(eventually([&] {
    const srd::TxPacket sent = packet(*b, 2);
    return a->io->transmit({&sent, 1}) == 1;
  }));
  EXPECT_TRUE(arrives(*b, 2));
  EXPECT_GT(status()["counters"]["dropped"]["not_receiving"], 0);
}

// A full direct ring must not hold up what goes to others.
TEST_F(DaemonTest, AStoppedPeerBlocksNobodyElse) {
  start(true);
  auto a = join("h1");
  auto c = join("h2");
  ASSERT_TRUE(a && c);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto b = join("h2");
    const srd::TxPacket hello = packet(*a, 7);
    const std::uint8_t id = b ? static_cast<std::uint8_t>(b->id.value()) : 0;
    [[maybe_unused]] const auto told = ::write(ready[1], &id, 1);
    while (b) {
      [[maybe_unused]] const auto taken = b->io->transmit({&hello, 1});
      poll_once(*b);
      std::this_thread::yield();
    }
    _exit(1);
  }
  std::uint8_t id = 0;
  ASSERT_EQ(::read(ready[0], &id, 1), 1);
  ASSERT_TRUE(eventually([&] {
    poll_once(*a);
    return a->io->direct_ports() == 1;
  }));
  ::kill(child, SIGSTOP);
  srd::TxPacket flood = packet(*c, 1, 1000);
  flood.header[srd::wire::kDestinationAttachmentOffset + 1] = std::byte{id};
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 100; ++i) {
      [[maybe_unused]] const auto taken = a->io->transmit({&flood, 1});
    }
    return a->io->counters().tx_stalled > 100;
  }));
  EXPECT_GT(a->io->transmit_room(), 0U);
  for (std::uint32_t i = 100; i < 200; ++i) {
    [[maybe_unused]] const auto taken = a->io->transmit({&flood, 1});
    ASSERT_TRUE(passes(*a, *c, i));
  }
  ::kill(child, SIGCONT);
  const auto stalled = a->io->counters().tx_stalled;
  EXPECT_TRUE(eventually([&] {
    const auto before = a->io->counters().tx_packets;
    [[maybe_unused]] const auto taken = a->io->transmit({&flood, 1});
    poll_once(*a);
    return a->io->counters().tx_packets > before;
  })) << stalled
      << " were dropped";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(DaemonTest, TheControlSocketAnswersAnything) {
  start(true);
  EXPECT_EQ(ask({{"v", 1}, {"cmd", "status"}})["ok"], true);
  EXPECT_EQ(ask({{"v", 2}, {"cmd", "status"}})["ok"], false);
  EXPECT_EQ(ask({{"v", 1}, {"cmd", "dance"}})["ok"], false);
  EXPECT_EQ(ask({{"v", "x"}, {"cmd", 7}})["ok"], false);
  EXPECT_EQ(ask(json::array({1, 2}))["ok"], false);
  EXPECT_EQ(ask_line("\xff\xfe{")["ok"], false);
  EXPECT_TRUE(weftd_->alive());
}

}  // namespace
}  // namespace weft::emu
