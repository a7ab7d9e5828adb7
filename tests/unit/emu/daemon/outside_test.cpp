// Owns the tests of what passes weftd's ports to the outside, and what does not.
//
// Most tests run two or three weftds, in processes of their own, each with a network of one host
// and joined by ports of the kind that is tested. What a device or a peer does that no real one can
// be made to do (oversize frames, garbage) comes from a stand-in.
#include "emu/daemon/outside.hpp"

#include <gtest/gtest.h>
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "emu/attach/client.hpp"
#include "emu/attach/protocol.hpp"
#include "emu/attach/seqpacket.hpp"
#include "emu/daemon/daemon.hpp"
#include "srd/base/rng.hpp"
#include "srd/io/dgram_io.hpp"
#include "srd/io/join_key.hpp"
#include "srd/io/tap_io.hpp"
#include "srd/run/clock.hpp"
#include "srd/wire/parse.hpp"
#include "srd/wire/srd_codec.hpp"
#include "srd/wire/srd_header.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/emu/daemon/roce_frame.hpp"
#include "tests/unit/emu/daemon/weftd.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;
namespace wire = srd::wire;

// A weftd with one host, of that number, so that the addresses of joined networks differ.
class OneHost : public Weftd {
 public:
  OneHost(const std::string& directory, std::uint32_t host, std::vector<std::string> ports,
          std::optional<fabric::Topology> topology = std::nullopt, const std::string& join_key = "")
      : Weftd(options_of(directory, host, std::move(ports), std::move(topology), join_key)) {}

 private:
  static DaemonOptions options_of(const std::string& directory, std::uint32_t host,
                                  std::vector<std::string>&& ports,
                                  std::optional<fabric::Topology>&& topology,
                                  const std::string& join_key) {
    DaemonOptions options;
    options.directory = directory;
    options.plant.hosts = {"h" + std::to_string(host)};
    options.plant.first_host = host;
    options.ports = std::move(ports);
    options.topology = std::move(topology);
    options.join_key = join_key;
    return options;
  }
};

// A send that looks like an engine's to everything on the way, with its number as PSN.
srd::TxPacket packet(const attach::Attachment& from, const attach::Attachment& to,
                     std::uint32_t number, std::size_t payload = 1000) {
  static const std::vector<std::byte> bytes(5000, std::byte{0x5A});
  srd::wire::DataHeader header{};
  header.common.version = srd::wire::kVersion;
  header.common.type = static_cast<std::uint8_t>(srd::wire::PacketType::send);
  header.common.flags = srd::wire::kLastOfMessage;
  header.common.destination_attachment = to.id.value();
  header.common.source_attachment = from.id.value();
  header.common.source_life = from.life.value();
  header.psn = number;
  header.payload_length = static_cast<std::uint16_t>(payload);
  header.message_length = static_cast<std::uint32_t>(payload);
  srd::TxPacket packet;
  packet.to = to.address;
  packet.header_size = sizeof header;
  srd::wire::store(packet.header.data(), header);
  packet.payload[0] = std::span(bytes).first(payload);
  return packet;
}

// Until it has arrived, whole and from the right address. No time is demanded: a busy machine may
// take seconds.
bool passes(attach::Attachment& from, attach::Attachment& to, std::uint32_t number) {
  const srd::TxPacket sent = packet(from, to, number);
  return from.io->transmit({&sent, 1}) == 1 && eventually([&] {
           bool got = false;
           for (const srd::RxPacket& received : to.io->receive()) {
             srd::wire::DataHeader header;
             got =
                 got || (srd::wire::load(received.bytes, header) && header.psn.value() == number &&
                         received.bytes.size() == sent.size() && received.from == from.address);
           }
           to.io->release();
           return got;
         });
}

class OutsideTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string place(const std::string& name) const { return directory_ + "/" + name; }

  testing::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
};

