// Owns one connection between two NICs of the laboratory, and memory that is registered at both
// ends.
#pragma once

#include <gtest/gtest.h>

#include "tests/unit/integration/nccl/core_lab.hpp"

namespace weft::testing {

struct Line {
  NcclLab lab;
  NcclLab::Connection ends;
  std::vector<std::byte> out;
  std::vector<std::byte> in;
  nccl::CommRegion* from;
  nccl::CommRegion* to;

  explicit Line(const NcclLabConfig& config = nccl_lab_config(), std::size_t size = 1 << 16)
      : lab(2, config),
        ends(lab.connect(0, 1)),
        out(size),
        in(size, std::byte{0xA5}),
        from(*lab.core(0).register_memory(*ends.sender, out.data(), size)),
        to(*lab.core(1).register_memory(*ends.receiver, in.data(), size)) {}

  [[nodiscard]] nccl::Request* send(std::size_t size, std::uint64_t seed, std::int64_t tag = 0) {
    fill_bytes(std::span{out}.first(size), seed);
    nccl::Request* request = nullptr;
    EXPECT_EQ(lab.core(0).send(*ends.sender, out.data(), size, tag, from, request),
              nccl::Outcome::ok);
    return request;
  }
  [[nodiscard]] nccl::Request* receive(std::size_t at, std::size_t size, std::int64_t tag = 0) {
    const nccl::Buffer buffer{in.data() + at, size, tag, to};
    nccl::Request* request = nullptr;
    EXPECT_EQ(lab.core(1).receive(*ends.receiver, {&buffer, 1}, false, request), nccl::Outcome::ok);
    return request;
  }
  [[nodiscard]] nccl::Outcome outcome(nccl::Request* request) {
    std::optional<nccl::Outcome> end;
    EXPECT_TRUE(lab.run_until([&] { return (end = ended(request)).has_value(); }, 5s));
    return end.value_or(nccl::Outcome::internal_error);
  }
};

}  // namespace weft::testing
