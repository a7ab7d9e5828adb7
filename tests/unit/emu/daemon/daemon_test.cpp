// Owns the tests of what processes see of weftd: places, lives, and what it tells of itself. weftd
// is a process of its own (daemon_fixture.hpp) with two hosts of two NICs; what attaches is in the
// test. start(true): with direct rings between processes.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <map>

#include "emu/attach/protocol.hpp"
#include "srd/net/address_text.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"

namespace weft::daemon {
namespace {

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
  // Each place has numbers of queue pairs of its own, so that no process has to ask weftd for one.
  EXPECT_EQ(first->first_qpn, first->id.value() * 256U);
  EXPECT_EQ(first->qpn_count, 256U);
  EXPECT_LT(first->first_qpn + first->qpn_count - 1, 1U << 16);
  EXPECT_EQ(to_text(other_host->address), "127.77.2.1");
  const auto nics = attach::describe_host({.socket = directory_ + "/attach.sock", .host = "h1"});
  ASSERT_TRUE(nics) << nics.error().message;
  ASSERT_EQ(nics->size(), 2U);
  EXPECT_EQ((*nics)[1], other_nic->address);
}

// h1, h2, ... are names of any host, by its number, unless the network's own names are of that
// kind. Numbers begin with `first_host`, since weftds that are joined share one range of addresses.
TEST(Plant, CountsHostsWithNamesOfTheirOwnFromTheFirstNumber) {
  Plant::Options options;
  options.hosts = {"left", "right"};
  options.first_host = 3;
  auto own = Plant::make(options);
  ASSERT_TRUE(own);
  ASSERT_TRUE(own->nics_of("h4"));
  EXPECT_EQ(own->nics_of("h4")->front()->host, "right");
  EXPECT_EQ(to_text(own->nics_of("right")->front()->address), "127.77.4.1");
  EXPECT_FALSE(own->nics_of("h1"));  // of a weftd that is joined
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

// A host has 16 NICs at the most, one for each of its links.
TEST(Plant, RefusesAHostWithMoreLinksThanNicsThereCanBe) {
  fabric::Topology topology;
  const fabric::NodeId middle = topology.add_switch("sw");
  const fabric::NodeId first = topology.add_host("thin");
  const fabric::NodeId second = topology.add_host("thick");
  topology.connect(first, middle, {});
  for (std::size_t i = 0; i <= attach::kMaxNicsPerHost; ++i) {
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
  fabric::Topology topology;
  const fabric::NodeId middle = topology.add_switch("sw");
  for (const char* name : {"left", "right"}) {
    topology.connect(topology.add_host(name), middle, {});
  }
  DaemonOptions options;
  options.directory = directory_;
  options.topology = topology;
  options.plant.prefix = {10, 77};
  options.plant.first_host = 3;
  weftd_ = std::make_unique<Weftd>(options);
  const auto nics = attach::describe_host({.socket = directory_ + "/attach.sock", .host = "right"});
  ASSERT_TRUE(nics) << nics.error().message;
  EXPECT_EQ(to_text(nics->front()), "10.77.4.1");
}

// The texts name what was asked for, and what to do where no weftd runs.
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

TEST_F(DaemonTest, TwoProcessesOfOneNicReachEachOtherAndThemselves) {
  start(true);
  auto a = join("h1");
  auto b = join("h1");
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(passes(*a, *b, 1));
  EXPECT_TRUE(passes(*b, *a, 2));
  EXPECT_TRUE(passes(*a, *a, 3));
}

// A process that has armed its end may sleep in poll(). arm() refuses as long as something is there
// to be read, so it is asked again.
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
    const srd::TxPacket sent = packet(*a, *b, i);
    ASSERT_EQ(a->io->transmit({&sent, 1}), 1U);
    pollfd fd{b->io->wait_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&fd, 1, 5000), 1);
    b->io->disarm();
    EXPECT_TRUE(arrives(*b, i));
  }
}

// A packet for a process that has gone may still be under way when its place has another one: that
// one knows by the life that it is not meant. So no life may come twice at a place.
TEST_F(DaemonTest, PlacesOfTheDeadAreGivenAgainInALaterLife) {
  start(true);
  std::map<std::uint16_t, srd::Life> lives;
  // More than a NIC has places: they must come round.
  for (int i = 0; i < 600; ++i) {
    auto a = join("h1");
    ASSERT_TRUE(a) << a.error().message;
    const auto [before, fresh] = lives.try_emplace(a->id.value(), a->life);
    if (!fresh) {
      EXPECT_TRUE(before->second.before(a->life));
      before->second = a->life;
    }
  }
  EXPECT_GT(lives.size(), 100U);  // in turn: most late packets meet no process at all
}

