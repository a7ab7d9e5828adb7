// Owns the replay of captured requests of Linux against our responder: it answers what Linux's did,
// byte for byte.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string_view>

#include "tests/unit/emu/roce/captures.hpp"
#include "tests/unit/emu/roce/engine/bench.hpp"

namespace weft::roce {
namespace {

struct Seen {
  wire::Datagram datagram;
  wire::Packet packet;
};

bool is_rc_send(const wire::Packet& packet) {
  return wire::transport_of(packet.opcode) == wire::Transport::rc && packet.has(wire::kSend);
}
bool is_ack(const wire::Packet& packet) {
  return packet.opcode == wire::opcode_of(wire::Transport::rc, wire::Operation::acknowledge);
}

// Everything that `from` has sent, to the queue pair that answered it.
void replay(const std::vector<Seen>& seen, const srd::Address& from) {
  std::optional<Seen> first;
  std::map<std::uint32_t, std::vector<std::byte>> answers;
  for (const Seen& one : seen) {
    const bool ours = one.datagram.header.source == from;
    if (ours && is_rc_send(one.packet) && !first) {
      first = one;
    }
    if (!ours && is_ack(one.packet)) {
      answers[one.packet.psn] = {one.datagram.packet.begin(), one.datagram.packet.end()};
    }
  }
  ASSERT_TRUE(first);
  auto config = Bench::default_config();
  config.addresses = {first->datagram.header.destination};
  config.first_qpn = first->packet.destination_qpn;
  Bench bench(QpType::rc, Bench::default_request(), config);
  bench.attributes.address.destination = from;
  bench.attributes.rq_psn = first->packet.psn;
  // 1024 bytes.
  bench.attributes.path_mtu = 3;
  wire::Packet answered;
  ASSERT_EQ(wire::parse_packet(answers.begin()->second, 0, answered), wire::PacketFault::none);
  bench.attributes.destination_qpn = answered.destination_qpn;
  bench.bring_up();
  std::size_t asked = 0;
  std::size_t equal = 0;
  for (const Seen& one : seen) {
    if (one.datagram.header.source != from || !is_rc_send(one.packet)) {
      continue;
    }
    if (one.packet.has(wire::kBegins)) {
      const Sge segment = bench.sge(0, 4096);
      ASSERT_EQ(bench.engine.post_receive(bench.qpn, 1, {&segment, 1}), 0);
    }
    srd::RxPacket rx;
    rx.from = from;
    rx.bytes = one.datagram.packet;
    bench.engine.on_packet(bench.now, rx, one.datagram.header);
    srd::TxPacket out;
    while (bench.engine.next_transmit(bench.now, out)) {
      const auto header = std::span(out.header).first(out.header_size);
      const std::vector<std::byte> ours(header.begin(), header.end());
      equal += answers[one.packet.psn] == ours ? 1 : 0;
    }
    asked += one.packet.ack_request ? 1 : 0;
  }
  // Else the capture has been read wrongly, and nothing was compared.
  EXPECT_GE(asked, 4U);
  EXPECT_EQ(equal, asked);
  EXPECT_EQ(bench.sink.completions.size(), asked);
}

TEST(Capture, IsAnsweredAsLinuxAnswersIt) {
  for (const char* const name :
       {"rxe61-rc_pingpong-s3000-n5", "rxe61-ucmatose-udaddy", "python-rxe612-rc_pingpong"}) {
    SCOPED_TRACE(name);
    const auto frames = roce_frames(name);
    std::vector<Seen> seen;
    for (const auto& frame : frames) {
      Seen& one = seen.emplace_back();
      ASSERT_EQ(wire::parse_datagram(frame, one.datagram), wire::DatagramFault::none);
      ASSERT_EQ(wire::parse_packet(one.datagram.packet, 0, one.packet), wire::PacketFault::none);
    }
    for (const srd::Address& from :
         {seen.front().datagram.header.source, seen.front().datagram.header.destination}) {
      constexpr std::byte kGuest{1};  // the last byte of its address; the Python peer is no Linux
      const bool by_linux =
          std::string_view(name).starts_with("rxe") || from.bytes.back() != kGuest;
      if (by_linux) {
        replay(seen, from);
      }
    }
  }
}

}  // namespace
}  // namespace weft::roce
