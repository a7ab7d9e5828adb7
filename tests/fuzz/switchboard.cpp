// Fuzzes weftd's ports to the outside: whatever comes in, what leaves is what a switch forwards, or
// an answer for one of our NICs, and no answer makes another.
#include "emu/daemon/switchboard.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "emu/daemon/neighbours.hpp"
#include "emu/roce/wire/roce_codec.hpp"
#include "srd/base/check.hpp"
#include "srd/net/envelope.hpp"
#include "srd/net/ip_layout.hpp"
#include "tests/fuzz/tape.hpp"
#include "tests/support/fake_port.hpp"

namespace {

using namespace weft;
using namespace weft::daemon;
namespace net = srd::net;
using weft::testing::FakePort;
using Frame = std::vector<std::byte>;

// Room for every answer, and little more.
constexpr std::size_t kMaxFrame = 600;
constexpr std::size_t kPorts = 3;
// Four NICs (two of ours, two of others) by three addresses each.
constexpr std::size_t kAddresses = 12;
// Where ICMPv6 begins in a frame without extensions.
constexpr std::size_t kIcmp = net::kEthernetSize + net::kIpV6Size;

class World {
 public:
  World() : plant_(std::move(*Plant::make(two_hosts()))) {
    for (FakePort*& port : ports_) {
      auto io = std::make_unique<FakePort>();
      port = io.get();
      WEFT_CHECK(outside_.add("port", std::move(io), nullptr));
    }
    // Three ports that differ: a kernel's, one that has proved itself, a plain one.
    outside_.port(2).is_kernel = true;
    outside_.port(2).nic = plant_.nics()[1].get();
    outside_.port(1).proved = true;
    plant_.nics()[0]->left.set();
    switchboard_.set_outside(&outside_);
  }

  void play(weft::testing::Tape& tape) {
    const std::uint8_t choice = tape.byte();
    const std::size_t port = choice % kPorts;
    now_ += std::chrono::seconds{choice >> 6};
    Frame frame = draw(tape);
    if (arrive(port, frame) && !answer_.empty()) {
      // It is the end of it, wherever it comes back.
      const Frame answer = answer_;
      for (std::size_t other = 0; other < kPorts; ++other) {
        WEFT_CHECK(!arrive(other, answer));
      }
    }
  }

 private:
  static Plant::Options two_hosts() {
    Plant::Options options;
    options.hosts = {"h1", "h2"};
    return options;
  }

  // Of ours and of others, in each of their forms.
  static srd::Address address(std::size_t number) {
    const srd::Address base =
        srd::Address::v4(127, 77, static_cast<std::uint8_t>(1 + number % 4), 1);
    const auto all = roce::wire::addresses_of(base);
    return all[number / 4 % all.size()];
  }

  // A frame as people send it, or bytes; some of it then changed.
  static Frame draw(weft::testing::Tape& tape) {
    const std::uint8_t kind = tape.byte();
    Frame frame(tape.word() % (kMaxFrame + 8));
    const srd::Address from = address(tape.byte() % kAddresses);
    const srd::Address about = address(tape.byte() % kAddresses);
    switch (kind % 4) {
      case 0:
        for (std::byte& byte : frame) {
          byte = std::byte{tape.byte()};
        }
        break;
      case 1:
        write_arp(from, about, frame);
        break;
      case 2:
        write_solicitation(from, about, frame);
        break;
      default:
        write_roce(from, about, tape, frame);
        break;
    }
    for (int changes = kind >> 2 & 7; changes > 0 && !frame.empty(); --changes) {
      const std::size_t at = tape.word() % frame.size();
      frame[at] = std::byte{tape.byte()};
    }
    // Changed bytes under a right checksum.
    if ((kind & 0x20) != 0) {
      mend(frame);
    }
    if (frame.size() > net::kEthernetSize && (kind & 0x40) != 0) {
      frame[11] = std::byte{tape.byte()};
    }
    return frame;
  }

  static void write_arp(const srd::Address& from, const srd::Address& about, Frame& frame) {
    constexpr unsigned char kHead[] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0,
                                       9,    8,    6,    0,    1,    8,    0, 6, 4, 0, 1};
    frame.resize(std::max<std::size_t>(frame.size(), 42));
    std::memcpy(frame.data(), kHead, sizeof kHead);
    std::memcpy(&frame[28], from.bytes.data() + 12, 4);
    std::memcpy(&frame[38], about.bytes.data() + 12, 4);
  }

  static void write_solicitation(const srd::Address& from, const srd::Address& about,
                                 Frame& frame) {
    constexpr unsigned char kHead[] = {0x33, 0x33, 0xFF, 0, 0,    1,    2,   0,
                                       0,    0,    0,    9, 0x86, 0xDD, 0x60};
    frame.resize(std::max<std::size_t>(frame.size(), kIcmp + 24));
    std::memcpy(frame.data(), kHead, sizeof kHead);
    std::byte* const ip = &frame[net::kEthernetSize];
    net::store16(ip + net::kV6Length, static_cast<std::uint16_t>(frame.size() - kIcmp));
    net::store8(ip + net::kV6NextHeader, 58);
    net::store8(ip + net::kV6Hops, 255);
    std::ranges::copy(from.bytes, ip + net::kV6Source);
    std::ranges::copy(about.bytes, ip + net::kV6Destination);
    net::store8(&frame[kIcmp], 135);
    std::ranges::copy(about.bytes, &frame[kIcmp + 8]);
    mend(frame);
  }

