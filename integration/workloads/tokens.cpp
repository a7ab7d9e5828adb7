// Owns routing tokens by lot, and their numbers.
#include "integration/workloads/tokens.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "srd/base/rng.hpp"

namespace weft::workloads {
namespace {

constexpr std::uint32_t kBlock = 128;  // columns with one scale
// Values of a column before its scale: small enough that sums over all experts stay exact.
constexpr std::array<std::int8_t, 16> kColumns = {0, 1, 2,  3,  -1, -2, -3, 1,
                                                  2, 3, -1, -2, -3, 1,  -1, 2};

// Each token has a seed of its own, so that any rank can make any token alone.
std::uint64_t seed_of(const ExpertProblem& problem, std::uint32_t rank, std::uint32_t round,
                      std::uint32_t token) {
  return mix64(problem.seed ^
               mix64(std::uint64_t{rank} << 40 ^ std::uint64_t{round} << 20 ^ token));
}

float scale_of(std::uint64_t seed, std::uint32_t block) {
  return static_cast<float>(1U << mix64(seed ^ std::uint64_t{block + 1} << 32) % 4);
}

// f(column, whole number, scale) for each column.
template <class F>
void each_column(std::uint64_t seed, std::uint32_t hidden, F&& f) {
  constexpr std::uint32_t kPerWord = 16;
  float scale = 1;
  std::uint64_t word = 0;
  for (std::uint32_t i = 0; i < hidden; ++i) {
    if (i % kBlock == 0) {
      scale = scale_of(seed, i / kBlock);
    }
    if (i % kPerWord == 0) {
      word = mix64(seed + i);
    }
    f(i, kColumns[word >> 4 * (i % kPerWord) & 15], scale);
  }
}

// Sign, four bits of exponent (bias 7), three of mantissa; no infinity, 0x7F is no number.
constexpr std::array<float, 256> kE4m3 = [] {
  std::array<float, 256> values{};
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned exponent = code >> 3 & 15;
    const unsigned mantissa = code & 7;
    float value = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa);
    for (unsigned e = exponent == 0 ? 1 : exponent; e < 10; ++e) {
      value /= 2;
    }
    for (unsigned e = 10; e < exponent; ++e) {
      value *= 2;
    }
    values[code] = (code & 0x80) != 0 ? -value : value;
  }
  values[0x7F] = values[0xFF] = std::bit_cast<float>(0x7FC00000U);
  return values;
}();

std::byte e4m3(int column) {
  constexpr std::array<unsigned, 4> kCodes = {0x00, 0x38, 0x40, 0x44};
  return static_cast<std::byte>(kCodes[static_cast<unsigned>(std::abs(column))] |
                                (column < 0 ? 0x80U : 0U));
}

std::uint16_t bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

}  // namespace

std::string mistake_in(const ExpertProblem& problem) {
  if (problem.experts % problem.ranks != 0) {
    return std::to_string(problem.experts) + " experts cannot be shared evenly by " +
           std::to_string(problem.ranks) + " ranks";
  }
  if (problem.topk > problem.experts) {
    return "a token cannot go to " + std::to_string(problem.topk) + " of " +
           std::to_string(problem.experts) + " experts";
  }
  if (problem.groups != 0 &&
      problem.topk > std::uint64_t{problem.groups} * problem.experts_per_rank()) {
    return "a token cannot go to " + std::to_string(problem.topk) + " experts of " +
           std::to_string(problem.groups) + " ranks with " +
           std::to_string(problem.experts_per_rank()) + " each";
  }
  if (problem.hidden % kBlock != 0) {
    return "the hidden size must be a multiple of " + std::to_string(kBlock);
  }
  return {};
}

Router::Router(const ExpertProblem& problem) : problem_(problem), expert_(problem.experts) {
  std::iota(expert_.begin(), expert_.end(), 0U);
  Rng rng(mix64(problem.seed ^ 0xE9));
  for (std::uint32_t i = problem.experts; i > 1; --i) {
    std::swap(expert_[i - 1], expert_[rng.below(i)]);
  }
  double all = 0;
  for (std::uint32_t i = 0; i < problem.experts; ++i) {
    all += std::pow(i + 1, -problem.skew);
    below_.push_back(all);
  }
}

// A place in the list of experts by popularity.
std::size_t Router::draw(Rng& rng) const {
  const double lot = rng.unit() * below_.back();
  return static_cast<std::size_t>(std::upper_bound(below_.begin(), below_.end(), lot) -
                                  below_.begin()) %
         below_.size();
}

