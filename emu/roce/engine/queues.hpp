// Owns the queues of work of a queue pair and of a shared receive queue: all their memory is
// allocated when they are made.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/roce/engine/types.hpp"

namespace weft::roce {

// A posted send request and how far it has come.
struct SendWqe {
  WorkRequest request;
  std::uint32_t length = 0;
  std::uint32_t segments = 0;
  std::uint32_t first_psn = 0;
  std::uint32_t last_psn = 0;
  bool begun = false;  // it has PSNs, or has been executed
  bool local = false;  // it has no packets
};

// From head() to tail() lies what is posted and not completed. Positions count up for ever;
// Requester::next is one of them. Inline data is copied when it is posted, segments are only named.
class SendQueue {
 public:
  SendQueue(std::uint32_t slots, std::uint32_t max_segments, std::uint32_t max_inline)
      : wqes_(slots),
        segments_(std::size_t{slots} * max_segments),
        inline_(std::size_t{slots} * max_inline),
        max_segments_(max_segments),
        max_inline_(max_inline) {}

  [[nodiscard]] bool full() const { return tail_ - head_ == wqes_.size(); }
  [[nodiscard]] std::uint64_t head() const { return head_; }
  [[nodiscard]] std::uint64_t tail() const { return tail_; }
  [[nodiscard]] SendWqe& at(std::uint64_t position) { return wqes_[position % wqes_.size()]; }
  [[nodiscard]] std::span<const Sge> segments(std::uint64_t position) {
    return {segments_.data() + position % wqes_.size() * max_segments_, at(position).segments};
  }
  [[nodiscard]] std::span<const std::byte> inline_data(std::uint64_t position) {
    return {inline_.data() + position % wqes_.size() * max_inline_, at(position).length};
  }

  // False: too many segments, or too much inline data. Not when full().
  [[nodiscard]] bool push(const WorkRequest& request, std::span<const Sge> segments,
                          std::span<const std::byte> inline_data) {
    const bool is_inline = (request.flags & kInline) != 0;
    if (is_inline ? inline_data.size() > max_inline_ : segments.size() > max_segments_) {
      return false;
    }
    SendWqe& wqe = at(tail_);
    wqe = SendWqe{};
    wqe.request = request;
    std::uint64_t length = 0;
    if (is_inline) {
      length = inline_data.size();
      std::ranges::copy(inline_data, inline_.begin() + static_cast<std::ptrdiff_t>(
                                                           tail_ % wqes_.size() * max_inline_));
    } else {
      wqe.segments = static_cast<std::uint32_t>(segments.size());
      std::ranges::copy(segments, segments_.begin() + static_cast<std::ptrdiff_t>(
                                                          tail_ % wqes_.size() * max_segments_));
      for (const Sge& sge : segments) {
        length += sge.length;
      }
    }
    // What is too long is refused when its turn comes.
    wqe.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kMaxMessage + 1ULL));
    ++tail_;
    return true;
  }
  void pop() { ++head_; }
  void clear() { head_ = tail_; }

 private:
  std::vector<SendWqe> wqes_;
  std::vector<Sge> segments_;
  std::vector<std::byte> inline_;
  std::uint32_t max_segments_;
  std::uint32_t max_inline_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

// A posted receive, copied out of its queue.
struct Receive {
  std::uint64_t wr_id = 0;
  std::uint32_t segments = 0;
  std::uint64_t length = 0;
  std::array<Sge, kMaxSge> sges;
};

// Receives that wait for messages, of a queue pair or of an SRQ.
class ReceiveQueue {
 public:
  ReceiveQueue(std::uint32_t slots, std::uint32_t max_segments)
      : entries_(slots), segments_(std::size_t{slots} * max_segments), most_(max_segments) {}

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(tail_ - head_); }
  [[nodiscard]] bool empty() const { return head_ == tail_; }
  // False: it is full, or there are too many segments.
  [[nodiscard]] bool push(std::uint64_t wr_id, std::span<const Sge> segments) {
    if (tail_ - head_ == entries_.size() || segments.size() > most_) {
      return false;
    }
    const std::size_t slot = tail_ % entries_.size();
    std::uint64_t length = 0;
    for (const Sge& sge : segments) {
      length += sge.length;
    }
    entries_[slot] = {wr_id, static_cast<std::uint32_t>(segments.size()), length};
    std::ranges::copy(segments, segments_.begin() + static_cast<std::ptrdiff_t>(slot * most_));
    ++tail_;
    return true;
  }
  // Not when empty().
  [[nodiscard]] std::uint64_t front_length() const {
    return entries_[head_ % entries_.size()].length;
  }
  void take(Receive& receive) {
    const std::size_t slot = head_ % entries_.size();
    receive.wr_id = entries_[slot].wr_id;
    receive.segments = entries_[slot].segments;
    receive.length = entries_[slot].length;
    std::copy_n(segments_.data() + slot * most_, receive.segments, receive.sges.begin());
    ++head_;
  }
  void clear() { head_ = tail_; }

  // SRQ: an event when fewer remain; 0: none.
  std::uint32_t limit = 0;

 private:
  struct Entry {
    std::uint64_t wr_id = 0;
    std::uint32_t segments = 0;
    std::uint64_t length = 0;
  };
  std::vector<Entry> entries_;
  std::vector<Sge> segments_;
  std::uint32_t most_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace weft::roce
