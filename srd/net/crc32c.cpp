// Owns the ways to compute CRC32C and the choice between them, made once.
#include "srd/net/crc32c.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft {
namespace {

// The polynomial 0x1EDC6F41 with its bits reversed, as all of this works on reflected values: in a
// 32-bit word bit 0 is the coefficient of x^31.
constexpr std::uint32_t kPolynomial = 0x82F63B78;

// A register times x, modulo the polynomial.
constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
}

// --- Table: eight bytes a step (slicing).

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = times_x(value);
    }
    tables[0][byte] = value;
  }
  for (std::size_t table = 1; table < tables.size(); ++table) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t value = tables[table - 1][byte];
      tables[table][byte] = (value >> 8) ^ tables[0][value & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint64_t load_little64(const std::byte* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (std::endian::native == std::endian::big) {
    value = __builtin_bswap64(value);
  }
  return value;
}

std::uint32_t update_by_table(std::uint32_t crc, std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t state = ~crc;
  for (; left >= 8; at += 8, left -= 8) {
    const std::uint64_t word = load_little64(at) ^ state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      state ^= kTables[7 - i][(word >> (8 * i)) & 0xFF];
    }
  }
  for (; left > 0; ++at, --left) {
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<std::uint32_t>(*at)) & 0xFF];
  }
  return ~state;
}

#if defined(__x86_64__)

// x^n modulo the polynomial.
constexpr std::uint32_t power_of_x(unsigned n) {
  std::uint32_t value = 0x80000000;
  for (; n > 0; --n) {
    value = times_x(value);
  }
  return value;
}

// --- CRC32 instruction: three streams at once hide its latency of three cycles.

// The carry-less product of two reflected registers, taken as 64 reflected bits, is their product
// times x; the instruction multiplies by x^32. So this constant moves a register over `size` more
// bytes.
constexpr std::uint32_t shift_constant(unsigned size) { return power_of_x(8 * size - 33); }

__attribute__((target("sse4.2,pclmul"))) std::uint64_t shift(std::uint64_t state,
                                                             std::uint32_t constant) {
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(state)),
                           _mm_cvtsi64_si128(static_cast<long long>(constant)), 0);
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

__attribute__((target("sse4.2"))) std::uint64_t update_one_stream(std::uint64_t state,
                                                                  const std::byte* at,
                                                                  std::size_t left) {
  for (; left >= 8; at += 8, left -= 8) {
    state = _mm_crc32_u64(state, load_little64(at));
  }
  auto narrow = static_cast<std::uint32_t>(state);
  if ((left & 4) != 0) {
    std::uint32_t word;
    std::memcpy(&word, at, sizeof word);
    narrow = _mm_crc32_u32(narrow, word);
    at += 4;
  }
  for (left &= 3; left > 0; ++at, --left) {
    narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(*at));
  }
  return narrow;
}

// Takes three neighbouring streams of kStream bytes each.
template <unsigned kStream>
__attribute__((target("sse4.2,pclmul"))) std::uint64_t update_three_streams(std::uint64_t state,
                                                                            const std::byte* at) {
  constexpr std::uint32_t kOverOne = shift_constant(kStream);
  constexpr std::uint32_t kOverTwo = shift_constant(2 * kStream);
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  for (unsigned i = 0; i < kStream; i += 8) {
    state = _mm_crc32_u64(state, load_little64(at + i));
    second = _mm_crc32_u64(second, load_little64(at + kStream + i));
    third = _mm_crc32_u64(third, load_little64(at + 2 * kStream + i));
  }
  return shift(state, kOverTwo) ^ shift(second, kOverOne) ^ third;
}

__attribute__((target("sse4.2,pclmul"))) std::uint32_t update_by_instruction(
    std::uint32_t crc, std::span<const std::byte> bytes) {
  constexpr unsigned kLong = 1360;  // three of them are 4080 bytes: nearly all of a 4 KiB payload
  constexpr unsigned kShort = 168;  // three of them are 504 bytes
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t state = static_cast<std::uint32_t>(~crc);
  for (; left >= 3 * kLong; at += 3 * kLong, left -= 3 * kLong) {
    state = update_three_streams<kLong>(state, at);
  }
  for (; left >= 3 * kShort; at += 3 * kShort, left -= 3 * kShort) {
    state = update_three_streams<kShort>(state, at);
  }
  return ~static_cast<std::uint32_t>(update_one_stream(state, at, left));
}

// --- Folding: 64-byte lanes are multiplied forward over the bytes that follow them.

