// Owns the steps of leaving: connections that are closed while messages are under way, on purpose.
// Memory that was taken back is filled with marks, and what arrives there afterwards is found by
// them.
#include "integration/collectives/leaving.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace weft::collectives {
namespace {

constexpr std::byte kUnwritten{0x22};  // where a receive waits
constexpr std::byte kSent{0x11};
constexpr std::byte kTakenBack{0xDD};  // in the memory of a send when it has left
// Of a connection's eight messages some are posted at first, some while the other end may be
// leaving, and the rest when it has left.
constexpr std::size_t kAtFirst = 4;
constexpr std::size_t kMeanwhile = 6;

}  // namespace

// Ends that are still open: another rank gave up before all acts were done.
Leaving::~Leaving() {
  for (const End& end : ends_) {
    if (end.held.connection != nullptr) {
      (void)net_.deregister_memory(end.held.connection, end.held.memory);
      (void)(end.sends ? net_.close_send(end.held.connection)
                       : net_.close_receive(end.held.connection));
    }
  }
}

// Both ends of a connection draw the same lot without talking to each other.
bool Leaving::receiver_is_first(std::uint32_t from, std::uint32_t to, std::uint32_t channel) const {
  return mix64(seed_ + (std::uint64_t{from} << 32 | to << 16 | channel)) % 2 == 0;
}

void Leaving::add_sender(std::uint32_t peer, std::uint32_t channel, LooseEnd end) {
  ends_.push_back({.held = std::move(end),
                   .peer = peer,
                   .sends = true,
                   .first = !receiver_is_first(rank_, peer, channel)});
}

void Leaving::add_receiver(std::uint32_t peer, std::uint32_t channel, LooseEnd end) {
  ends_.push_back({.held = std::move(end),
                   .peer = peer,
                   .sends = false,
                   .first = receiver_is_first(peer, rank_, channel)});
}

// Posts the slots up to `count`. An error of the plugin is expected here, as the other end may be
// gone: it only ends the posting.
void Leaving::post(End& end, std::size_t count) {
  constexpr int kTries = 64;  // the plugin may say "not now"
  const LooseEnd& held = end.held;
  for (; end.posted < count && !end.failed; ++end.posted) {
    const Posted slot{held.data() + end.posted * held.step_bytes, held.step_bytes, held.tag,
                      held.memory};
    const bool early = !end.sends && rng_.below(2) == 0;
    void* request = nullptr;
    for (int i = 0; i < kTries && request == nullptr && !end.failed; ++i) {
      end.failed = (end.sends ? net_.send(held.connection, slot, request)
                              : net_.receive(held.connection, {&slot, 1}, early, request)) !=
                   nccl::abi::kSuccess;
    }
    if (request == nullptr) {
      return;
    }
    end.requests.push_back(request);
  }
}

bool Leaving::look(End& end) {
  if (end.failed || end.requests.empty()) {
    return false;
  }
  bool done = false;
  std::array<int, kMaxBuffers> sizes{};
  end.failed = net_.test(end.requests.front(), done, sizes) != nccl::abi::kSuccess;
  if (done) {
    end.requests.erase(end.requests.begin());
  }
  return true;
}

// Gives the memory back and closes the connection, with requests in flight. What the memory holds
// then is kept, for check().
void Leaving::leave(End& end) {
  std::byte* const begin = end.held.data();
  std::byte* const stop = begin + end.held.buffer.size();
  require(net_.deregister_memory(end.held.connection, end.held.memory), "deregMr");
  if (end.sends) {
    std::fill(begin, stop, kTakenBack);
  }
  end.left.assign(begin, stop);
  // Only the memory of a send was filled with this byte, after its deregMr.
  if (!end.sends && std::find(end.left.begin(), end.left.end(), kTakenBack) != end.left.end()) {
    end.mistake = "what rank " + std::to_string(end.peer) +
                  " wrote into the memory of a send after deregMr was sent to it";
  }
  require(
      end.sends ? net_.close_send(end.held.connection) : net_.close_receive(end.held.connection),
      end.sends ? "closeSend" : "closeRecv");
  end.held.connection = nullptr;
}

void Leaving::post() {
  for (End& end : ends_) {
    std::fill_n(end.held.data(), end.held.buffer.size(), end.sends ? kSent : kUnwritten);
    post(end, end.sends ? kAtFirst : kSteps);
  }
}

void Leaving::leave_first() {
  constexpr std::uint32_t kLooks = 30;
  // In random order, because the order in which a rank closes must not matter.
  for (std::size_t i = 1; i < ends_.size(); ++i) {
    std::swap(ends_[i], ends_[rng_.below(static_cast<std::uint32_t>(i) + 1)]);
  }
  for (End& end : ends_) {
    for (std::uint32_t looks = rng_.below(kLooks); looks != 0 && look(end); --looks) {
    }
    if (end.first) {
      leave(end);
    } else if (end.sends) {
      post(end, kMeanwhile);
    }
  }
}

void Leaving::go_on_and_leave() {
  constexpr int kRounds = 3000;  // what waits for a rank that is gone may wait for ever
  for (End& end : ends_) {
    if (!end.first && end.sends) {
      post(end, kSteps);
    }
  }
  bool waits = true;
  for (int round = 0; round < kRounds && waits; ++round) {
    waits = false;
    for (End& end : ends_) {
      waits = (end.held.connection != nullptr && look(end)) || waits;
    }
    ::sched_yield();
  }
  for (End& end : ends_) {
    if (!end.first) {
      leave(end);
    }
  }
}

void Leaving::check() const {
  for (const End& end : ends_) {
    if (!end.mistake.empty()) {
      throw std::runtime_error(end.mistake);
    }
    if (!std::equal(end.left.begin(), end.left.end(), end.held.data())) {
      throw std::runtime_error(std::string("the memory of a ") +
                               (end.sends ? "send to" : "receive from") + " rank " +
                               std::to_string(end.peer) + " was written after deregMr");
    }
  }
}

}  // namespace weft::collectives
