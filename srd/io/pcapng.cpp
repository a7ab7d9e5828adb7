// Owns the blocks of pcapng files.
//
//   section header | interface description, one each | enhanced packet | enhanced packet | ...
//
// Each block is its type, its length, a body padded to 4 bytes, and its length again. All words are
// in the machine's byte order, which the first one shows. A block is built in `buffer_`, whose
// length fields end_block() fills in, and reaches the file at 64 KiB or by flush().
#include "srd/io/pcapng.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::srd {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A;
constexpr std::uint32_t kInterface = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrder = 0x1A2B3C4D;
constexpr std::uint32_t kEthernet = 1;
constexpr std::uint16_t kOptionEnd = 0;
constexpr std::uint16_t kOptionComment = 1;
constexpr std::uint16_t kOptionFlags = 2;        // of a packet
constexpr std::uint16_t kOptionName = 2;         // of an interface
constexpr std::uint16_t kOptionResolution = 9;   // of an interface
constexpr std::uint16_t kOptionApplication = 4;  // of a section
constexpr char kNanoseconds = 9;
constexpr std::size_t kFlushAt = 64 * 1024;
constexpr std::size_t kMaxComment = 1024;
// An upper bound: all of a packet block but its data and comment.
constexpr std::size_t kBlockOverhead = 64;

}  // namespace

std::uint64_t wall_clock_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

Result<PcapngWriter> PcapngWriter::create(const std::string& path, std::string_view name) {
  return create(path, Options{.interfaces = {std::string(name)}});
}

Result<PcapngWriter> PcapngWriter::create(const std::string& path, const Options& options) {
  auto file = open_to_write(path, Existing::empty);
  if (!file) {
    return fail(file.error().code, "capture: " + file.error().message);
  }
  PcapngWriter writer(std::move(*file), options);
  std::size_t begin = writer.begin_block(kSectionHeader);
  writer.put32(kByteOrder);
  writer.put32(1);           // version 1.0
  writer.put32(0xFFFFFFFF);  // the length of the section is not known
  writer.put32(0xFFFFFFFF);
  writer.put_option(kOptionApplication, "weft");
  if (!options.comment.empty()) {
    writer.put_option(kOptionComment, options.comment.substr(0, kMaxComment));
  }
  writer.put_option(kOptionEnd, {});
  writer.end_block(begin);
  for (const std::string& name : options.interfaces) {
    begin = writer.begin_block(kInterface);
    writer.put32(kEthernet);
    writer.put32(static_cast<std::uint32_t>(options.snap_length));
    writer.put_option(kOptionName, name);
    writer.put_option(kOptionResolution, {&kNanoseconds, 1});
    writer.put_option(kOptionEnd, {});
    writer.end_block(begin);
  }
  writer.flush();
  if (writer.failed()) {
    return fail(ErrorCode::io_error, errno_text("capture file '" + path + "'"));
  }
  return writer;
}

PcapngWriter::~PcapngWriter() {
  if (file_) {
    flush();
  }
}

void PcapngWriter::put32(std::uint32_t value) {
  const std::size_t at = buffer_.size();
  buffer_.resize(at + sizeof value);
  std::memcpy(buffer_.data() + at, &value, sizeof value);
}

void PcapngWriter::pad() { buffer_.resize((buffer_.size() + 3) & ~std::size_t{3}); }

void PcapngWriter::put_option(std::uint16_t code, std::string_view value) {
  put32(code | static_cast<std::uint32_t>(value.size()) << 16);
  buffer_.insert(buffer_.end(), value.begin(), value.end());
  pad();
}

std::size_t PcapngWriter::begin_block(std::uint32_t type) {
  const std::size_t begin = buffer_.size();
  put32(type);
  put32(0);
  return begin;
}

void PcapngWriter::end_block(std::size_t begin) {
  const auto length = static_cast<std::uint32_t>(buffer_.size() - begin + sizeof(std::uint32_t));
  put32(length);
  std::memcpy(buffer_.data() + begin + sizeof(std::uint32_t), &length, sizeof length);
}

void PcapngWriter::write(std::uint32_t interface, std::uint64_t time, Direction direction,
                         std::span<const std::span<const std::byte>> pieces,
                         std::string_view comment) {
  std::size_t length = 0;
  for (const auto& piece : pieces) {
    length += piece.size();
  }
  const std::size_t kept = std::min(length, snap_length_);
  if (failed_ || written_ + buffer_.size() + kept + kBlockOverhead + comment.size() > size_limit_) {
    ++skipped_;
    return;
  }
  const std::size_t begin = begin_block(kEnhancedPacket);
  put32(interface);
  put32(static_cast<std::uint32_t>(time >> 32));
  put32(static_cast<std::uint32_t>(time));
  put32(static_cast<std::uint32_t>(kept));
  put32(static_cast<std::uint32_t>(length));
  const std::size_t data_end = buffer_.size() + kept;
  for (const auto& piece : pieces) {
    const auto* bytes = reinterpret_cast<const char*>(piece.data());
    buffer_.insert(buffer_.end(), bytes, bytes + std::min(piece.size(), data_end - buffer_.size()));
  }
  pad();
  const auto flags = static_cast<std::uint32_t>(direction);
  char flag_bytes[sizeof flags];
  std::memcpy(flag_bytes, &flags, sizeof flags);
  put_option(kOptionFlags, {flag_bytes, sizeof flag_bytes});
  if (!comment.empty()) {
    put_option(kOptionComment, comment.substr(0, kMaxComment));
  }
  put_option(kOptionEnd, {});
  end_block(begin);
  ++packets_;
  ++buffered_;
  if (buffer_.size() >= kFlushAt) {
    flush();
  }
}

void PcapngWriter::flush() {
  std::size_t written = 0;
  while (written < buffer_.size() && !failed_) {
    const ssize_t size = ::write(file_.get(), buffer_.data() + written, buffer_.size() - written);
    if (size < 0 && errno != EINTR) {
      failed_ = true;
    }
    written += size > 0 ? static_cast<std::size_t>(size) : 0;
  }
  if (failed_) {
    // Readers reject a file that ends in half a block: cut it where this buffer began.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(written_));
    packets_ -= buffered_;
    skipped_ += buffered_;
  } else {
    written_ += written;
  }
  buffered_ = 0;
  buffer_.clear();
}

}  // namespace weft::srd