  static void write_roce(const srd::Address& from, const srd::Address& about,
                         weft::testing::Tape& tape, Frame& frame) {
    const auto writer = net::EnvelopeWriter::make(from, roce::wire::RoceCodec::kPorts);
    if (!writer || from.is_v4() != about.is_v4()) {
      return;
    }
    frame.resize(std::max<std::size_t>(frame.size(), writer->size() + 16));
    if (!writer->write(frame.data(), about, srd::PathId{3}, srd::Ecn::capable_0, 0,
                       frame.size() - writer->size())) {
      return;
    }
    for (std::size_t at = writer->size(); at < frame.size() && !tape.done(); ++at) {
      frame[at] = std::byte{tape.byte()};
    }
    roce::wire::RoceCodec::seal(frame);
  }

  // Makes the checksum of ICMP right, which a fuzzer does not find.
  static void mend(Frame& frame) {
    if (frame.size() < kIcmp + 4 || net::load8(&frame[net::kEthernetSize + 6]) != 58) {
      return;
    }
    const std::byte* const ip = &frame[net::kEthernetSize];
    const std::size_t size =
        std::min<std::size_t>(net::load16(ip + net::kV6Length), frame.size() - kIcmp);
    net::store16(&frame[kIcmp + 2], 0);
    std::uint32_t sum = net::sum_words(ip + net::kV6Source, 32) + static_cast<std::uint32_t>(size) +
                        58 + net::sum_words(ip + net::kIpV6Size, size & ~std::size_t{1});
    if (size % 2 == 1) {
      sum += std::uint32_t{net::load8(ip + net::kIpV6Size + size - 1)} << 8;
    }
    net::store16(&frame[kIcmp + 2], static_cast<std::uint16_t>(~net::fold(sum)));
  }

  [[nodiscard]] std::uint64_t outcomes() const {
    const SwitchboardCounters counters = switchboard_.counters();
    std::uint64_t sum = counters.frames;
    for (const std::uint64_t dropped : counters.dropped) {
      sum += dropped;
    }
    return sum;
  }

  [[nodiscard]] bool is_from_us(const Frame& frame) const {
    return std::ranges::any_of(plant_.nics(), [&](const auto& nic) {
      return std::ranges::equal(net::mac_of(nic->address), std::span(frame).subspan(6, 6));
    });
  }

  // Whether anything left; `answer_` is what went back by the port that it came from.
  bool arrive(std::size_t from, const Frame& frame) {
    const std::uint64_t before = outcomes();
    for (FakePort* port : ports_) {
      port->out.clear();
    }
    ports_[from]->in = {frame};
    (void)switchboard_.pump_outside(now_, from);
    switchboard_.notify();
    // Each frame is counted as forwarded or as dropped for one reason.
    WEFT_CHECK(outcomes() > before);
    answer_.clear();
    bool left = false;
    for (std::size_t i = 0; i < kPorts; ++i) {
      WEFT_CHECK(ports_[i]->out.size() <= 1);
      for (const Frame& out : ports_[i]->out) {
        left = true;
        if (is_from_us(out)) {
          check_answer(frame, out);
          answer_ = out;
        } else {
          WEFT_CHECK(i != from && out == frame);
        }
      }
    }
    return left;
  }

  // Of weftd's own making: no larger than what a kernel would say, to who asked, and no question.
  void check_answer(const Frame& question, const Frame& answer) const {
    WEFT_CHECK(!asked_address(answer));
    if (const auto asked = asked_address(question)) {
      const PlantNic* const nic = plant_.find(Protocols::nic_of(*asked));
      WEFT_CHECK(nic != nullptr && !outside_.has_kernel(*nic) && answer.size() <= 86);
      WEFT_CHECK(std::equal(answer.begin(), answer.begin() + 6, question.begin() + 6));
      const auto flow = net::FlowKey::parse(answer).claimed_source();
      WEFT_CHECK(flow && Protocols::nic_of(*flow) == nic->address);
      return;
    }
    // A refusal of connection management.
    const auto flow = net::FlowKey::parse(answer);
    WEFT_CHECK(Protocols::steer(flow).known &&
               Protocols::check(flow, answer) == net::PacketFault::none);
  }

  Plant plant_;
  Switchboard switchboard_{plant_, [](Slot&, Slot&) { return true; }};
  Outside outside_{kMaxFrame};
  std::array<FakePort*, kPorts> ports_{};
  Frame answer_;
  TimePoint now_ = time_at(std::chrono::seconds{1});
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::testing::Tape tape(data, size);
  World world;
  while (!tape.done()) {
    world.play(tape);
  }
  return 0;
}
