// Owns a capture of the modelled network: which links it watches, and what it says of each frame.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emu/fabric/picos.hpp"
#include "emu/fabric/topology.hpp"
#include "srd/io/pcapng.hpp"

namespace weft::emu {

struct CaptureOptions {
  std::string file;
  std::vector<std::string> links{"*->*"};  // Topology::find_links() patterns
  std::size_t snap_length = 262144;
  std::uint64_t size_limit = std::uint64_t{1} << 30;
};

// One interface per link, and one, "weftd", for frames that no link lost. Timestamps are the
// network's time from the moment when the capture began, so a dilated network shows its own.
class Capture {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Capture>> start(const Topology& topology,
                                                              const CaptureOptions& options,
                                                              std::uint64_t seed, Picos now);

  [[nodiscard]] bool watches(LinkId link) const { return interface_[link] != kNone; }
  // `flags` are FrameFlags; `dropped` says why, or is null for a frame that passes.
  void frame(Picos when, LinkId link, std::span<const std::byte> bytes, unsigned flags,
             const char* dropped);
  // A frame that weftd itself did not pass on.
  void refused(Picos when, std::span<const std::byte> bytes, const char* why);
  void flush() { writer_.flush(); }

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] std::size_t links() const { return links_; }
  [[nodiscard]] const srd::PcapngWriter& writer() const { return writer_; }

 private:
  Capture(srd::PcapngWriter writer, std::string file)
      : writer_(std::move(writer)), file_(std::move(file)) {}
  void write(std::uint32_t interface, Picos when, std::span<const std::byte> bytes,
             const std::string& comment);

  srd::PcapngWriter writer_;
  std::string file_;
  std::vector<std::uint32_t> interface_;  // by link
  std::size_t links_ = 0;
  std::uint64_t epoch_ = 0;  // nanoseconds since 1970 at begin_
  Picos begin_ = 0;
};

}  // namespace weft::emu
