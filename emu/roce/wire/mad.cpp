// Owns the offsets of the fields of connection management (specification, chapter 12).
//
// visit() names every field of every message once: Reader fills a CmMessage from the bytes, Writer
// the bytes from a CmMessage. So what is written can be read, and a field cannot be at two places.
#include "emu/roce/wire/mad.hpp"

#include <algorithm>
#include <cstring>

#include "emu/roce/wire/mad_header.hpp"

namespace weft::roce::wire {
namespace {

constexpr std::uint16_t kPermissiveLid = 0xFFFF;

// A number of `bits` bits, `shift` bits from the right end of the `width` bytes at `at`.
struct Field {
  std::size_t at;
  unsigned width;
  unsigned shift = 0;
  unsigned bits = 64;
};

std::uint64_t get_bytes(const std::byte* from, unsigned width) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < width; ++i) {
    value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
  }
  return value;
}
void put_bytes(std::byte* to, unsigned width, std::uint64_t value) {
  for (unsigned i = width; i-- > 0; value >>= 8) {
    to[i] = static_cast<std::byte>(value);
  }
}

constexpr std::uint64_t mask_of(unsigned bits) {
  return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

// The same list of fields reads and writes a message, with either of these.
class Reader {
 public:
  explicit Reader(const std::byte* mad) : mad_(mad) {}
  template <class T>
  void number(const Field& field, T& value) {
    value = static_cast<T>(get_bytes(mad_ + field.at, field.width) >> field.shift &
                           mask_of(field.bits));
  }
  void flag(const Field& field, bool& value) {
    std::uint8_t bit = 0;
    number(field, bit);
    value = bit != 0;
  }
  template <class Bytes>
  void bytes(std::size_t at, std::size_t size, Bytes& to) {
    std::memcpy(&to, mad_ + at, size);
  }

 private:
  const std::byte* mad_;
};

class Writer {
  // A field's other bits keep their value: several fields may share a byte.
 public:
  explicit Writer(std::byte* mad) : mad_(mad) {}
  void number(const Field& field, std::uint64_t value) {
    const std::uint64_t mask = mask_of(field.bits) << field.shift;
    const std::uint64_t others = get_bytes(mad_ + field.at, field.width) & ~mask;
    put_bytes(mad_ + field.at, field.width, others | (value << field.shift & mask));
  }
  void flag(const Field& field, bool value) { number(field, value ? 1 : 0); }
  template <class Bytes>
  void bytes(std::size_t at, std::size_t size, const Bytes& from) {
    std::memcpy(mad_ + at, &from, size);
  }

 private:
  std::byte* mad_;
};

// Offsets in the specification's tables count from behind the MAD's common header.
constexpr std::size_t at(std::size_t offset) { return kMadHeader + offset; }

template <class Visitor, class Message>
void visit_request(Visitor& v, Message& m) {
  v.number({at(0), 4}, m.local_id);
  v.number({at(8), 8}, m.service_id);
  // Bits are given as (byte, width in bytes, shift from the right, bits).
  v.number({at(16), 8}, m.ca_guid);
  v.number({at(28), 4}, m.qkey);
  v.number({at(32), 3}, m.qpn);
  v.number({at(35), 1}, m.responder_resources);
  v.number({at(39), 1}, m.initiator_depth);
  v.number({at(43), 1, 3, 5}, m.remote_timeout);
  v.number({at(43), 1, 1, 2}, m.service);
  v.flag({at(43), 1, 0, 1}, m.flow_control);
  v.number({at(44), 3}, m.starting_psn);
  v.number({at(47), 1, 3, 5}, m.local_timeout);
  v.number({at(47), 1, 0, 3}, m.retry_count);
  v.number({at(48), 2}, m.pkey);
  v.number({at(50), 1, 4, 4}, m.path_mtu);
  v.number({at(50), 1, 0, 3}, m.rnr_retry);
  v.number({at(51), 1, 4, 4}, m.max_cm_retries);
  v.flag({at(51), 1, 3, 1}, m.has_srq);
  v.bytes(at(56), 16, m.local_gid);
  v.bytes(at(72), 16, m.remote_gid);
  v.number({at(88), 4, 12, 20}, m.flow_label);
  v.number({at(91), 1, 0, 6}, m.rate);
  v.number({at(92), 1}, m.traffic_class);
  v.number({at(93), 1}, m.hop_limit);
  v.number({at(94), 1}, m.subnet_local);
  v.number({at(95), 1, 3, 5}, m.ack_timeout);
}

template <class Visitor, class Message>
void visit_reply(Visitor& v, Message& m) {
  v.number({at(8), 4}, m.qkey);
  v.number({at(12), 3}, m.qpn);
  v.number({at(20), 3}, m.starting_psn);
  v.number({at(24), 1}, m.responder_resources);
  v.number({at(25), 1}, m.initiator_depth);
  v.number({at(26), 1, 3, 5}, m.ack_delay);
  v.number({at(26), 1, 1, 2}, m.failover);
  v.flag({at(26), 1, 0, 1}, m.flow_control);
  v.number({at(27), 1, 5, 3}, m.rnr_retry);
  v.flag({at(27), 1, 4, 1}, m.has_srq);
  v.number({at(28), 8}, m.ca_guid);
}

template <class Visitor, class Message>
void visit_sidr_reply(Visitor& v, Message& m) {
  v.number({at(0), 4}, m.local_id);
  v.number({at(4), 1}, m.status);
  v.number({at(5), 1}, m.information_length);
  v.number({at(8), 3}, m.qpn);
  v.number({at(12), 8}, m.service_id);
  v.number({at(20), 4}, m.qkey);
  v.bytes(at(24), m.information.size(), m.information);
}

struct Room {
  std::size_t offset;
  std::size_t size;
};
// Of the private data; size 0 for an unknown kind. It fills the rest of the 232 bytes behind the
// header.
Room room_of(CmKind kind) {
  switch (kind) {
    case CmKind::request:
      return {140, 92};
    case CmKind::message_received:
      return {10, 222};
    case CmKind::reject:
      return {84, 148};
    case CmKind::reply:
      return {36, 196};
    case CmKind::ready_to_use:
      return {8, 224};
    case CmKind::disconnect_request:
      return {12, 220};
    case CmKind::disconnect_reply:
      return {8, 224};
    case CmKind::sidr_request:
      return {16, 216};
    case CmKind::sidr_reply:
      return {96, 136};
  }
  return {0, 0};
}

// All fields of a message of that kind. A field that is not here is reserved, or has no meaning on
// Ethernet: written as 0, not read.
template <class Visitor, class Message>
void visit(Visitor& v, Message& m) {
  v.number({8, 8}, m.transaction);
  // A REQ and both SIDR messages come before the peer has a number of its own.
  const bool has_both =
      m.kind != CmKind::request && m.kind != CmKind::sidr_request && m.kind != CmKind::sidr_reply;
  if (has_both) {
    v.number({at(0), 4}, m.local_id);
    v.number({at(4), 4}, m.remote_id);
  }
  switch (m.kind) {
    case CmKind::request:
      visit_request(v, m);
      break;
    case CmKind::message_received:
      v.number({at(8), 1, 6, 2}, m.refused_kind);
      v.number({at(9), 1, 3, 5}, m.service_timeout);
      break;
    case CmKind::reject:
      v.number({at(8), 1, 6, 2}, m.refused_kind);
      v.number({at(9), 1, 1, 7}, m.information_length);
      v.number({at(10), 2}, m.reason);
      v.bytes(at(12), m.information.size(), m.information);
      break;
    case CmKind::reply:
      visit_reply(v, m);
      break;
    case CmKind::disconnect_request:
      v.number({at(8), 3}, m.qpn);
      break;
    case CmKind::sidr_request:
      v.number({at(0), 4}, m.local_id);
      v.number({at(4), 2}, m.pkey);
      v.number({at(8), 8}, m.service_id);
      break;
    case CmKind::sidr_reply:
      visit_sidr_reply(v, m);
      break;
    case CmKind::ready_to_use:
    case CmKind::disconnect_reply:
      break;
  }
  const Room room = room_of(m.kind);
  v.bytes(at(room.offset), room.size, m.private_data);
}

constexpr std::size_t kIpv4At = 12;

}  // namespace

