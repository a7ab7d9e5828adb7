// Owns the little world in which the judge of the swarm is judged: two hosts, and what happens to
// their requests told by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "emu/swarm/judge.hpp"
#include "emu/swarm/world_names.hpp"

namespace weft::swarm {

using namespace std::chrono_literals;
using srd::Completion;
using srd::Status;
using Kind = Completion::Kind;

inline constexpr std::uint8_t kSender = 0;
inline constexpr std::uint8_t kReceiver = 1;
inline constexpr std::uint8_t kSolicited = 0;    // the endpoint whose immediate data takes receives
inline constexpr std::uint8_t kUnsolicited = 1;  // the one whose immediate data takes none
inline constexpr std::uint32_t kReceiveSize = 64;
inline constexpr std::uint8_t kRetries = 2;  // of a request that a lack of receives may end

// The least that a story needs. An engine's configuration has to be valid, although none sends
// here.
inline Plan small_plan() {
  Plan plan;
  plan.hosts.resize(2);
  for (HostPlan& host : plan.hosts) {
    host.engine.max_peers = 4;
    host.engine.max_work_requests = 16;
    host.engine.max_completions = 16;
    host.engine.window_packets = 16;
    host.engine.mtu_payload = 4096;
    host.engine.peer_timeout = 16ms;
    host.engine.max_rto = 2ms;
    host.engine.base_rtt = 20us;
    for (const std::uint8_t endpoint : {kSolicited, kUnsolicited}) {
      host.endpoints.push_back({.qpn = srd::Qpn{0x100U + endpoint},
                                .qkey = 1,
                                .receive_depth = 8,
                                .receive_size = kReceiveSize,
                                .unsolicited_immediate = endpoint == kUnsolicited});
    }
  }
  return plan;
}

// Two hosts, each with a process whose memory and endpoints an engine has registered; what happens
// to their requests is up to the story.
class Court {
 public:
  explicit Court(Plan what) : plan(std::move(what)), judge(plan, history, processes) {
    for (std::uint32_t host = 0; host < plan.hosts.size(); ++host) {
      processes[host].emplace_back(plan.hosts[host], host, 0, now);
      world.add_host(plan.hosts[host].engine);
      EXPECT_EQ(processes[host].back().set_up(world.engine(host)), "");
    }
  }

  struct Posted {
    std::uint64_t number;
    PostedRequest& request;
  };
  // The sender posts a request, as the Run does.
  Posted post(Step step) {
    step.host = kSender;
    step.peer = kReceiver;
    PostedRequest& r = judge.new_request();
    const std::uint64_t number = judge.last_cookie();
    r.kind = step.act == Act::send ? Kind::send : step.act == Act::write ? Kind::write : Kind::read;
    r.step = step;
    r.incarnation = process(kSender).incarnation();
    r.target_incarnation = process(kReceiver).incarnation();
    r.posted = now;
    // Painted with a key of its own, no request's bytes can pass for another's.
    r.key = mix64(number);
    if (const auto* known = history.heard(kSender, r.incarnation, kReceiver)) {
      r.known_incarnation = known->incarnation;
    }
    r.buffer = GuardedBuffer(step.length);
    if (r.kind == Kind::read) {
      r.target = &process(kReceiver).region(RegionKind::readable);
      r.offset = 64;
    } else {
      paint(r.buffer.bytes(), r.key);
    }
    if (r.kind == Kind::write) {
      r.target = &process(kReceiver).region(RegionKind::writable);
      // A write with a flaw has no place of its own: none of its bytes may arrive.
      if (step.flaw == Flaw::none) {
        r.offset = r.target->slots.take(step.length, r.key);
        r.has_place = true;
      }
    }
    // A send carries its number in front of its content, so that the judge knows which message has
    // come.
    if (r.kind == Kind::send && step.length >= sizeof number) {
      std::memcpy(r.buffer.bytes().data(), &number, sizeof number);
    }
    judge.accepted(r);
    return {number, r};
  }
  Posted send(std::uint32_t length = 24) {
    return post({.act = Act::send, .rnr_retry = kRetries, .length = length});
  }
  Posted write() { return post({.act = Act::write, .rnr_retry = kRetries, .length = 24}); }
  Posted write_with_immediate(std::uint8_t to = kSolicited) {
    return post({.act = Act::write, .peer_endpoint = to, .immediate = true, .length = 24});
  }
  Posted read() { return post({.act = Act::read, .length = 24}); }

