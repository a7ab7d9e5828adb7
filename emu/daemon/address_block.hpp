// Owns the block of loopback addresses of a network, which no other network beside it has.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::daemon {

// Hosts of a network bind and connect addresses of this machine's loopback. Each weftd takes a
// block 127.B.0.0/16 that is free in its network namespace, and has it until it ends, however it
// ends. Block 77 is never taken: networks that are joined have it in common.
class AddressBlock {
 public:
  static constexpr std::uint8_t kFirst = 78;
  static constexpr std::uint8_t kLast = 254;

  // The block that `directory` remembers, if it is free, so that processes which attached to an
  // earlier weftd find their addresses again; else the first free one.
  [[nodiscard]] static Result<AddressBlock> take(const std::string& directory);
  // For the next weftd of `directory`.
  void remember(const std::string& directory) const;

  [[nodiscard]] std::array<std::uint8_t, 2> prefix() const { return {127, block_}; }

 private:
  AddressBlock(std::uint8_t block, srd::UniqueFd claim) : block_(block), claim_(std::move(claim)) {}

  std::uint8_t block_;
  srd::UniqueFd claim_;  // a socket with a name that only one can have
};

}  // namespace weft::daemon
