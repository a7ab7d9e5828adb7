// Owns the arithmetic of the elements, and the model of each operation's result.
#include "integration/collectives/data.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "srd/base/rng.hpp"

namespace weft::collectives {
namespace {

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
    case Type::float64:
      break;
  }
  return f(double{});
}

template <class T>
T combine(Reduction reduction, T a, T b) {
  if constexpr (std::is_integral_v<T>) {  // overflow wraps
    using U = std::make_unsigned_t<T>;
    const auto x = static_cast<std::uint64_t>(static_cast<U>(a));
    const auto y = static_cast<std::uint64_t>(static_cast<U>(b));
    if (reduction == Reduction::sum) {
      return static_cast<T>(x + y);
    }
    if (reduction == Reduction::prod) {
      return static_cast<T>(x * y);
    }
  } else {
    if (reduction == Reduction::sum) {
      return a + b;
    }
    if (reduction == Reduction::prod) {
      return a * b;
    }
  }
  return reduction == Reduction::min ? std::min(a, b) : std::max(a, b);
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

// Products stay exact with ones and twos.
template <class T>
T value(const Pattern& pattern, std::uint32_t rank, std::size_t index) {
  const std::uint64_t lot = mix64(index ^ std::uint64_t{rank} << 40 ^ pattern.round << 48) >> 32;
  return static_cast<T>(pattern.reduction == Reduction::prod ? 1 + lot % 2 : lot % 16);
}

// What the operation puts at `index` of the output of problem.rank.
template <class T>
T expected(const Pattern& pattern, const Problem& problem, std::size_t index) {
  const Counts counts = counts_of(problem);
  const std::size_t part = counts.shown;
  switch (problem.operation) {
    case Operation::all_gather:
      return value<T>(pattern, static_cast<std::uint32_t>(index / part), index % part);
    case Operation::broadcast:
      return value<T>(pattern, problem.root, index);
    case Operation::sendrecv:
      return value<T>(pattern, (problem.rank + problem.ranks - 1) % problem.ranks, index);
    case Operation::alltoall:
      return value<T>(pattern, static_cast<std::uint32_t>(index / part),
                      problem.rank * part + index % part);
    default:
      break;
  }
  const std::size_t at =
      problem.operation == Operation::reduce_scatter ? problem.rank * part + index : index;
  T result = value<T>(pattern, 0, at);
  for (std::uint32_t rank = 1; rank < problem.ranks; ++rank) {
    result = combine(pattern.reduction, result, value<T>(pattern, rank, at));
  }
  return result;
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

void fill_input(const Pattern& pattern, const Problem& problem, std::span<std::byte> input) {
  with_type(pattern.type, [&](auto one) {
    using T = decltype(one);
    for (std::size_t i = 0; i < input.size() / sizeof(T); ++i) {
      const T element = value<T>(pattern, problem.rank, i);
      std::memcpy(input.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
}

std::size_t count_wrong(const Pattern& pattern, const Problem& problem,
                        std::span<const std::byte> output) {
  if (problem.operation == Operation::reduce && problem.rank != problem.root) {
    return 0;
  }
  return with_type(pattern.type, [&](auto one) {
    using T = decltype(one);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < output.size() / sizeof(T); ++i) {
      T found;
      std::memcpy(&found, output.data() + i * sizeof(T), sizeof(T));
      wrong += found != expected<T>(pattern, problem, i) ? 1 : 0;
    }
    return wrong;
  });
}

}  // namespace weft::collectives
