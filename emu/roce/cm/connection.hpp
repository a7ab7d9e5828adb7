// Owns what the manager knows of one id: what the program did with it (its state as rdma_cm sees
// it), and how far its connection has come (its phase as the protocol sees it). The two change for
// different reasons, so each call and each message looks at the one that it depends on.
#pragma once

#include <cstdint>

#include "emu/roce/cm/ports.hpp"
#include "emu/roce/cm/types.hpp"

namespace weft::roce::cm {

// As Linux's rdma_cm has them, without the states that wait for something: resolving takes no time.
enum class IdState : std::uint8_t {
  free,
  idle,
  bound,
  address_resolved,
  route_resolved,
  connecting,  // and connected
  disconnected,
  listening,
};

// A request is acknowledged by MRA only when it comes twice; Linux does the same, and says of such
// a connection that its MRA has been sent.
enum class Phase : std::uint8_t {
  idle,
  request_sent,
  request_received,
  reply_sent,
  reply_received,
  established,
  disconnect_sent,
  disconnect_received,
  timewait,
  sidr_sent,
  sidr_received,
  sidr_answered,
};

// Lives in a slot of the manager's Slab from create() or an arriving request until destroy().
struct Connection {
  IdState state = IdState::free;
  Phase phase = Phase::idle;
  Transport transport = Transport::rc;
  Binding binding;  // `address` is the local one; its port is ours only where `has_port`
  SocketAddress destination;
  bool has_port = false;
  bool has_nic = false;
  bool has_path = false;
  std::uint32_t nic = 0;
  Path path;

  // --- Options.
  std::uint8_t traffic_class = 0;
  bool ack_timeout_set = false;
  std::uint8_t ack_timeout = 0;

  // --- Of a listening id.
  std::uint32_t backlog = 0;
  std::uint32_t waiting = 0;  // requests that were not fetched yet

  // --- Of a connection. A number that is 0 is not known.
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint64_t remote_guid = 0;
  std::uint64_t transaction = 0;
  std::uint64_t service = 0;
  // Numbers of queue pairs, and the first sequence numbers of both directions.
  std::uint32_t local_qpn = 0;
  std::uint32_t remote_qpn = 0;
  std::uint32_t sequence = 0;  // that the peer's packets begin with
  std::uint32_t send_sequence = 0;
  std::uint32_t qkey = 0;
  bool srq = false;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t av_timeout = 0;
  std::uint8_t target_ack_delay = 0;
  bool knows_remote_id = false;  // it stands in the manager's table of these
  bool knows_remote_qpn = false;
  bool answers_sidr = false;

  // --- What is sent again.
  Duration timeout{};      // of the connection's messages
  Duration mad_timeout{};  // of this one; an MRA makes it longer
  std::uint8_t max_retries = 0;
  std::uint8_t retries_left = 0;
  std::uint8_t refusals = 0;  // of this request, because there was no listener
  std::array<std::byte, wire::kMadSize> mad{};
};

}  // namespace weft::roce::cm
