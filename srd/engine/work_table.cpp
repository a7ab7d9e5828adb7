// Owns the end of works: done, refused, cancelled, or gone with their peer.
#include "srd/engine/work_table.hpp"

#include "srd/base/check.hpp"
#include "srd/engine/engine_parts.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

Completion::Kind completion_kind(WorkKind kind) {
  switch (kind) {
    case WorkKind::write:
      return Completion::Kind::write;
    case WorkKind::read:
      return Completion::Kind::read;
    default:
      return Completion::Kind::send;
  }
}

}  // namespace

inline void WorkTable::release_read(Peer& peer, const Work& work) {
  reads_by_number_.erase(read_key(peer.id, work.message));
  if (work.all_sent()) {
    peer.sender->end_read();
  }
}

[[gnu::always_inline]] inline void WorkTable::release(std::uint32_t index, Work& work) {
  Peer& peer = neighbours_.peers[work.peer];
  peer.works.remove(works_, index, work);
  if (work.is_response()) {
    if (peer.sender->muted()) {
      muted_responses_.remove(works_, index, work);
    }
  } else {
    Endpoint& endpoint = *neighbours_.endpoints.find(work.source);
    endpoint.works.remove(works_, index, work);
    --requests_;
    busy_peers_ -= peer.works.requests() == 0 ? 1 : 0;
    if (work.kind == WorkKind::read) {
      release_read(peer, work);
    }
  }
  work.kind = WorkKind::none;
  works_.release(index);
}

[[gnu::always_inline]] inline void WorkTable::tell_user(const Work& work, Status status) {
  const bool ok = status == Status::ok;
  switch (work.kind) {
    case WorkKind::send:
      neighbours_.counters.send_wrs += ok;
      neighbours_.counters.send_bytes += ok ? work.length : 0;
      break;
    case WorkKind::write:
      ++(ok ? neighbours_.counters.rdma_write_wrs : neighbours_.counters.rdma_write_wr_err);
      neighbours_.counters.rdma_write_bytes += ok ? work.length : 0;
      break;
    case WorkKind::read:
      ++(ok ? neighbours_.counters.rdma_read_wrs : neighbours_.counters.rdma_read_wr_err);
      neighbours_.counters.rdma_read_bytes += ok ? work.length : 0;
      break;
    case WorkKind::read_response:
    case WorkKind::none:
      WEFT_CHECK(false);
  }
  neighbours_.counters.flushed_wrs += status == Status::flushed;
  Completion& completion = neighbours_.completions.push_request();
  completion.cookie = work.cookie;
  completion.kind = completion_kind(work.kind);
  completion.status = status;
  completion.endpoint = work.source;
  completion.remote = work.destination;
  completion.peer = work.peer;
  completion.length = work.length;
  if (mutated(Mutation::explain_everything) && status == Status::ok) [[unlikely]] {
    completion.status = Status::unresponsive;
  }
  if (mutated(Mutation::complete_twice) && work.kind == WorkKind::write) [[unlikely]] {
    const Completion once = completion;
    neighbours_.completions.push_request() = once;
  }
}

[[gnu::hot]] void WorkTable::complete(std::uint32_t index, Work& work, Status status) {
  if (mutated(Mutation::blame_restart) && status == Status::ok && work.message % 16 == 0 &&
      neighbours_.peers[work.peer].life.restarts() != 0) [[unlikely]] {
    status = Status::peer_restarted;
  }
  if (!work.is_response()) {
    tell_user(work, status);
  }
  release(index, work);
}

// Ends a work before its time, wherever it stands: it leaves the queue and the window of its sender
// first, so that no later acknowledgement finds it.
void WorkTable::abandon(std::uint32_t index, Status status) {
  Work& work = works_[index];
  Sender& sender = *neighbours_.peers[work.peer].sender;
  sender.withdraw(index, work);
  complete(index, work, status);
  sender.make_ready();
}

// An answer to a read. When all records are taken, the answer that has waited longest for a muted
// peer (one that does not answer) is given up for it: readers that live must not be locked out by
// one that died.
WorkTable::NewWork WorkTable::begin_response(Peer& peer, Qpn source, Qpn destination,
                                             std::uint32_t length) {
  if (!has_room_for_response() && !muted_responses_.empty()) {
    abandon(muted_responses_.front(), Status::unresponsive);
  }
  const std::uint32_t index = has_room_for_response() ? works_.allocate() : WorkSlab::kNone;
  if (index == WorkSlab::kNone) {
    return {};
  }
  Work& work = works_[index];
  work.begin(WorkKind::read_response, peer.id, source, destination, length);
  peer.works.add(works_, index, work);
  return {index, &work};
}

void WorkTable::mute(const Peer& peer) {
  peer.works.for_each(works_, [&](std::uint32_t index) {
    muted_responses_.push_back(works_, index, works_[index]);  // nothing else is left
  });
}

void WorkTable::unmute(const Peer& peer) {
  peer.works.for_each(works_, [&](std::uint32_t index) {
    if (works_[index].is_response()) {
      muted_responses_.remove(works_, index, works_[index]);
    }
  });
}

}  // namespace weft::srd
