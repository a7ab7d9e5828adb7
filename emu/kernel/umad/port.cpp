// Owns the rules by which Linux registers agents of a RoCE port, and finds the one that a datagram
// is for.
#include "emu/kernel/umad/port.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "emu/kernel/umad/file.hpp"
#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/mad_owners.hpp"

namespace weft::kernel {
namespace {

namespace wire = roce::wire;

constexpr std::uint8_t kMaxClassVersion = 0x83;
constexpr std::uint8_t kMaxClass = 80;
constexpr std::uint8_t kRmppVersion = 1;
constexpr unsigned kMethods = 128;
constexpr std::uint32_t kNumbers = (1U << wire::kAgentBits) - 1;

// The kernel's own connection manager answers these, so no program may have them.
bool is_kernels(const UmadRegistration& wanted) {
  return wanted.management_class == wire::kCmClass &&
         wanted.class_version == wire::kCmClassVersion && wanted.has_method(wire::kMethodSend);
}

int refusal_of(const UmadRegistration& wanted) {
  if (wanted.qpn == 0) {
    return EPROTONOSUPPORT;  // a RoCE port has no queue pair 0
  }
  if (wanted.rmpp_version != 0 && wanted.rmpp_version != kRmppVersion) {
    return EINVAL;
  }
  if (wanted.management_class == 0) {
    return (wanted.flags & abi::umad::kUserRmpp) != 0 ? EINVAL : 0;
  }
  const bool bad = wanted.class_version >= kMaxClassVersion ||
                   wanted.management_class >= kMaxClass ||
                   (wire::names_vendor(wanted.management_class) && wanted.oui == 0) ||
                   (wanted.rmpp_version != 0 && !may_be_long(wanted.management_class)) ||
                   wanted.management_class == wire::kSubnetLidRouted;
  return bad || is_kernels(wanted) ? EINVAL : 0;
}

}  // namespace

// Numbers of agents begin with the attachment: that is how weftd finds the process for an answer.
UmadPort::UmadPort(UmadHost& host, const ManagementPort::Facts& facts)
    : host_(host),
      addresses_(facts.addresses.begin(), facts.addresses.end()),
      first_number_(std::uint32_t{facts.attachment} << wire::kAgentBits) {}

int UmadPort::add(UmadFile& file, std::uint32_t id, const UmadRegistration& wanted,
                  std::uint32_t& number) {
  if (const int refused = refusal_of(wanted); refused != 0) {
    return refused;
  }
  if (agents_.size() >= kNumbers) {
    return ENOMEM;
  }
  do {
    number = first_number_ | next_number_;
    next_number_ = next_number_ % kNumbers + 1;
  } while (agents_.contains(number));
  Agent agent{.file = &file, .id = id, .services = {}};
  if (wanted.management_class != 0 && !claim_methods(agent, wanted, number)) {
    return EINVAL;
  }
  agents_.emplace(number, std::move(agent));
  return 0;
}

// All of them, or none.
bool UmadPort::claim_methods(Agent& agent, const UmadRegistration& wanted, std::uint32_t number) {
  const std::uint32_t oui = wire::names_vendor(wanted.management_class) ? wanted.oui : 0;
  for (unsigned method = 0; method < kMethods; ++method) {
    if (!wanted.has_method(method)) {
      continue;
    }
    const std::uint64_t service = wire::method_service(
        wanted.management_class, wanted.class_version, static_cast<std::uint8_t>(method), oui);
    if (by_service_.contains(service) || !host_.claim(service)) {
      release_methods(agent);
      return false;
    }
    by_service_.emplace(service, number);
    agent.services.push_back(service);
  }
  return true;
}

void UmadPort::release_methods(Agent& agent) {
  for (const std::uint64_t service : agent.services) {
    by_service_.erase(service);
    host_.release(service);
  }
  agent.services.clear();
}

void UmadPort::remove(std::uint32_t number) {
  const auto found = agents_.find(number);
  if (found == agents_.end()) {
    return;
  }
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    at = at->second.send.agent == number ? forget(at) : std::next(at);
  }
  release_methods(found->second);
  agents_.erase(found);
}

