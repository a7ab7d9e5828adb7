// Owns how the low-latency protocols lay data into a slot: in lines with flags, which the receiving
// GPU waits for in the slot itself, before anybody has told it that a message is complete.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::collectives {

// ll: words of 8 bytes, half of each a flag; ll128: lines of 128 bytes, the last word of each a
// flag.
enum class Protocol : std::uint8_t { simple, ll, ll128 };
inline constexpr const char* kProtocolNames[] = {"simple", "ll", "ll128"};

// Bytes of data that fit into a slot, and bytes that a slot needs for so much data.
[[nodiscard]] std::size_t data_bytes(Protocol protocol, std::size_t slot_bytes);
[[nodiscard]] std::size_t line_bytes(Protocol protocol, std::size_t data_bytes);
// Chunks are multiples of this many bytes.
[[nodiscard]] std::size_t grain_of(Protocol protocol);

// `flag` differs from those of all messages that the slot had before.
void write_lines(Protocol protocol, const std::byte* data, std::size_t bytes, std::byte* slot,
                 std::uint32_t flag);
[[nodiscard]] std::size_t lines_of(Protocol protocol, std::size_t data_bytes);
// Takes the data out of the lines that have their flags by now, from line `done` on. Returns how
// many have been read so far. All of a message must have been, also those that only fill it up:
// until then the slot is being written.
[[nodiscard]] std::size_t read_lines(Protocol protocol, const std::byte* slot, std::uint32_t flag,
                                     std::byte* data, std::size_t bytes, std::size_t done);

}  // namespace weft::collectives
