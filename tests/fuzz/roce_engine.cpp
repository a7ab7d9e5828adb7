// Owns the fuzz target of the RoCEv2 engine: any packets, calls and steps of time, against memory
// whose owner checks it.
//
// A queue pair of each type, in one region with margins around it. Checked after each input: the
// margins are untouched, each request that was accepted completes once, and packets have sizes that
// can be sent. All else (reads beyond a buffer, overflows) is the sanitizers' to find.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emu/roce/engine/engine.hpp"
#include "srd/base/check.hpp"
#include "tests/fuzz/tape.hpp"

namespace weft::roce {
namespace {

constexpr std::size_t kMemory = 4096;
constexpr std::size_t kMargin = 64;
constexpr std::byte kBlank{0x5A};
constexpr std::uint32_t kAll = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;
constexpr QpType kTypes[] = {QpType::rc, QpType::uc, QpType::ud};

using testing::Tape;

EngineConfig config() {
  EngineConfig config;
  config.addresses.resize(1);
  config.first_qpn = 1;
  // Packets that may be under way: few, so that the window is closed often.
  config.window = 16;
  config.congestion_control = true;
  return config;
}

class Game {
 public:
  Game(const std::uint8_t* data, std::size_t size) : tape_(data, size), engine_(config(), sink_) {
    memory_.fill(kBlank);
    key_ = engine_.keys().register_region({memory_.data() + kMargin,
                                           reinterpret_cast<std::uint64_t>(&memory_[kMargin]),
                                           kMemory - 2 * kMargin, kAll | kWindowBind, 1});
    for (const QpType type : kTypes) {
      QpSetup request;
      request.type = type;
      request.domain = 1;
      request.max_send = request.max_receive = 4;
      request.max_send_sge = request.max_receive_sge = 2;
      request.max_inline = 32;
      request.signal_all = true;
      WEFT_CHECK(engine_.create_qp(request) != 0);
    }
  }

  void play() {
    // The first bytes bring queue pairs to where they may send, which an input would hardly find by
    // itself; a zero leaves the rest as they are.
    for (std::uint32_t number = 1; number <= 3 && tape_.byte() != 0; ++number) {
      const std::uint8_t counts = tape_.byte();
      for (const QpState state : {QpState::init, QpState::rtr, QpState::rts}) {
        modify(number, state, counts);
      }
    }
    while (!tape_.done()) {
      const std::uint8_t what = tape_.byte();
      switch (what % 8) {
        case 0:
        case 1:
        case 2:
          packet();
          break;
        case 3:
          send();
          break;
        case 4:
          receive();
          break;
        case 5:
          // From nanoseconds to two seconds, by one byte and a power.
          now_ += Duration{std::int64_t{tape_.byte()} << (tape_.byte() % 24)};
          break;
        case 6:
          modify();
          break;
        case 7:
          raw();
          break;
      }
      engine_.on_timeout(now_);
      transmit();
      drain();
    }
    for (std::size_t i = 0; i < kMargin; ++i) {
      WEFT_CHECK(memory_[i] == kBlank && memory_[kMemory - 1 - i] == kBlank);
    }
    for (std::uint32_t qpn = 1; qpn <= 3; ++qpn) {  // all that was posted comes back
      QpAttributes to;
      to.state = QpState::error;
      WEFT_CHECK(engine_.modify_qp(now_, qpn, kMaskState, to) == 0);
    }
    drain();
    WEFT_CHECK(open_ == 0);
  }

 private:
  std::uint32_t qpn() { return 1 + tape_.byte() % 3; }
  Sge segment() {
    const std::uint32_t at = tape_.byte() * 16U;
    return {reinterpret_cast<std::uint64_t>(&memory_[0]) + at, tape_.byte() * 4U,
            key_ ^ (tape_.byte() == 1 ? 1U : 0U)};
  }

