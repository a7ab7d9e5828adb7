// Owns a readable descriptor of events: a completion channel, or the asynchronous events of a
// device file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace weft::kernel {

// The application holds one end of a stream socket pair, so that read, poll and epoll are native;
// we hold the other one, and a duplicate of the application's to take back what it has not read
// yet. Under the device's lock. Nothing here waits for the application: what does not fit into the
// socket waits in `backlog_`, and goes with the next flush_backlog().
class EventChannel {
 public:
  // Completion events are 8 bytes (the CQ's user handle), asynchronous ones 16 (element, type,
  // reserved).
  struct Record {
    std::uint64_t element = 0;
    std::uint32_t type = 0;
    std::uint32_t reserved = 0;
  };
  enum class Kind : std::uint8_t { completion = 8, asynchronous = 16 };

  explicit EventChannel(Kind kind) : record_size_(static_cast<std::size_t>(kind)) {}
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  // Makes the pair. The descriptor that goes to the application, or -1 with errno set.
  [[nodiscard]] int open();

  void send(const Record& record);
  // Takes back what the application has not read about the object `element`, and returns how many
  // that were. The events of others stay, in their order, as do those of the port.
  std::uint32_t withdraw(std::uint64_t element);
  // Sends what did not fit into the socket before. Cheap when there is nothing.
  void flush_backlog() {
    while (!backlog_.empty() && send_now(backlog_.front())) {
      backlog_.pop_front();
    }
  }

 private:
  [[nodiscard]] bool send_now(const Record& record);

  std::size_t record_size_;
  int ours_ = -1;
  int theirs_ = -1;
  std::deque<Record> backlog_;
};

}  // namespace weft::kernel
