// Owns one direction of a shared-memory ring: its layout, and reading it safely although the peer
// may overwrite any of it at any time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "srd/io/ring_copy.hpp"

namespace weft::srd {

// The ring is a sequence of records in a byte area. A record is a length word, what is said about
// the frame, and the frame. There is no shared producer index: a length word of zero says "nothing
// yet", so that a small frame moves few cache lines. Positions are byte counts that never wrap;
// `consumed` is the only one that is shared.
//
// Which side writes which word:
//   producer  length words, what follows them, `notice`. The word after its last record is zero
//             before that record is published.
//   consumer  `consumed`.
//   both      `asleep`: the consumer sets it and takes it back, the producer clears it when it
//             rings; `notice`: the consumer clears it.
// A record, in cells of 64 bytes:
//
//   0              4        8       16       22
//   | length word  | flags  | time  | unused | frame ...          | padding to a cell |
//
// Either side may be hostile, so no shared word is read twice: each is read once, checked, and
// what is computed from it is kept in private memory. A length word carries the number of the lap
// around the ring: records of an earlier lap that still lie there are not taken for new ones.
//
// Wake-ups: the consumer sets `asleep`, makes a full fence, looks once more for a record, and only
// then sleeps. The producer publishes a record, makes a full fence, and then reads `asleep`. Each
// side writes its own word before it reads the other's, so at least one of them sees the other.
struct RingHeader {
  alignas(128) std::atomic<std::uint64_t> consumed;
  alignas(128) std::atomic<std::uint32_t> asleep;  // consumer: 1 = ring my bell after publishing
  alignas(128) std::atomic<std::uint32_t> notice;  // producer: there is news on the control socket
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(RingHeader) == 384);

inline constexpr std::size_t kRingHeaderBytes = 512;
inline constexpr std::size_t kRingCell = 64;
// With an IPv4 envelope of 42 bytes the transport header begins on a cache line, and so does the
// payload.
inline constexpr std::size_t kRingFrameOffset = 22;
// A length word is a length plus the number of the lap times kRingLap, modulo 2^32.
inline constexpr std::uint32_t kRingLap = std::uint32_t{1} << 17;
inline constexpr std::uint32_t kRingWrap = kRingLap - 1;  // as a length: go on at the beginning
inline constexpr std::size_t kMinRingBytes = std::size_t{1} << 14;
inline constexpr std::size_t kMaxRingBytes = std::size_t{1} << 28;

[[nodiscard]] constexpr std::size_t ring_record_bytes(std::size_t frame) {
  return (kRingFrameOffset + frame + kRingCell - 1) & ~(kRingCell - 1);
}

// What precedes a frame in its record, besides the length word.
struct RecordInfo {
  std::uint32_t flags = 0;
  // Nanoseconds. In rings from a process: when the frame left its sender. In rings from weftd, with
  // kRecordArrival: when it would have arrived if neither weftd nor the process had waited for a
  // core. 0: not known.
  std::int64_t time = 0;
};
// The beginning of a record as it lies in the ring. Only the length word is atomic: it publishes
// the rest.
struct RingRecord {
  std::uint32_t length_word;
  std::uint32_t flags;
  std::int64_t time;
};
static_assert(sizeof(RingRecord) <= kRingFrameOffset);
// The packet's checksums were not computed, because memory does not damage it. Code that sends the
// frame out of memory has to compute them first.
inline constexpr std::uint32_t kRecordUnchecked = 1;
// The time of the record is that of an arrival.
inline constexpr std::uint32_t kRecordArrival = 2;

// Writes frames, on one thread: reserve() a place, write the frame there, commit() it. A
// reservation that is not committed is forgotten. Once broken, it has no room any more.
class RingProducer {
 public:
  RingProducer() = default;
  RingProducer(std::byte* memory, std::size_t capacity)
      : header_(reinterpret_cast<RingHeader*>(memory)),
        area_(memory + kRingHeaderBytes),
        capacity_(capacity) {}

  // Makes the memory an empty ring: by its creator, before the other side has it.
  static void format(std::byte* memory) { new (memory) RingHeader{}; }

  // Where the frame of the next record goes, or nullptr while the ring lacks room for it.
  [[nodiscard]] std::byte* reserve(std::size_t frame) {
    const std::size_t bytes = ring_record_bytes(frame);
    const std::size_t offset = head_ & (capacity_ - 1);
    const std::size_t to_end = capacity_ - offset;
    // A record never reaches the end of the area: the zero length word behind it needs a cell.
    // What does not fit begins at offset 0, behind a wrap word.
    const std::size_t skip = bytes + kRingCell > to_end ? to_end : 0;
    if (!has_free(skip + bytes + kRingCell)) {
      return nullptr;
    }
    if (skip != 0) {
      wrap(offset);
    }
    return area_ + (head_ & (capacity_ - 1)) + kRingFrameOffset;
  }

