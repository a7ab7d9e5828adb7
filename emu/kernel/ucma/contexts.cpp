// Owns finding ids, and the way of an event to its file.
#include "emu/kernel/ucma/contexts.hpp"

#include <algorithm>
#include <cerrno>

#include "emu/kernel/ucma/file.hpp"

namespace weft::kernel {

void Contexts::dispatch(roce::cm::Manager& manager) {
  roce::cm::Event event;
  while (manager.next_event(event)) {
    const auto found = by_handle_.find(event.id.value());
    Context* const context = found == by_handle_.end() ? nullptr : &contexts_.at(found->second);
    // An id that a listener's request has made has no uid before the program accepts it, and gets
    // no events until then: it would not know what they are about. The request itself is its
    // listener's event.
    const bool heard = context != nullptr &&
                       (context->uid != 0 || event.kind == roce::cm::EventKind::connect_request);
    if (heard) {
      context->file->queue(*context, event);
    }
  }
}

// Through the files, so that connection requests in their queues go as well. Behind each number is
// an unused id then, which takes the place of the one that has just gone.
void Contexts::leave_all(roce::cm::Manager& manager, TimePoint now) {
  by_handle_.clear();
  for (auto& [id, context] : contexts_) {
    context.file->part(manager, now, context);
    context.handle = manager.create(roce::cm::PortSpace::tcp, roce::cm::Transport::rc).value();
    by_handle_.emplace(context.handle.value(), id);
  }
}

Contexts::Context& Contexts::add(CmFile& file, roce::cm::Handle handle, std::uint64_t uid) {
  const std::uint32_t id = ids_.take();
  by_handle_.emplace(handle.value(), id);
  return contexts_.emplace(id, Context{id, &file, handle, uid, 0}).first->second;
}

Contexts::Context* Contexts::find(std::uint32_t id) {
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? nullptr : &found->second;
}

// The error of an id of another file is not that of one that does not exist, as in the kernel.
int Contexts::find(const CmFile& file, std::uint32_t id, Context*& found) {
  found = find(id);
  if (found == nullptr) {
    return ENOENT;
  }
  return found->file == &file ? 0 : EINVAL;
}

Contexts::Context* Contexts::first_of(const CmFile& file) {
  const auto found = std::ranges::find_if(
      contexts_, [&file](const auto& entry) { return entry.second.file == &file; });
  return found == contexts_.end() ? nullptr : &found->second;
}

Contexts::Group* Contexts::add_group(std::uint32_t context, std::uint64_t uid) {
  if (groups_.size() >= kMaxGroups) {
    return nullptr;
  }
  const std::uint32_t number = group_numbers_.take();
  return &groups_.emplace(number, Group{number, context, uid, 0}).first->second;
}

Contexts::Group* Contexts::find_group(std::uint32_t number) {
  const auto found = groups_.find(number);
  return found == groups_.end() ? nullptr : &found->second;
}

void Contexts::remove_group(std::uint32_t number) {
  groups_.erase(number);
  group_numbers_.give_back(number);
}

// With the groups that it has joined.
void Contexts::remove(std::uint32_t id) {
  std::erase_if(groups_, [&](const auto& entry) {
    const bool left = entry.second.context == id;
    if (left) {
      group_numbers_.give_back(entry.first);
    }
    return left;
  });
  const auto found = contexts_.find(id);
  by_handle_.erase(found->second.handle.value());
  contexts_.erase(found);
  ids_.give_back(id);
}

}  // namespace weft::kernel
