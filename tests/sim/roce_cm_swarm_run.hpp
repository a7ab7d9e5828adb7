// Owns what a run of connection managers consists of: hosts, the ids of their programs, and what
// these know. The managers are the real ones; hosts, network and programs are this test's. Time is
// virtual, and everything is drawn from one seed, so that a run that broke a rule can be had again.
// What is done is in roce_cm_swarm_world.cpp, what must hold in roce_cm_swarm_rules.cpp.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "emu/roce/cm/manager.hpp"
#include "srd/base/rng.hpp"
#include "tests/sim/roce_cm_swarm.hpp"

namespace weft::roce::cm {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr std::uint16_t kPort = 7174;
inline constexpr std::uint32_t kNobody = ~0U;

inline srd::Address address_of(std::uint32_t host) { return srd::Address::v4(10, 9, 0, host + 1); }

// One host's own book of ports: no other host competes for them.
class Claims final : public ServiceClaims {
 public:
  bool claim(std::uint64_t service) override { return own_.insert(service).second; }
  void release(std::uint64_t service) override { own_.erase(service); }
  [[nodiscard]] bool empty() const { return own_.empty(); }

 private:
  std::set<std::uint64_t> own_;
};

// Whom one can reach is the network's to say, and it says so by losing messages.
class EverythingIsNear final : public Reachability {
 public:
  [[nodiscard]] int reach(const srd::Address& /*source*/,
                          const srd::Address& /*destination*/) const override {
    return 0;
  }
};

constexpr std::uint32_t bit(EventKind kind) { return 1U << static_cast<std::uint32_t>(kind); }
// What answers a program that has asked for a connection.
inline constexpr std::uint32_t kAnswers = bit(EventKind::connect_response) |
                                          bit(EventKind::rejected) | bit(EventKind::unreachable) |
                                          bit(EventKind::established);
inline constexpr std::uint32_t kEnds =
    bit(EventKind::rejected) | bit(EventKind::unreachable) | bit(EventKind::disconnected);

// An id of a program, and what the program knows.
struct Party {
  enum class Role : std::uint8_t { listener, active, passive };
  std::uint32_t host = 0;
  std::uint32_t life = 0;  // of the host
  Handle id;
  Role role = Role::active;
  bool datagram = false;
  std::uint32_t listener = kNobody;  // passive
  std::uint32_t qpn = 0;
  std::uint32_t partner = kNobody;
  bool asked = false;     // active: it has called connect
  bool fetched = false;   // passive: the program has taken the request
  bool accepted = false;  // by either side
  bool granted = false;   // active: by the other one
  bool reheard = false;   // active: by another life of the host
  bool rejected = false;
  bool parted = false;  // it has called disconnect
  bool gone = false;    // it has been destroyed
  bool reuses = false;  // the queue pair of another
  std::uint32_t heard = 0;
  TimePoint act_at = kNever;
  TimePoint accepted_at = kNever;
  TimePoint left_at = kNever;
  [[nodiscard]] bool has_heard(std::uint32_t kinds) const { return (heard & kinds) != 0; }
};

struct SwarmHost {
  std::uint32_t life = 0;
  std::unique_ptr<Claims> claims;
  std::unique_ptr<Manager> manager;                // null: dead
  std::map<std::uint32_t, std::uint32_t> parties;  // by handle
  std::set<std::uint32_t> requests;                // that were heard, by the asking id
  std::uint32_t listeners[2] = {kNobody, kNobody};
  TimePoint dies_at = kNever;
  TimePoint returns_at = kNever;
};

class Swarm {
 public:
  explicit Swarm(const SwarmPlan& plan) : plan_(plan), rng_(mix64(plan.seed ^ 0xC33)) {}
  SwarmOutcome carry_out();

 private:
  // --- The world.
  void start(std::uint32_t host);
  void kill(std::uint32_t host);
  void run_until(TimePoint end);
  [[nodiscard]] TimePoint next_moment() const;
  void live(std::uint32_t host);
  void settle();
  void send(const Outgoing& message);
  void deliver();
  [[nodiscard]] bool healed() const { return now_ >= healing_; }
  [[nodiscard]] Duration thought();

  // --- Programs.
  void listen(std::uint32_t host, bool datagram);
  void begin(std::uint32_t host, std::uint32_t to);
  void act(std::uint32_t number);
  void act_as_listener(Party& party);
  void act_as_active(Party& party);
  void act_as_passive(Party& party);
  void act_connected(Party& party);
  void accept(Party& party);
  void destroy(Party& party);
  void destroy_all();
  std::uint32_t enlist(Party party);

  // --- Rules.
  void hear(std::uint32_t host, const Event& event);
  void hear_request(std::uint32_t host, const Event& event);
  void hear_answer(Party& party, const Event& event);
  void hear_end(Party& party, const Event& event);
  void compare_numbers(Party& active);
  [[nodiscard]] bool is_alive(const Party& party) const {
    return !party.gone && hosts_[party.host].manager != nullptr &&
           hosts_[party.host].life == party.life;
  }
  [[nodiscard]] bool has_left(std::uint32_t number) const;
  [[nodiscard]] bool is_excused_from_answering(const Party& party) const;
  [[nodiscard]] bool has_had_time(const Party& party, TimePoint since) const;
  void check_the_end();
  void check_open(const Party& party);
  void check_pair(const Party& active);
  void check_nothing_stays();
  void check_a_new_connection();
  void condemn(const std::string& what) {
    if (outcome_.failure.empty()) {
      outcome_.failure = std::to_string((now_ - TimePoint{}) / milliseconds{1}) + " ms: " + what;
    }
  }
  void condemn(const Party& party, const std::string& what) {
    condemn("id " + std::to_string(party.id.value()) + " of host " + std::to_string(party.host) +
            (party.role == Party::Role::passive ? " (passive): " : " (active): ") + what);
  }
  Manager& manager(const Party& party) { return *hosts_[party.host].manager; }

  const SwarmPlan& plan_;
  Rng rng_;
  EverythingIsNear reachability_;
  std::vector<SwarmHost> hosts_;
  std::deque<Party> parties_;
  std::multimap<TimePoint, Outgoing> flights_;
  std::vector<TimePoint> connects_;  // when the next ones are asked for, latest first
  TimePoint now_{};
  // From then on the network does no harm and programs do what they should: what is open has to
  // end.
  TimePoint healing_ = kNever;
  // No two queue pairs of a run share a number, on whatever host: one that is told wrong is
  // noticed.
  std::uint32_t next_qpn_ = 0x100;
  std::uint32_t steps_ = 0;
  SwarmOutcome outcome_;
};

}  // namespace weft::roce::cm
