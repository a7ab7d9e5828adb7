// Owns the system calls of tap devices.
#include "srd/io/tap_io.hpp"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "srd/net/envelope.hpp"

namespace weft::srd {
namespace {

constexpr off_t kNoOffset = -1;  // of a file that has none

}  // namespace

TapIo::TapIo(const Config& config, UniqueFd device)
    : config_(config),
      device_(std::move(device)),
      buffer_(std::make_unique<std::byte[]>(kBurst * (config.max_frame + 1))) {}

// `name` is filled in by the kernel where it holds a pattern such as "weft%d".
Result<UniqueFd> TapIo::open_device(std::string& name) {
  if (name.size() >= IFNAMSIZ) {
    return fail(ErrorCode::invalid_argument,
                "tap: '" + name + "' is too long for a network device");
  }
  UniqueFd device(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::memcpy(request.ifr_name, name.data(), name.size());
  if (!device || ::ioctl(device.get(), TUNSETIFF, &request) != 0) {
    const bool refused = errno == EPERM || errno == EACCES;
    return fail(
        refused ? ErrorCode::not_permitted : ErrorCode::io_error,
        errno_text("tap: '" + name + "'") +
            (refused ? " (it takes CAP_NET_ADMIN: root, or a network namespace of one's own)"
                     : ""));
  }
  name = request.ifr_name;
  return device;
}

Result<std::unique_ptr<TapIo>> TapIo::create(const Config& config) {
  Config named = config;
  auto device = open_device(named.name);
  if (!device) {
    return tl::unexpected(device.error());
  }
  return adopt(named, std::move(*device));
}

Result<std::unique_ptr<TapIo>> TapIo::adopt(const Config& config, UniqueFd&& device) {
  ifreq request{};
  if (::ioctl(device.get(), TUNGETIFF, &request) != 0 || (request.ifr_flags & IFF_TAP) == 0 ||
      (request.ifr_flags & IFF_NO_PI) == 0 || (request.ifr_flags & IFF_VNET_HDR) != 0) {
    return fail(ErrorCode::invalid_argument, "tap: that is no tap device of plain frames");
  }
  // The process that opened the device may still have it and shares its flags, so nothing here
  // relies on O_NONBLOCK: each call asks for RWF_NOWAIT instead. One byte is too short for a frame,
  // so this attempt only shows whether the kernel accepts the flag.
  std::byte nothing[1]{};
  iovec piece{nothing, sizeof nothing};
  if (::pwritev2(device.get(), &piece, 1, kNoOffset, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP) {
    return fail(ErrorCode::not_permitted,
                "tap: this kernel cannot write to a tap device without waiting (Linux 5.11 can)");
  }
  Config named = config;
  named.name = request.ifr_name;
  return std::unique_ptr<TapIo>(new TapIo(named, std::move(device)));
}

std::span<const RxFrame> TapIo::receive() {
  const std::size_t room = config_.max_frame + 1;  // one more shows what is too long
  std::size_t count = 0;
  for (std::size_t i = 0; i < kBurst; ++i) {
    std::byte* to = buffer_.get() + count * room;
    iovec piece{to, room};
    const ssize_t size = ::preadv2(device_.get(), &piece, 1, kNoOffset, RWF_NOWAIT);
    if (size < 0) {
      break;
    }
    const auto length = static_cast<std::size_t>(size);
    if (length < net::kEthernetSize || length > config_.max_frame) {
      ++counters_.rx_dropped;
      continue;
    }
    received_[count++] = {to, length};
    counters_.rx_bytes += length;
  }
  counters_.rx_frames += count;
  return {received_.data(), count};
}

std::size_t TapIo::transmit(std::span<const TxFrame> frames) {
  for (const TxFrame& frame : frames) {
    if (frame.size() > config_.max_frame) {
      ++counters_.tx_oversize;
      continue;
    }
    std::array<iovec, 4> pieces;
    int count = 0;
    for (const auto& piece : frame.pieces) {
      if (!piece.empty()) {
        pieces[static_cast<std::size_t>(count++)] = {const_cast<std::byte*>(piece.data()),
                                                     piece.size()};
      }
    }
    if (::pwritev2(device_.get(), pieces.data(), count, kNoOffset, RWF_NOWAIT) >= 0) {
      ++counters_.tx_frames;
      counters_.tx_bytes += frame.size();
    } else {
      ++counters_.tx_lost;  // the device is down, or its queue is full
    }
  }
  return frames.size();
}

bool TapIo::arm() {
  pollfd fd{device_.get(), POLLIN, 0};
  // A device that was deleted reports POLLERR for ever, and never a frame: sleep.
  return ::poll(&fd, 1, 0) <= 0 || (fd.revents & POLLIN) == 0;
}

}  // namespace weft::srd