// Each of 199 packets goes from a ring through two weftds and a socket between them, both ways.
TEST_F(OutsideTest, UnixDatagramsJoinTwoNetworks) {
  const OneHost one(place("one"), 1, {"dgram:" + place("a") + "," + place("b")});
  const OneHost two(place("two"), 3, {"dgram:" + place("b") + "," + place("a")});
  auto a = one.join();
  auto b = two.join();
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->address, b->address);
  for (std::uint32_t i = 1; i < 200; ++i) {
    ASSERT_TRUE(passes(*a, *b, i)) << i;
    ASSERT_TRUE(passes(*b, *a, i)) << i;
  }
  EXPECT_GE(one.status()["ports"][0]["frames_out"], 199);
  EXPECT_GE(one.status()["ports"][0]["frames_in"], 199);
}

// First with a key, which proves the other side; then `insecure`, where any datagram from the right
// address counts. `up` is waited for, because the two sides have to greet each other before frames
// pass.
TEST_F(OutsideTest, UdpJoinsTwoNetworksThatShareAKey) {
  // Loopback addresses of this process: tests run side by side.
  const std::string base = "127.91." + std::to_string(::getpid() % 250) + ".";
  ASSERT_TRUE(srd::create_join_key(place("key")));
  for (const bool insecure : {false, true}) {
    const std::string more = insecure ? ",insecure" : "";
    const std::string key = insecure ? "" : place("key");
    const OneHost one(place("one"), 1, {"udp:" + base + "1," + base + "2" + more}, {}, key);
    const OneHost two(place("two"), 3, {"udp:" + base + "2," + base + "1" + more}, {}, key);
    auto a = one.join();
    auto b = two.join();
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(eventually([&] {
      return one.status()["ports"][0]["up"] == true && two.status()["ports"][0]["up"] == true;
    }));
    for (std::uint32_t i = 1; i < 200; ++i) {
      ASSERT_TRUE(passes(*a, *b, i)) << i;
      ASSERT_TRUE(passes(*b, *a, i)) << i;
    }
  }
}

// The refusal names both ways out, because it is the first thing that a user of UDP sees.
TEST_F(OutsideTest, AUdpPortNeedsAKeyUnlessItSaysOtherwise) {
  const auto spec = parse_outside("udp:127.0.0.1,127.0.0.2@h3");
  ASSERT_TRUE(spec);
  const auto refused = open_outside(*spec, 4000, "");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--join-key FILE"), std::string::npos);
  EXPECT_NE(refused.error().message.find("udp:127.0.0.1,127.0.0.2,insecure"), std::string::npos);
  EXPECT_FALSE(open_outside(*spec, 4000, place("nothing")));
  const auto insecure = parse_outside("udp:127.0.0.1,127.0.0.2,insecure@h3");
  ASSERT_TRUE(insecure);
  EXPECT_TRUE(insecure->insecure);
  EXPECT_EQ(insecure->arguments, "127.0.0.1,127.0.0.2");
  EXPECT_EQ(insecure->host, "h3");
}

// weftd in the middle is a switch between its ports.
TEST_F(OutsideTest, AThirdNetworkIsReachedThroughTheSecond) {
  const OneHost one(place("one"), 1, {"dgram:" + place("a") + "," + place("b")});
  const OneHost two(
      place("two"), 2,
      {"dgram:" + place("b") + "," + place("a"), "dgram:" + place("c") + "," + place("d")});
  const OneHost three(place("three"), 3, {"dgram:" + place("d") + "," + place("c")});
  auto a = one.join();
  auto c = three.join();
  ASSERT_TRUE(a && c);
  EXPECT_TRUE(passes(*a, *c, 1));
  EXPECT_TRUE(passes(*c, *a, 2));
}

