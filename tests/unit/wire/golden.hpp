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
     "01010703112233445566778899aa002a010203040a0b0c0d92389d4bfffffffe00050004deadbeef"
     "00000000800102030000000000000000cafef00d0000000477656674"},
    // 68 bytes
    {"write",
     "01020e00112233445566778899aa002a010203040a0b0c0de68dc95d1020304007bf000400000001"
     "5566778800abcdef1122334455667788a5a5a5a54000000077656674"},
    // 64 bytes
    {"read_request",
     "01030500112233445566778899aa002a010203040000000040d2626b000000070000000000000002"
     "000000090001fffffffffffffffff0000000000000001000"},
    // 68 bytes
    {"read_response",
     "01040c00112233445566778899aa002a010203040a0b0c0d118fe8c7000000080001000400000003"
     "00000009000000000000000000001000000000000000100477656674"},
    // 64 bytes
    {"failed_read_response",
     "01041400112233445566778899aa002a010203040a0b0c0df990be42000000090002000000000004"
     "000000090000000500000000000000000000000000000000"},
    // 64 bytes
    {"probe",
     "01050500112233445566778899aa00ff010203040a0b0c0d34e6d94e123456780000000000000005"
     "000000000000000000000000000000000000000000000000"},
    // 96 bytes
    {"ack",
     "0110f4c8112233445566778899aa0007010203040a0b0c0d9cb820eb000000110000002200000033"
     "0000004402030055000000660000007780000000000000010123456789abcdef0000002303000000"
     "00000024800200000000002581000000"},
    // 32 bytes
    {"stale_life",
     "01110400112233445566778899aa002a010203040a0b0c0d8f80831c0e0f1011"},
    // 32 bytes
    {"credit_request",
     "01120400112233445566778899aa002a010203040a0b0c0dbfdc5b37ffffff00"},
};
// clang-format on

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
