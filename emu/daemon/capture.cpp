// Owns the writing of captures.
#include "emu/daemon/capture.hpp"

#include <algorithm>

#include "emu/fabric/fabric.hpp"

namespace weft::emu {

Result<std::unique_ptr<Capture>> Capture::start(const Topology& topology,
                                                const CaptureOptions& options, std::uint64_t seed,
                                                Picos now) {
  std::vector<std::uint32_t> interface(topology.links().size(), kNone);
  std::vector<std::string> names;
  for (const std::string& pattern : options.links) {
    const auto found = topology.find_links(pattern);
    if (found.empty()) {
      return fail(ErrorCode::not_found, "no link is called '" + pattern +
                                            "'; write \"a->b\" or \"a-b\", with * for any "
                                            "(for example \"" +
                                            topology.link_name(0) + "\")");
    }
    for (const LinkId link : found) {
      if (interface[link] == kNone) {
        interface[link] = static_cast<std::uint32_t>(names.size());
        names.push_back(topology.link_name(link));
      }
    }
  }
  const std::size_t links = names.size();
  names.emplace_back("weftd");
  auto writer = srd::PcapngWriter::create(
      options.file, {.interfaces = std::move(names),
                     .comment = "network " + topology.name + ", seed " + std::to_string(seed),
                     .snap_length = options.snap_length,
                     .size_limit = options.size_limit});
  if (!writer) {
    return tl::unexpected(writer.error());
  }
  std::unique_ptr<Capture> capture(new Capture(std::move(*writer), options.file));
  capture->interface_ = std::move(interface);
  capture->links_ = links;
  capture->begin_ = now;
  capture->epoch_ = srd::wall_clock_now();
  return capture;
}

void Capture::frame(Picos when, LinkId link, std::span<const std::byte> bytes, unsigned flags,
                    const char* dropped) {
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
  add(kMarked, "marked: congestion");
  add(kTrimmed, "trimmed: queue full");
  add(kCorrupted, "corrupted: a bit is wrong");
  write(interface_[link], when, bytes, comment);
}

void Capture::refused(Picos when, std::span<const std::byte> bytes, const char* why) {
  write(static_cast<std::uint32_t>(links_), when, bytes, std::string("dropped: ") + why);
}

void Capture::write(std::uint32_t interface, Picos when, std::span<const std::byte> bytes,
                    const std::string& comment) {
  const auto past = static_cast<std::uint64_t>(std::max<Picos>(when - begin_, 0) / 1000);
  writer_.write(interface, epoch_ + past, srd::PcapngWriter::Direction::unknown,
                std::span(&bytes, 1), comment);
}

}  // namespace weft::emu