// Moves 128 reflected bits over `bits` more: the first 64 of them stand 64 places higher. One place
// is lost to the carry-less product (see above).
struct FoldConstants {
  std::uint64_t first;
  std::uint64_t second;
};
constexpr FoldConstants fold_constants(unsigned bits) {
  return {std::uint64_t{power_of_x(bits + 63)} << 32, std::uint64_t{power_of_x(bits - 1)} << 32};
}

#define WEFT_FOLD_TARGET __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

WEFT_FOLD_TARGET __m512i broadcast(FoldConstants constants) {
  const auto first = static_cast<long long>(constants.first);
  const auto second = static_cast<long long>(constants.second);
  return _mm512_set4_epi64(second, first, second, first);
}

WEFT_FOLD_TARGET __m512i fold(__m512i lane, __m512i constants, __m512i next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lane, constants, 0x00),
                                   _mm512_clmulepi64_epi128(lane, constants, 0x11), next,
                                   kXorOfThree);
}

WEFT_FOLD_TARGET __m512i load_lane(const std::byte* at) {
  return _mm512_loadu_si512(static_cast<const void*>(at));
}

WEFT_FOLD_TARGET std::uint32_t update_by_folding(std::uint32_t crc,
                                                 std::span<const std::byte> bytes) {
  constexpr std::size_t kLane = 64;
  constexpr FoldConstants kOverOne = fold_constants(8 * kLane);
  constexpr FoldConstants kOverFour = fold_constants(8 * 4 * kLane);
  if (bytes.size() < 4 * kLane) {  // a serial chain of 32 instructions at the most
    return ~static_cast<std::uint32_t>(
        update_one_stream(static_cast<std::uint32_t>(~crc), bytes.data(), bytes.size()));
  }
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  __m512i lane0 = _mm512_xor_si512(
      load_lane(at), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  __m512i lane1 = load_lane(at + kLane);
  __m512i lane2 = load_lane(at + 2 * kLane);
  __m512i lane3 = load_lane(at + 3 * kLane);
  const __m512i over_four = broadcast(kOverFour);
  for (at += 4 * kLane, left -= 4 * kLane; left >= 4 * kLane; at += 4 * kLane, left -= 4 * kLane) {
    lane0 = fold(lane0, over_four, load_lane(at));
    lane1 = fold(lane1, over_four, load_lane(at + kLane));
    lane2 = fold(lane2, over_four, load_lane(at + 2 * kLane));
    lane3 = fold(lane3, over_four, load_lane(at + 3 * kLane));
  }
  const __m512i over_one = broadcast(kOverOne);
  __m512i lane = fold(fold(fold(lane0, over_one, lane1), over_one, lane2), over_one, lane3);
  for (; left >= kLane; at += kLane, left -= kLane) {
    lane = fold(lane, over_one, load_lane(at));
  }
  // What is left is congruent to everything before it.
  std::array<std::byte, kLane> rest;
  _mm512_storeu_si512(rest.data(), lane);
  const std::uint64_t state = update_one_stream(0, rest.data(), rest.size());
  return ~static_cast<std::uint32_t>(update_one_stream(state, at, left));
}

bool can_use_instruction() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
bool can_fold() {
  return can_use_instruction() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("vpclmulqdq");
}

constexpr std::array kMethods{Crc32cMethod{"folding", update_by_folding},
                              Crc32cMethod{"instruction", update_by_instruction},
                              Crc32cMethod{"table", update_by_table}};

std::size_t best_method() { return can_fold() ? 0 : can_use_instruction() ? 1 : 2; }

#else

constexpr std::array kMethods{Crc32cMethod{"table", update_by_table}};

std::size_t best_method() { return 0; }

#endif

std::uint32_t choose_and_update(std::uint32_t crc, std::span<const std::byte> bytes);

// A relaxed load costs as little as a plain one. Threads that call before the choice is stored make
// it themselves, with the same result.
constinit std::atomic<decltype(Crc32cMethod::update)> chosen{choose_and_update};

std::uint32_t choose_and_update(std::uint32_t crc, std::span<const std::byte> bytes) {
  const auto update = crc32c_methods().front().update;
  chosen.store(update, std::memory_order_relaxed);
  return update(crc, bytes);
}

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
  return chosen.load(std::memory_order_relaxed)(crc, bytes);
}

std::span<const Crc32cMethod> crc32c_methods() {
  return std::span{kMethods}.subspan(best_method());
}

}  // namespace weft
