// Owns the planted bugs: a plugin between the harness and a real one, which does one thing wrong
// now and then, to show that the harness notices. names_of_bugs() lists them.
//
// The caller gets a Call as its request; the plugin's own request is inside of it. So a call can be
// held back, or told to have ended, while the plugin knows nothing of that.
#include "integration/collectives/bug_net.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "integration/collectives/forwarding_net.hpp"

namespace weft::collectives {
namespace {

using nccl::abi::kSuccess;

constexpr const char* kBugs[] = {"matching", "size", "order", "early",
                                 "reuse",    "hang", "torn",  "linger"};
// Seven and the eight steps of a buffer have no common divisor: in time the bug strikes every slot.
constexpr std::uint64_t kEvery = 7;  // it strikes so often, and so in any phase of eight steps
constexpr int kPatience = 20;        // tests until what was held back goes on all the same

// A send or receive of the caller, which has a pointer to this as its request: held back (`inner`
// null) or in flight.
struct Call {
  bool sends = false;
  void* connection = nullptr;
  Posted posted;
  bool early = false;     // a receive whose end the plugin may tell before its bytes are there
  void* inner = nullptr;  // the plugin's request, once it has one
  bool strikes = false;
  bool told = false;  // its end, too early
  int tests = 0;
  // Of a message that is torn: where it really arrives, and how much of it is there.
  std::vector<std::byte> aside = {};
  void* aside_memory = nullptr;
  bool flags_shown = false;
  int size = 0;
};

// Copies those parts of a line that a reader waits for, and not the rest: the upper half of each
// word of 8 bytes, where ll has its flag, and the whole last word of each 128 bytes, the flag of
// ll128. Data that is there only half is what a plugin that tears lines shows.
void copy_flags(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t kWord = 8;
  constexpr std::size_t kLine = 128;
  for (std::size_t at = 0; at + kWord <= size; at += kWord) {
    const bool ends_line = at % kLine == kLine - kWord;
    std::memcpy(to + at + (ends_line ? 0 : kWord / 2), from + at + (ends_line ? 0 : kWord / 2),
                ends_line ? kWord : kWord / 2);
  }
}

// One bug, in front of the plugin. Each rank has its own.
class BugNet final : public ForwardingNet {
 public:
  BugNet(std::unique_ptr<Net> net, std::string bug)
      : ForwardingNet(std::move(net)), bug_(std::move(bug)) {}

  Result send(void* connection, const Posted& message, void*& request) override {
    return take({.sends = true, .connection = connection, .posted = message}, "order", request);
  }
  Result receive(void* connection, std::span<const Posted> buffers, bool early,
                 void*& request) override {
    if (buffers.size() != 1) {
      return nccl::abi::kInvalidUsage;  // the harness posts one at a time
    }
    return take({.connection = connection, .posted = buffers[0], .early = early}, "matching",
                request);
  }

  // Its requests are not tested after this. To linger: the plugin is not told that memory and
  // connections have been given back.
  Result deregister_memory(void* connection, void* memory) override {
    std::erase_if(calls_, [&](const auto& one) { return one->connection == connection; });
    return bug_ == "linger" ? kSuccess : net().deregister_memory(connection, memory);
  }
  Result close_send(void* connection) override {
    return bug_ == "linger" ? kSuccess : net().close_send(connection);
  }
  Result close_receive(void* connection) override {
    return bug_ == "linger" ? kSuccess : net().close_receive(connection);
  }

  Result test(void* request, bool& done, std::span<int> sizes) override {
    Call& call = *static_cast<Call*>(request);
    done = false;
    // Calls whose end was told too early are tested by nobody else.
    if (const Result result = drain(); result != kSuccess) {
      return result;
    }
    if (call.strikes && (bug_ == "early" || bug_ == "reuse")) {
      done = true;
      call.told = true;  // drain() goes on with it
      sizes[0] = static_cast<int>(call.posted.size);
      return kSuccess;
    }
    while (call.strikes && bug_ == "hang") {
      ::pause();
    }
    if (call.inner == nullptr) {
      return ++call.tests < kPatience ? kSuccess : post(call);
    }
    if (call.flags_shown) {
      return show_rest(call, done, sizes);
    }
    const Result result = net().test(call.inner, done, sizes);
    if (done && !call.aside.empty()) {
      copy_flags(static_cast<std::byte*>(call.posted.data), call.aside.data(),
                 static_cast<std::size_t>(sizes[0]));
      call.flags_shown = true;
      call.size = sizes[0];
      done = false;
    }
    if (done) {
      sizes[0] -= call.strikes && bug_ == "size" && sizes[0] > 0 ? 1 : 0;
      forget(call);
    }
    return result;
  }

