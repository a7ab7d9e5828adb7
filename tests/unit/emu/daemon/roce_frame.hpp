// Owns whole RoCEv2 frames, with the envelope and the checksum (ICRC) of a NIC on a wire.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emu/roce/wire/roce_codec.hpp"
#include "srd/net/envelope.hpp"

namespace weft::daemon {

using roce::wire::RoceCodec;

// A send of nothing sensible, of `size` bytes in all, to that queue pair. weftd looks at nothing
// but the envelope, that number (24 bits from byte 5 of the base header) and the checksum.
inline std::vector<std::byte> roce_frame(const srd::Address& from, const srd::Address& to,
                                         std::uint32_t qpn, std::size_t size) {
  const auto writer = srd::net::EnvelopeWriter::make(from, RoceCodec::kPorts);
  std::vector<std::byte> frame(size);
  EXPECT_TRUE(writer->write(frame.data(), to, srd::PathId{3}, srd::Ecn::capable_0, 0,
                            size - writer->size()));
  for (std::size_t i = 0; i < 3; ++i) {
    frame[writer->size() + 5 + i] = static_cast<std::byte>(qpn >> (16 - 8 * i));
  }
  RoceCodec::seal(frame);
  return frame;
}

}  // namespace weft::daemon
