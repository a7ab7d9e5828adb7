// Owns the queue of notices.
#include "emu/daemon/notices.hpp"

#include <utility>

namespace weft::daemon {

Result<void> Notices::open() {
  auto bell = srd::create_event_fd();
  if (!bell) {
    return tl::unexpected(bell.error());
  }
  bell_ = std::move(*bell);
  return {};
}

bool Notices::push(const Notice& notice) {
  const std::size_t at = written_.load(std::memory_order_relaxed);
  if (at - read_.load(std::memory_order_acquire) == kCapacity) {
    return false;
  }
  notices_[at % kCapacity] = notice;
  written_.store(at + 1, std::memory_order_release);
  pushed_ = true;
  return true;
}

void Notices::wake_reader() {
  pushed_ = false;
  if (!rung_.exchange(true)) {
    srd::signal_event_fd(bell_.get());
  }
}

void Notices::clear_bell() {
  srd::clear_event_fd(bell_.get());
  rung_.store(false);  // before the first pop(): what is pushed from now on rings again
}

bool Notices::pop(Notice& notice) {
  const std::size_t at = read_.load(std::memory_order_relaxed);
  if (at == written_.load(std::memory_order_acquire)) {
    return false;
  }
  notice = notices_[at % kCapacity];
  read_.store(at + 1, std::memory_order_release);
  return true;
}

}  // namespace weft::daemon