 private:
  // Posts the call, unless the bug holds it back. One that was held back is posted after the next
  // call of its connection: so the two have changed places.
  Result take(const Call& made, const char* changes_places, void*& request) {
    request = nullptr;
    Call* const before = held(made);
    calls_.push_back(std::make_unique<Call>(made));
    Call& call = *calls_.back();
    request = &call;
    // Of a connection's last messages none is held back for ever: test() loses its patience.
    const bool mine = (made.sends && (bug_ == "order" || bug_ == "reuse")) ||
                      (!made.sends && bug_ != "order" && bug_ != "reuse");
    call.strikes = mine && ++count_ % kEvery == 0;
    if (call.strikes && (bug_ == changes_places || bug_ == "reuse")) {
      return kSuccess;  // held back
    }
    Result result = kSuccess;
    if (call.strikes && bug_ == "torn") {
      call.aside.resize(made.posted.size);
      result = net().register_memory(made.connection, call.aside.data(), call.aside.size(),
                                     call.aside_memory);
    }
    result = result == kSuccess ? post(call) : result;
    if (call.inner == nullptr) {
      put_aside_away(call);
      forget(call);
      request = nullptr;
    } else if (before != nullptr && result == kSuccess) {
      result = post(*before);
    }
    return result;
  }
  // The call of that connection that is held back, if there is one.
  Call* held(const Call& made) {
    const auto found = std::find_if(calls_.begin(), calls_.end(), [&](const auto& one) {
      return one->inner == nullptr && one->connection == made.connection;
    });
    return found == calls_.end() ? nullptr : found->get();
  }
  Result show_rest(Call& call, bool& done, std::span<int> sizes) {
    std::memcpy(call.posted.data, call.aside.data(), static_cast<std::size_t>(call.size));
    sizes[0] = call.size;
    done = true;
    put_aside_away(call);
    forget(call);
    return kSuccess;
  }
  void put_aside_away(const Call& call) {
    if (call.aside_memory != nullptr) {
      (void)net().deregister_memory(call.connection, call.aside_memory);
    }
  }
  // A torn receive is posted with memory of ours instead of the caller's: test() then copies flags
  // first, and the rest when it is asked once more.
  Result post(Call& call) {
    if (!call.aside.empty()) {
      const Posted aside{call.aside.data(), call.posted.size, call.posted.tag, call.aside_memory};
      return net().receive(call.connection, {&aside, 1}, false, call.inner);
    }
    return call.sends ? net().send(call.connection, call.posted, call.inner)
                      : net().receive(call.connection, {&call.posted, 1}, call.early, call.inner);
  }
  // Those whose end was told too early are done in secret.
  Result drain() {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      Call& call = *calls_[i];
      if (!call.told) {
        continue;
      }
      bool done = false;
      int sizes[kMaxBuffers] = {};
      const Result result =
          call.inner == nullptr ? post(call) : net().test(call.inner, done, sizes);
      if (result != kSuccess) {
        return result;
      }
      if (done) {
        forget(call);
      }
    }
    return kSuccess;
  }
  void forget(const Call& call) {
    std::erase_if(calls_, [&](const auto& one) { return one.get() == &call; });
  }

  std::string bug_;
  // Calls that the bug could strike.
  std::uint64_t count_ = 0;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace

std::vector<std::string> names_of_bugs() { return {std::begin(kBugs), std::end(kBugs)}; }

std::unique_ptr<Net> plant(std::unique_ptr<Net> net, const std::string& bug) {
  return std::make_unique<BugNet>(std::move(net), bug);
}

}  // namespace weft::collectives
