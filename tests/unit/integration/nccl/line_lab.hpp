// Owns one connection between two NICs of the laboratory, with a registered buffer at each end.
#pragma once

#include <gtest/gtest.h>

#include "tests/unit/integration/nccl/core_lab.hpp"

namespace weft::testing {

struct Line {
  NcclLab lab;
  NcclLab::Connection ends;
  std::vector<std::byte> out;
  std::vector<std::byte> in;
  nccl::CommRegion* out_region = nullptr;
  nccl::CommRegion* in_region = nullptr;

  explicit Line(std::size_t size, const NcclLabConfig& config = nccl_lab_config())
      : lab(2, config), ends(lab.connect(0, 1)), out(size), in(size, std::byte{0xA5}) {
    out_region = *lab.core(0).register_memory(*ends.sender, out.data(), out.size());
    in_region = *lab.core(1).register_memory(*ends.receiver, in.data(), in.size());
  }
  nccl::Request* send(std::size_t at, std::size_t size, std::int64_t tag = 0) {
    nccl::Request* request = nullptr;
    EXPECT_EQ(lab.core(0).send(*ends.sender, out.data() + at, size, tag, out_region, request),
              nccl::Outcome::ok);
    return request;
  }
  // Bytes of that seed, over those of the send before.
  nccl::Request* send_bytes(std::size_t size, std::uint64_t seed, std::int64_t tag = 0) {
    fill_bytes(std::span{out}.first(size), seed);
    return send(0, size, tag);
  }
  nccl::Request* receive(std::size_t at, std::size_t size, std::int64_t tag = 0,
                         bool early = false) {
    const nccl::Buffer buffer{in.data() + at, size, tag, in_region};
    nccl::Request* request = nullptr;
    EXPECT_EQ(lab.core(1).receive(*ends.receiver, {&buffer, 1}, early, request), nccl::Outcome::ok);
    return request;
  }
  nccl::Outcome outcome(nccl::Request* request) {
    std::optional<nccl::Outcome> end;
    EXPECT_TRUE(lab.run_until([&] { return (end = ended(request)).has_value(); }));
    return end.value_or(nccl::Outcome::internal_error);
  }
};

// Of messages that are eager.
inline constexpr std::size_t kShort = 64;

}  // namespace weft::testing
