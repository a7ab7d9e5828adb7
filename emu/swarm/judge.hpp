// Owns the account of all requests of a run, and the rules that no completion may break.
//
// What a rule may use: the plan, the requests as they were posted, completions, memory, and the
// History. Never the state of an engine: the judge must not share its mistakes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "emu/swarm/canvas.hpp"
#include "emu/swarm/history.hpp"
#include "emu/swarm/plan.hpp"
#include "emu/swarm/process.hpp"
#include "srd/engine/requests.hpp"

namespace weft::swarm {

// Messages shorter than this have no room for their number. Without immediate data they cannot be
// told apart, and are only counted.
inline constexpr std::uint32_t kNumbered = 8;

// One accepted request. Its number is its cookie and, in the low 32 bits, its immediate data.
struct PostedRequest {
  // Orphaned: the process that posted it has crashed, so it never completes.
  enum class State : std::uint8_t { open, done, orphaned };
  srd::Completion::Kind kind = srd::Completion::Kind::send;
  State state = State::open;
  srd::Status status = srd::Status::ok;
  Step step;                      // the step of the plan that it carries out
  std::uint32_t incarnation = 0;  // of the process that posted it
  TimePoint posted{};
  std::uint64_t key = 0;  // of its content
  // Its destination: the life that its key belongs to, and the memory.
  std::uint32_t target_incarnation = 0;
  Process::Region* target = nullptr;  // nullptr: a key that belongs to none
  // The life of the peer that its engine knew when it was posted.
  std::optional<std::uint32_t> known_incarnation;
  srd::RegionKey remote_key;
  std::uint64_t offset = 0;  // of its place in the region
  bool has_place = false;    // the place is its own and must end up painted
  GuardedBuffer buffer;
  std::vector<std::uint32_t> delivered_to;  // incarnations of the destination
};

// A receive that was posted; its cookie is kReceiveCookie plus its number. The host is the one that
// posted it, whatever its incarnation: a crash orphans it.
struct PostedReceive {
  enum class State : std::uint8_t { open, done, orphaned };
  State state = State::open;
  std::uint32_t host = 0;
  std::uint32_t endpoint = 0;
  TimePoint posted{};
  GuardedBuffer buffer;
};

// How to use it: new_request(), fill it in, post it to the engine, then accepted() or
// withdraw_last_request(); the same for receives. References stay valid as long as the Judge. Each
// completion that an application polls goes to completed(). After the first broken rule the verdict
// stays as it is, and the run ends.
class Judge {
 public:
  // Cookies of receives lie above those of requests, so that a completion of the wrong kind is
  // recognised.
  static constexpr std::uint64_t kReceiveCookie = std::uint64_t{1} << 40;

  Judge(const Plan& plan, const History& history,
        const std::vector<std::deque<Process>>& processes);

  // The first rule that was broken, or empty.
  [[nodiscard]] const std::string& verdict() const { return verdict_; }
  void condemn(std::string text);

  // --- The account
  PostedRequest& new_request() { return requests_.emplace_back(); }
  void withdraw_last_request() { requests_.pop_back(); }
  [[nodiscard]] std::uint64_t last_cookie() const { return requests_.size(); }
  PostedReceive& new_receive() { return receives_.emplace_back(); }
  void withdraw_last_receive() { receives_.pop_back(); }
  [[nodiscard]] std::uint64_t last_receive_cookie() const {
    return kReceiveCookie + receives_.size();
  }
  void accepted(const PostedRequest& request);
  // The process has crashed: none of its requests will complete.
  void orphan(std::uint32_t host);
  [[nodiscard]] std::uint32_t open_requests() const { return open_; }
  [[nodiscard]] std::uint32_t open_requests_of(std::uint32_t host) const { return open_of_[host]; }
  [[nodiscard]] std::uint32_t open_requests_between(std::uint32_t from, std::uint32_t to) const;
  [[nodiscard]] const std::deque<PostedRequest>& requests() const { return requests_; }

  // A completion that an application polled. `from` is the host that the completion's peer names,
  // or kNobody for a stranger. Only successful completions have a peer that is looked at.
  void completed(TimePoint now, std::uint32_t host, const srd::Completion& completion,
                 std::uint32_t from);
  // The application of the host has polled until nothing was left, and posts no receive before
  // this.
  void polled(std::uint32_t host);
  // After silence has fallen: every request has ended, every announced message was delivered, and
  // all memory of all lives is accounted for.
  void check_at_the_end();

 private:
  void completed_request(TimePoint now, std::uint32_t host, const srd::Completion& completion);
  void completed_receive(TimePoint now, std::uint32_t host, const srd::Completion& completion,
                         std::uint32_t from);
  void check_message(TimePoint now, std::uint32_t host, const srd::Completion& completion,
                     std::uint32_t from, std::span<const std::byte> bytes);
  void check_write_immediate(TimePoint now, std::uint32_t host, const srd::Completion& completion,
                             std::uint32_t from);
  void heard_of_stranger();
  void delivered(TimePoint now, PostedRequest& request, std::uint32_t host);
  void check_effect(const PostedRequest& request, std::uint64_t number, std::uint32_t host);
  void check_read(const PostedRequest& request);
  void take_back_place(PostedRequest& request);
  [[nodiscard]] bool explained(TimePoint now, const PostedRequest& request,
                               srd::Status status) const;
  [[nodiscard]] bool may_lack_receive(const PostedRequest& request) const;
  [[nodiscard]] bool flaw_explains(const PostedRequest& request, srd::Status status) const;
  [[nodiscard]] bool silence_explains(TimePoint now, const PostedRequest& request,
                                      srd::Status status) const;
  [[nodiscard]] bool restart_explains(const PostedRequest& request) const;
  [[nodiscard]] bool met_later_life(const PostedRequest& request) const;
  [[nodiscard]] PostedRequest* request_of(std::uint64_t number);
  [[nodiscard]] const Process& process(std::uint32_t host) const { return processes_[host].back(); }
  // The application of the host polls rarely, and learns late what has happened; rules about what
  // it must know by now do not hold for it.
  [[nodiscard]] bool is_lazy(std::uint32_t host) const {
    return plan_.hosts[host].poll_interval > Duration::zero();
  }
  [[nodiscard]] std::string name(const PostedRequest& request) const;
  void check_regions(std::uint32_t host, const Process& process);

  // Messages too short to carry their number, by everything that is known of them.
  using Anonymous = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                               std::uint32_t>;  // host, qpn -> host, qpn; length

  const Plan& plan_;
  const History& history_;
  const std::vector<std::deque<Process>>& processes_;
  bool strangers_;  // the plan replays messages from addresses where no host is
  bool loses_packets_;
  std::string verdict_;
  std::deque<PostedRequest> requests_;
  std::deque<PostedReceive> receives_;
  // Requests that were refused for lack of a receive by a lazy host, until it has polled.
  std::vector<std::uint64_t> doubted_;
  std::uint32_t open_ = 0;
  std::vector<std::uint32_t> open_of_;
  std::map<Anonymous, std::uint32_t> anonymous_posted_;
  std::map<Anonymous, std::uint32_t> anonymous_delivered_;
};

}  // namespace weft::swarm
