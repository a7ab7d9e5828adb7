// Owns the way to the captured traffic of Linux's software RoCE driver (rdma_rxe).
//
// rc_pingpong: `ibv_rc_pingpong -s 3000 -n 5` between two guests with Linux 6.1, path MTU 1024;
// rping: `rping -C 2`; ucmatose-udaddy: one after the other; python: the beginning of
// `ibv_rc_pingpong` on Linux 6.12 against a peer in Python. All on Ethernet, no packet is cut, and
// ARP and the programs' own TCP connections are among them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "emu/roce/wire/datagram.hpp"
#include "tests/support/pcapng_reader.hpp"

namespace weft::roce {

struct KnownCapture {
  const char* name;
  std::size_t packets;
};
inline constexpr KnownCapture kCaptures[] = {
    {"rxe61-rc_pingpong-s3000-n5", 40},
    {"rxe61-rping-C2", 29},
    {"rxe61-ucmatose-udaddy", 41},
    {"python-rxe612-rc_pingpong", 48},
};

// The frames of a capture that are for port 4791.
inline std::vector<std::vector<std::byte>> roce_frames(const std::string& name) {
  const auto capture = testing::read_pcapng("tests/unit/emu/roce/captures/" + name + ".pcapng");
  EXPECT_TRUE(capture.well_formed) << name;
  std::vector<std::vector<std::byte>> frames;
  for (const auto& frame : capture.frames) {
    wire::Datagram datagram;
    if (wire::parse_datagram(frame.bytes, datagram) == wire::DatagramFault::none) {
      frames.push_back(frame.bytes);
    }
  }
  return frames;
}

}  // namespace weft::roce
