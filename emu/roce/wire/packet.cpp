// Owns the order of the headers of a transport packet.
//
// Which headers a packet has follows from its opcode (opcode.hpp); they always stand in the order
// in which they are read and written here. The size of all of them is known for each opcode at
// compile time.
#include "emu/roce/wire/packet.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace weft::roce::wire {
namespace {

// Reads and writes one header after the other.
class Cursor {
 public:
  explicit Cursor(const std::byte* at) : read_(at) {}
  template <class Header>
  [[nodiscard]] Header take() {
    Header header;
    std::memcpy(&header, read_, sizeof header);
    read_ += sizeof header;
    return header;
  }

 private:
  const std::byte* read_;
};

class Pen {
 public:
  explicit Pen(std::byte* at) : begin_(at), at_(at) {}
  template <class Header>
  void put(const Header& header) {
    std::memcpy(at_, &header, sizeof header);
    at_ += sizeof header;
  }
  void zeros(std::size_t count) {
    std::memset(at_, 0, count);
    at_ += count;
  }
  [[nodiscard]] std::size_t written() const { return static_cast<std::size_t>(at_ - begin_); }

 private:
  std::byte* begin_;
  std::byte* at_;
};

constexpr std::size_t size_of_headers(std::uint16_t traits) {
  std::size_t size = sizeof(Bth);
  size += (traits & kHasDeth) != 0 ? sizeof(Deth) : 0;
  size += (traits & kHasReth) != 0 ? sizeof(Reth) : 0;
  size += (traits & kHasAtomicEth) != 0 ? sizeof(AtomicEth) : 0;
  size += (traits & kHasAeth) != 0 ? sizeof(Aeth) : 0;
  size += (traits & kHasAtomicAck) != 0 ? kAtomicAckSize : 0;
  size += (traits & kHasImmediate) != 0 ? kImmediateSize : 0;
  size += (traits & kHasIeth) != 0 ? kIethSize : 0;
  size += (traits & kHasCnpBody) != 0 ? kCnpBodySize : 0;
  return size;
}

constexpr auto kHeaderSizes = [] {
  std::array<std::uint8_t, 256> sizes{};
  for (std::size_t opcode = 0; opcode < sizes.size(); ++opcode) {
    sizes[opcode] =
        static_cast<std::uint8_t>(size_of_headers(traits_of(static_cast<std::uint8_t>(opcode))));
  }
  return sizes;
}();
static_assert(*std::max_element(kHeaderSizes.begin(), kHeaderSizes.end()) == kLargestHeader);

void read_bth(const Bth& bth, Packet& packet) {
  packet.opcode = bth.opcode;
  packet.solicited = (bth.flags & kSolicited) != 0;
  packet.migrated = (bth.flags & kMigrated) != 0;
  packet.pad = static_cast<std::uint8_t>((bth.flags & kPadMask) >> kPadShift);
  packet.pkey = bth.pkey.value();
  packet.forward_congestion = (bth.congestion & kForwardCongestion) != 0;
  packet.backward_congestion = (bth.congestion & kBackwardCongestion) != 0;
  packet.destination_qpn = bth.destination_qpn.value();
  packet.ack_request = (bth.ack_request & kAckRequest) != 0;
  packet.psn = bth.psn.value();
}

void read_extended(Cursor cursor, std::uint16_t traits, Packet& packet) {
  if ((traits & kHasDeth) != 0) {
    const auto deth = cursor.take<Deth>();
    packet.qkey = deth.qkey.value();
    packet.source_qpn = deth.source_qpn.value();
  }
  if ((traits & kHasReth) != 0) {
    const auto reth = cursor.take<Reth>();
    packet.address = reth.address.value();
    packet.rkey = reth.rkey.value();
    packet.length = reth.length.value();
  }
  if ((traits & kHasAtomicEth) != 0) {
    const auto atomic = cursor.take<AtomicEth>();
    packet.address = atomic.address.value();
    packet.rkey = atomic.rkey.value();
    packet.swap_or_add = atomic.swap_or_add.value();
    packet.compare = atomic.compare.value();
  }
  if ((traits & kHasAeth) != 0) {
    const auto aeth = cursor.take<Aeth>();
    packet.syndrome = aeth.syndrome;
    packet.msn = aeth.msn.value();
  }
  if ((traits & kHasAtomicAck) != 0) {
    packet.original = cursor.take<big_uint64_buf_t>().value();
  }
  if ((traits & kHasImmediate) != 0) {
    packet.immediate = cursor.take<std::uint32_t>();
  }
  if ((traits & kHasIeth) != 0) {
    packet.invalidate = cursor.take<big_uint32_buf_t>().value();
  }
}

}  // namespace

