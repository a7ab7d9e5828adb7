// Owns sending events and taking unread ones back.
#include "emu/kernel/uverbs/event_channel.hpp"

#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>

#include "emu/kernel/abi/uverbs.hpp"
#include "emu/kernel/native.hpp"

namespace weft::kernel {
namespace {

// The element of such an event is the port's number, which may equal an object's handle.
bool of_port(std::uint32_t type) {
  return type == static_cast<std::uint32_t>(abi::AsyncEvent::port_active) ||
         type == static_cast<std::uint32_t>(abi::AsyncEvent::port_error);
}

}  // namespace

// False: there is no room now. True also if no end is left to read it: the event is lost, as with a
// closed file.
bool EventChannel::send_now(const Record& record) {
  // The application may have closed its end: then no thread waits, and SIGPIPE must not be raised.
  return native::send(pair_.ours(), &record, record_size_, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ||
         (errno != EAGAIN && errno != ENOBUFS);
}

void EventChannel::send(const Record& record) {
  if (!backlog_.empty() || !send_now(record)) {
    backlog_.push_back(record);
  }
}

std::uint32_t EventChannel::withdraw(std::uint64_t element) {
  std::deque<Record> unread;
  Record record{};
  while (native::receive(pair_.duplicate(), &record, record_size_, MSG_DONTWAIT) ==
         static_cast<ssize_t>(record_size_)) {
    unread.push_back(record);
    record = Record{};
  }
  unread.insert(unread.end(), backlog_.begin(), backlog_.end());
  backlog_.clear();
  std::uint32_t withdrawn = 0;
  for (const Record& old : unread) {
    if (old.element == element && !of_port(old.type)) {
      ++withdrawn;
    } else {
      send(old);
    }
  }
  return withdrawn;
}

}  // namespace weft::kernel
