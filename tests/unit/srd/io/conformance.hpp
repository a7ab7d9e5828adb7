// Owns the list of carriers that the conformance suite runs over.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "srd/net/packet_io.hpp"

namespace weft::srd::test {

// Two ends that reach each other, and no one else.
struct IoPair {
  std::unique_ptr<PacketIo> first;
  std::unique_ptr<PacketIo> second;
  Address first_address;
  Address second_address;
};

struct Carrier {
  std::string name;
  std::function<IoPair()>
      make;                   // throws std::runtime_error with a reason where this machine cannot
  bool loses_nothing = true;  // back-pressure instead of loss
  bool keeps_order = true;
  bool drives_hosts = true;  // else only weftd's thread sleeps on it, which no other one polls for
};

[[nodiscard]] Address ipv4(unsigned a, unsigned b, unsigned c, unsigned d);
[[nodiscard]] Address ipv6(unsigned last);
[[nodiscard]] const std::vector<Carrier>& carriers();

}  // namespace weft::srd::test
