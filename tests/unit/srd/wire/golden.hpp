// Owns one packet of each kind as bytes, computed from docs/wire.md by a program that shares
// nothing with ours.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weft::srd::wire::test {

struct Golden {
  std::string_view name;
  std::string_view hex;
};

// clang-format off
inline constexpr Golden kGolden[] = {
    // 68 bytes
    {"send",
     "02010703112233445566778899aa002a010203040a0b0c0db613f106fffffffe00050004deadbeef"
     "00000000800102030000000000000000cafef00d0000000477656674"},
    // 68 bytes
    {"write",
     "02020e00112233445566778899aa002a010203040a0b0c0dc2a6a5101020304007bf000400000001"
     "5566778800abcdef1122334455667788a5a5a5a54000000077656674"},
    // 64 bytes
    {"read_request",
     "02030500112233445566778899aa002a0102030400000000dcc1536d000000070000000000000002"
     "000000090001fffffffffffffffff0000000000000001000"},
    // 68 bytes
    {"read_response",
     "02040c00112233445566778899aa002a010203040a0b0c0d35a4848a000000080001000400000003"
     "00000009000000000000000000001000000000000000100477656674"},
    // 64 bytes
    {"failed_read_response",
     "02041400112233445566778899aa002a010203040a0b0c0d65838f44000000090002000000000004"
     "000000090000000500000000000000000000000000000000"},
    // 64 bytes
    {"probe",
     "02050500112233445566778899aa00ff010203040a0b0c0da8f5e848123456780000000000000005"
     "000000000000000000000000000000000000000000000000"},
    // 96 bytes
    {"ack",
     "0210f4c8112233445566778899aa0007010203040a0b0c0d44ee9187000000110000002200000033"
     "0000004402030000000000660000007780000000000000010123456789abcdef0000002303000000"
     "00000024800200000000002581000000"},
    // 32 bytes
    {"stale_life",
     "02110400112233445566778899aa002a010203040a0b0c0dc96bf2410e0f1011"},
    // 32 bytes
    {"credit_request",
     "02120400112233445566778899aa002a010203040a0b0c0df9372a6affffff00"},
};
// clang-format on

// Pairs of digits without spaces; throws std::invalid_argument for others.
inline std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16)));
  }
  return bytes;
}

inline std::vector<std::byte> golden(std::string_view name) {
  for (const Golden& candidate : kGolden) {
    if (candidate.name == name) {
      return from_hex(candidate.hex);
    }
  }
  throw std::out_of_range{std::string{name}};
}

}  // namespace weft::srd::wire::test
