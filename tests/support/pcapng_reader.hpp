// Owns reading of capture files for tests, by the format's specification and not by our writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace weft::testing {

struct CapturedFrame {
  std::uint32_t interface = 0;
  std::uint64_t time = 0;  // in units of the interface
  std::vector<std::byte> bytes;
  std::uint32_t original_size = 0;
  std::string comment;
};

struct CaptureFile {
  std::vector<std::string> interfaces;
  std::vector<CapturedFrame> frames;
  bool well_formed = false;  // each block is whole, and the file ends with one

  // The place of the interface of that name, or interfaces.size().
  [[nodiscard]] std::size_t place_of(const std::string& name) const {
    std::size_t at = 0;
    while (at < interfaces.size() && interfaces[at] != name) {
      ++at;
    }
    return at;
  }
};

// Reads interface descriptions (block type 1) and packets (type 6); other blocks are passed over.
// Little-endian files only: they are made on the machine that reads them.
inline CaptureFile read_pcapng(const std::string& path) {
  CaptureFile capture;
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, text.data() + at, sizeof value);
    return value;
  };
  // The value of an option, or nothing.
  const auto option = [&](std::size_t at, std::size_t end, unsigned code) -> std::string {
    while (at + 4 <= end) {
      const unsigned kind = word(at) & 0xFFFF;
      const unsigned size = word(at) >> 16;
      if (kind == 0 || at + 4 + size > end) {
        break;
      }
      if (kind == code) {
        return text.substr(at + 4, size);
      }
      at += 4 + ((size + 3) & ~3U);
    }
    return {};
  };
  std::size_t at = 0;
  while (at + 12 <= text.size()) {
    // Each block begins with its type and its length, and ends with its length once more.
    const std::size_t size = word(at + 4);
    if (size < 12 || size % 4 != 0 || at + size > text.size() || word(at + size - 4) != size) {
      return capture;
    }
    const std::size_t end = at + size - 4;
    if (word(at) == 1) {
      capture.interfaces.push_back(option(at + 16, end, 2));
    } else if (word(at) == 6) {
      CapturedFrame frame;
      // Of an enhanced packet block: interface, time (upper word first), captured and original
      // length, then the bytes, padded to four, and the options.
      frame.interface = word(at + 8);
      frame.time = std::uint64_t{word(at + 12)} << 32 | word(at + 16);
      const std::size_t kept = word(at + 20);
      frame.original_size = word(at + 24);
      if (at + 28 + kept > end) {
        return capture;
      }
      const auto* bytes = reinterpret_cast<const std::byte*>(text.data() + at + 28);
      frame.bytes.assign(bytes, bytes + kept);
      frame.comment = option(at + 28 + ((kept + 3) & ~std::size_t{3}), end, 1);
      capture.frames.push_back(std::move(frame));
    }
    at += size;
  }
  capture.well_formed = at == text.size() && !text.empty();
  return capture;
}

}  // namespace weft::testing