// The port stands at the host `gate` of the topology, so frames of the far network cross the
// modelled links on their way to h1, and are counted there.
TEST_F(OutsideTest, TheModelledNetworkLiesBetweenAPortAndAHost) {
  fabric::Topology topology;
  const fabric::NodeId middle = topology.add_switch("sw");
  for (const char* name : {"h1", "gate"}) {
    topology.connect(topology.add_host(name), middle,
                     {.rate = Rate::gbps(1), .delay = std::chrono::microseconds{5}});
  }
  ASSERT_TRUE(topology.validate());
  const OneHost one(place("one"), 1, {"dgram:" + place("a") + "," + place("b") + "@gate"},
                    topology);
  const OneHost two(place("two"), 9, {"dgram:" + place("b") + "," + place("a")});
  auto a = one.join();
  auto b = two.join();
  ASSERT_TRUE(a && b);
  for (std::uint32_t i = 1; i < 20; ++i) {
    ASSERT_TRUE(passes(*a, *b, i)) << i;
    ASSERT_TRUE(passes(*b, *a, i)) << i;
  }
  EXPECT_GE(one.status()["fabric"]["delivered"], 38);
}

// A frame with packet `number`, as a far weftd would send it. One that is not sealed has no
// checksums, like a frame in memory.
std::vector<std::byte> frame_between(const attach::Attachment& from, const attach::Attachment& to,
                                     std::uint32_t number, bool sealed) {
  const auto writer = net::EnvelopeWriter::make(from.address, srd::wire::SrdCodec::kPorts);
  EXPECT_TRUE(writer);
  srd::TxPacket inner = packet(from, to, number, 100);
  std::vector<std::byte> frame(writer->size() + inner.size());
  EXPECT_TRUE(writer->write(frame.data(), to.address, srd::PathId{3}, srd::Ecn::capable_0,
                            srd::wire::kDscpData, inner.size()));
  std::memcpy(frame.data() + writer->size(), inner.header.data(), inner.header_size);
  std::memcpy(frame.data() + writer->size() + inner.header_size, inner.payload[0].data(), 100);
  if (sealed) {
    srd::wire::seal(std::span(frame).subspan(writer->size()));
  }
  return frame;
}

// 2000 rounds of noise, of one wrong bit, and of a frame that is cut short. Nothing may pass that a
// checksum covers, weftd must go on, and every frame must be found in a counter. Frames without a
// checksum are normal in memory, and must not pass from a wire.
TEST_F(OutsideTest, GarbageIsDroppedAndCounted) {
  const OneHost one(place("one"), 1, {"dgram:" + place("a") + "," + place("b")});
  auto a = one.join();
  ASSERT_TRUE(a);
  // The test is what lies behind the port, with an address that is none of `one`.
  auto enemy = srd::DgramIo::create(
      {.local = place("b"), .remote = place("a"), .patience = std::chrono::hours{1}});
  ASSERT_TRUE(enemy);
  attach::Attachment far;
  far.address = a->address;
  far.address.bytes[14] = std::byte{99};
  far.id = srd::AttachmentId{1};
  far.life = srd::Life{1};
  Rng rng(11);
  std::uint64_t sent = 0;
  const auto send = [&](std::vector<std::byte> frame) {
    srd::TxFrame out;
    out.pieces[0] = frame;
    ++sent;
    while ((*enemy)->transmit_room() == 0) {
      std::this_thread::yield();
    }
    ASSERT_EQ((*enemy)->transmit({&out, 1}), 1U);
  };
  const auto good = [&](std::uint32_t number, bool sealed) {
    return frame_between(far, *a, number, sealed);
  };
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> frame(rng.between(14, 300));
    for (auto& byte : frame) {
      byte = static_cast<std::byte>(rng.next());
    }
    send(frame);
    frame = good(1, true);
    frame[rng.between(0, frame.size() - 1)] ^= static_cast<std::byte>(1U << rng.below(8));
    send(frame);
    frame = good(1, true);
    frame.resize(rng.between(14, frame.size() - 1));
    send(frame);
  }
  send(good(2, false));
  std::uint64_t got = 0;
  ASSERT_TRUE(eventually([&] {
    [[maybe_unused]] const auto room = (*enemy)->transmit_room();
    for (const srd::RxPacket& received : a->io->receive()) {
      srd::wire::DataHeader header{};
      EXPECT_TRUE(srd::wire::load(received.bytes, header));
      EXPECT_EQ(header.psn.value(), 1U);  // its damage was in the Ethernet header or the mark
      ++got;
    }
    a->io->release();
    const json status = one.status();
    const json& port = status["ports"][0];
    return port["frames_in"].get<std::uint64_t>() + port["dropped_in"].get<std::uint64_t>() == sent;
  }));
  EXPECT_TRUE(one.alive());
  const json status = one.status();
  // The noise, what was cut short, and some of what had a wrong bit.
  EXPECT_GT(status["ports"][0]["dropped"], 3 * 2000 - 2000);
  EXPECT_GT(status["counters"]["dropped"]["corrupted"], 500);
  EXPECT_LT(got, 600U);  // 14 bytes of Ethernet, and few others, are under no checksum
  // A good frame still passes.
  send(good(3, true));
  EXPECT_TRUE(eventually([&] {
    bool there = false;
    for (const srd::RxPacket& received : a->io->receive()) {
      srd::wire::DataHeader header;
      there = there || (srd::wire::load(received.bytes, header) && header.psn.value() == 3);
    }
    a->io->release();
    return there;
  }));
}

