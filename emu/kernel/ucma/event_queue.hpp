// Owns the events that a program has not fetched yet, and a descriptor that is readable while there
// are any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "emu/kernel/abi/ucma.hpp"
#include "emu/roce/cm/types.hpp"

namespace weft::kernel {

// One end of a stream socket pair is the program's descriptor, so that poll, epoll and O_NONBLOCK
// are native. A byte lies in it for each event, for epoll's edges, as far as the socket has room.
class CmEventQueue {
 public:
  struct Entry {
    std::uint32_t context = 0;
    abi::ucma::EventReply reply{};
    bool brings_connection = false;
    roce::cm::Handle connection;  // without a context until it is fetched
    bool of_group = false;        // and not of the id: reply.id is the group's number
  };

  CmEventQueue() = default;
  ~CmEventQueue();
  CmEventQueue(const CmEventQueue&) = delete;
  CmEventQueue& operator=(const CmEventQueue&) = delete;

  // The program's descriptor, or -1 with errno set.
  [[nodiscard]] int open();
  [[nodiscard]] std::deque<Entry>& entries() { return entries_; }
  // After each change of entries().
  void signal();

 private:
  int ours_ = -1;
  int theirs_ = -1;  // a duplicate
  std::size_t bytes_ = 0;
  std::deque<Entry> entries_;
};

}  // namespace weft::kernel
