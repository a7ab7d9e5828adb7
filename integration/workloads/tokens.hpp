// Owns what a layer of experts is given to do: which tokens go to which experts, and the bytes of
// each. All of it is a function of a seed, so that every rank knows what it must get.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::workloads {

enum class Precision : std::uint8_t { fp8, bf16 };
inline constexpr const char* kPrecisionNames[] = {"fp8", "bf16"};

struct ExpertProblem {
  std::uint32_t ranks = 8;
  std::uint32_t tokens = 128;  // of each rank
  std::uint32_t hidden = 7168;
  std::uint32_t topk = 8;  // experts that each token goes to
  std::uint32_t experts = 256;
  Precision precision = Precision::fp8;  // of a dispatch; combines are always bf16
  double skew = 0;                       // exponent of Zipf's law; 0: all experts are equally liked
  std::uint64_t seed = 1;
  std::uint32_t groups = 0;  // ranks that the experts of a token are on, at most; 0: any number

  [[nodiscard]] std::uint32_t experts_per_rank() const { return experts / ranks; }
  [[nodiscard]] std::uint32_t owner_of(std::uint32_t expert) const {
    return expert / experts_per_rank();
  }
};
// What is wrong with it; empty: nothing.
[[nodiscard]] std::string mistake_in(const ExpertProblem& problem);

struct Selection {
  std::uint32_t expert = 0;
  float weight = 0;
};

// Popular experts are spread over the ranks by lot.
class Router {
 public:
  explicit Router(const ExpertProblem& problem);
  // Of all tokens of a rank in a round: topk different experts for each, token after token.
  [[nodiscard]] std::vector<Selection> route(std::uint32_t rank, std::uint32_t round) const;

 private:
  [[nodiscard]] const ExpertProblem& problem() const { return problem_; }
  [[nodiscard]] std::size_t draw(Rng& rng) const;

  ExpertProblem problem_;
  std::vector<double> below_;          // shares of the experts so far, by popularity
  std::vector<std::uint32_t> expert_;  // by popularity
};

// Bytes of a token's data without a header: in fp8 a byte for each column, and a scale of four for
// each block of 128; in bf16 two for each column.
[[nodiscard]] std::size_t payload_bytes(Precision precision, std::uint32_t hidden);

// Columns are small whole numbers times a power of two for each block: fp8 and bf16 hold them
// exactly, and the sums that experts and weights make of them, too. So every check is for equality.
void write_token(const ExpertProblem& problem, std::uint32_t rank, std::uint32_t round,
                 std::uint32_t token, std::span<std::byte> payload);
// The number of columns in which `sum` is not what the experts of a token make of it.
[[nodiscard]] std::size_t count_wrong_columns(const ExpertProblem& problem, std::uint32_t rank,
                                              std::uint32_t round, std::uint32_t token,
                                              std::span<const Selection> selections,
                                              std::span<const float> sum);

// What an expert does with a column.
[[nodiscard]] constexpr float factor_of(std::uint32_t expert) {
  return static_cast<float>(1U << expert % 2);
}
// sum += weight * token, column by column.
void add_token(Precision precision, std::span<const std::byte> payload, float weight,
               std::span<float> sum);
// In bf16, the upper halves of floats.
void write_result(std::span<const float> columns, std::span<std::byte> payload);

}  // namespace weft::workloads
