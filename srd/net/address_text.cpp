// Owns reading and writing addresses.
#include "srd/net/address_text.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstddef>

namespace weft::srd {

std::string to_text(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.is_v4()) {
    ::inet_ntop(AF_INET, address.v4_bytes().data(), text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  }
  return text;
}

Result<Address> parse_address(const std::string& text) {
  std::array<std::byte, 4> four;
  if (::inet_pton(AF_INET, text.c_str(), four.data()) == 1) {
    return Address::v4(four.data());
  }
  Address address;
  if (::inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) {
    return address;
  }
  return fail(ErrorCode::invalid_argument, "\"" + text + "\" is no IPv4 or IPv6 address of a NIC");
}

}  // namespace weft::srd
