// Owns reading the beginning of a management datagram.
#include "emu/roce/wire/mad_header.hpp"

#include <boost/endian/conversion.hpp>

namespace weft::roce::wire {
namespace {

namespace endian = boost::endian;

constexpr std::size_t kTransaction = 8;
constexpr std::size_t kAttribute = 16;
constexpr std::size_t kModifier = 20;
constexpr std::size_t kOui = 37;
constexpr std::uint8_t kAnswerBit = 0x80;
constexpr std::uint8_t kTrapRepress = 0x07;
constexpr std::uint8_t kBaseboardClass = 0x05;
constexpr std::uint32_t kBaseboardAnswer = 1;

const unsigned char* at(std::span<const std::byte> mad, std::size_t offset) {
  return reinterpret_cast<const unsigned char*>(&mad[offset]);
}

}  // namespace

MadHeader read_mad_header(std::span<const std::byte> mad) {
  MadHeader header;
  header.base_version = std::to_integer<std::uint8_t>(mad[0]);
  header.management_class = std::to_integer<std::uint8_t>(mad[1]);
  header.class_version = std::to_integer<std::uint8_t>(mad[2]);
  header.method = std::to_integer<std::uint8_t>(mad[3]);
  header.transaction = endian::load_big_u64(at(mad, kTransaction));
  header.attribute = endian::load_big_u16(at(mad, kAttribute));
  header.modifier = endian::load_big_u32(at(mad, kModifier));
  header.oui = names_vendor(header.management_class) ? endian::load_big_u24(at(mad, kOui)) : 0;
  return header;
}

bool is_answer(const MadHeader& mad) {
  return (mad.method & kAnswerBit) != 0 || mad.method == kTrapRepress ||
         (mad.management_class == kBaseboardClass && (mad.modifier & kBaseboardAnswer) != 0);
}

}  // namespace weft::roce::wire
