// Owns asking which user is at the other end of a connection, and the record of users that were
// refused.
#include "emu/daemon/admission.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "emu/attach/seqpacket.hpp"

namespace weft::daemon {
namespace {

// Users with a count of their own; the others share one.
constexpr std::size_t kMaxUsers = 256;
constexpr uid_t kOtherUsers = static_cast<uid_t>(-1);

bool knows_all_users() {
  std::uint64_t inside = 1;
  std::uint64_t outside = 1;
  std::uint64_t count = 0;
  std::ifstream("/proc/self/uid_map") >> inside >> outside >> count;
  return inside == 0 && outside == 0 && count == 0xFFFFFFFFU;
}

}  // namespace

Admission::Admission(std::vector<uid_t> others, EventLog& events)
    : others_(std::move(others)), events_(events) {}

Result<void> Admission::check(const std::vector<uid_t>& others) {
  uid_t unknown = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> unknown;
  if (std::find(others.begin(), others.end(), unknown) != others.end() && !knows_all_users()) {
    return fail(ErrorCode::invalid_argument,
                "user " + std::to_string(unknown) +
                    " stands for everybody whom weftd's user namespace does not know: start the "
                    "network outside of it, or map the user");
  }
  return {};
}

std::optional<std::string> Admission::refusal(int socket) {
  const uid_t user = attach::peer_user(socket);
  if (attach::may_connect(socket) ||
      std::find(others_.begin(), others_.end(), user) != others_.end()) {
    return std::nullopt;
  }
  count(user);
  return "this network belongs to another user, and does not admit uid " + std::to_string(user) +
         "; `weft up --allow-uid " + std::to_string(user) + "` does";
}

void Admission::count(uid_t user) {
  ++refused_;
  const uid_t as =
      refused_of_.size() < kMaxUsers || refused_of_.contains(user) ? user : kOtherUsers;
  const std::uint64_t times = ++refused_of_[as];
  if (std::has_single_bit(times)) {
    events_.note("refuse", {{"uid", user}, {"times", times}});
    std::fprintf(stderr, "weftd: refused uid %u, %llu times so far\n", user,
                 static_cast<unsigned long long>(times));
  }
}

}  // namespace weft::daemon
