// Owns what the applications of a run do: connect, post requests, take completions, post receives
// again.
//
// The order of one turn is act() (every end of every connection may post), a random stretch of
// simulated time, drain() (the judge is told of each completion). Everything random comes from one
// generator that the seed starts, so a failing seed fails again in the same way.
#include "emu/roce/swarm/run.hpp"

#include <algorithm>

#include "emu/roce/swarm/draft.hpp"
#include "emu/roce/swarm/judge.hpp"
#include "srd/base/check.hpp"

namespace weft::roce::swarm {
namespace {

constexpr std::uint32_t kDomain = 1;
constexpr std::uint32_t kReceiveSlots = 128;  // of a host
constexpr std::uint32_t kSharedReceives = 16;
constexpr std::uint32_t kEverything = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;
// From the healing of the network until everything has completed: nine timeouts of 4.096 us * 2^8,
// and waits for receivers (at most 0.64 ms each) that post late.
constexpr Duration kPatience = std::chrono::milliseconds{250};

// One seed: hosts with engines, the faults between them, and the judge of what was asked for and
// what has come. Applications act at random times, the world goes on in between, and the judge
// hears of each completion. After plan.busy the network heals, so that what has not completed by
// kPatience never will.
class Run {
 public:
  explicit Run(const Plan& plan)
      : plan_(plan),
        rng_(mix64(plan.seed ^ 0x5EED)),
        world_(rng_.next(), plan.faults),
        judge_(plan, world_) {}

  RunOutcome carry_out();

 private:
  void make_hosts();
  void connect(const ConnectionPlan& plan);
  void make_qp(Connection& connection, std::uint32_t end);
  void to_rts(Connection& connection, std::uint32_t end);
  std::uint32_t add_region(std::uint32_t host, GuardedBuffer& buffer, std::uint32_t access);
  void act();
  void act_at(std::uint32_t connection, std::uint32_t end);
  void post_receives(End& end, const ConnectionPlan& plan);
  void post_receive(std::uint32_t host, std::uint32_t qpn);
  bool post(std::uint32_t connection, std::uint32_t end, Kind kind, std::uint32_t slot);
  void drain();
  [[nodiscard]] bool is_finished() const;

