// Owns the proof that each rule of turns fires (emu/swarm/fairness.hpp). A story is told twice, by
// hand and without an engine: as it should be, and with the one thing wrong that the rule is about.
// A rule that never fired would make every swarm look fair.
#include "emu/swarm/fairness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "emu/swarm/world_names.hpp"

namespace weft::swarm {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kMtu = 4096;
constexpr std::uint32_t kLong = 40;  // packets of a long message
constexpr std::uint16_t kPaths = 64;
constexpr std::uint32_t kWindow = 16;

Plan three_hosts() {
  Plan plan;
  plan.hosts.resize(3);
  for (HostPlan& host : plan.hosts) {
    host.engine.mtu_payload = kMtu;
    // Nothing but turns decides who leaves next: no rate, no credits and no choice of paths.
    host.engine.congestion_control = "none";
    host.engine.path_selector = "round-robin";
    host.engine.receiver_credits = false;
    host.engine.window_packets = kWindow;
    host.engine.paths = kPaths;
  }
  return plan;
}

// With a path selector that answers marks by leaving the path.
Plan with_reps() {
  Plan plan = three_hosts();
  for (HostPlan& host : plan.hosts) {
    host.engine.path_selector = "reps";
  }
  return plan;
}

// What leaves at one time keeps to a path for so many packets.
constexpr std::uint32_t kRun = 4;

Plan with_runs() {
  Plan plan = with_reps();
  for (HostPlan& host : plan.hosts) {
    host.engine.path_run = kRun * (kMtu + sizeof(srd::wire::DataHeader));
  }
  return plan;
}

// A packet of host 0, unless it is said otherwise; to host 1.
struct Left {
  srd::wire::PacketType type = srd::wire::PacketType::write;
  std::uint32_t from = 0;
  std::uint32_t to = 1;
  std::uint32_t message = 0;
  std::uint32_t packets = 1;  // of its message
  std::uint64_t number = 0;   // of the request, in the payload of a send
  std::uint16_t path = 0;
  bool marked = false;
  std::uint32_t psn = 0;
};

// What the network shows of hosts that send to each other.
class Street {
 public:
  explicit Street(Plan plan) : plan_(std::move(plan)), fairness_(plan_) {}

  // A send that was posted to host 1, beside other open requests unless it is the only one.
  void posts(std::uint64_t number, std::uint32_t open = 2) {
    Step step;
    step.act = Act::send;
    step.host = 0;
    step.peer = 1;
    step.length = sizeof number;
    fairness_.posted(now, number, step, open);
  }
  void leaves(const Left& what, int times = 1) {
    for (int i = 0; i < times; ++i) {
      fairness_.saw(now, NetworkEvent::sent, packet(what));
    }
  }
  void arrives(const Left& what, int times = 1) {
    for (int i = 0; i < times; ++i) {
      fairness_.saw(now, NetworkEvent::delivered, packet(what));
    }
  }
  void loses(const Left& what) { fairness_.saw(now, NetworkEvent::lost, packet(what)); }
  void waits() {
    now += 1us;
    fairness_.check_departures(now);
  }
  Fairness& judge() { return fairness_; }

  TimePoint now = time_at(1s);

 private:
  [[nodiscard]] VirtualNetwork::InFlight packet(const Left& what) const {
    srd::wire::DataHeader header{};
    header.common.type = static_cast<std::uint8_t>(what.type);
    header.common.path = what.path;
    header.psn = what.psn;
    header.send_time = static_cast<std::uint32_t>(nanoseconds(now));
    header.message = what.message;
    header.message_length = what.packets * kMtu;
    header.payload_length = static_cast<std::uint16_t>(kMtu);
    VirtualNetwork::InFlight made;
    made.from = what.from;
    made.to = what.to;
    made.path = srd::PathId{what.path};
    made.ecn = what.marked ? srd::Ecn::congested : srd::Ecn::capable_0;
    made.header_size = sizeof header;
    made.bytes.resize(sizeof header + sizeof what.number);
    srd::wire::store(made.bytes.data(), header);
    std::memcpy(made.bytes.data() + sizeof header, &what.number, sizeof what.number);
    return made;
  }

