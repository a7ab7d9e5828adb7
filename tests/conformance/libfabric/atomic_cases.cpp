// Owns the case of atomics: every operation on every type that the provider says it can do.
//
// What is right is computed here, with the language's own arithmetic (result_of()), and compared
// with what stands at the target and with what was fetched. Operations that a provider does not
// have for a type are left out, as it says so itself.
#include <algorithm>
#include <complex>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "tests/conformance/libfabric/cases.hpp"
#include "tests/conformance/libfabric/endpoint.hpp"

namespace weft::conformance {
namespace {

constexpr std::size_t kElements = 6;
constexpr fi_op kOperations[] = {FI_MIN,  FI_MAX,  FI_SUM,         FI_PROD,
                                 FI_LOR,  FI_LAND, FI_BOR,         FI_BAND,
                                 FI_LXOR, FI_BXOR, FI_ATOMIC_READ, FI_ATOMIC_WRITE};
constexpr fi_op kComparisons[] = {FI_CSWAP,    FI_CSWAP_NE, FI_CSWAP_LE, FI_CSWAP_LT,
                                  FI_CSWAP_GE, FI_CSWAP_GT, FI_MSWAP};
enum class Way : std::uint8_t { plain, fetch, compare };

template <class T>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<std::complex<T>> : std::true_type {};

// What stands at the target after `op`; nothing where the operation has no meaning for the type.
template <class T>
std::optional<T> result_of(fi_op op, T target, T operand, T compare) {
  const bool a = target != T{};
  const bool b = operand != T{};
  switch (op) {
    case FI_SUM:
      return static_cast<T>(target + operand);
    case FI_PROD:
      return static_cast<T>(target * operand);
    case FI_LOR:
      return static_cast<T>(a || b ? 1 : 0);
    case FI_LAND:
      return static_cast<T>(a && b ? 1 : 0);
    case FI_LXOR:
      return static_cast<T>(a != b ? 1 : 0);
    case FI_ATOMIC_READ:
      return target;
    case FI_ATOMIC_WRITE:
      return operand;
    case FI_CSWAP:
      return compare == target ? operand : target;
    case FI_CSWAP_NE:
      return compare != target ? operand : target;
    default:
      break;
  }
  if constexpr (!IsComplex<T>::value) {
    switch (op) {
      case FI_MIN:
        return std::min(target, operand);
      case FI_MAX:
        return std::max(target, operand);
      case FI_CSWAP_LE:
        return compare <= target ? operand : target;
      case FI_CSWAP_LT:
        return compare < target ? operand : target;
      case FI_CSWAP_GE:
        return compare >= target ? operand : target;
      case FI_CSWAP_GT:
        return compare > target ? operand : target;
      default:
        break;
    }
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case FI_BOR:
        return static_cast<T>(target | operand);
      case FI_BAND:
        return static_cast<T>(target & operand);
      case FI_BXOR:
        return static_cast<T>(target ^ operand);
      case FI_MSWAP:
        return static_cast<T>((operand & compare) | (target & ~compare));
      default:
        break;
    }
  }
  return std::nullopt;
}

// Values small enough for products of bytes; zeros, ones and equal pairs among them.
template <class T>
T value(std::size_t row, std::size_t element, std::size_t salt) {
  return static_cast<T>(
      static_cast<std::int8_t>((row * 5 + element * 3 + salt * (element + 1)) % 8));
}

// One type within the windows of all: the same place in the target's memory, in operands, in
// compares and in results.
class Lane {
 public:
  Lane(fi_datatype type, std::size_t offset) : type_(type), offset_(offset) {}
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] fi_datatype type() const { return type_; }
  [[nodiscard]] std::size_t offset() const { return offset_; }
  [[nodiscard]] virtual bool knows(fi_op op) const = 0;
  virtual void prepare(std::size_t row, Buffer& target, Buffer& operand, Buffer& compare) = 0;
  [[nodiscard]] virtual bool target_is_right(std::size_t row, fi_op op, Buffer& target) const = 0;
  [[nodiscard]] virtual bool old_is_right(std::size_t row, Buffer& old) const = 0;

 private:
  fi_datatype type_;
  std::size_t offset_;
};