  // Well formed but for its contents, near the expected sequence number: most random bytes end in
  // the parser.
  void packet() {
    wire::Packet packet;
    packet.opcode = tape_.byte();
    packet.destination_qpn = qpn();
    // Around 0, the number with which all queue pairs begin.
    packet.psn = (tape_.byte() - 8U) & kPsnMask;
    packet.ack_request = true;
    packet.address = segment().address;
    packet.rkey = key_;
    packet.length = tape_.byte() * 8U;
    packet.syndrome = tape_.byte();
    packet.invalidate = window_;
    std::vector<std::byte> bytes(wire::kLargestHeader);
    if (wire::traits_of(packet.opcode) == 0) {
      return;
    }
    const std::size_t payload = packet.has(wire::kPayload) ? tape_.byte() * 4U : 0;
    bytes.resize(wire::write_headers(packet, bytes.data()));
    const std::size_t headers = bytes.size();
    bytes.resize(headers + payload);
    // In two pieces, as a ring hands over a frame that wraps.
    arrive(bytes, headers + payload / 2);
  }
  // Anything at all.
  void raw() {
    std::vector<std::byte> bytes(tape_.byte());
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(tape_.byte());
    }
    arrive(bytes, bytes.size());
  }
  void arrive(std::span<const std::byte> bytes, std::size_t cut) {
    srd::RxPacket rx;
    rx.bytes = bytes.first(cut);
    rx.more = bytes.subspan(cut);
    rx.ecn = static_cast<srd::Ecn>(tape_.byte() & 3);
    engine_.on_packet(now_, rx);
  }

  void send() {
    WorkRequest work;
    work.wr_id = 1;
    work.opcode = static_cast<WrOpcode>(tape_.byte() % 11);
    work.flags = tape_.byte() & 0xF;
    work.remote_address = tape_.word();
    work.window = window_;
    work.invalidate = window_;
    work.new_rkey = tape_.byte();
    work.bind_lkey = key_;
    work.bind_access = tape_.byte();
    const Sge pieces[] = {segment(), segment()};
    work.bind_address = pieces[0].address;
    work.bind_length = pieces[0].length;
    const std::array<std::byte, 32> data{};
    // Inline data stands for the pieces.
    const bool is_inline = (work.flags & kInline) != 0;
    open_ += engine_.post_send(qpn(), work, std::span(pieces).first(is_inline ? 0 : 2),
                               is_inline ? std::span(data).first(tape_.byte() % 33)
                                         : std::span<const std::byte>{}) == 0
                 ? 1
                 : 0;
  }
  void receive() {
    const Sge pieces[] = {segment(), segment()};
    open_ += engine_.post_receive(qpn(), 2, pieces) == 0 ? 1 : 0;
  }
  void modify() { modify(qpn(), static_cast<QpState>(tape_.byte() % 7), tape_.byte()); }
  // With all attributes that the transition demands, so that queue pairs get where work is done;
  // RESET is left out, as what it forgets could not be counted.
  void modify(std::uint32_t number, QpState state, unsigned counts) {
    const QpType type = kTypes[number - 1];
    const bool datagram = type == QpType::ud;
    const bool reliable = type == QpType::rc;
    QpAttributes to;
    to.state = state;
    if (to.state == QpState::reset) {
      return;  // it forgets what was posted
    }
    to.access = kAll;
    to.timeout = 1;
    to.retry_count = counts % 8;
    to.rnr_retry = counts / 8 % 8;
    to.max_reads = to.max_dest_reads = static_cast<std::uint8_t>(counts / 64);
    to.destination_qpn = number;
    std::uint32_t mask = kMaskState;
    if (to.state == QpState::init) {
      mask |= kMaskPkeyIndex | kMaskPort | std::uint32_t{datagram ? kMaskQkey : kMaskAccess};
    } else if (to.state == QpState::rtr) {
      mask |= datagram ? 0 : kMaskAddress | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn;
      mask |= reliable ? kMaskMaxDestReads | kMaskMinRnrTimer : 0;
    } else if (to.state == QpState::rts && engine_.query_qp(number)->state == QpState::rtr) {
      mask |= kMaskSqPsn;
      mask |= reliable ? kMaskTimeout | kMaskRetryCount | kMaskRnrRetry | kMaskMaxReads : 0;
    }
    static_cast<void>(engine_.modify_qp(now_, number, mask, to));
  }

  void transmit() {
    srd::TxPacket out;
    for (int i = 0; i < 40 && engine_.next_transmit(now_, out); ++i) {
      WEFT_CHECK((out.header_size + out.payload_size()) % 4 == 0);
      WEFT_CHECK(out.payload_size() <= 4096);
    }
  }
  void drain() {
    for (; !sink_.completions.empty(); sink_.completions.pop()) {
      WEFT_CHECK(open_ > 0);
      --open_;
    }
    for (; !sink_.events.empty(); sink_.events.pop()) {
    }
  }

  Tape tape_;
  Sink sink_;
  Engine engine_;
  std::array<std::byte, kMemory> memory_;
  std::uint32_t key_ = 0;
  std::uint32_t window_ = engine_.keys().allocate_window(2, 1);
  std::uint32_t open_ = 0;
  TimePoint now_ = time_at(std::chrono::milliseconds{1});
};

}  // namespace
}  // namespace weft::roce

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::roce::Game(data, size).play();
  return 0;
}
