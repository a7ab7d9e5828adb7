// Owns the translation of flows into work requests, and of completions into the ends of flows. A
// flow is a sequence of writes into memory without bytes; its receiver knows its end by the
// immediate of the last one.
#include "emu/sim/engine_transport.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "srd/base/check.hpp"
#include "srd/base/prefetch.hpp"
#include "srd/base/rng.hpp"

namespace weft::sim {
namespace {

constexpr srd::Qpn kQpn{1};
constexpr Bytes kEverything = 1ULL << 40;  // no flow is larger
// In a cookie, beside the flow's number: the flow ends with this write.
constexpr std::uint64_t kLastPiece = 1ULL << 32;

srd::EngineConfig for_host(fabric::PortId self, srd::EngineConfig config) {
  config.attachment = srd::AttachmentId{0};
  config.seed = mix64(config.seed ^ mix64(self + 1));
  return config;
}

}  // namespace

EngineTransport::EngineTransport(fabric::PortId self, srd::EngineConfig config,
                                 std::shared_ptr<Keys> keys)
    : checks_packets_(config.checksum),
      engine_(for_host(self, std::move(config))),
      keys_(std::move(keys)) {
  // A phantom region has a length and no bytes behind it: what is written there is only counted, so
  // a terabyte costs nothing.
  const auto key = engine_.memory().insert({.length = kEverything,
                                            .access = srd::Access::remote_write,
                                            .placement = srd::Placement::phantom});
  WEFT_CHECK(key.has_value());
  keys_->resize(std::max<std::size_t>(keys_->size(), self + 1));
  (*keys_)[self] = *key;
  WEFT_CHECK(engine_.open_endpoint(kQpn, {.unsolicited_immediate = true}).has_value());
}

void EngineTransport::start(TimePoint /*now*/, const FlowStart& flow) {
  waiting_.push_back({flow, 0});
  // Earlier flows that wait go first; poll() posts this one after them.
  if (waiting_.size() == 1) {
    post(waiting_.front());
  }
}

void EngineTransport::post(Rest& rest) {
  const auto peer = engine_.peer(address_of(rest.flow.destination), srd::AttachmentId{0});
  WEFT_CHECK(peer.has_value());
  while (rest.posted < rest.flow.bytes) {
    const auto length = static_cast<std::uint32_t>(
        std::min<Bytes>(rest.flow.bytes - rest.posted, srd::kMaxTransfer));
    const bool is_last = rest.posted + length == rest.flow.bytes;
    // Writes overtake each other, and the last one announces the flow: it waits for the others.
    if (const auto before = pieces_.find(rest.flow.flow);
        is_last && before != pieces_.end() && before->second.in_engine > 0) {
      before->second.last = rest;
      break;
    }
    srd::WriteRequest request;
    request.peer = *peer;
    request.source = kQpn;
    request.destination = kQpn;
    request.cookie = rest.flow.flow | (is_last ? kLastPiece : 0);
    request.segments[0] = {nullptr, length};
    request.remote_key = (*keys_)[rest.flow.destination];
    request.phantom = true;
    if (is_last) {
      request.immediate = rest.flow.flow;
    }
    if (engine_.post(request) != srd::PostResult::accepted) {
      return;  // poll() tries again when something has completed
    }
    rest.posted += length;
    if (!is_last) {
      ++pieces_[rest.flow.flow].in_engine;
    }
  }
  waiting_.pop_front();
}

std::size_t EngineTransport::poll(std::span<FlowEvent> events) {
  // As after most events. To make room for completions would cost more than to look for one.
  if (engine_.next_completion() == nullptr) {
    return 0;
  }
  std::array<srd::Completion, 16> completions;
  const std::size_t taken =
      engine_.poll(std::span(completions).first(std::min(events.size(), completions.size())));
  std::size_t count = 0;
  for (std::size_t i = 0; i < taken; ++i) {
    const srd::Completion& completion = completions[i];
    // The immediate data is the number of a flow that arrived here; a cookie is that of one sent
    // from here.
    if (completion.kind == srd::Completion::Kind::receive_write_imm) {
      events[count++] = {completion.immediate, FlowEvent::Kind::received};
      continue;
    }
    const auto flow = static_cast<std::uint32_t>(completion.cookie);
    const auto it = pieces_.find(flow);
    if ((completion.cookie & kLastPiece) == 0) {
      Pieces& pieces = it->second;
      if (completion.status != srd::Status::ok) {
        // What has not been posted stays here: nobody is to hear that the flow has arrived.
        pieces.failed = true;
        pieces.last.reset();
        std::erase_if(waiting_, [flow](const Rest& rest) { return rest.flow.flow == flow; });
      }
      if (--pieces.in_engine > 0) {
        continue;
      }
      if (pieces.last) {
        waiting_.push_front(*std::exchange(pieces.last, std::nullopt));
      }
      if (pieces.failed) {
        events[count++] = {flow, FlowEvent::Kind::failed};
        pieces_.erase(it);
      }
      continue;
    }
    events[count++] = {flow, completion.status == srd::Status::ok ? FlowEvent::Kind::sent
                                                                  : FlowEvent::Kind::failed};
    if (it != pieces_.end()) {
      pieces_.erase(it);
    }
  }
  // The completions taken above have made room in the engine. Post until a flow stays in the queue:
  // then the engine is full again.
  while (!waiting_.empty()) {
    const std::size_t before = waiting_.size();
    post(waiting_.front());
    if (waiting_.size() == before) {
      break;
    }
  }
  return count;
}

void EngineTransport::prefetch(fabric::PortId from, unsigned step) const {
  if (step == 0) {
    weft::prefetch(this, sizeof *this);
  } else if (from != fabric::kNone) {
    const srd::PeerKey key{address_of(from), srd::AttachmentId{0}};
    engine_.prefetch(&key, step);
  } else {
    engine_.prefetch(nullptr, step);
  }
}

TransportCounters EngineTransport::counters() const {
  const srd::Counters& own = engine_.counters();
  return {.new_packets = own.data_pkts,
          .retransmitted = own.retrans_pkts,
          .timeouts = own.lost_by_timeout,
          .paths_abandoned = own.paths_abandoned};
}

}  // namespace weft::sim
