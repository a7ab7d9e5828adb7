// Owns the rows of other people's transports in `weft perf`: libfabric's providers, measured with
// fi_pingpong.
//
// They are there for comparison, so nothing of the measurement is ours: the stock program measures
// itself, on loopback, without an emulated network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::cli {

struct PeerRow {
  std::string provider;
  std::uint32_t size = 0;
  double latency_us = 0;      // one way: half of a round of the ping-pong, mean
  double gbytes_per_s = 0;    // of the same ping-pong, so with one message under way
  double messages_per_s = 0;  // ditto
};

// Two processes of fi_pingpong on loopback. fi_pingpong itself decides what it warms up. A signal
// that asks to end is passed on to them and thrown as launch::Interrupted.
[[nodiscard]] Result<PeerRow> measure_peer(const std::string& provider, std::uint32_t size);

// What fi_pingpong prints, as rows.
[[nodiscard]] std::vector<PeerRow> parse_pingpong(const std::string& output);

}  // namespace weft::cli