// A device that delivers the frames that it was made with, with every receive(), also larger ones
// than it was opened for, as some drivers do. It counts those that it was to send.
class GenerousIo final : public srd::FrameIo {
 public:
  explicit GenerousIo(std::vector<std::vector<std::byte>> frames = {})
      : frames_(std::move(frames)) {}

  [[nodiscard]] srd::FrameTraits traits() const override { return {}; }
  [[nodiscard]] srd::FrameCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const srd::RxFrame> receive() override {
    shown_.assign(frames_.begin(), frames_.end());
    return shown_;
  }
  void release() override {}
  [[nodiscard]] std::size_t transmit(std::span<const srd::TxFrame> frames) override {
    counters_.tx_frames += frames.size();
    return frames.size();
  }
  [[nodiscard]] std::size_t transmit_room() override { return 1; }
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool arm() override { return true; }
  void disarm() override {}

 private:
  std::vector<std::vector<std::byte>> frames_;
  std::vector<srd::RxFrame> shown_;
  srd::FrameCounters counters_;
};

// A good RoCEv2 frame from outside to the first process of that NIC.
std::vector<std::byte> stranger_frame(const srd::Address& to, std::size_t size) {
  srd::Address stranger = to;
  stranger.bytes[14] = std::byte{99};
  return roce_frame(stranger, to, 1U << 16, size);
}

// `gate` has no process: ports are attached there.
fabric::Topology h1_and_gate() {
  fabric::Topology topology;
  const fabric::NodeId middle = topology.add_switch("sw");
  for (const char* name : {"h1", "gate"}) {
    topology.connect(topology.add_host(name), middle, {});
  }
  return topology;
}

