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

// A pcapng file of Ethernet interfaces. After a failed write, or at the size limit, further frames
// are skipped and counted; what is in the file stays readable. One thread. Frames are buffered;
// flush() or the destructor brings them into the file.
class PcapngWriter {
 public:
  enum class Direction : std::uint8_t { unknown = 0, inbound = 1, outbound = 2 };

  struct Options {
    std::vector<std::string> interfaces;
    std::string comment{};         // of the whole file
    std::size_t snap_length = 0;   // bytes kept of a frame; 0: frames are written whole
    std::uint64_t size_limit = 0;  // of the file; 0: none
  };
  [[nodiscard]] static Result<PcapngWriter> create(const std::string& path, const Options& options);
  // `name` is that of the only interface.
  [[nodiscard]] static Result<PcapngWriter> create(const std::string& path, std::string_view name);
  PcapngWriter(PcapngWriter&&) = default;
  PcapngWriter& operator=(PcapngWriter&&) = delete;
  ~PcapngWriter();

  // `time` in nanoseconds of the calendar (wall_clock_now()). The comment may be empty.
  void write(std::uint64_t time, Direction direction,
             std::span<const std::span<const std::byte>> pieces, std::string_view comment = {}) {
    write(0, time, direction, pieces, comment);
  }
  // `interface` is its place in Options.
  void write(std::uint32_t interface, std::uint64_t time, Direction direction,
             std::span<const std::span<const std::byte>> pieces, std::string_view comment = {});
  void flush();
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] std::uint64_t packets() const { return packets_; }
  // Frames that were not written: see above. Of those that are still in memory it is not known
  // before flush().
  [[nodiscard]] std::uint64_t skipped() const { return skipped_; }

 private:
  PcapngWriter(UniqueFd file, const Options& options)
      : file_(std::move(file)),
        snap_length_(options.snap_length != 0 ? options.snap_length : UINT32_MAX),
        size_limit_(options.size_limit != 0 ? options.size_limit : UINT64_MAX) {}

  void put32(std::uint32_t value);
  void put_option(std::uint16_t code, std::string_view value);
  void pad();
  [[nodiscard]] std::size_t begin_block(std::uint32_t type);
  void end_block(std::size_t begin);

  UniqueFd file_;
  std::size_t snap_length_;
  std::uint64_t size_limit_;
  std::vector<char> buffer_;
  std::uint64_t written_ = 0;
  std::uint64_t packets_ = 0;
  std::uint64_t buffered_ = 0;  // of them, what the file has not got yet
  std::uint64_t skipped_ = 0;
  bool failed_ = false;
};

[[nodiscard]] std::uint64_t wall_clock_now();

}  // namespace weft::srd
