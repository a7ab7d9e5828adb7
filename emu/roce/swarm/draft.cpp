// Owns what each kind of request looks like: from its kind, its number and its slot to a work
// request.
#include "emu/roce/swarm/draft.hpp"

#include <algorithm>

namespace weft::roce::swarm {

// Datagrams and UC carry only messages that can be told apart by their immediate. RC has
// everything; atomics and reads are half of it.
Kind draw_kind(Rng& rng, QpType type, double bad_requests) {
  if (type == QpType::ud) {
    return Kind::send;
  }
  if (type == QpType::uc) {
    return rng.chance(0.5) ? Kind::send : Kind::write_immediate;
  }
  if (rng.chance(bad_requests)) {
    static constexpr Kind kBad[] = {Kind::bad_key, Kind::read_only, Kind::outside, Kind::too_long,
                                    Kind::bad_local};
    return kBad[rng.below(5)];
  }
  static constexpr Kind kGood[] = {Kind::send, Kind::send, Kind::write,     Kind::write_immediate,
                                   Kind::read, Kind::add,  Kind::add,       Kind::add,
                                   Kind::bind, Kind::send, Kind::read_back, Kind::read_back};
  return kGood[rng.below(12)];
}

namespace {

// Binds the same window again and again, to the first slot of the end's own memory.
void make_bind(End& end, WorkRequest& work) {
  work.opcode = WrOpcode::bind_window;
  work.window = end.window;
  work.new_rkey = end.window + 1;
  work.bind_lkey = end.local_key;
  work.bind_access = kRemoteRead;
  work.bind_address = end.local.address(0);
  work.bind_length = kSlot;
}

void to_peer(const End& peer, WorkRequest& work) {
  work.address.destination = address_of_host(peer.host);
  work.remote_qpn = peer.qpn;
  work.remote_qkey = kQkey;
}

}  // namespace

Draft draft_of(Rng& rng, Connection& connection, std::uint32_t index, Kind kind, std::uint32_t slot,
               std::uint32_t number) {
  End& end = connection.ends[index];
  const End& peer = connection.ends[1 - index];
  Draft draft;
  PostedRequest& request = draft.request;
  request.number = request.pattern = number;
  request.end = index;
  request.kind = kind;
  request.slot = slot;
  const std::uint32_t longest = connection.plan.type == QpType::ud ? 1000 : kMaxMessageSize;
  request.length = rng.chance(0.4) ? rng.below(64) : rng.below(longest + 1);
  if (kind >= Kind::bad_key) {  // nothing is wrong with a key for no bytes
    request.length = std::max(request.length, 1U);
  }
  draft.from = std::size_t{slot} * kSlot;
  // wr_id and immediate are the number: the completion of a request and the receive at the peer can
  // both be traced to it.
  WorkRequest& work = draft.work;
  work.wr_id = work.immediate = number;
  work.remote_address = end.target.address(draft.from);
  work.rkey = end.target_key;
  work.flags = rng.chance(0.1) ? std::uint8_t{kFence} : std::uint8_t{};
  work.opcode = WrOpcode::write;
  to_peer(peer, work);
  switch (kind) {
    case Kind::send:
      work.opcode = WrOpcode::send_immediate;
      break;
    case Kind::too_long:
      work.opcode = WrOpcode::send_immediate;
      request.length = kReceiveSize + 1;
      break;
    case Kind::write_immediate:
      work.opcode = WrOpcode::write_immediate;
      break;
    case Kind::read:
    case Kind::read_back:
      work.opcode = WrOpcode::read;
      draft.changes_local = true;
      break;
    case Kind::add:
      work.opcode = WrOpcode::fetch_add;
      work.compare_add = 1;
      work.remote_address = end.target.address(0);
      request.length = sizeof(std::uint64_t);
      draft.changes_local = true;
      break;
    case Kind::copy:
      // The source is the slot before, where the read_back put its bytes.
      work.flags = kFence;
      draft.from -= kSlot;
      break;
    case Kind::bind:
      make_bind(end, work);
      request.length = 0;
      break;
    case Kind::bad_key:
      // Changes the key part only, not the index: the key of a region that has been replaced.
      work.rkey ^= 0x5A;
      break;
    case Kind::read_only:
      work.rkey = end.read_only_key;
      work.remote_address = end.read_only.address(0);
      break;
    case Kind::outside:
      // Begins inside the region and ends beyond it.
      work.remote_address = end.target.address(end.target.size()) - (request.length - 1) / 2;
      break;
    case Kind::write:
    case Kind::bad_local:
      break;
  }
  return draft;
}

}  // namespace weft::roce::swarm