template <class T>
class LaneOf : public Lane {
 public:
  using Lane::Lane;
  bool knows(fi_op op) const override { return result_of<T>(op, T{}, T{}, T{}).has_value(); }
  void prepare(std::size_t row, Buffer& target, Buffer& operand, Buffer& compare) override {
    for (std::size_t i = 0; i < kElements; ++i) {
      put(target, i, value<T>(row, i, 1));
      put(operand, i, value<T>(row, i, 2));
      // Every other one is equal.
      put(compare, i, i % 2 == 0 ? value<T>(row, i, 1) : value<T>(row, i, 4));
    }
  }
  bool target_is_right(std::size_t row, fi_op op, Buffer& target) const override {
    for (std::size_t i = 0; i < kElements; ++i) {
      const T compare = i % 2 == 0 ? value<T>(row, i, 1) : value<T>(row, i, 4);
      if (get(target, i) != *result_of(op, value<T>(row, i, 1), value<T>(row, i, 2), compare)) {
        return false;
      }
    }
    return true;
  }
  bool old_is_right(std::size_t row, Buffer& old) const override {
    for (std::size_t i = 0; i < kElements; ++i) {
      if (get(old, i) != value<T>(row, i, 1)) {
        return false;
      }
    }
    return true;
  }

 private:
  void put(Buffer& to, std::size_t i, T what) const {
    std::memcpy(to.data() + offset() + i * sizeof(T), &what, sizeof(T));
  }
  T get(Buffer& from, std::size_t i) const {
    T what{};
    std::memcpy(&what, from.data() + offset() + i * sizeof(T), sizeof(T));
    return what;
  }
};

constexpr std::size_t kLaneSize = 256;
using Lanes = std::vector<std::unique_ptr<Lane>>;

template <class... T>
void add_lanes(Lanes& lanes, const std::vector<fi_datatype>& types) {
  (lanes.push_back(std::make_unique<LaneOf<T>>(types[lanes.size()], lanes.size() * kLaneSize)),
   ...);
}

// Both ranks do every operation to each other at once; rows of values differ, so that a result of
// the row before is found out.
class Atomics {
 public:
  Atomics() {
    // In the order of fi_datatype, which begins at 0.
    add_lanes<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
              std::int64_t, std::uint64_t, float, double, std::complex<float>, std::complex<double>,
              long double, std::complex<long double>>(
        lanes_,
        {FI_INT8, FI_UINT8, FI_INT16, FI_UINT16, FI_INT32, FI_UINT32, FI_INT64, FI_UINT64, FI_FLOAT,
         FI_DOUBLE, FI_FLOAT_COMPLEX, FI_DOUBLE_COMPLEX, FI_LONG_DOUBLE, FI_LONG_DOUBLE_COMPLEX});
    const auto got = e_.exchange({reinterpret_cast<std::uint64_t>(target_.data()), target_.key()});
    address_ = got[0];
    key_ = got[1];
  }

  // All types at once, then the next operation.
  void run(fi_op op, Way way) {
    ++row_;
    std::vector<Lane*> valid;
    for (const auto& lane : lanes_) {
      lane->prepare(row_, target_, operand_, compare_);
      if (lane->knows(op) && can(lane->type(), op, way)) {
        valid.push_back(lane.get());
      }
    }
    old_.clear();
    e_.barrier();
    contexts_.resize(valid.size());
    for (std::size_t i = 0; i < valid.size(); ++i) {
      post(*valid[i], op, way, &contexts_[i]);
    }
    e_.wait_for(valid.size());
    e_.barrier();
    // A completion here does not say that the peer has placed it there.
    e_.wait_until([&] { return all_right(valid, op); },
                  "the right values after operation " + std::to_string(op));
    for (const Lane* const lane : valid) {
      require(way == Way::plain || lane->old_is_right(row_, old_),
              "operation " + std::to_string(op) + " on type " + std::to_string(lane->type()) +
                  " fetched another value");
    }
    e_.barrier();
    require(all_right(valid, op), "an operation was done twice");
    done_ += valid.size();
    e_.barrier();
  }
  [[nodiscard]] std::size_t done() const { return done_; }

