// Owns types of elements, reductions of them, and what buffers must contain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "integration/collectives/shape.hpp"

namespace weft::collectives {

enum class Type : std::uint8_t {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  bfloat16,
};
inline constexpr const char* kTypeNames[] = {"int8",   "uint8", "int32",  "uint32",  "int64",
                                             "uint64", "float", "double", "bfloat16"};
enum class Reduction : std::uint8_t { sum, prod, min, max, avg };
inline constexpr const char* kReductionNames[] = {"sum", "prod", "min", "max", "avg"};

[[nodiscard]] std::size_t size_of(Type type);

// target = other (op) target, element by element.
void reduce(Type type, Reduction reduction, std::byte* target, const std::byte* other,
            std::size_t count);

// What is left to do when all ranks' elements are in the target: an average is a sum until then.
void finish(Type type, Reduction reduction, std::uint32_t ranks, std::byte* target,
            std::size_t count);

// What the input of every rank consists of: element `index` of a rank in a round follows from these
// three. Values are chosen so that the result has exact bits, in whatever order it is computed
// (data.cpp, value()).
struct Pattern {
  Type type = Type::float32;
  Reduction reduction = Reduction::sum;
  std::uint64_t round = 0;
};
void fill_input(const Pattern& pattern, const Problem& problem, std::span<std::byte> input);
// How many elements of the output are not what the inputs of all ranks make them, bit by bit. 0 at
// ranks whose output the operation leaves alone: all but the root of a reduce or gather.
[[nodiscard]] std::size_t count_wrong(const Pattern& pattern, const Problem& problem,
                                      std::span<const std::byte> output);

}  // namespace weft::collectives
