// Owns the doubly linked list of objects in a slab: nothing is allocated, anything is taken out in
// constant time.
#pragma once

#include <cstdint>

namespace weft {

// An object's neighbours in one list. An object with several of these can be in several lists.
struct ChainLinks {
  std::uint32_t before = 0xFFFFFFFF;
  std::uint32_t after = 0xFFFFFFFF;
};

// The slab is passed to each call, because a list must be small: there are several for each peer.
// So is the object itself, which callers have found already.
template <class Objects, class Object, ChainLinks Object::*kLinks>
class IndexChain {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  [[nodiscard]] bool empty() const { return head_ == kNone; }
  [[nodiscard]] std::uint32_t front() const { return head_; }
  [[nodiscard]] static std::uint32_t after(const Objects& objects, std::uint32_t index) {
    return (objects[index].*kLinks).after;
  }

  // `object` is objects[index], in each of these.
  void push_back(Objects& objects, std::uint32_t index, Object& object) {
    object.*kLinks = {tail_, kNone};
    (empty() ? head_ : (objects[tail_].*kLinks).after) = index;
    tail_ = index;
  }
  void push_front(Objects& objects, std::uint32_t index, Object& object) {
    (object.*kLinks).after = head_;
    (empty() ? tail_ : (objects[head_].*kLinks).before) = index;
    head_ = index;
  }
  // It must be in this list.
  void remove(Objects& objects, std::uint32_t index, const Object& object) {
    const ChainLinks links = object.*kLinks;
    if (index == head_) [[likely]] {
      head_ = links.after;
      return;
    }
    (objects[links.before].*kLinks).after = links.after;
    (links.after == kNone ? tail_ : (objects[links.after].*kLinks).before) = links.before;
  }
  // visit(index) may take the object out, but no other.
  template <class Visit>
  void for_each(const Objects& objects, const Visit& visit) const {
    for (std::uint32_t index = head_; index != kNone;) {
      const std::uint32_t following = after(objects, index);
      visit(index);
      index = following;
    }
  }

 private:
  // Mostly the first one is taken out, so that has to touch no other: what the first one has before
  // it means nothing, and neither does the tail of an empty list.
  std::uint32_t head_ = kNone;
  std::uint32_t tail_ = kNone;
};

}  // namespace weft
