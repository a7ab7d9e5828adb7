// Owns a capture of the modelled network: which links it watches, and the comment on each frame.
//
// The forwarding thread calls frame() and refused(), which copy into a CaptureQueue; a thread of
// the queue writes the file. So a slow disk costs frames in the capture, not in the network.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emu/daemon/capture_queue.hpp"
#include "emu/fabric/topology.hpp"
#include "srd/base/time.hpp"
#include "srd/io/pcapng.hpp"

namespace weft::daemon {

struct CaptureOptions {
  std::string file;
  std::vector<std::string> links{"*->*"};  // Topology::find_links() patterns
  std::size_t snap_length = 262144;
  std::uint64_t size_limit = std::uint64_t{1} << 30;
};

// Calls `open` on a thread of its own and waits for it for `patience` at the most: a network file
// system that does not answer blocks that thread only.
[[nodiscard]] Result<srd::PcapngWriter> open_within(
    Duration patience, std::function<Result<srd::PcapngWriter>()> open);

// One interface per link, and one, "weftd", for frames that weftd itself dropped. Timestamps
// advance with the network's time, from the calendar time at which the capture began: in a dilated
// network they show its durations, not those of this machine. `now` and `when` count from the
// network's beginning.
class Capture {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Capture>> start(const fabric::Topology& topology,
                                                              const CaptureOptions& options,
                                                              std::uint64_t seed, Duration now);

  [[nodiscard]] bool watches(fabric::LinkId link) const {
    return interface_[link] != fabric::kNone;
  }
  // `flags` are FrameFlags; `dropped` says why, or is null for a frame that passes.
  void frame(Duration when, fabric::LinkId link, std::span<const std::byte> bytes, unsigned flags,
             const char* dropped);
  // A frame that weftd itself did not pass on.
  void refused(Duration when, std::span<const std::byte> bytes, const char* why);
  // Call it after the last frame: waits up to kPatience until all is written. False: it is not yet.
  [[nodiscard]] bool finish() { return queue_->finish(kPatience); }

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] std::size_t links() const { return links_; }
  [[nodiscard]] std::uint64_t packets() const { return written_->packets; }
  // Frames that had no room in the file any more.
  [[nodiscard]] std::uint64_t skipped() const { return written_->skipped; }
  // Frames that came while the disk was too far behind. Only the forwarding thread may ask.
  [[nodiscard]] std::uint64_t dropped() const { return queue_->dropped(); }

 private:
  static constexpr Duration kPatience = std::chrono::seconds{1};  // with the file
  // Counted by the writing thread.
  struct Written {
    std::atomic<std::uint64_t> packets{0};
    std::atomic<std::uint64_t> skipped{0};
  };
  explicit Capture(std::string file) : file_(std::move(file)) {}
  [[nodiscard]] Result<void> write_to(srd::PcapngWriter file);
  void write(std::uint32_t interface, Duration when, std::span<const std::byte> bytes,
             const std::string& comment);

  std::shared_ptr<Written> written_ = std::make_shared<Written>();
  std::unique_ptr<CaptureQueue> queue_;
  std::string file_;
  std::vector<std::uint32_t> interface_;  // by link
  std::size_t links_ = 0;
  std::uint64_t epoch_ = 0;  // nanoseconds since 1970 at begin_
  Duration begin_{};
};

}  // namespace weft::daemon
