// Owns writing and reading lines.
//
// Flag and data of a line go over the network together, and the network promises no order inside of
// a message. The reader therefore takes data only from lines whose flag it has seen. With ll a line
// is one word, which is written and read as a whole; ll128 relies on a plugin that makes 128 bytes
// visible at once, as NCCL does, and the check of the data shows whether one does.
#include "integration/collectives/lines.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace weft::collectives {
namespace {

// How a protocol lays out a slot. simple: no lines, every byte is data.
struct Layout {
  std::size_t line;  // bytes
  std::size_t data;  // of them, before the flag
  std::size_t unit;  // lines that are always sent together
};
constexpr Layout layout_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
      return {8, 4, 2};
    case Protocol::ll128:
      return {128, 120, 16};
    case Protocol::simple:
      break;
  }
  return {1, 1, 1};
}

// Loads a word at once; loads that follow in the program stay behind it (acquire). Another thread
// or process writes there.
std::uint64_t load(const std::byte* at) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}

}  // namespace

std::size_t data_bytes(Protocol protocol, std::size_t slot_bytes) {
  const Layout layout = layout_of(protocol);
  return slot_bytes / layout.line * layout.data;
}

std::size_t line_bytes(Protocol protocol, std::size_t data_bytes) {
  const Layout layout = layout_of(protocol);
  const std::size_t data_of_unit = layout.data * layout.unit;
  return (data_bytes + data_of_unit - 1) / data_of_unit * layout.unit * layout.line;
}

// As in NCCL; for ll128 it is the data of a unit of 16 lines.
std::size_t grain_of(Protocol protocol) { return protocol == Protocol::ll128 ? 1920 : 16; }

void write_lines(Protocol protocol, const std::byte* data, std::size_t bytes, std::byte* slot,
                 std::uint32_t flag) {
  const Layout layout = layout_of(protocol);
  const std::size_t lines = line_bytes(protocol, bytes) / layout.line;
  for (std::size_t i = 0; i < lines; ++i) {
    const std::size_t at = std::min(i * layout.data, bytes);
    const std::size_t count = std::min(layout.data, bytes - at);
    std::byte* const line = slot + i * layout.line;
    // Lines beyond the data are written as well: the reader waits for the flag of each line in a
    // unit.
    std::memset(line, 0, layout.line);
    std::memcpy(line, data + at, count);
    std::memcpy(line + layout.data, &flag, sizeof flag);
  }
}

std::size_t lines_of(Protocol protocol, std::size_t bytes) {
  return line_bytes(protocol, bytes) / layout_of(protocol).line;
}

std::size_t read_lines(Protocol protocol, const std::byte* slot, std::uint32_t flag,
                       std::byte* data, std::size_t bytes, std::size_t done) {
  const Layout layout = layout_of(protocol);
  for (const std::size_t lines = lines_of(protocol, bytes); done < lines; ++done) {
    const std::byte* const line = slot + done * layout.line;
    const std::size_t at = std::min(done * layout.data, bytes);
    const std::size_t count = std::min(layout.data, bytes - at);
    if (protocol == Protocol::ll) {
      const std::uint64_t word = load(line);
      if (word >> 32 != flag) {
        break;
      }
      std::memcpy(data + at, &word, count);
    } else {
      // The flag first, then the data: with its flag the whole line must be visible.
      if (load(line + layout.data) != flag) {
        break;
      }
      std::array<std::uint64_t, 15> words;
      for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = load(line + i * sizeof(std::uint64_t));
      }
      std::memcpy(data + at, words.data(), count);
    }
  }
  return done;
}

}  // namespace weft::collectives
