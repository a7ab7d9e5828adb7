// Owns reading work requests out of rings that the application may scribble on: each is copied
// once, and nothing in it is believed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "emu/devices/rxe/abi.hpp"
#include "emu/roce/engine/types.hpp"

namespace weft::devices::rxe {

inline constexpr std::size_t kMaxInline = std::size_t{roce::kMaxSge} * sizeof(Sge);

// No such operation: the engine refuses it when its turn comes.
inline constexpr auto kNoOperation = static_cast<roce::WrOpcode>(0xFF);

// What a queue pair's entries have room for.
struct WqeShape {
  std::uint32_t sges = 0;
  std::uint32_t inline_data = 0;
};

// A request as the engine takes it, with its segments or inline data.
struct SendWork {
  roce::WorkRequest request;
  std::uint32_t ah = 0;  // of a datagram; 0: request.address says it
  std::uint32_t sges = 0;
  std::uint32_t inline_size = 0;
  std::array<roce::Sge, roce::kMaxSge> segments;
  std::array<std::byte, kMaxInline> inline_data;
};

// An entry that cannot be, of more pieces or bytes than it has room for, becomes a request that
// fails in its turn.
void read_send(const std::byte* entry, const WqeShape& shape, bool datagram, SendWork& work);

struct ReceiveWork {
  std::uint64_t wr_id = 0;
  std::uint32_t sges = 0;
  std::array<roce::Sge, roce::kMaxSge> segments;
};

// One that cannot be becomes a receive of no bytes.
void read_receive(const std::byte* entry, std::uint32_t max_sges, ReceiveWork& work);

// What a queue with so many segments per entry needs for each.
[[nodiscard]] constexpr std::size_t receive_entry_size(std::uint32_t sges) {
  return sizeof(ReceiveWqe) + std::size_t{sges} * sizeof(Sge);
}

}  // namespace weft::devices::rxe