// A ring has room for frames of kMaxFrame. A larger one would have to be cut or would break the
// ring, so it must be refused at the port: with a modelled network, whose buffers have that size as
// well, and without. Of four frames the last one has just that size, and arrives.
TEST_F(OutsideTest, OversizeFramesOfADeviceAreRefusedAndCounted) {
  constexpr std::size_t kMaxFrame = 700;
  for (const bool modelled : {false, true}) {
    Plant::Options hosts;
    hosts.hosts = {"h1", "gate"};
    auto plant = Plant::make(hosts);
    ASSERT_TRUE(plant);
    auto owned = std::make_unique<Slot>();
    Slot* slot = owned.get();
    slot->nic = plant->nics()[0].get();
    slot->id = 1;
    plant->put(std::move(owned));
    auto memory = srd::RingPort::create_memory(std::size_t{1} << 16);
    ASSERT_TRUE(memory);
    auto port = srd::RingPort::open(memory->get(), std::size_t{1} << 16, 0, kMaxFrame, {});
    auto peer = srd::RingPort::open(memory->get(), std::size_t{1} << 16, 1, kMaxFrame, {});
    ASSERT_TRUE(port && peer);
    slot->port = std::move(*port);
    Switchboard switchboard(*plant, [](Slot&, Slot&) { return true; });
    Outside outside(kMaxFrame);
    const srd::Address& to = plant->nics()[0]->address;
    ASSERT_TRUE(outside.add("device",
                            std::make_unique<GenerousIo>(std::vector{
                                stranger_frame(to, kMaxFrame + 1), stranger_frame(to, 1518),
                                std::vector<std::byte>(1518), stranger_frame(to, kMaxFrame)}),
                            modelled ? plant->nics()[1].get() : nullptr));
    switchboard.set_outside(&outside);
    LiveFabric live({.topology = h1_and_gate(), .max_frame = kMaxFrame}, TimePoint{},
                    [&](const FrameDelivery& arrival) { switchboard.arrive(arrival); });
    if (modelled) {
      switchboard.set_fabric(&live);
    }
    EXPECT_EQ(switchboard.pump_outside(TimePoint{}, 0), 4U);
    live.advance(TimePoint{} + std::chrono::seconds{1});
    EXPECT_EQ(switchboard.counters().dropped[static_cast<std::size_t>(FrameDrop::oversize)], 3U);
    EXPECT_EQ(outside.port(0).dropped, 3U);
    srd::RecordInfo info;
    EXPECT_EQ(peer->rx().peek(info).size(), kMaxFrame);
    EXPECT_FALSE(peer->broken());
  }
}

// Any process that may attach can pass a descriptor and call it a tap; weftd must not use it
// unasked.
TEST_F(OutsideTest, WhatIsNoTapIsNotTakenForOne) {
  const OneHost one(place("one"), 1, {});
  for (const char* host : {"", "h1", "nobody"}) {
    auto socket = attach::connect_seqpacket(place("one") + "/attach.sock");
    auto no_tap = srd::create_event_fd();
    ASSERT_TRUE(socket && no_tap);
    attach::TapRequest request;
    std::strncpy(request.host.data(), host, request.host.size() - 1);
    ASSERT_TRUE(attach::send_struct(socket->get(), request, {no_tap->get()}));
    const attach::Received received = attach::await_message(socket->get(), 5000);
    const auto refused = received.as<attach::RefusedReply>();
    ASSERT_TRUE(refused) << host;
    EXPECT_EQ(refused->header.type, attach::AttachMessage::refused);
  }
  const auto no_tap = srd::create_event_fd();
  ASSERT_TRUE(no_tap);
  const auto given =
      attach::give_tap({.socket = place("one") + "/attach.sock", .host = "nobody"}, no_tap->get());
  ASSERT_FALSE(given);
  EXPECT_NE(given.error().message.find("weftd refused: "), std::string::npos)
      << given.error().message;
  EXPECT_TRUE(one.alive());
  EXPECT_EQ(one.status()["ports"].size(), 0U);
}

