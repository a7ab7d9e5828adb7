// Owns what has ended and was not taken yet, and the two budgets that keep room for more.
#pragma once

#include <cstddef>

#include "srd/base/ring_queue.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/requests.hpp"

namespace weft::srd {

// Requests and receives have a budget of `limit` completions each: what arrives must find room even
// if all requests of ours are under way. With one budget for both, two ends that are busy with each
// other would put off each other's messages for ever. A request books its place when it is
// accepted, a receive when it completes. So of `limit` requests under way or completed, each finds
// room.
//
// Receives that are flushed or revoked come on top: their owner has asked for it.
class CompletionBacklog {
 public:
  explicit CompletionBacklog(std::size_t limit) : limit_(limit) {}

  // nullptr if nothing has ended.
  [[nodiscard]] const Completion* next() const {
    return completions_.empty() ? nullptr : &completions_.front();
  }
  // There must be one.
  void pop() {
    receives_ -= is_receive(completions_.front().kind) ? 1 : 0;
    completions_.pop();
  }

  // While `outstanding` requests are under way.
  [[nodiscard]] bool has_room_for_request(std::size_t outstanding) const {
    return completions_.size() - receives_ + outstanding < limit_;
  }
  [[nodiscard]] bool has_room_for_receive(std::size_t outstanding) const {
    if (mutated(Mutation::complete_without_bound)) {
      return true;
    }
    return mutated(Mutation::shared_completion_budget) ? completions_.size() + outstanding < limit_
                                                       : receives_ < limit_;
  }

  // The completion of a request, to be filled in: its kind is not one of a receive.
  [[nodiscard]] Completion& push_request() {
    Completion& completion = completions_.push_slot();
    completion = Completion{};
    return completion;
  }
  // The completion of a receive, to be filled in: its kind stays one of a receive.
  [[nodiscard]] Completion& push_receive() {
    ++receives_;
    Completion& completion = completions_.push_slot();
    completion = Completion{};
    completion.kind = Completion::Kind::receive;
    return completion;
  }

 private:
  static constexpr bool is_receive(Completion::Kind kind) {
    return kind == Completion::Kind::receive || kind == Completion::Kind::receive_write_imm;
  }

  std::size_t limit_;
  RingQueue<Completion> completions_;
  std::size_t receives_ = 0;  // among these
};

}  // namespace weft::srd
