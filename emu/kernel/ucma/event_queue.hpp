// Owns the events that a program has not fetched yet, and a descriptor that is readable while there
// are any.
#pragma once

#include <cstdint>
#include <deque>

#include "emu/kernel/abi/ucma.hpp"
#include "emu/kernel/readable_pair.hpp"
#include "emu/roce/cm/types.hpp"

namespace weft::kernel {

// Peers cannot make it long: their requests are bounded by the backlog (cm::Manager).
class CmEventQueue {
 public:
  struct Entry {
    std::uint32_t context = 0;
    abi::ucma::EventReply reply{};
    bool brings_connection = false;
    roce::cm::Handle connection;  // without a context until it is fetched
    bool of_group = false;        // and not of the id: reply.id is the group's number
  };

  // The program's descriptor, or -1 with errno set.
  [[nodiscard]] int open() { return pair_.open(); }
  [[nodiscard]] StreamEnds* ends() const { return pair_.ends(); }
  [[nodiscard]] std::deque<Entry>& entries() { return entries_; }
  // After each change of entries().
  void signal() { pair_.signal(entries_.size()); }

 private:
  ReadablePair pair_;
  std::deque<Entry> entries_;
};

}  // namespace weft::kernel
