// Owns the sending end of a connection: sends that wait for a buffer, buffers that wait for a send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "integration/nccl/core/links.hpp"

namespace weft::nccl {

// A send takes the first unused buffer with its tag, of the oldest group that has one; sends of one
// tag keep their order. Announcements arrive in any order: a group counts once all before it are
// here. The bytes are lent until the request ends, and are written straight into the buffer.
class SendComm : public Comm {
 public:
  static constexpr std::size_t kMaxSends = 256;

  bool exact = false;  // a message must fill its buffer; otherwise it may be shorter

  SendComm() { waiting_.reserve(kMaxSends); }

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
  enum class Written : std::uint8_t { yes, no_room, wrong_size };

  [[nodiscard]] Group& group(std::uint32_t sequence) {
    return groups_[sequence % Immediate::kSlots];
  }
  [[nodiscard]] std::optional<Place> find(std::int64_t tag);
  [[nodiscard]] Written write(Links& links, std::uint32_t index, Place place);
  void end_waiting(Outcome outcome);

  std::uint32_t listener_ = 0;
  std::uint64_t secret_ = 0;
  RequestPool<kMaxSends> requests_;
  std::array<Record, kMaxSends> records_{};  // by index of the request
  std::vector<std::uint32_t> waiting_;       // indices, oldest first
  std::array<Group, Immediate::kSlots> groups_{};
  std::uint32_t first_ = 0;  // the oldest group that has an unused entry
  std::uint32_t known_ = 0;  // all groups before it have been announced
};

}  // namespace weft::nccl
