// Owns addresses of NICs as text.
#pragma once

#include <string>

#include "srd/base/result.hpp"
#include "srd/net/address.hpp"

namespace weft::srd {

// "10.77.1.1", or what IPv6 looks like.
[[nodiscard]] std::string to_text(const Address& address);

[[nodiscard]] Result<Address> parse_address(const std::string& text);

}  // namespace weft::srd
