// Owns the arithmetic of the elements, and the model of each operation's result.
//
// Input is made from a pattern: any element of any rank can be computed by any rank, so a result is
// checked element by element without another rank's help. Values are chosen so that the order of
// additions does not matter even in floating point, and the check can ask for equal bits.
#include "integration/collectives/data.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "srd/base/rng.hpp"

namespace weft::collectives {
namespace {

// The upper half of a float, rounded to the nearest, to even where there are two.
class Bfloat16 {
 public:
  Bfloat16() = default;
  explicit Bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    bits_ = static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
  explicit Bfloat16(std::uint64_t value) : Bfloat16(static_cast<float>(value)) {}
  [[nodiscard]] float wide() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
  }

 private:
  std::uint16_t bits_ = 0;
};

// Calls f with a value of the type, whose only use is to name that type.
template <class F>
decltype(auto) with_type(Type type, F&& f) {
  switch (type) {
    case Type::int8:
      return f(std::int8_t{});
    case Type::uint8:
      return f(std::uint8_t{});
    case Type::int32:
      return f(std::int32_t{});
    case Type::uint32:
      return f(std::uint32_t{});
    case Type::int64:
      return f(std::int64_t{});
    case Type::uint64:
      return f(std::uint64_t{});
    case Type::float32:
      return f(float{});
    case Type::bfloat16:
      return f(Bfloat16{});
    case Type::float64:
      break;
  }
  return f(double{});
}

template <class T>
T combine(Reduction reduction, T a, T b) {
  const bool sums = reduction == Reduction::sum || reduction == Reduction::avg;
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return T(combine(reduction, a.wide(), b.wide()));
  } else if constexpr (std::is_integral_v<T>) {  // overflow wraps
    using U = std::make_unsigned_t<T>;
    const auto x = static_cast<std::uint64_t>(static_cast<U>(a));
    const auto y = static_cast<std::uint64_t>(static_cast<U>(b));
    if (sums || reduction == Reduction::prod) {
      return static_cast<T>(sums ? x + y : x * y);
    }
    return reduction == Reduction::min ? std::min(a, b) : std::max(a, b);
  } else {
    if (sums || reduction == Reduction::prod) {
      return sums ? a + b : a * b;
    }
    return reduction == Reduction::min ? std::min(a, b) : std::max(a, b);
  }
}

// An average of integers is cut towards zero.
template <class T>
T finished(Reduction reduction, std::uint32_t ranks, T value) {
  if (reduction != Reduction::avg) {
    return value;
  }
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return T(value.wide() / static_cast<float>(ranks));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(
        value /
        static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(ranks));
  } else {
    return value / static_cast<T>(ranks);
  }
}

template <Reduction kReduction, class T>
void reduce_with(std::byte* target, const std::byte* other, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T a;
    T b;
    std::memcpy(&a, target + i * sizeof(T), sizeof(T));
    std::memcpy(&b, other + i * sizeof(T), sizeof(T));
    a = combine(kReduction, b, a);
    std::memcpy(target + i * sizeof(T), &a, sizeof(T));
  }
}

// The input element. Where elements are only moved they have any bits, and so have integers in
// sums, which wrap; integer factors are odd, so that no product loses bits. Floating-point sums
// must not depend on their order: all of them stay below the last whole number up to which the type
// is exact, and factors are ones and twos.
template <class T>
T value(const Pattern& pattern, const Problem& problem, std::uint32_t rank, std::size_t index) {
  const std::uint64_t lot = mix64(index ^ std::uint64_t{rank} << 40 ^ pattern.round << 48);
  const bool factor = pattern.reduction == Reduction::prod;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(factor && is_reduction(problem.operation) ? lot | 1 : lot);
  }
  if (!is_reduction(problem.operation)) {
    T any;
    std::memcpy(static_cast<void*>(&any), &lot, sizeof any);
    return any;
  }
  constexpr std::uint64_t kExact = std::uint64_t{1} << (std::is_same_v<T, Bfloat16> ? 8
                                                        : std::is_same_v<T, float>  ? 24
                                                                                    : 53);
  const bool compares = pattern.reduction == Reduction::min || pattern.reduction == Reduction::max;
  const std::uint64_t values =
      compares ? kExact : std::max<std::uint64_t>(kExact / problem.ranks, 2);
  return static_cast<T>(factor ? 1 + lot % 2 : lot % values);
}