// A frame is inside of the modelled network, on its way to a port, when that port is removed. The
// next port gets the same number: the frame must not leave by it.
TEST_F(OutsideTest, FramesOnTheirWayToAPortThatIsRemovedReachNobody) {
  constexpr std::size_t kMaxFrame = 700;
  Plant::Options hosts;
  hosts.hosts = {"h1", "gate"};
  auto plant = Plant::make(hosts);
  ASSERT_TRUE(plant);
  Switchboard switchboard(*plant, [](Slot&, Slot&) { return true; });
  Outside outside(kMaxFrame);
  const PlantNic* h1 = plant->nics()[0].get();
  const PlantNic* gate = plant->nics()[1].get();
  srd::Address nobody = gate->address;
  nobody.bytes[14] = std::byte{77};
  const auto frame = stranger_frame(nobody, kMaxFrame);
  ASSERT_TRUE(outside.add(
      "from", std::make_unique<GenerousIo>(std::vector<std::vector<std::byte>>{frame}), h1));
  const auto removed = outside.add("to", std::make_unique<GenerousIo>(), gate);
  ASSERT_TRUE(removed);
  switchboard.set_outside(&outside);
  LiveFabric live({.topology = h1_and_gate(), .max_frame = kMaxFrame}, TimePoint{},
                  [&](const FrameDelivery& arrival) { switchboard.arrive(arrival); });
  switchboard.set_fabric(&live);
  EXPECT_EQ(switchboard.pump_outside(TimePoint{}, 0), 1U);
  EXPECT_EQ(live.frames_inside(), 1U);
  EXPECT_TRUE(outside.remove(*removed));
  EXPECT_EQ(switchboard.pump_outside(TimePoint{}, *removed), 0U);
  EXPECT_TRUE(outside.arm());
  outside.disarm();
  auto next = std::make_unique<GenerousIo>();
  const GenerousIo& after = *next;
  const auto again = outside.add("to the next", std::move(next), gate);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *removed);
  live.advance(TimePoint{} + std::chrono::seconds{1});
  switchboard.notify();
  EXPECT_EQ(live.frames_inside(), 0U);
  EXPECT_EQ(after.counters().tx_frames, 0U);
  EXPECT_EQ(switchboard.counters().dropped[static_cast<std::size_t>(FrameDrop::no_nic)], 1U);
}

// More rounds than there are ports: each has to give its port back. When the donor's connection
// ends, weftd has to close the tap, which then leaves the system.
TEST_F(OutsideTest, ATapStaysForAsLongAsItsDonor) {
  const OneHost one(place("one"), 1, {});
  for (std::size_t i = 0; i < Outside::kMaxPorts + 2; ++i) {
    std::string name;  // the kernel's choice
    auto tap = srd::TapIo::open_device(name);
    if (!tap) {
      GTEST_SKIP() << tap.error().message;
    }
    auto socket = attach::connect_seqpacket(place("one") + "/attach.sock");
    ASSERT_TRUE(socket);
    attach::TapRequest request;
    std::strncpy(request.host.data(), "h1", request.host.size() - 1);
    ASSERT_TRUE(attach::send_struct(socket->get(), request, {tap->get()}));
    tap->reset();
    const auto reply = attach::await_message(socket->get(), 5000).as<attach::HostReply>();
    ASSERT_TRUE(attach::is_well_formed(reply, attach::AttachMessage::host)) << i;
    const json ports = one.status()["ports"];
    ASSERT_EQ(ports.size(), 1U) << i;
    EXPECT_EQ(ports[0]["host"], "h1");
    EXPECT_NE(::if_nametoindex(name.c_str()), 0U);
    socket->reset();
    ASSERT_TRUE(eventually([&] {
      return one.status()["ports"].empty() && ::if_nametoindex(name.c_str()) == 0;
    })) << i;
  }
}

// `@HOST` at the end names the host at which the port stands. A host's name has no slash, so an `@`
// with one behind it belongs to a path.
TEST_F(OutsideTest, WrongPortsAreRefusedWithTheReason) {
  for (const char* text : {"", "udp", "udp:1.2.3.4", "carrier:pigeon", "dgram:/only/one"}) {
    const auto spec = parse_outside(text);
    EXPECT_FALSE(spec) << text;
  }
  const auto bad = parse_outside("udp:1.2.3.4,::1");
  ASSERT_TRUE(bad);
  EXPECT_FALSE(open_outside(*bad, 4000, ""));
  const auto tap = parse_outside("tap:veth-x@h3");
  ASSERT_TRUE(tap);
  EXPECT_EQ(tap->arguments, "veth-x");
  EXPECT_EQ(tap->host, "h3");
  const auto paths = parse_outside("dgram:/a@b/x.sock,/a@b/y.sock");
  ASSERT_TRUE(paths);
  EXPECT_EQ(paths->arguments, "/a@b/x.sock,/a@b/y.sock");
  EXPECT_EQ(paths->host, "");
  EXPECT_EQ(parse_outside("dgram:/a@b/x.sock,/a@b/y.sock@h2")->host, "h2");
}

}  // namespace
}  // namespace weft::daemon