 private:
  bool all_right(const std::vector<Lane*>& valid, fi_op op) {
    for (const Lane* const lane : valid) {
      if (!lane->target_is_right(row_, op, target_)) {
        return false;
      }
    }
    return true;
  }
  // Asked for each combination, because providers differ in all three.
  bool can(fi_datatype type, fi_op op, Way way) {
    std::size_t most = 0;
    const int answer = way == Way::plain   ? fi_atomicvalid(e_.ep, type, op, &most)
                       : way == Way::fetch ? fi_fetch_atomicvalid(e_.ep, type, op, &most)
                                           : fi_compare_atomicvalid(e_.ep, type, op, &most);
    return answer == 0 && most >= kElements;
  }
  void post(const Lane& lane, fi_op op, Way way, fi_context* context) {
    std::uint8_t* const operand = operand_.data() + lane.offset();
    std::uint8_t* const old = old_.data() + lane.offset();
    const std::uint64_t there = address_ + lane.offset();
    e_.post([&]() -> ssize_t {
      switch (way) {
        case Way::plain:
          return fi_atomic(e_.ep, operand, kElements, operand_.desc(), e_.peer, there, key_,
                           lane.type(), op, context);
        case Way::fetch:
          return fi_fetch_atomic(e_.ep, operand, kElements, operand_.desc(), old, old_.desc(),
                                 e_.peer, there, key_, lane.type(), op, context);
        default:
          return fi_compare_atomic(e_.ep, operand, kElements, operand_.desc(),
                                   compare_.data() + lane.offset(), compare_.desc(), old,
                                   old_.desc(), e_.peer, there, key_, lane.type(), op, context);
      }
    });
  }

  Endpoint e_;
  Lanes lanes_;
  Buffer target_{e_.domain, 14 * kLaneSize};
  Buffer operand_{e_.domain, 14 * kLaneSize};
  Buffer compare_{e_.domain, 14 * kLaneSize};
  Buffer old_{e_.domain, 14 * kLaneSize};
  std::vector<fi_context> contexts_;
  std::uint64_t address_ = 0;
  std::uint64_t key_ = 0;
  std::size_t row_ = 0;
  std::size_t done_ = 0;
};

// Many on the same place: none is lost.
void add_up() {
  Endpoint e("sum");
  constexpr std::uint64_t kTimes = 100;
  Buffer window(e.domain, 8);
  Buffer one(e.domain, 8);
  Buffer old(e.domain, 8 * kTimes);
  window.clear();
  const std::uint64_t step = 3;
  std::memcpy(one.data(), &step, 8);
  const auto remote = e.exchange({reinterpret_cast<std::uint64_t>(window.data()), window.key()});
  std::vector<fi_context> contexts(kTimes);
  for (std::size_t i = 0; i < kTimes; ++i) {
    e.post([&] {
      return fi_fetch_atomic(e.ep, one.data(), 1, one.desc(), old.data() + 8 * i, old.desc(),
                             e.peer, remote[0], remote[1], FI_UINT64, FI_SUM, &contexts[i]);
    });
  }
  e.wait_for(kTimes);
  std::vector<bool> seen(kTimes);
  for (std::size_t i = 0; i < kTimes; ++i) {
    std::uint64_t before = 0;
    std::memcpy(&before, old.data() + 8 * i, 8);
    require(before % step == 0 && before / step < kTimes && !seen[before / step],
            "two additions met the same value");
    seen[before / step] = true;
  }
  e.barrier();
}

void atomics() {
  {
    Atomics all;
    for (const fi_op op : kOperations) {
      if (op != FI_ATOMIC_READ) {
        all.run(op, Way::plain);
      }
      all.run(op, Way::fetch);
    }
    for (const fi_op op : kComparisons) {
      all.run(op, Way::compare);
    }
    std::printf("%zu operations on types\n", all.done());
    // Of ten integer and floating types at least the usual ones.
    require(all.done() >= 200, "the provider claims next to nothing");
  }
  add_up();
}

constexpr Case kCases[] = {{"atomics", atomics}};

}  // namespace

std::span<const Case> atomic_cases() { return kCases; }

}  // namespace weft::conformance