// Every rank calls this for all ranks, to know what it must get: it has to be a function of its
// arguments and the seed alone.
//
// Where a few experts get most tokens, a draw often hits one that this token has already: it takes
// the next free one then, instead of drawing again for ever. So do the ranks of a token whose
// experts are to be on a few of them.
std::vector<Selection> Router::route(std::uint32_t rank, std::uint32_t round) const {
  Rng rng(mix64(problem().seed * 3 ^ mix64(std::uint64_t{rank} << 32 | round)));
  std::vector<Selection> all;
  all.reserve(std::size_t{problem().tokens} * problem().topk);
  std::vector<bool> taken(problem().experts);
  const bool is_limited = problem().groups != 0 && problem().groups < problem().ranks;
  std::vector<bool> allowed(problem().ranks, !is_limited);
  for (std::uint32_t token = 0; token < problem().tokens; ++token) {
    if (is_limited) {
      allowed.assign(problem().ranks, false);
      for (std::uint32_t i = 0; i < problem().groups; ++i) {
        std::size_t at = draw(rng);
        while (allowed[problem().owner_of(expert_[at])]) {
          at = (at + 1) % expert_.size();
        }
        allowed[problem().owner_of(expert_[at])] = true;
      }
    }
    const std::size_t first = all.size();
    while (all.size() < first + problem().topk) {
      std::size_t at = draw(rng);
      while (taken[expert_[at]] || !allowed[problem().owner_of(expert_[at])]) {
        at = (at + 1) % expert_.size();
      }
      taken[expert_[at]] = true;
      all.push_back({expert_[at], rng.below(2) == 0 ? 0.25F : 0.5F});
    }
    for (std::size_t i = first; i < all.size(); ++i) {
      taken[all[i].expert] = false;
    }
  }
  return all;
}

std::size_t payload_bytes(Precision precision, std::uint32_t hidden) {
  return precision == Precision::fp8 ? hidden + std::size_t{hidden} / kBlock * 4
                                     : std::size_t{hidden} * 2;
}

void write_token(const ExpertProblem& problem, std::uint32_t rank, std::uint32_t round,
                 std::uint32_t token, std::span<std::byte> payload) {
  const std::uint64_t seed = seed_of(problem, rank, round, token);
  if (problem.precision == Precision::bf16) {
    each_column(seed, problem.hidden, [&](std::uint32_t i, int column, float scale) {
      const std::uint16_t half = bf16(static_cast<float>(column) * scale);
      std::memcpy(&payload[std::size_t{i} * 2], &half, sizeof half);
    });
    return;
  }
  each_column(seed, problem.hidden,
              [&](std::uint32_t i, int column, float) { payload[i] = e4m3(column); });
  for (std::uint32_t block = 0; block < problem.hidden / kBlock; ++block) {
    const float scale = scale_of(seed, block);
    std::memcpy(&payload[problem.hidden + std::size_t{block} * 4], &scale, sizeof scale);
  }
}

std::size_t count_wrong_columns(const ExpertProblem& problem, std::uint32_t rank,
                                std::uint32_t round, std::uint32_t token,
                                std::span<const Selection> selections, std::span<const float> sum) {
  float weight = 0;
  for (const Selection& one : selections) {
    weight += one.weight * factor_of(one.expert);
  }
  std::size_t wrong = 0;
  each_column(seed_of(problem, rank, round, token), problem.hidden,
              [&](std::uint32_t i, int column, float scale) {
                wrong += sum[i] == static_cast<float>(column) * scale * weight ? 0U : 1U;
              });
  return wrong;
}

// The inverse of write_token(), and what a combine does with weights.
void add_token(Precision precision, std::span<const std::byte> payload, float weight,
               std::span<float> sum) {
  if (precision == Precision::bf16) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, payload.data() + i * 2, sizeof half);
      sum[i] += weight * std::bit_cast<float>(std::uint32_t{half} << 16);
    }
    return;
  }
  for (std::size_t block = 0; block < sum.size() / kBlock; ++block) {
    float scale = 0;
    std::memcpy(&scale, payload.data() + sum.size() + block * 4, sizeof scale);
    for (std::size_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
      sum[i] += weight * scale * kE4m3[std::to_integer<std::size_t>(payload[i])];
    }
  }
}

void write_result(std::span<const float> columns, std::span<std::byte> payload) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::uint16_t half = bf16(columns[i]);
    std::memcpy(payload.data() + i * 2, &half, sizeof half);
  }
}

}  // namespace weft::workloads
