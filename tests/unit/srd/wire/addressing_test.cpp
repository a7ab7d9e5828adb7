// Owns the tests of the three fields of a header that are read and written as one word.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "srd/wire/srd_header.hpp"

namespace weft::srd::wire {
namespace {

using Bytes = std::array<std::byte, sizeof(CommonHeader)>;

Bytes bytes_of(const CommonHeader& header) {
  Bytes bytes;
  std::memcpy(bytes.data(), &header, bytes.size());
  return bytes;
}

// All its bytes are `filling`.
CommonHeader filled(std::uint8_t filling) {
  CommonHeader header;
  std::memset(static_cast<void*>(&header), filling, sizeof header);
  return header;
}

// The same with these three fields, one by one.
CommonHeader with_fields(const Addressing& fields, std::uint8_t filling) {
  CommonHeader header = filled(filling);
  header.destination_attachment = fields.destination_attachment;
  header.destination_qpn = fields.destination_qpn;
  header.source_qpn = fields.source_qpn;
  return header;
}

class AddressingOf : public testing::TestWithParam<Addressing> {};

TEST_P(AddressingOf, IsReadAsItsFieldsAre) {
  for (const std::uint8_t filling : {std::uint8_t{0}, std::uint8_t{0xFF}}) {
    const Addressing read = addressing_of(with_fields(GetParam(), filling));
    EXPECT_EQ(read.destination_attachment, GetParam().destination_attachment);
    EXPECT_EQ(read.destination_qpn, GetParam().destination_qpn);
    EXPECT_EQ(read.source_qpn, GetParam().source_qpn);
  }
}

TEST_P(AddressingOf, IsWrittenAsItsFieldsAreAndNothingElse) {
  for (const std::uint8_t filling : {std::uint8_t{0}, std::uint8_t{0xFF}}) {
    CommonHeader written = filled(filling);
    address(written, GetParam());
    EXPECT_EQ(bytes_of(written), bytes_of(with_fields(GetParam(), filling)));
  }
}

INSTANTIATE_TEST_SUITE_P(Each, AddressingOf,
                         testing::Values(Addressing{}, Addressing{0x0102, 0x030405, 0x060708},
                                         Addressing{0xFFFF, 0, 0}, Addressing{0, kQpnMask, 0},
                                         Addressing{0, 0, kQpnMask},
                                         Addressing{0xFFFF, kQpnMask, kQpnMask}));

// A number that does not fit spoils no other field.
TEST(Addressing, KeepsToTheirBits) {
  CommonHeader header = filled(0);
  address(header,
          {.destination_attachment = 7, .destination_qpn = 0xAB123456, .source_qpn = 0xCD654321});
  EXPECT_EQ(header.destination_attachment.value(), 7);
  EXPECT_EQ(header.destination_qpn.value(), 0x123456U);
  EXPECT_EQ(header.source_qpn.value(), 0x654321U);
}

}  // namespace
}  // namespace weft::srd::wire