std::size_t private_data_size(CmKind kind) { return room_of(kind).size; }

MadFault parse_cm(std::span<const std::byte> mad, CmMessage& message) {
  if (mad.size() < kMadSize) {
    return MadFault::too_short;
  }
  const MadHeader header = read_mad_header(mad);
  if (header.base_version != kMadBaseVersion || !is_of_connections(header)) {
    return MadFault::not_cm;
  }
  const auto kind = static_cast<CmKind>(header.attribute);
  if (room_of(kind).size == 0) {
    return MadFault::unknown_kind;
  }
  // All that the message does not have is 0, never left over from an earlier one.
  message = CmMessage{};
  message.kind = kind;
  Reader reader(mad.data());
  visit(reader, message);
  return MadFault::none;
}

void write_cm(const CmMessage& message, std::span<std::byte, kMadSize> mad) {
  std::ranges::fill(mad, std::byte{});
  mad[0] = std::byte{kMadBaseVersion};
  mad[1] = std::byte{kCmClass};
  mad[2] = std::byte{kCmClassVersion};
  mad[3] = std::byte{kMethodSend};
  put_bytes(&mad[16], 2, static_cast<std::uint16_t>(message.kind));
  if (message.kind == CmKind::request) {  // no LIDs on Ethernet
    put_bytes(&mad[at(52)], 2, kPermissiveLid);
    put_bytes(&mad[at(54)], 2, kPermissiveLid);
  }
  Writer writer(mad.data());
  visit(writer, message);
}

bool read_ip_header(const CmMessage& message, CmIpHeader& header) {
  const std::byte* const data = message.private_data.data();
  const auto version = std::to_integer<std::uint8_t>(data[1] >> 4);
  // The first byte holds the version of this header, which is 0, and the second the IP version.
  if ((message.kind != CmKind::request && message.kind != CmKind::sidr_request) ||
      data[0] != std::byte{} || (version != 4 && version != 6)) {
    return false;
  }
  header.ip_version = version;
  header.port = static_cast<std::uint16_t>(get_bytes(data + 2, 2));
  std::memcpy(&header.source, data + 4, sizeof header.source);
  std::memcpy(&header.destination, data + 20, sizeof header.destination);
  if (version == 4) {  // the last four bytes; the wire has zeros before them
    for (srd::Address* const address : {&header.source, &header.destination}) {
      *address = srd::Address::v4(&address->bytes[kIpv4At]);
    }
  }
  return true;
}

void write_cm_ip_header(const CmIpHeader& header, CmMessage& message) {
  std::byte* const data = message.private_data.data();
  std::fill_n(data, kIpHeaderSize, std::byte{});
  data[1] = static_cast<std::byte>(header.ip_version << 4);
  put_bytes(data + 2, 2, header.port);
  const std::size_t skip = header.ip_version == 4 ? kIpv4At : 0;
  std::memcpy(data + 4 + skip, &header.source.bytes[skip], sizeof header.source - skip);
  std::memcpy(data + 20 + skip, &header.destination.bytes[skip], sizeof header.destination - skip);
}

}  // namespace weft::roce::wire