  // Into the reserved place.
  void copy(std::byte* to, std::span<const std::byte> bytes) {
    copy_(to, bytes.data(), bytes.size());
  }

  // Publishes the reserved record with a frame of this size (at most what was reserved).
  void commit(std::size_t frame, const RecordInfo& info) {
    const std::size_t offset = head_ & (capacity_ - 1);
    const std::size_t bytes = ring_record_bytes(frame);
    length_word(offset + bytes).store(0, std::memory_order_relaxed);
    std::memcpy(area_ + offset + offsetof(RingRecord, flags), &info.flags, sizeof info.flags);
    std::memcpy(area_ + offset + offsetof(RingRecord, time), &info.time, sizeof info.time);
    length_word(offset).store(lap_ + static_cast<std::uint32_t>(frame), std::memory_order_release);
    head_ += bytes;
  }

  // Whether so many frames of that size are sure to fit, wherever the end of the area lies.
  [[nodiscard]] bool has_room(std::size_t frames, std::size_t frame) {
    const std::size_t bytes = ring_record_bytes(frame);
    return has_free((frames + 1) * bytes + 2 * kRingCell);
  }

  // How many frames of that size are sure to fit, up to `most`. 0 if they would fill less than an
  // eighth of the ring and less than a quarter of `most`: a nearly full ring should not cause
  // bursts of one frame.
  //
  // Here, where nothing is promised yet, a young ring that is read up may begin anew.
  [[nodiscard]] std::size_t room(std::size_t most, std::size_t frame) {
    if (head_ < kYoungLaps * capacity_) [[unlikely]] {
      begin_anew((most + 1) * ring_record_bytes(frame) + 2 * kRingCell);
    }
    if (has_room(most, frame)) [[likely]] {
      return most;
    }
    const std::size_t bytes = ring_record_bytes(frame);
    const std::size_t free = capacity_ - static_cast<std::size_t>(head_ - tail_);
    const std::size_t fit = free > 2 * kRingCell ? (free - 2 * kRingCell) / bytes : 0;
    const std::size_t worth = std::clamp<std::size_t>(capacity_ / bytes / 8, 1, most / 4);
    return fit > worth ? fit - 1 : 0;
  }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  // After a burst: true if the consumer sleeps and the caller must ring its bell.
  [[nodiscard]] bool must_ring() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return header_->asleep.load(std::memory_order_relaxed) != 0 &&
           header_->asleep.exchange(0, std::memory_order_relaxed) != 0;
  }
  void raise_notice() { header_->notice.store(1, std::memory_order_release); }

  // The last position of the consumer that the producer has read; it may have moved on.
  [[nodiscard]] std::uint64_t consumed() const { return tail_; }
  // The consumer published an impossible position.
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] bool empty() const {
    return header_->consumed.load(std::memory_order_relaxed) == head_;
  }
  [[nodiscard]] std::uint64_t position() const { return head_; }

 private:
  static constexpr std::uint64_t kYoungLaps = 16;

  [[nodiscard]] std::atomic_ref<std::uint32_t> length_word(std::size_t offset) {
    return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(area_ + offset));
  }
  // The pages of a ring are made when they are first written to, which takes longer than to fill
  // them. So the first laps of a ring end after a quarter of it, if nothing is under way there:
  // a peer that says little, or waits for each answer, is done before all pages are made. What is
  // left of the lap counts as written: `free`, the bytes that this leaves free, must be enough for
  // what the caller is about to promise, because a consumer that sleeps is not woken for a wrap.
  void begin_anew(std::size_t free) {
    const std::size_t offset = head_ & (capacity_ - 1);
    if (offset < std::max(capacity_ / 4, free) ||
        header_->consumed.load(std::memory_order_acquire) != head_) {
      return;
    }
    tail_ = head_;
    wrap(offset);
  }
  // The next record begins at offset 0.
  void wrap(std::size_t offset) {
    length_word(0).store(0, std::memory_order_relaxed);
    length_word(offset).store(lap_ + kRingWrap, std::memory_order_release);
    head_ += capacity_ - offset;
    lap_ += kRingLap;
  }
  // Reads the consumer's word only when the last value is not enough: it lies in a cache line of
  // the other core.
  [[nodiscard]] bool has_free(std::size_t bytes) {
    if (head_ + bytes <= tail_ + capacity_) [[likely]] {
      return !broken_;
    }
    const std::uint64_t seen = header_->consumed.load(std::memory_order_acquire);
    if (seen < tail_ || seen > head_) [[unlikely]] {
      broken_ = true;
      return false;
    }
    tail_ = seen;
    return head_ + bytes <= tail_ + capacity_;
  }

  RingHeader* header_ = nullptr;
  std::byte* area_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t head_ = 0;
  std::uint32_t lap_ = 0;   // as length words have it
  std::uint64_t tail_ = 0;  // last valid value of `consumed`
  RingCopy copy_;
  bool broken_ = false;
};

