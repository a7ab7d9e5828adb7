// Owns the requests under way, and the answers to peers' reads: from the moment they are accepted
// to the one completion that each request gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "srd/base/flat_map.hpp"
#include "srd/engine/completion_backlog.hpp"
#include "srd/engine/counters.hpp"
#include "srd/engine/endpoint.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/peer_table.hpp"
#include "srd/engine/work.hpp"

namespace weft::srd {

// What holds for each work between begin and end:
// - It is in the list of its peer. A request is in that of its endpoint as well and is counted by
//   outstanding(); an answer is neither.
// - A read is found by its number, which no other read of the same peer has. [wire 4.5]
// - It ends when no packet of it is outstanding, it is in no queue, and (a read) its bytes or the
//   reason for their absence have come: finish_if_done(). Or it is abandoned, wherever it stands.
// Answers have as many records of their own as requests, or readers could keep us from posting.
class WorkTable {
 public:
  struct Neighbours {
    PeerTable& peers;
    EndpointTable& endpoints;
    CompletionBacklog& completions;
    Counters& counters;
  };

  WorkTable(std::uint32_t max_requests, const Neighbours& neighbours)
      : max_requests_(max_requests), neighbours_(neighbours), works_(2 * max_requests) {}

  [[nodiscard]] Work& operator[](std::uint32_t index) { return works_[index]; }
  [[nodiscard]] const Work& operator[](std::uint32_t index) const { return works_[index]; }
  // For the lists of works that peers and endpoints keep.
  [[nodiscard]] WorkSlab& slab() { return works_; }
  [[nodiscard]] const WorkSlab& slab() const { return works_; }

  // Requests accepted that have not ended.
  [[nodiscard]] std::size_t outstanding() const { return requests_; }
  // Peers with such requests.
  [[nodiscard]] std::size_t busy_peers() const { return busy_peers_; }

  // --- Beginning
  struct NewWork {
    std::uint32_t index = WorkSlab::kNone;
    Work* work = nullptr;  // nullptr: there is no room
  };
  [[nodiscard]] [[gnu::always_inline]] NewWork begin_request(Peer& peer, Endpoint& endpoint,
                                                             WorkKind kind, Qpn destination,
                                                             std::uint32_t length) {
    const std::size_t room =
        mutated(Mutation::refuse_early) ? (max_requests_ + 1) / 2 : max_requests_;
    if (requests_ >= room || !neighbours_.completions.has_room_for_request(requests_)) {
      return {};
    }
    const std::uint32_t index = works_.allocate();
    if (index == WorkSlab::kNone) {
      return {};
    }
    Work& work = works_[index];
    work.begin(kind, peer.id, endpoint.qpn, destination, length);
    ++requests_;
    busy_peers_ += peer.works.requests() == 0 ? 1 : 0;
    peer.works.add(works_, index, work);
    endpoint.works.add(works_, index, work);
    return {index, &work};
  }
  // If there is no room, the oldest answer to a peer that was given up makes room for it.
  [[nodiscard]] NewWork begin_response(Peer& peer, Qpn source, Qpn destination,
                                       std::uint32_t length);
  // Gives a read the next number that is free, from `next` on: numbers come round after 2^32 reads
  // of this peer, and then some may still be in use.
  void number_read(std::uint32_t index, Work& work, std::uint32_t& next) {
    do {
      work.message = next++;
    } while (find_read(work.peer, work.message) != kNoRead);
    reads_by_number_.insert(read_key(work.peer, work.message), index);
  }
  static constexpr std::uint32_t kNoRead = FlatMap<std::uint64_t>::kAbsent;
  [[nodiscard]] std::uint32_t find_read(PeerId peer, std::uint32_t number) const {
    return reads_by_number_.find(read_key(peer, number));
  }

  // --- Ending. `work` is (*this)[index], in these.
  void finish_if_done(std::uint32_t index, Work& work) {
    if (work.outstanding == 0 && !work.queued() && (work.kind != WorkKind::read || work.answered)) {
      complete(index, work, work.status);
    }
  }
  // Ends a work wherever it stands. Its sequence numbers count as settled, which the peer learns
  // from the next packet (`back` in its header), and its memory is not read again.
  void abandon(std::uint32_t index, Status status);
  // Those of one peer for which concerns(work) holds.
  template <class Concerns>
  void abandon_if(const Peer& peer, Status status, const Concerns& concerns) {
    peer.works.for_each(works_, [&](std::uint32_t index) {
      if (concerns(works_[index])) {
        abandon(index, status);
      }
    });
  }

  // --- Answers to a peer that was given up. They are kept until their room is needed: the peer may
  // be alive and wait for them, and only what we send does not reach it.
  void mute(const Peer& peer);
  void unmute(const Peer& peer);

 private:
  static constexpr std::uint64_t read_key(PeerId peer, std::uint32_t number) {
    return std::uint64_t{peer.value()} << 32 | number;
  }
  [[nodiscard]] bool has_room_for_response() const {
    return works_.used() - requests_ < max_requests_;
  }
  void complete(std::uint32_t index, Work& work, Status status);
  void tell_user(const Work& work, Status status);
  void release(std::uint32_t index, Work& work);
  void release_read(Peer& peer, const Work& work);

  std::uint32_t max_requests_;
  Neighbours neighbours_;
  WorkSlab works_;
  FlatMap<std::uint64_t> reads_by_number_;  // by read_key()
  std::size_t requests_ = 0;
  std::size_t busy_peers_ = 0;
  MutedResponses muted_responses_;
};

}  // namespace weft::srd
