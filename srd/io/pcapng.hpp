// Owns capture files: frames with their time, direction and a comment, as any analyser reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::srd {

// A pcapng file with one Ethernet interface. When the disk is full it stops, and says so.
class PcapngWriter {
 public:
  enum class Direction : std::uint8_t { unknown = 0, inbound = 1, outbound = 2 };

  // `name` is that of the interface.
  [[nodiscard]] static Result<PcapngWriter> create(const std::string& path, std::string_view name);
  PcapngWriter(PcapngWriter&&) = default;
  PcapngWriter& operator=(PcapngWriter&&) = delete;
  ~PcapngWriter();

  // `time` in nanoseconds of the calendar (wall_clock_now()). The comment may be empty.
  void write(std::uint64_t time, Direction direction,
             std::span<const std::span<const std::byte>> pieces, std::string_view comment = {});
  void flush();
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] std::uint64_t packets() const { return packets_; }

 private:
  explicit PcapngWriter(UniqueFd file) : file_(std::move(file)) {}

  void put32(std::uint32_t value);
  void put_option(std::uint16_t code, std::string_view value);
  void pad();
  [[nodiscard]] std::size_t begin_block(std::uint32_t type);
  void end_block(std::size_t begin);

  UniqueFd file_;
  std::vector<char> buffer_;
  std::uint64_t packets_ = 0;
  bool failed_ = false;
};

[[nodiscard]] std::uint64_t wall_clock_now();

}  // namespace weft::srd