std::size_t header_size_of(std::uint8_t opcode) { return kHeaderSizes[opcode]; }

PacketFault parse_packet(std::span<const std::byte> bytes, std::size_t more_size, Packet& packet) {
  if (bytes.size() < sizeof(Bth)) {
    return PacketFault::too_short;
  }
  // A copy: the packet may lie in memory that another process still writes to.
  std::array<std::byte, kLargestHeader> copy;
  std::memcpy(copy.data(), bytes.data(), std::min(bytes.size(), copy.size()));
  Cursor cursor(copy.data());
  const auto bth = cursor.take<Bth>();
  if ((bth.flags & kVersionMask) != 0) {
    return PacketFault::bad_version;
  }
  const std::uint16_t traits = traits_of(bth.opcode);
  if (traits == 0) {
    return PacketFault::unknown_opcode;
  }
  const std::size_t header = kHeaderSizes[bth.opcode];
  if (bytes.size() < header) {
    return PacketFault::too_short;
  }
  const std::size_t rest = bytes.size() - header + more_size;
  if (rest % 4 != 0) {
    return PacketFault::unaligned;
  }
  // From here on only numbers that were checked are used as sizes.
  read_bth(bth, packet);
  if (packet.pad > rest) {
    return PacketFault::bad_pad;
  }
  if (rest != 0 && (traits & kPayload) == 0) {
    return PacketFault::no_payload;
  }
  read_extended(cursor, traits, packet);
  packet.header_size = static_cast<std::uint16_t>(header);
  packet.payload_size = static_cast<std::uint32_t>(rest - packet.pad);
  return PacketFault::none;
}

// What is written here parse_packet() reads back, whatever the numbers: fields are cut to their
// size.
std::size_t write_headers(const Packet& packet, std::byte* to) {
  const std::uint16_t traits = traits_of(packet.opcode);
  Pen pen(to);
  Bth bth{};
  bth.opcode = packet.opcode;
  bth.flags =
      static_cast<std::uint8_t>((packet.solicited ? kSolicited : 0) |
                                (packet.migrated ? kMigrated : 0) | (packet.pad << kPadShift));
  bth.pkey = packet.pkey;
  bth.congestion =
      static_cast<std::uint8_t>((packet.forward_congestion ? kForwardCongestion : 0) |
                                (packet.backward_congestion ? kBackwardCongestion : 0));
  bth.destination_qpn = packet.destination_qpn & kMask24;
  bth.ack_request = packet.ack_request ? kAckRequest : 0;
  bth.psn = packet.psn & kMask24;
  pen.put(bth);
  if ((traits & kHasDeth) != 0) {
    Deth deth{};
    deth.qkey = packet.qkey;
    deth.source_qpn = packet.source_qpn & kMask24;
    pen.put(deth);
  }
  if ((traits & kHasReth) != 0) {
    Reth reth{};
    reth.address = packet.address;
    reth.rkey = packet.rkey;
    reth.length = packet.length;
    pen.put(reth);
  }
  if ((traits & kHasAtomicEth) != 0) {
    AtomicEth atomic{};
    atomic.address = packet.address;
    atomic.rkey = packet.rkey;
    atomic.swap_or_add = packet.swap_or_add;
    atomic.compare = packet.compare;
    pen.put(atomic);
  }
  if ((traits & kHasAeth) != 0) {
    Aeth aeth{};
    aeth.syndrome = packet.syndrome;
    aeth.msn = packet.msn & kMask24;
    pen.put(aeth);
  }
  if ((traits & kHasAtomicAck) != 0) {
    pen.put(big_uint64_buf_t(packet.original));
  }
  if ((traits & kHasImmediate) != 0) {
    pen.put(packet.immediate);
  }
  if ((traits & kHasIeth) != 0) {
    pen.put(big_uint32_buf_t(packet.invalidate));
  }
  if ((traits & kHasCnpBody) != 0) {
    pen.zeros(kCnpBodySize);
  }
  return pen.written();
}

}  // namespace weft::roce::wire
