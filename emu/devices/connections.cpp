// Owns the way of messages and events between NICs, manager and files.
//
// A NIC's round of progress hands arrived messages to its Agent; with the manager's lock the round
// lets the manager work, passes events on to the files of programs, and gives outgoing messages to
// the NICs that they leave by. A NIC other than the one whose round it is gets them through a queue
// and is woken.
#include "emu/devices/connections.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>

#include "emu/devices/listening_sign.hpp"
#include "emu/roce/wire/addresses.hpp"
#include "srd/net/envelope.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/short_turns.hpp"

namespace weft::devices {

namespace cm = roce::cm;

namespace {

// Of messages that a NIC did not get rid of. Those that matter are sent again, but not the last
// words of ids that have gone: there is room for both copies of each id's.
constexpr std::size_t kMaxOutgoing = 1024;
constexpr std::size_t kMaxLastWords = std::size_t{2} * cm::Config{}.max_ids;

// So long a thread is not kept from its core, even on a machine that is busy. Peers that hear no
// good-bye notice the end by their own time-outs.
constexpr std::chrono::seconds kMaxLeaving{1};

}  // namespace

Connections::Connections(std::vector<Nic> nics, std::uint64_t seed, FileOf file_of)
    : file_of_(std::move(file_of)),
      next_timeout_(nanoseconds(kNever)),
      manager_(config_of(nics, seed), *this, *this) {
  for (Nic& nic : nics) {
    agents_.push_back(std::make_unique<Agent>(*this, std::move(nic)));
  }
  for (const auto& agent : agents_) {
    NicRunner& runner = *agent->nic_.runner;
    runner.exclusively([&] { runner.device().management()->set_agent(agent.get()); });
  }
}

Connections::~Connections() {
  for (const auto& agent : agents_) {
    NicRunner& runner = *agent->nic_.runner;
    runner.exclusively([&] { runner.device().management()->set_agent(nullptr); });
  }
}

cm::Config Connections::config_of(const std::vector<Nic>& nics, std::uint64_t seed) const {
  cm::Config config;
  config.seed = seed;
  for (const Nic& nic : nics) {
    const auto facts = nic.runner->device().management()->facts();
    const auto number = static_cast<std::uint32_t>(config.nics.size());
    config.nics.push_back(
        {facts.guid, facts.attachment, facts.path_mtu, facts.ack_delay, nic.index});
    std::uint8_t gid = 0;
    for (const srd::Address& address : facts.addresses) {
      config.addresses.push_back({address, number, gid++});
    }
  }
  return config;
}

bool Connections::held_here() const {
  return lock_.held_here() || std::ranges::any_of(agents_, [](const auto& agent) {
           return agent->nic_.runner->held_here();
         });
}

void Connections::with_all_nics(std::size_t first, const std::function<void()>& work) {
  if (first == agents_.size()) {
    work();
    return;
  }
  agents_[first]->nic_.runner->exclusively([&] { with_all_nics(first + 1, work); });
}

bool Connections::try_with_all_nics(std::size_t first, const std::function<void()>& work) {
  if (first == agents_.size()) {
    work();
    return true;
  }
  bool done = false;
  return agents_[first]->nic_.runner->try_exclusively([&] {
    done = try_with_all_nics(first + 1, work);
  }) && done;
}

void Connections::exclusively(
    const std::function<void(cm::Manager& manager, TimePoint now)>& work) {
  const srd::Uncancellable here;
  with_all_nics(0, [&] { make_round(srd::monotonic_now(), nullptr, work); });
}

// The other NICs' threads are woken without taking their locks: a thread that holds one makes a
// round as well.
void Connections::make_round(TimePoint now, const Agent* inside,
                             const std::function<void(cm::Manager&, TimePoint)>& work) {
  {
    const std::lock_guard guard(lock_);
    last_now_ = std::max(last_now_, now);
    work(manager_, last_now_);
    hand_out(last_now_);
  }
  for (const auto& agent : agents_) {
    if (inside != nullptr && agent.get() != inside && agent->due_.load(std::memory_order_relaxed)) {
      agent->nic_.runner->kick();
    }
  }
}

// The NIC that has that address; null: none of ours.
Connections::Agent* Connections::agent_with(const srd::Address& address) const {
  const auto own = std::ranges::find_if(agents_, [&address](const auto& agent) {
    const auto addresses = agent->nic_.runner->device().management()->facts().addresses;
    return std::ranges::find(addresses, address) != addresses.end();
  });
  return own == agents_.end() ? nullptr : own->get();
}

void Connections::hand_out(TimePoint now) {
  cm::Outgoing message;
  while (manager_.next_mad(now, message)) {
    Agent* const own = agent_with(message.from);
    if (own != nullptr) {
      own->add(message);
    }
  }
  contexts_.dispatch(manager_);
  show_whether_it_listens();
  next_timeout_.store(nanoseconds(manager_.next_timeout()), std::memory_order_relaxed);
}

// Nothing depends on it: without a descriptor left there is no sign.
void Connections::show_whether_it_listens() {
  if (manager_.listens() == bool{sign_}) {
    return;
  }
  sign_ = manager_.listens() ? srd::UniqueFd(::memfd_create(kListeningSign, MFD_CLOEXEC))
                             : srd::UniqueFd();
}

void Connections::expect_events() {
  const srd::Uncancellable here;
  for (const auto& agent : agents_) {
    agent->nic_.runner->expect_events();
  }
}

void Connections::leave() {
  const srd::Uncancellable here;
  const auto leave_all = [this](cm::Manager& manager, TimePoint now) {
    contexts_.leave_all(manager, now);
  };
  const auto round = [&] { make_round(srd::monotonic_now(), nullptr, leave_all); };
  for (const TimePoint begin = srd::monotonic_now();
       !try_with_all_nics(0, round) && srd::monotonic_now() - begin < kMaxLeaving;) {
    srd::give_way();
  }
}

// --- The NICs' rounds

void Connections::Agent::on_message(TimePoint now, const kernel::ManagementArrival& arrival) {
  all_.make_round(now, this, [&](cm::Manager& manager, TimePoint time) {
    manager.on_mad(time, arrival.from, arrival.to, arrival.message);
  });
}

void Connections::Agent::on_timeout(TimePoint now) {
  all_.make_round(now, this,
                  [](cm::Manager& manager, TimePoint time) { manager.on_timeout(time); });
}

void Connections::Agent::add(const cm::Outgoing& message) {
  const bool fits = message.is_last_word ? last_words_ < kMaxLastWords
                                         : outgoing_.size() - last_words_ < kMaxOutgoing;
  if (fits) {
    outgoing_.push_back(message);
    last_words_ += message.is_last_word ? 1U : 0U;
    due_.store(true, std::memory_order_relaxed);
  }
}

bool Connections::Agent::next_message(kernel::ManagementMessage& out) {
  const std::lock_guard guard(all_.lock_);
  if (outgoing_.empty()) {
    return false;
  }
  const cm::Outgoing& message = outgoing_.front();
  out = {.from = message.from,
         .to = message.to,
         .traffic_class = message.traffic_class,
         .bytes = message.mad};
  last_words_ -= message.is_last_word ? 1U : 0U;
  outgoing_.pop_front();
  due_.store(!outgoing_.empty(), std::memory_order_relaxed);
  return true;
}

// --- Whether there is a way

// By the network of the NIC that has the source. It takes a round trip to weftd, once for each NIC.
int Connections::reach(const srd::Address& source, const srd::Address& destination) const {
  if (srd::net::is_group(destination)) {
    return 0;
  }
  if (roce::wire::is_link_local(source) != roce::wire::is_link_local(destination)) {
    return ENETUNREACH;
  }
  const Agent* const own = agent_with(source);
  const bool may_exist = own == nullptr || !own->nic_.may_exist || own->nic_.may_exist(destination);
  return may_exist ? 0 : EHOSTUNREACH;
}

// --- Which process answers to a port

bool Connections::claim(std::uint64_t service) {
  for (auto agent = agents_.begin(); agent != agents_.end(); ++agent) {
    if (!(*agent)->nic_.claim(service, true)) {
      std::for_each(agents_.begin(), agent,
                    [service](const auto& earlier) { (void)earlier->nic_.claim(service, false); });
      return false;
    }
  }
  return true;
}

void Connections::release(std::uint64_t service) {
  for (const auto& agent : agents_) {
    (void)agent->nic_.claim(service, false);
  }
}

}  // namespace weft::devices