// Reads frames, on one thread. Frames stay where they are until release(), and their room is not
// written by a correct producer until then.
class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(std::byte* memory, std::size_t capacity, std::size_t max_frame)
      : header_(reinterpret_cast<RingHeader*>(memory)),
        area_(memory + kRingHeaderBytes),
        capacity_(capacity),
        max_frame_(max_frame) {}

  // The next frame, or an empty span when there is none (or the ring is broken). A hostile peer can
  // change its bytes while they are read, but neither its length nor its place.
  [[nodiscard]] std::span<const std::byte> next(RecordInfo& info) {
    const auto frame = peek(info);
    if (!frame.empty()) {
      pop(frame);
    }
    return frame;
  }

  // The same in two steps: a frame that is not popped is seen again.
  [[nodiscard]] std::span<const std::byte> peek(RecordInfo& info) {
    std::size_t offset = position_ & (capacity_ - 1);
    std::uint32_t length = length_at(offset);
    if (length == 0 || broken_) [[likely]] {
      return {};
    }
    if (length == kRingWrap) {
      position_ += capacity_ - offset;
      lap_ += kRingLap;
      offset = 0;
      length = length_at(0);
      if (length == 0) {
        return {};
      }
    }
    const std::size_t bytes = ring_record_bytes(length);
    if (length > max_frame_ || offset + bytes + kRingCell > capacity_) [[unlikely]] {
      broken_ = true;
      return {};
    }
    std::memcpy(&info.flags, area_ + offset + offsetof(RingRecord, flags), sizeof info.flags);
    std::memcpy(&info.time, area_ + offset + offsetof(RingRecord, time), sizeof info.time);
    return {area_ + offset + kRingFrameOffset, length};
  }
  void pop(std::span<const std::byte> frame) { position_ += ring_record_bytes(frame.size()); }

  // Gives the room of all frames taken so far back to the producer, once per burst: each store to
  // `consumed` takes its cache line away from the producer.
  void release() { release_to(position_); }
  // The same up to a position where a frame begins: that one and later ones are still needed.
  void release_to(std::uint64_t position) {
    if (released_ != position) {
      released_ = position;
      header_->consumed.store(position, std::memory_order_release);
    }
  }
  // Of the frame that peek() has shown.
  [[nodiscard]] std::uint64_t position() const { return position_; }
  // Starts to fetch the record that the next peek() will show.
  void prefetch() const {
    const std::byte* next = area_ + (position_ & (capacity_ - 1));
    __builtin_prefetch(next);
    __builtin_prefetch(next + kRingCell);
  }

  [[nodiscard]] bool empty() const { return length_at(position_ & (capacity_ - 1)) == 0; }
  // Declares the consumer asleep or awake. Before it really sleeps it must check empty() behind a
  // full fence (see the head of this file).
  void set_asleep(bool asleep) { header_->asleep.store(asleep ? 1 : 0, std::memory_order_relaxed); }
  // Whether the producer has raised a notice since the last call.
  [[nodiscard]] bool take_notice() {
    return header_->notice.load(std::memory_order_relaxed) != 0 &&
           header_->notice.exchange(0, std::memory_order_acquire) != 0;
  }

  // The producer wrote an impossible record.
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  // 0: no record of this lap begins there.
  [[nodiscard]] std::uint32_t length_at(std::size_t offset) const {
    auto& word = *reinterpret_cast<std::uint32_t*>(area_ + offset);
    const std::uint32_t length =
        std::atomic_ref<std::uint32_t>(word).load(std::memory_order_acquire) - lap_;
    return length < kRingLap ? length : 0;
  }

  RingHeader* header_ = nullptr;
  std::byte* area_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t max_frame_ = 0;
  std::uint64_t position_ = 0;
  std::uint32_t lap_ = 0;  // as length words have it
  std::uint64_t released_ = 0;
  bool broken_ = false;
};

}  // namespace weft::srd