// Two requests of a file under way with one number and class; of answers also to the same peer.
bool UmadPort::is_duplicate(const UmadSend& send) const {
  const auto [first, last] = waiting_.equal_range(send.mad.transaction);
  return std::any_of(first, last, [&](const auto& entry) {
    const UmadSend& other = entry.second.send;
    return other.file == send.file && other.mad.management_class == send.mad.management_class &&
           wire::is_answer(other.mad) == wire::is_answer(send.mad) &&
           (!wire::is_answer(send.mad) || other.message.to == send.message.to);
  });
}

int UmadPort::send(TimePoint now, UmadSend& send) {
  if (!send.may_repeat && is_duplicate(send)) {
    return EINVAL;
  }
  const bool waits = send.header.timeout_ms != 0;
  if (outgoing_.size() >= kMaxOutgoing || (waits && waiting_.size() >= kMaxWaiting)) {
    return ENOMEM;
  }
  outgoing_.push_back(send.message);
  if (waits) {
    const auto deadline = now + std::chrono::milliseconds{send.header.timeout_ms};
    const auto at = waiting_.emplace(send.mad.transaction,
                                     Waiting{send, send.header.retries, deadline, next_serial_++});
    deadlines_.emplace(deadline, at);
  }
  return 0;
}

UmadPort::ByTransaction::iterator UmadPort::forget(ByTransaction::iterator waiting) {
  deadlines_.erase({waiting->second.deadline, waiting});
  return waiting_.erase(waiting);
}

// A request is sent again after its time-out, as often as the program allowed, and then given up.
void UmadPort::on_timeout(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto at = deadlines_.begin()->second;
    Waiting& waiting = at->second;
    if (waiting.tries_left == 0) {
      waiting.send.file->expire(waiting.send);
      forget(at);
      continue;
    }
    deadlines_.erase(deadlines_.begin());
    --waiting.tries_left;
    waiting.deadline = now + std::chrono::milliseconds{waiting.send.header.timeout_ms};
    deadlines_.emplace(waiting.deadline, at);
    if (outgoing_.size() < kMaxOutgoing) {  // else as if it were lost
      outgoing_.push_back(waiting.send.message);
    }
  }
}

bool UmadPort::next_message(ManagementMessage& out) {
  if (outgoing_.empty()) {
    return false;
  }
  out = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

// By class, version, method and, for vendors' classes, the vendor: all of these were claimed.
const UmadPort::Agent* UmadPort::agent_of_request(const wire::MadHeader& mad) const {
  if (mad.class_version >= kMaxClassVersion || mad.management_class >= kMaxClass) {
    return nullptr;
  }
  const auto found = by_service_.find(
      wire::method_service(mad.management_class, mad.class_version, mad.method, mad.oui));
  return found == by_service_.end() ? nullptr : &agents_.at(found->second);
}

// Management datagrams come from anybody; what nobody has registered for is dropped in silence.
void UmadPort::on_message(TimePoint /*now*/, const ManagementArrival& arrival) {
  const wire::MadHeader mad = wire::read_mad_header(arrival.message);
  const bool is_bad_of_cm = mad.management_class == wire::kCmClass &&
                            mad.attribute != wire::kClassPortInfo &&
                            mad.method != wire::kMethodSend;
  if (mad.base_version != wire::kMadBaseVersion || wire::is_of_subnet(mad) || is_bad_of_cm) {
    return;
  }
  if (wire::is_answer(mad)) {
    take_answer(arrival, mad);
  } else if (const Agent* const agent = agent_of_request(mad)) {
    agent->file->deliver(agent->id, arrival);
  }
}

// Only for who waits for it: at the address that has asked, in the class that was asked. Linux
// compares that address with what a GRH would have where an IPv4 header has other fields, so that
// it hears no answer that came by IPv4.
void UmadPort::take_answer(const ManagementArrival& arrival, const wire::MadHeader& mad) {
  if (wire::is_mapped_ipv4(arrival.to)) {
    return;
  }
  const auto agent = agents_.find(wire::agent_of(mad.transaction));
  if (agent == agents_.end()) {
    return;
  }
  const auto [first, last] = waiting_.equal_range(mad.transaction);
  const auto asked = std::find_if(first, last, [&](const auto& entry) {
    const UmadSend& send = entry.second.send;
    return send.agent == agent->first && send.mad.management_class == mad.management_class &&
           !wire::is_answer(send.mad) && send.message.from == arrival.to;
  });
  if (asked != last) {
    agent->second.file->deliver(agent->second.id, arrival);
    forget(asked);
  }
}

}  // namespace weft::kernel