  const Plan& plan_;
  Rng rng_;
  World world_;
  Judge judge_;
  std::vector<std::uint32_t> srqs_;
  std::vector<std::uint32_t> receive_keys_;
  std::vector<std::vector<std::uint32_t>> free_slots_;  // of receive memory, by host
  std::vector<std::uint32_t> shared_;                   // receives in the SRQ, by host
};

// All of a buffer under one key, with the addresses that its owner sees.
std::uint32_t Run::add_region(std::uint32_t host, GuardedBuffer& buffer, std::uint32_t access) {
  const std::uint32_t key = world_.engine(host).keys().register_region(
      {buffer.at(0), buffer.address(0), buffer.size(), access, kDomain});
  WEFT_CHECK(key != 0);
  return key;
}

// Receive memory is one buffer per host, cut into slots. A slot is free or belongs to a posted
// receive; drain() frees it after the judge has checked its bytes.
void Run::make_hosts() {
  judge_.receive_memory.reserve(plan_.hosts);
  for (std::uint32_t host = 0; host < plan_.hosts; ++host) {
    EngineConfig config;
    config.min_timeout = std::chrono::microseconds{200};
    config.window = plan_.window;
    config.congestion_control = plan_.congestion_control;
    config.salt = rng_.next();
    world_.add_host(config);
    srqs_.push_back(world_.engine(host).create_srq(kSharedReceives, 2));
    WEFT_CHECK(world_.engine(host).arm_srq(srqs_[host], 2) == 0);
    shared_.push_back(0);
    GuardedBuffer& memory =
        judge_.receive_memory.emplace_back(std::size_t{kReceiveSlots} * kReceiveSize);
    receive_keys_.push_back(add_region(host, memory, kLocalWrite));
    auto& slots = free_slots_.emplace_back();
    for (std::uint32_t slot = 0; slot < kReceiveSlots; ++slot) {
      slots.push_back(slot);
    }
  }
}

void Run::make_qp(Connection& connection, std::uint32_t index) {
  const ConnectionPlan& plan = connection.plan;
  End& end = connection.ends[index];
  end.host = plan.hosts[index];
  QpSetup request;
  request.type = plan.type;
  request.domain = kDomain;
  request.srq = plan_.shared_receives ? srqs_[end.host] : kNoSrq;
  request.max_send = plan.sends;
  request.max_receive = plan.receives;
  request.max_send_sge = 4;
  request.max_receive_sge = 2;
  request.max_inline = kMaxInline;
  request.signal_all = true;
  end.qpn = world_.engine(end.host).create_qp(request);
  WEFT_CHECK(end.qpn != 0);
}

// The way that a program takes a queue pair to RTS: INIT, RTR, RTS, each step with the attributes
// that the queue pair's type requires.
void Run::to_rts(Connection& connection, std::uint32_t index) {
  const ConnectionPlan& plan = connection.plan;
  const End& end = connection.ends[index];
  const End& peer = connection.ends[1 - index];
  Engine& engine = world_.engine(end.host);
  QpAttributes to;
  const bool datagram = plan.type == QpType::ud;
  const bool reliable = plan.type == QpType::rc;
  to.state = QpState::init;
  to.access = kEverything;
  to.qkey = kQkey;
  int error = engine.modify_qp(
      world_.now(), end.qpn,
      kMaskState | kMaskPkeyIndex | kMaskPort | std::uint32_t{datagram ? kMaskQkey : kMaskAccess},
      to);
  to.state = QpState::rtr;
  to.address.destination = address_of_host(peer.host);
  to.path_mtu = plan.path_mtu;
  to.destination_qpn = peer.qpn;
  to.rq_psn = plan.psn[1 - index];
  to.max_dest_reads = plan.reads;
  to.min_rnr_timer = plan.min_rnr_timer;
  const std::uint32_t connected = kMaskAddress | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn;
  error |= engine.modify_qp(world_.now(), end.qpn,
                            kMaskState | (datagram ? 0 : connected) |
                                (reliable ? kMaskMaxDestReads | kMaskMinRnrTimer : 0),
                            to);
  to.state = QpState::rts;
  to.sq_psn = plan.psn[index];
  to.timeout = plan.timeout;
  to.retry_count = plan.retry_count;
  to.rnr_retry = plan.rnr_retry;
  to.max_reads = plan.reads;
  error |= engine.modify_qp(
      world_.now(), end.qpn,
      kMaskState | kMaskSqPsn |
          (reliable ? kMaskTimeout | kMaskRetryCount | kMaskRnrRetry | kMaskMaxReads : 0),
      to);
  WEFT_CHECK(error == 0);
}

// Each end has three regions. `local` is what it sends from and reads into; `target` and
// `read_only` lie at the peer and are registered there, because the requests of this end change
// nothing else.
void Run::connect(const ConnectionPlan& plan) {
  Connection& connection = judge_.connections.emplace_back();
  connection.plan = plan;
  connection.ends.reserve(2);
  for (const std::uint32_t steps : plan.steps) {
    connection.ends.emplace_back(steps);
  }
  for (std::uint32_t end = 0; end < 2; ++end) {
    make_qp(connection, end);
    End& own = connection.ends[end];
    const std::uint32_t peer = plan.hosts[1 - end];
    std::fill_n(own.target.at(0), sizeof(std::uint64_t), std::byte{});
    own.local_key = add_region(own.host, own.local, kLocalWrite | kWindowBind);
    own.window = world_.engine(own.host).keys().allocate_window(1, kDomain);
    own.target_key = add_region(peer, own.target, kEverything);
    own.read_only_key = add_region(peer, own.read_only, kRemoteRead);
  }
  to_rts(connection, 0);
  to_rts(connection, 1);
  if (plan.type == QpType::rc) {
    const End& one = connection.ends[0];
    const End& other = connection.ends[1];
    world_.watch({one.host, one.qpn}, {other.host, other.qpn}, plan.path_mtu);
  }
}

// Posts one request and tells the judge what is expected of it. The target of a READ is painted
// before any packet of it can leave. False: the queue is full.
bool Run::post(std::uint32_t number, std::uint32_t index, Kind kind, std::uint32_t slot) {
  Connection& connection = judge_.connections[number];
  End& end = connection.ends[index];
  Draft draft = draft_of(rng_, connection, index, kind, slot,
                         static_cast<std::uint32_t>(judge_.requests.size() + 1));
  PostedRequest& request = draft.request;
  request.connection = number;
  // A copy writes to the peer what the read_back before it has fetched: it carries that request's
  // pattern, and paints nothing itself, because the bytes are those of the read.
  if (kind == Kind::copy) {
    request.pattern = judge_.requests.back().number;
    request.length = judge_.requests.back().length;
  } else if (!draft.changes_local) {
    paint(end.local.at(draft.from), request.pattern, request.length);
  }
  const std::uint32_t lkey = kind == Kind::bad_local ? end.local_key ^ 0xFF : end.local_key;
  // Half of the requests have their bytes in two pieces, cut anywhere, even at an end.
  const std::uint32_t cut = rng_.below(request.length + 1);
  const bool one_piece = kind == Kind::add || rng_.chance(0.5);
  const Sge pieces[] = {{end.local.address(draft.from), one_piece ? request.length : cut, lkey},
                        {end.local.address(draft.from + cut), request.length - cut, lkey}};
  // Inline data is taken when it is posted: the bytes of a copy are not there yet by then, and for
  // inline data no key is looked at.
  const bool is_inline = !draft.changes_local && kind != Kind::copy && kind != Kind::bad_local &&
                         request.length <= kMaxInline && rng_.chance(0.5);
  draft.work.flags |= is_inline ? std::uint8_t{kInline} : std::uint8_t{};
  Engine& engine = world_.engine(end.host);
  const int error =
      is_inline
          ? engine.post_send(end.qpn, draft.work, {}, {end.local.at(draft.from), request.length})
          : engine.post_send(end.qpn, draft.work, std::span(pieces).first(one_piece ? 1 : 2));
  if (error != 0) {
    return false;
  }
  if (draft.work.opcode == WrOpcode::read) {  // what it will find
    paint(end.target.at(draft.from), request.pattern, request.length);
  }
  // The judge holds the counter in slot 0 of the target against this number.
  end.adds += kind == Kind::add ? 1 : 0;
  if (kind == Kind::bind) {
    // A window's key changes with each bind; the next bind names the new one.
    end.window = (end.window & ~0xFFU) | (draft.work.new_rkey & 0xFF);
  }
  judge_.requests.push_back(request);
  ++end.open;
  return true;
}

// Receives have two pieces, cut anywhere. Nothing is posted if all slots are in use.
void Run::post_receive(std::uint32_t host, std::uint32_t qpn) {
  auto& slots = free_slots_[host];
  if (slots.empty()) {
    return;
  }
  const std::uint32_t slot = slots.back();
  GuardedBuffer& memory = judge_.receive_memory[host];
  const std::size_t at = std::size_t{slot} * kReceiveSize;
  // Bytes outside of what arrives must stay as they are: the judge looks for this value.
  std::fill_n(memory.at(at), kReceiveSize, kBlank);
  const std::uint32_t cut = rng_.below(kReceiveSize);
  const Sge pieces[] = {{memory.address(at), cut, receive_keys_[host]},
                        {memory.address(at + cut), kReceiveSize - cut, receive_keys_[host]}};
  const std::uint64_t id = kReceiveId + judge_.receives.size();
  Engine& engine = world_.engine(host);
  const int error = qpn != 0 ? engine.post_receive(qpn, id, pieces)
                             : engine.post_srq_receive(srqs_[host], id, pieces);
  if (error == 0) {
    slots.pop_back();
    judge_.receives.push_back({host, qpn, slot, false});
    if (qpn == 0) {
      ++shared_[host];
    } else {
      ++judge_.end_of(host, qpn)->receives;
    }
  }
}

void Run::post_receives(End& end, const ConnectionPlan& plan) {
  // Receives that come late provoke RNR.
  if (rng_.chance(plan_.lazy_receives) || (end.ended && plan.type == QpType::rc)) {
    return;
  }
  if (plan_.shared_receives) {
    while (shared_[end.host] < kSharedReceives && !free_slots_[end.host].empty()) {
      post_receive(end.host, 0);
    }
    return;
  }
  while (end.receives < plan.receives && end.receives < kReceiveSlots / 16) {
    post_receive(end.host, end.qpn);
  }
}

void Run::act_at(std::uint32_t number, std::uint32_t index) {
  Connection& connection = judge_.connections[number];
  End& end = connection.ends[index];
  if (!world_.is_up(end.host)) {
    return;
  }
  // The application puts its own queue pair into the error state. What is open must still complete.
  if (rng_.chance(plan_.breaks)) {
    QpAttributes to;
    to.state = QpState::error;
    end.warned = true;
    WEFT_CHECK(world_.engine(end.host).modify_qp(world_.now(), end.qpn, kMaskState, to) == 0);
  }
  post_receives(end, connection.plan);
  while (end.posted < connection.plan.steps[index] && rng_.chance(0.7)) {
    const Kind kind = draw_kind(rng_, connection.plan.type, plan_.bad_requests);
    if (!post(number, index, kind, end.next_slot)) {
      break;
    }
    ++end.next_slot;
    ++end.posted;
    // The copy follows at once, with a fence: it must not be sent before the read has ended.
    if (kind == Kind::read_back && post(number, index, Kind::copy, end.next_slot)) {
      ++end.next_slot;
    }
  }
}

void Run::act() {
  for (std::uint32_t number = 0; number < judge_.connections.size(); ++number) {
    act_at(number, 0);
    act_at(number, 1);
  }
}

void Run::drain() {
  for (std::uint32_t host = 0; host < plan_.hosts; ++host) {
    Sink& sink = world_.sink(host);
    for (; !sink.events.empty(); sink.events.pop()) {
      judge_.heard_event(host, sink.events.front());
    }
    // A host that has died reports nothing more; what it had is not judged.
    for (; !sink.completions.empty() && world_.is_up(host); sink.completions.pop()) {
      const Completion completion = sink.completions.front();
      judge_.completed(host, completion);
      if (completion.wr_id >= kReceiveId && judge_.verdict().empty()) {
        const PostedReceive& receive = judge_.receives[completion.wr_id - kReceiveId];
        free_slots_[host].push_back(receive.slot);
        shared_[host] -= receive.qpn == 0 ? 1 : 0;
      }
    }
  }
}

bool Run::is_finished() const {
  for (const Connection& connection : judge_.connections) {
    for (std::uint32_t end = 0; end < 2; ++end) {
      const End& own = connection.ends[end];
      if (world_.is_up(own.host) && (own.open != 0 || own.posted < connection.plan.steps[end])) {
        return false;
      }
    }
  }
  return true;
}

RunOutcome Run::carry_out() {
  make_hosts();
  for (const ConnectionPlan& connection : plan_.connections) {
    connect(connection);
  }
  std::vector<TimePoint> deaths;
  for (std::uint32_t i = 0; i < plan_.deaths; ++i) {
    deaths.push_back(world_.now() + Duration{rng_.below(2'000'000)});
  }
  const TimePoint healing = world_.now() + plan_.busy;
  const TimePoint limit = healing + kPatience;
  bool healed = false;
  while (judge_.verdict().empty() && !is_finished() && world_.now() < limit) {
    act();
    world_.run_until(world_.now() + std::chrono::microseconds{1 + rng_.below(200)});
    drain();
    if (!world_.breach().empty()) {
      judge_.condemn(world_.breach());
    }
    for (std::uint32_t host = 0; host < deaths.size(); ++host) {
      if (world_.is_up(host) && deaths[host] <= world_.now()) {
        world_.kill(host);
      }
    }
    if (!healed && world_.now() >= healing) {
      world_.heal();
      healed = true;
    }
  }
  // What is still on its way may harm no more.
  world_.run_until(world_.now() + std::chrono::milliseconds{5});
  drain();
  judge_.check_at_the_end();
  RunOutcome outcome;
  outcome.failure = judge_.verdict();
  outcome.requests = judge_.requests.size();
  outcome.succeeded =
      static_cast<std::uint64_t>(std::ranges::count_if(judge_.requests, &PostedRequest::succeeded));
  outcome.frames = world_.frames();
  for (std::uint32_t host = 0; host < plan_.hosts; ++host) {
    if (world_.is_up(host)) {
      const Counters& counters = world_.engine(host).counters();
      outcome.retries += counters.completer_retry_err + counters.rcvd_rnr_err;
      outcome.duplicates += counters.duplicate_request;
      outcome.not_ready += counters.send_rnr_err + counters.dropped_for_receive;
    }
  }
  return outcome;
}

}  // namespace

RunOutcome carry_out(const Plan& plan) { return Run(plan).carry_out(); }

}  // namespace weft::roce::swarm