  Plan plan_;
  Fairness fairness_;
};

using srd::wire::PacketType;
constexpr Left kShort{};
constexpr Left kBulk{.message = 1, .packets = kLong};
constexpr Left kOtherBulk{.message = 2, .packets = kLong};
constexpr Left kMarked{.path = 5, .marked = true};
constexpr Left kUnmarked{.path = 5};
// What a path may be taken for without an answer: twice to begin with.
constexpr int kExplorations = 2;

Left send_of(std::uint64_t number) { return {.type = PacketType::send, .number = number}; }

struct FairnessRule {
  const char* name;
  const char* verdict;  // a part of it
  void (*story)(Street& street, bool broken);
  Plan (*plan)() = three_hosts;
};

// A story is what the network sees of host 0, packet by packet. Where a story counts, it is with
// the last number that the rule lets pass, and with one more.
constexpr FairnessRule kRules[] = {
    {"a_short_send_waits_for_few_long_packets",
     "request 1 waited for 2 packets of longer messages and 0 equals",
     [](Street& s, bool broken) {
       s.posts(1);
       s.leaves(kBulk, broken ? 2 : 1);
       s.leaves(send_of(1));
     }},
    {"and_for_as_many_more_as_for_equals", "waited for 4 packets of longer messages and 2 equals",
     [](Street& s, bool broken) {
       s.posts(1);
       s.leaves(kBulk, broken ? 4 : 3);
       s.leaves(kShort, 2);
       s.leaves(send_of(1));
     }},
    {"so_does_the_answer_to_a_short_read", "the answer to a short read waited for 2 packets",
     [](Street& s, bool broken) {
       s.arrives({.type = PacketType::read_request, .from = 1, .to = 0, .message = 9});
       s.leaves(kBulk, broken ? 2 : 1);
       s.leaves({.type = PacketType::read_response, .message = 9});
     }},
    {"short_sends_leave_as_they_were_posted", "request 1 leaves after request 2",
     [](Street& s, bool broken) {
       s.posts(1);
       s.posts(2);
       s.leaves(send_of(broken ? 2 : 1));
       s.leaves(send_of(broken ? 1 : 2));
     }},
    {"a_long_message_waits_for_few_short_packets",
     "message 1 waited for 2 single packets and 0 of other long messages",
     [](Street& s, bool broken) {
       s.leaves(kBulk);
       s.leaves(kShort, broken ? 2 : 1);
       s.leaves(kBulk);
     }},
    {"and_for_a_share_of_other_long_ones", "waited for 0 single packets and 32 of other long",
     [](Street& s, bool broken) {
       s.leaves(kBulk);
       s.leaves(kOtherBulk, broken ? 32 : 31);
       s.leaves(kBulk);
     }},
    {"a_peers_turn_ends", "host 0 to host 2: waits for 9 packets to host 1",
     [](Street& s, bool broken) {
       s.leaves(kShort, broken ? 9 : 8);
       s.leaves({.to = 2});
     }},
    {"a_request_to_an_idle_peer_leaves_at_once", "nothing else is under way between them",
     [](Street& s, bool broken) {
       s.posts(1, 1);
       if (!broken) {
         s.leaves(send_of(1));
       }
       s.waits();
     }},
    {"a_marked_path_is_left", "path 5 is taken again although",
     [](Street& s, bool broken) {
       for (int i = 0; i <= kExplorations; ++i) {
         s.leaves(kMarked);
         s.arrives(broken ? kMarked : kUnmarked);
       }
     },
     with_reps},
    {"that_it_was_good_once_is_forgotten", "path 5 is taken again although",
     [](Street& s, bool broken) {
       // More good news than the selector may remember: it must not outweigh what came after.
       s.arrives(kUnmarked, 1000);
       for (int i = 0; i < 500; ++i) {
         s.leaves(kMarked);
         s.arrives(broken ? kMarked : kUnmarked);
       }
     },
     with_reps},
    {"a_run_brings_its_path_back_once", "path 5 is taken again although no run",
     [](Street& s, bool broken) {
       for (std::uint32_t psn = 0; psn < kRun; ++psn) {
         s.leaves({.path = 5, .psn = psn});
       }
       for (std::uint32_t psn = 0; psn < kRun; ++psn) {
         s.arrives({.path = 5, .psn = psn});
       }
       for (std::uint32_t run = 0; run < kExplorations + (broken ? 1U : 0U); ++run) {
         s.waits();
         s.leaves({.path = 5, .psn = kRun + run});
       }
     },
     with_runs},
};

class FairnessRules : public ::testing::TestWithParam<FairnessRule> {
 protected:
  [[nodiscard]] static std::string verdict_on(bool broken) {
    Street street(GetParam().plan());
    GetParam().story(street, broken);
    return street.judge().verdict();
  }
};

TEST_P(FairnessRules, FiresWhereItIsBroken) {
  EXPECT_THAT(verdict_on(true), ::testing::HasSubstr(GetParam().verdict));
}

TEST_P(FairnessRules, IsSilentWhereItIsKept) {
  EXPECT_THAT(verdict_on(false), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(, FairnessRules, ::testing::ValuesIn(kRules),
                         [](const auto& rule) { return std::string{rule.param.name}; });

// --- What excuses

TEST(FairnessExcuses, ARequestThatIsCancelledNeedNotLeave) {
  Street street(three_hosts());
  street.posts(1, 1);
  street.judge().withdrawn(0);
  street.waits();
  EXPECT_EQ(street.judge().verdict(), "");
}

TEST(FairnessExcuses, AHostThatStandsStillOwesNothing) {
  Street street(three_hosts());
  street.posts(1, 1);
  street.judge().forget(0);
  street.waits();
  EXPECT_EQ(street.judge().verdict(), "");
}

TEST(FairnessExcuses, AfterALossNobodyKnowsWhatASenderKnowsOfPaths) {
  Street street(with_reps());
  street.loses(kMarked);
  // More often than the rule would let pass without the loss.
  street.leaves(kMarked, 3 * kExplorations);
  EXPECT_EQ(street.judge().verdict(), "");
}

}  // namespace
}  // namespace weft::swarm
