// Owns the writing of captures.
//
// The forwarding thread only copies frames into a bounded queue (CaptureQueue); a thread of the
// capture's own writes them to the disk. If the disk is slower than the network, frames are missing
// from the file and counted, and no traffic waits. Opening the file happens on yet another thread,
// because a file on a dead server may never open.
#include "emu/daemon/capture.hpp"

#include <algorithm>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "emu/daemon/protocols.hpp"
#include "emu/fabric/fabric.hpp"

namespace weft::daemon {

Result<srd::PcapngWriter> open_within(Duration patience,
                                      std::function<Result<srd::PcapngWriter>()> open) {
  const auto promise = std::make_shared<std::promise<Result<srd::PcapngWriter>>>();
  auto opened = promise->get_future();
  try {
    std::thread([promise, open = std::move(open)] { promise->set_value(open()); }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::out_of_resources, std::string("capture: a thread: ") + error.what());
  }
  if (opened.wait_for(patience) != std::future_status::ready) {
    return fail(ErrorCode::io_error, "the capture's file does not open: give one on another disk");
  }
  return opened.get();
}

// A link that several patterns match gets one interface.
Result<std::unique_ptr<Capture>> Capture::start(const fabric::Topology& topology,
                                                const CaptureOptions& options, std::uint64_t seed,
                                                Duration now) {
  std::vector<std::uint32_t> interface(topology.links().size(), fabric::kNone);
  std::vector<std::string> names;
  for (const std::string& pattern : options.links) {
    const auto found = topology.links_called(pattern);
    if (!found) {
      return tl::unexpected(found.error());
    }
    for (const fabric::LinkId link : *found) {
      if (interface[link] == fabric::kNone) {
        interface[link] = static_cast<std::uint32_t>(names.size());
        names.push_back(topology.link_name(link));
      }
    }
  }
  const std::size_t links = names.size();
  names.emplace_back("weftd");
  const srd::PcapngWriter::Options form{
      .interfaces = std::move(names),
      .comment = "network " + topology.name + ", seed " + std::to_string(seed),
      .snap_length = options.snap_length,
      .size_limit = options.size_limit};
  auto writer = open_within(
      kPatience, [file = options.file, form] { return srd::PcapngWriter::create(file, form); });
  if (!writer) {
    return tl::unexpected(writer.error());
  }
  std::unique_ptr<Capture> capture(new Capture(options.file));
  capture->links_ = links;
  if (auto started = capture->write_to(std::move(*writer)); !started) {
    return tl::unexpected(started.error());
  }
  capture->interface_ = std::move(interface);
  capture->begin_ = now;
  capture->epoch_ = srd::wall_clock_now();
  return capture;
}

// The writing thread may outlive the capture, while the disk does not answer: so it shares what it
// uses, by shared_ptr, and holds no reference to this object.
Result<void> Capture::write_to(srd::PcapngWriter file) {
  const auto writer = std::make_shared<srd::PcapngWriter>(std::move(file));
  const auto tell = [writer, written = written_] {
    written->packets = writer->packets();
    written->skipped = writer->skipped();
  };
  auto queue = CaptureQueue::start(
      {.write =
           [writer, tell, links = links_,
            copy = std::vector<std::byte>()](const CapturedFrame& frame) mutable {
             copy.assign(frame.bytes.begin(), frame.bytes.end());
             // As on a wire: with the checksums that memory does not need. What weftd itself
             // dropped is shown as it came.
             if (frame.interface < links) {
               Protocols::seal(copy);
             }
             const std::span<const std::byte> bytes = copy;
             writer->write(frame.interface, frame.time, srd::PcapngWriter::Direction::unknown,
                           std::span(&bytes, 1), frame.comment);
             tell();
           },
       .flush =
           [writer, tell] {
             writer->flush();
             tell();
           }});
  if (!queue) {
    return tl::unexpected(queue.error());
  }
  queue_ = std::move(*queue);
  return {};
}

// The comment says everything that happened to the frame so far.
void Capture::frame(Duration when, fabric::LinkId link, std::span<const std::byte> bytes,
                    unsigned flags, const char* dropped) {
  if (!watches(link)) {
    return;
  }
  std::string comment;
  if (dropped != nullptr) {
    comment = std::string("dropped: ") + dropped;
  }
  const auto add = [&](unsigned flag, const char* text) {
    if ((flags & flag) != 0) {
      comment += (comment.empty() ? "" : ", ") + std::string(text);
    }
  };
  add(fabric::kMarked, "marked: congestion");
  add(fabric::kTrimmed, "trimmed: queue full");
  add(fabric::kCorrupted, "corrupted here; shown as it was");
  write(interface_[link], when, bytes, comment);
}

void Capture::refused(Duration when, std::span<const std::byte> bytes, const char* why) {
  write(static_cast<std::uint32_t>(links_), when, bytes, std::string("dropped: ") + why);
}

void Capture::write(std::uint32_t interface, Duration when, std::span<const std::byte> bytes,
                    const std::string& comment) {
  const auto past = static_cast<std::uint64_t>(nanoseconds(std::max(when - begin_, Duration{0})));
  queue_->push({interface, epoch_ + past, bytes, comment});
}

}  // namespace weft::daemon