// weftd is killed and started again, with processes that know nothing of it: each time they find it
// gone, ask the next one for the places that they had, and packets pass as before.
TEST_F(DaemonTest, ProcessesOutliveWeftdAndRejoin) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(passes(*a, *b, 1));
  for (std::uint32_t round = 2; round < 6; ++round) {
    weftd_->kill(SIGKILL);
    const srd::TxPacket lost = packet(*a, *b, 1000);
    EXPECT_TRUE(eventually([&] {
      [[maybe_unused]] const auto taken = a->io->transmit({&lost, 1});
      poll_once(*a);
      poll_once(*b);
      // `a` has noticed that weftd is gone: what it sends has no way any more.
      return a->io->counters().tx_unroutable >= round;
    }));
    weftd_->start();
    // Both try to connect ten times a second.
    EXPECT_TRUE(eventually([&] {
      const srd::TxPacket again = packet(*a, *b, round);
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

TEST_F(DaemonTest, LostFramesAreCounted) {
  start(false);
  auto a = join("h1");
  auto b = join("h2");
  ASSERT_TRUE(a && b);
  srd::TxPacket stray = packet(*a, *b, 1);
  // An address that no NIC has; then an attachment that no process has (byte 4 of the header).
  stray.to.bytes[15] = std::byte{99};
  EXPECT_EQ(a->io->transmit({&stray, 1}), 1U);
  stray = packet(*a, *b, 1);
  stray.header[4] = std::byte{0xEE};
  EXPECT_EQ(a->io->transmit({&stray, 1}), 1U);
  EXPECT_TRUE(passes(*a, *b, 2));
  const json dropped = status()["counters"]["dropped"];
  EXPECT_EQ(dropped["no_nic"], 1);
  EXPECT_EQ(dropped["no_process"], 1);
}

// One forged frame would make a peer believe that another process has restarted. In the name of
// `a`, with a later, an earlier or no life; in that of another process, with the life of `a` or its
// own; in nobody's. With an ideal network and with a modelled one.
TEST_F(DaemonTest, FramesInTheNameOfAnotherProcessAreDroppedAndCounted) {
  for (const bool modelled : {false, true}) {
    start(false);
    auto a = join("h1");
    auto victim = join("h1");
    auto other = join("h1", 1);
    auto b = join("h2");
    ASSERT_TRUE(a && victim && other && b);
    if (modelled) {
      ASSERT_TRUE(ask({{"v", 1},
                       {"cmd", "fault"},
                       {"fault", {{"link", "h1->fabric#1"}, {"extra_delay", "1us"}}}})["ok"]);
    }
    srd::TxPacket forged = packet(*a, *b, 1);
    const auto with = [&](auto&& change) {
      srd::wire::CommonHeader header{};
      std::memcpy(&header, packet(*a, *b, 1).header.data(), sizeof header);
      change(header);
      srd::wire::store(forged.header.data(), header);
      EXPECT_EQ(a->io->transmit({&forged, 1}), 1U);
    };
    with([&](auto& header) { header.source_life = a->life.plus(100).value(); });
    with([&](auto& header) { header.source_life = a->life.plus(0xFFFFFFFF).value(); });
    with([&](auto& header) { header.source_life = 0; });
    with([&](auto& header) { header.source_attachment = victim->id.value(); });
    with([&](auto& header) {
      header.source_attachment = victim->id.value();
      header.source_life = victim->life.value();
    });
    with([&](auto& header) { header.source_attachment = std::uint16_t{0}; });
    ASSERT_TRUE(passes(*a, *b, 2));
    ASSERT_TRUE(passes(*victim, *b, 3));
    const json counters = status()["counters"];
    EXPECT_EQ(counters["dropped"]["wrong_source"], 6) << counters;
    EXPECT_EQ(counters["frames"], 2) << counters;
    weftd_.reset();
  }
}

// A line of nonsense must not end weftd. What is answered is tested in control_test.cpp.
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
}  // namespace weft::daemon
