// Owns the judge's rules about how a request may end, and what explains it: see judge_test.cpp.
#include <gtest/gtest.h>

#include "tests/sim/judge_court.hpp"

namespace weft::swarm {
namespace {

Plan plan_with_lazy_receiver() {
  Plan plan = small_plan();
  plan.hosts[kReceiver].poll_interval = 100us;
  return plan;
}

Plan plan_with_lossy_network() {
  Plan plan = small_plan();
  plan.steps.push_back({.act = Act::set_loss});
  return plan;
}

// --- Its status

constexpr const char* kUnexplained = "which nothing explains";

// A request with this flaw may only end so.
template <Flaw flaw, Act act, Status status>
void flaw_story(Court& c, bool broken) {
  const auto flawed = c.post({.act = act, .flaw = flaw, .length = 24});
  c.end(flawed, broken ? Status::ok : status);
}

// The network is cut for so long that the peer is given up, unless it is `broken` in one way.
struct Silence {
  Duration waited = 16ms;
  Duration apart = 16ms;
  bool heard = false;  // of the peer, ever
  bool acknowledged = false;
};
void fall_silent(Court& c, const Silence& silence, Status status) {
  if (silence.heard) {
    c.history.heard(c.now, kSender, 0, kReceiver, 0, silence.acknowledged);
  }
  const auto write = c.write();
  const TimePoint end = c.now + 16ms;
  const TimePoint cut = end - silence.apart;
  const TimePoint asked = end - silence.waited;
  c.history.asked(std::min(asked, end), kSender, kReceiver);
  c.history.cut(cut, kSender, kReceiver, true);
  c.now = end;
  c.end(write, status);
}

constexpr JudgeRule kStatuses[] = {
    {"bad_qpn", kUnexplained,
     [](Court& c, bool broken) {
       const auto send = c.send();
       c.history.endpoint_unavailable(kReceiver, broken ? kUnsolicited : kSolicited);
       c.end(send, Status::bad_qpn);
     }},
    {"bad_qpn_since_it_was_posted", kUnexplained,
     [](Court& c, bool broken) {
       c.history.endpoint_unavailable(kReceiver, kSolicited);
       c.history.endpoint_available(c.now + (broken ? 0us : 20us), kReceiver, kSolicited);
       c.now += 10us;
       c.end(c.send(), Status::bad_qpn);
     }},
    {"receiver_not_ready", kUnexplained,
     [](Court& c, bool broken) {
       c.history.receives(c.now, kReceiver, kSolicited, broken ? 1 : 0);
       c.end(c.send(), Status::receiver_not_ready);
     }},
    {"receiver_not_ready_of_a_write", kUnexplained,
     [](Court& c, bool broken) {
       c.history.receives(c.now, kReceiver, kSolicited, 0);
       const auto write =
           c.post({.act = Act::write, .immediate = !broken, .rnr_retry = kRetries, .length = 24});
       c.end(write, Status::receiver_not_ready);
     }},
    {"receiver_not_ready_of_unsolicited_immediate_data", kUnexplained,
     [](Court& c, bool broken) {
       const std::uint8_t endpoint = broken ? kUnsolicited : kSolicited;
       c.history.receives(c.now, kReceiver, endpoint, 0);
       const auto write = c.post({.act = Act::write,
                                  .peer_endpoint = endpoint,
                                  .immediate = true,
                                  .rnr_retry = kRetries,
                                  .length = 24});
       c.end(write, Status::receiver_not_ready);
     }},
    {"receiver_not_ready_with_retries_without_end", kUnexplained,
     [](Court& c, bool broken) {
       c.history.receives(c.now, kReceiver, kSolicited, 0);
       const auto send = c.post({.act = Act::send,
                                 .rnr_retry = broken ? srd::kRnrRetryForever : kRetries,
                                 .length = 24});
       c.end(send, Status::receiver_not_ready);
     }},
    {"receiver_not_ready_of_a_lazy_host", "and there were receives",
     [](Court& c, bool broken) {
       c.history.receives(c.now, kReceiver, kSolicited, 2);
       c.end(c.send(), Status::receiver_not_ready);
       c.now += 100us;  // only now does the application learn that both, or one, had been used
       c.history.receives(c.now, kReceiver, kSolicited, 1);
       if (!broken) {
         c.history.receives(c.now, kReceiver, kSolicited, 0);
       }
       c.judge.polled(kReceiver);
     },
     plan_with_lazy_receiver},
    {"receiver_not_ready_of_a_lazy_host_that_never_polls_again", "and there were receives",
     [](Court& c, bool broken) {
       c.history.receives(c.now, kReceiver, kSolicited, broken ? 1 : 0);
       c.end(c.send(), Status::receiver_not_ready);
     },
     plan_with_lazy_receiver},
    {"length_error", kUnexplained,
     [](Court& c, bool broken) {
       c.end(c.send(broken ? kReceiveSize : kReceiveSize + 1), Status::length_error);
     }},
    {"length_error_of_a_write", kUnexplained,
     [](Court& c, bool broken) {
       const auto posted =
           c.post({.act = broken ? Act::write : Act::send, .length = kReceiveSize + 1});
       c.end(posted, Status::length_error);
     }},
    {"bad_key", kUnexplained,
     [](Court& c, bool broken) {
       const auto write = c.write();
       if (!broken) {
         Process::Region& region = *write.request.target;
         region.registered = false;
       }
       c.end(write, Status::bad_key);
     }},
    {"bad_key_at_a_later_life", kUnexplained,
     [](Court& c, bool broken) {
       if (broken) {  // a sender that knows the former life does not address the later one
         c.history.heard(c.now, kSender, 0, kReceiver, 0, true);
       }
       const auto write = c.write();
       c.restart(kReceiver);
       c.end(write, Status::bad_key);
     }},
    {"flushed", kUnexplained,
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.history.flushed(c.now, kSender, broken ? kUnsolicited : kSolicited, kReceiver);
       c.end(write, Status::flushed);
     }},
    {"peer_restarted", kUnexplained,
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.restart(broken ? kSender : kReceiver);
       c.end(write, Status::peer_restarted);
     }},
    {"peer_restarted_as_was_known", kUnexplained,
     [](Court& c, bool broken) {
       c.restart(kReceiver);
       c.history.heard(c.now, kSender, 0, kReceiver, broken ? 1 : 0, true);
       c.end(c.send(), Status::peer_restarted);
     }},
    {"unresponsive_after_half_of_the_time", kUnexplained,
     [](Court& c, bool broken) {
       fall_silent(c, {.waited = broken ? 9ms : 16ms, .heard = true}, Status::unresponsive);
     }},
    {"unresponsive_after_half_of_the_time_where_packets_get_lost", kUnexplained,
     [](Court& c, bool broken) {
       fall_silent(c, {.waited = broken ? 9ms : 16ms, .heard = true}, Status::unresponsive);
     },
     plan_with_lossy_network},
    {"unresponsive_though_acknowledged", kUnexplained,
     [](Court& c, bool broken) {
       c.history.heard(c.now, kSender, 0, kReceiver, 0, true);
       c.history.asked(c.now, kSender, kReceiver);
       c.history.cut(c.now, kReceiver, kSender, true);
       const auto write = c.write();
       c.now += 8ms;
       c.history.heard(c.now, kSender, 0, kReceiver, 0, broken);
       c.history.asked(c.now, kSender, kReceiver);
       c.now += 8ms;
       c.end(write, Status::unresponsive);
     }},
    {"unresponsive_in_a_network_that_works", kUnexplained,
     [](Court& c, bool broken) {
       fall_silent(c, {.apart = broken ? 9ms : 16ms, .heard = true}, Status::unresponsive);
     }},
    {"unresponsive_though_never_heard", kUnexplained,
     [](Court& c, bool broken) { fall_silent(c, {.heard = !broken}, Status::unresponsive); }},
    {"unreachable_though_heard", kUnexplained,
     [](Court& c, bool broken) {
       fall_silent(c, {.heard = true, .acknowledged = broken}, Status::unreachable);
     }},
    {"access_denied", kUnexplained, flaw_story<Flaw::no_access, Act::write, Status::access_denied>},
    {"bad_qpn_by_flaw", kUnexplained, flaw_story<Flaw::bad_qpn, Act::write, Status::bad_qpn>},
    {"bad_qkey", kUnexplained, flaw_story<Flaw::bad_qkey, Act::send, Status::bad_qkey>},
    {"bad_key_by_flaw", kUnexplained, flaw_story<Flaw::bad_key, Act::write, Status::bad_key>},
    {"stale_key", kUnexplained, flaw_story<Flaw::stale_key, Act::write, Status::bad_key>},
    {"wrong_domain", kUnexplained, flaw_story<Flaw::wrong_domain, Act::write, Status::bad_key>},
    {"out_of_bounds", kUnexplained,
     flaw_story<Flaw::out_of_bounds, Act::write, Status::out_of_bounds>},
    {"straddling", kUnexplained, flaw_story<Flaw::straddling, Act::write, Status::out_of_bounds>},
    {"refusal_without_a_flaw", kUnexplained,
     [](Court& c, bool broken) {
       const auto write = c.write();
       c.place(write);
       c.end(write, broken ? Status::access_denied : Status::ok);
     }},
};
INSTANTIATE_TEST_SUITE_P(Statuses, JudgeRules, ::testing::ValuesIn(kStatuses),
                         [](const auto& rule) { return std::string{rule.param.name}; });

}  // namespace
}  // namespace weft::swarm
