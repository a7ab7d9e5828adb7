// Owns a readable descriptor of events: a completion channel, or the asynchronous events of a
// device file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "emu/kernel/stream_pair.hpp"

namespace weft::kernel {

// The application reads the records from its end of the pair. Under the device's lock. Nothing here
// waits for the application: what does not fit into the socket waits in `backlog_`, and goes with
// the next flush_backlog().
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

  // The descriptor that goes to the application, or -1 with errno set.
  [[nodiscard]] int open() { return pair_.open(); }

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
  StreamPair pair_;
  std::deque<Record> backlog_;
};

}  // namespace weft::kernel
