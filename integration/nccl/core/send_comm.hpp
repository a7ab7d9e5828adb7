// Owns the sending end of a connection: sends that wait for a buffer, buffers that wait for a send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "integration/nccl/core/eager_window.hpp"
#include "integration/nccl/core/links.hpp"

namespace weft::nccl {

// A send takes the first unused buffer with its tag, of the oldest group that has one; sends of one
// tag keep their order. Announcements arrive in any order: a group counts once all before it are
// here. The bytes are lent until the request ends, and are written straight into the buffer.
//
// A short message is eager: it is copied and sent at once, and its request has ended. The receiver
// finds its buffer by the same rule, among those that are not filled. So no message is eager while
// an earlier one waits for its buffer or is being written: it would take that buffer. When its own
// buffer is announced, the eager message uses it up.
// Where sizes must be equal none is eager, because a request that has ended cannot report that they
// were not. Nor is one on a device that tells receives early: a caller whose requests have all
// ended calls test() no more, and so makes no progress for what it waits for.
class SendComm : public Comm {
 public:
  static constexpr std::size_t kMaxSends = 256;
  // A message without a buffer. `eager`: its bytes are on their way, and it has no record any more.
  struct Waiting {
    std::optional<std::uint32_t> eager;  // its number
    std::uint32_t index = 0;             // else: of its request
    std::uint32_t size = 0;
    std::int64_t tag = 0;
  };
  static constexpr std::size_t kMaxWaiting = kMaxSends + kEagerWindow;

  bool exact = false;        // a message must fill its buffer; otherwise it may be shorter
  bool goodbye_due = false;  // closed, and waits until no eager message is under way

  SendComm() { waiting_.reserve(kMaxWaiting); }

  // Asks a listener to be connected.
  void ask(Links& links, std::uint32_t listener, std::uint64_t secret);
  // Asks again: the partner's process has begun a later life, which never heard the question.
  void ask_again(Links& links) { ask(links, listener_, secret_); }

  // `out` is null if there is no room: ask again.
  [[nodiscard]] Outcome post(Links& links, std::byte* data, std::size_t size, std::int64_t tag,
                             const CommRegion* region, Request*& out);
  // False: the peer does what no receiving end does.
  [[nodiscard]] bool on_announce(Links& links, const ControlHeader& header,
                                 std::span<const std::byte> message);
  void on_written(Links& links, std::uint32_t index, srd::Status status);
  // The engine has delivered the eager message at this place in the window, or has given up.
  void on_eager_sent(std::uint32_t place) {
    --in_engine;
    eager_.acknowledge(place);
  }
  // A goodbye could still overtake an eager message.
  [[nodiscard]] bool has_eager_under_way() const { return eager_.has_unacknowledged(); }
  // Writes what has a buffer. False: the engine had no room, so try again.
  bool advance(Links& links);
  void desert();  // the other end was closed
  void fail(Outcome outcome);
  // Gives the memory back that unfinished sends have lent: of one region, or of all (null).
  void revoke(Links& links, const CommRegion* region);

 private:
  // What was posted, by the request's index; valid while the request is pending.
  struct Record {
    std::byte* data = nullptr;
    std::uint32_t size = 0;
    std::int64_t tag = 0;
    const CommRegion* region = nullptr;
  };
  // A buffer of the partner's, as announced.
  struct Entry {
    std::uint64_t address = 0;
    srd::RegionKey key;
    std::uint32_t size = 0;
    std::int64_t tag = 0;
  };
  struct Group {
    bool known = false;
    std::uint8_t unused = 0;  // a bit for each entry
    std::array<Entry, kMaxGroup> entries{};
  };
  struct Place {
    std::uint32_t sequence = 0;
    std::uint8_t sub = 0;
  };
  // A partner has kSlots groups open. Before them may be groups whose announcements are late, and
  // which eager messages have filled.
  static constexpr std::uint32_t kAnnounced = Immediate::kSlots + kEagerWindow;
  static constexpr std::uint32_t kGroups = 128;  // a power of two, as sequence numbers wrap
  static_assert(kGroups >= kAnnounced);

  [[nodiscard]] Group& group(std::uint32_t sequence) { return groups_[sequence % kGroups]; }
  [[nodiscard]] bool send_eagerly(Links& links, std::span<const std::byte> bytes, std::int64_t tag);
  void take_into_use();
  [[nodiscard]] std::optional<Place> find(std::int64_t tag);
  [[nodiscard]] bool fits(std::size_t size, Place place) {
    const std::uint32_t room = group(place.sequence).entries[place.sub].size;
    return exact ? size == room : size <= room;
  }
  [[nodiscard]] bool write(Links& links, std::uint32_t index, Place place);
  void end_waiting(Outcome outcome);

  std::uint32_t listener_ = 0;
  std::uint64_t secret_ = 0;
  RequestPool<kMaxSends> requests_;
  std::array<Record, kMaxSends> records_{};  // by index of the request
  std::vector<Waiting> waiting_;             // oldest first
  std::uint32_t unsent_ = 0;                 // of those
  std::uint32_t writes_ = 0;                 // that the engine has
  EagerWindow eager_;
  std::array<Group, kGroups> groups_{};
  std::uint32_t first_{kFirstSequence};  // the oldest group that has an unused entry
  std::uint32_t known_{kFirstSequence};  // all groups before it have been announced
};

}  // namespace weft::nccl