  struct Receive {
    std::uint64_t cookie;
    PostedReceive& receive;
  };
  Receive post_receive(std::uint32_t endpoint = kSolicited) {
    PostedReceive& receive = judge.new_receive();
    receive.host = kReceiver;
    receive.endpoint = endpoint;
    receive.posted = now;
    receive.buffer = GuardedBuffer(kReceiveSize);
    return {judge.last_receive_cookie(), receive};
  }

  // --- What an engine that works would do, and say
  void place(const Posted& write) { paint(place_of(write), write.request.key); }
  static std::span<std::byte> place_of(const Posted& write) {
    const PostedRequest& r = write.request;
    return r.target->memory.bytes().subspan(r.offset, r.step.length);
  }
  void bring(const Posted& read) {
    PostedRequest& r = read.request;
    paint(r.buffer.bytes(), process(kReceiver).content_key(), r.offset);
  }
  [[nodiscard]] Completion end_of(const Posted& posted, Status status = Status::ok) const {
    const PostedRequest& r = posted.request;
    Completion c;
    c.cookie = posted.number;
    c.kind = r.kind;
    c.status = status;
    c.endpoint = plan.hosts[kSender].endpoints[r.step.endpoint].qpn;
    c.length = r.step.length;
    return c;
  }
  // The completion of a receive; the bytes of a message lie in it.
  [[nodiscard]] Completion arrival_of(const Posted& posted, const Receive& receive) const {
    const PostedRequest& r = posted.request;
    const bool message = r.kind == Kind::send;
    if (message) {
      std::ranges::copy(r.buffer.bytes(), receive.receive.buffer.bytes().begin());
    }
    Completion c = end_of(posted);
    c.cookie = receive.cookie;
    c.kind = message ? Kind::receive : Kind::receive_write_imm;
    c.has_immediate = r.step.immediate;
    c.endpoint = plan.hosts[kReceiver].endpoints[r.step.peer_endpoint].qpn;
    c.remote = plan.hosts[kSender].endpoints[r.step.endpoint].qpn;
    c.immediate = r.step.immediate ? static_cast<std::uint32_t>(posted.number) : 0;
    return c;
  }
  // Of a receive that no message has taken.
  [[nodiscard]] Completion failure_of(const Receive& receive,
                                      Status status = Status::flushed) const {
    Completion c;
    c.cookie = receive.cookie;
    c.kind = Kind::receive;
    c.status = status;
    c.endpoint = plan.hosts[kReceiver].endpoints[receive.receive.endpoint].qpn;
    return c;
  }
  // Immediate data that takes no receive: it comes without the cookie of one.
  [[nodiscard]] Completion unsolicited_arrival_of(const Posted& posted) const {
    Completion c = end_of(posted);
    c.cookie = 0;
    c.kind = Kind::receive_write_imm;
    c.has_immediate = true;
    c.consumed_receive = false;
    c.endpoint = plan.hosts[kReceiver].endpoints[kUnsolicited].qpn;
    c.remote = plan.hosts[kSender].endpoints[posted.request.step.endpoint].qpn;
    c.immediate = static_cast<std::uint32_t>(posted.number);
    return c;
  }
  void sender_polls(const Completion& completion) {
    judge.completed(now, kSender, completion, VirtualNetwork::kNobody);
  }
  void receiver_polls(const Completion& completion, std::uint32_t from = kSender) {
    judge.completed(now, kReceiver, completion, from);
  }
  void end(const Posted& posted, Status status = Status::ok) {
    sender_polls(end_of(posted, status));
  }
  void deliver(const Posted& posted) { receiver_polls(arrival_of(posted, post_receive())); }

  // The host gets a new process, which has registered nothing. Requests that the old process has
  // open stay open: a story that wants them to end with it calls judge.orphan().
  void restart(std::uint32_t host) {
    const auto life = static_cast<std::uint32_t>(processes[host].size());
    processes[host].emplace_back(plan.hosts[host], host, life, now);
  }
  Process& process(std::uint32_t host) { return processes[host].back(); }

  Plan plan;
  VirtualWorld world{1};
  TimePoint now = time_at(1s);
  History history{2};
  std::vector<std::deque<Process>> processes{2};
  Judge judge;
};

// A rule of the judge, and a story that keeps or breaks it. What is told differs in one thing only.
struct JudgeRule {
  const char* name;
  const char* verdict;  // a part of it
  void (*story)(Court& court, bool broken);
  Plan (*plan)() = small_plan;
};

// Tells each story twice: the judge must let pass the one, and condemn the other.
class JudgeRules : public ::testing::TestWithParam<JudgeRule> {
 protected:
  [[nodiscard]] static std::string verdict_on(bool broken);
};

}  // namespace weft::swarm