// What the operation puts at `index` of the output of problem.rank.
template <class T>
T expected(const Pattern& pattern, const Problem& problem, std::size_t index) {
  const Counts counts = counts_of(problem);
  const std::size_t part = counts.shown;
  switch (problem.operation) {
    case NcclOperation::all_gather:
    case NcclOperation::gather:
    case NcclOperation::hypercube:
      return value<T>(pattern, problem, static_cast<std::uint32_t>(index / part), index % part);
    case NcclOperation::broadcast:
      return value<T>(pattern, problem, problem.root, index);
    case NcclOperation::scatter:
      return value<T>(pattern, problem, problem.root, problem.rank * part + index);
    case NcclOperation::sendrecv:
      return value<T>(pattern, problem, (problem.rank + problem.ranks - 1) % problem.ranks, index);
    case NcclOperation::alltoall:
      return value<T>(pattern, problem, static_cast<std::uint32_t>(index / part),
                      problem.rank * part + index % part);
    default:
      break;
  }
  const std::size_t at =
      problem.operation == NcclOperation::reduce_scatter ? problem.rank * part + index : index;
  T result = value<T>(pattern, problem, 0, at);
  for (std::uint32_t rank = 1; rank < problem.ranks; ++rank) {
    result = combine(pattern.reduction, result, value<T>(pattern, problem, rank, at));
  }
  return finished(pattern.reduction, problem.ranks, result);
}

}  // namespace

std::size_t size_of(Type type) {
  return with_type(type, [](auto one) { return sizeof one; });
}

void reduce(Type type, Reduction reduction, std::byte* target, const std::byte* other,
            std::size_t count) {
  with_type(type, [&](auto one) {
    using T = decltype(one);
    switch (reduction) {
      case Reduction::sum:
      case Reduction::avg:
        return reduce_with<Reduction::sum, T>(target, other, count);
      case Reduction::prod:
        return reduce_with<Reduction::prod, T>(target, other, count);
      case Reduction::min:
        return reduce_with<Reduction::min, T>(target, other, count);
      case Reduction::max:
        return reduce_with<Reduction::max, T>(target, other, count);
    }
  });
}

void finish(Type type, Reduction reduction, std::uint32_t ranks, std::byte* target,
            std::size_t count) {
  if (reduction != Reduction::avg) {
    return;
  }
  with_type(type, [&](auto one) {
    using T = decltype(one);
    for (std::size_t i = 0; i < count; ++i) {
      T element;
      std::memcpy(&element, target + i * sizeof(T), sizeof(T));
      element = finished(reduction, ranks, element);
      std::memcpy(target + i * sizeof(T), &element, sizeof(T));
    }
  });
}

void fill_input(const Pattern& pattern, const Problem& problem, std::span<std::byte> input) {
  with_type(pattern.type, [&](auto one) {
    using T = decltype(one);
    for (std::size_t i = 0; i < input.size() / sizeof(T); ++i) {
      const T element = value<T>(pattern, problem, problem.rank, i);
      std::memcpy(input.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
}

std::size_t count_wrong(const Pattern& pattern, const Problem& problem,
                        std::span<const std::byte> output) {
  const bool at_root =
      problem.operation == NcclOperation::reduce || problem.operation == NcclOperation::gather;
  if (at_root && problem.rank != problem.root) {
    return 0;
  }
  return with_type(pattern.type, [&](auto one) {
    using T = decltype(one);
    // Bits are compared, not values: a NaN that was moved must have arrived as it was.
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < output.size() / sizeof(T); ++i) {
      const T right = expected<T>(pattern, problem, i);
      wrong += std::memcmp(&right, output.data() + i * sizeof(T), sizeof(T)) == 0 ? 0 : 1;
    }
    return wrong;
  });
}

}  // namespace weft::collectives
