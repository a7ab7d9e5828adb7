// Owns the table of conditions.
//
// Each is strong enough that the mistakes it is to show appear in every run of a second or so, and
// weak enough that a program that does what its device's protocol asks of it goes on.
#include "emu/cli/matrix/condition.hpp"

#include <algorithm>

namespace weft::cli {
namespace {

// Each host below a leaf of its own: whatever two of them say passes one of four spines.
constexpr const char* kFourPaths = R"(name: four-paths
topology:
  generator: leaf-spine
  hosts: {hosts}
  hosts_per_leaf: 1
  oversubscription: 0.25
  rate: 100Gbps
  delay: 1us
)";

// The same with a round trip of four milliseconds: what is lost comes again that much later, and
// not before a program has looked away.
constexpr const char* kFourLongPaths = R"(name: four-long-paths
topology:
  generator: leaf-spine
  hosts: {hosts}
  hosts_per_leaf: 1
  oversubscription: 0.25
  rate: 100Gbps
  delay: 500us
)";

// Two NICs for each host, in networks that have nothing in common.
constexpr const char* kTwoRails =
    "name: two-rails\n"
    "topology:\n"
    "  generator: multi-plane\n"
    "  planes: 2\n"
    "  hosts: {hosts}\n"
    "  hosts_per_leaf: 1\n"
    "  rate: 100Gbps\n"
    "  delay: 1us\n";

std::vector<Condition> make_conditions() {
  std::vector<Condition> all;
  all.push_back({.name = "ideal",
                 .about = "nothing is lost, late or out of order",
                 .shows = "what fails everywhere",
                 // A direct ring is opened while the first frames are still on their way through
                 // weftd, and later ones could overtake them there.
                 .through_weftd = true});
  // On every path: were some paths slower than others, a sender that avoids slow ones would soon
  // send in order again.
  all.push_back({.name = "reorder",
                 .about = "three of ten frames come 2 ms later than the others, on every path",
                 .shows = "data that is taken for complete when a later write, or its last byte, "
                          "has come; early messages that are not expected",
                 .topology = kFourPaths,
                 .faults = {"link: tor*->spine*, reordering: 0.3, reorder_delay: 2ms"}});
  all.push_back({.name = "loss",
                 .about = "1 % of all frames is lost, and a round trip takes 4 ms",
                 .shows = "buffers that are used again before their completion; no retries",
                 .topology = kFourLongPaths,
                 .faults = {"link: tor*->spine*, loss: 0.01"}});
  all.push_back(
      {.name = "duplication",
       .about = "5 % of all frames come twice",
       .shows = "datagrams that are taken for reliable, protocols of one's own that count",
       .topology = kFourPaths,
       .faults = {"link: tor*->spine*, duplication: 0.05"}});
  all.push_back({.name = "corruption",
                 .about = "1 % of all frames is damaged, which the NIC notices",
                 .shows = "the same as loss, in a network without distance",
                 .topology = kFourPaths,
                 .faults = {"link: tor*->spine*, corruption: 0.01"}});
  Condition dying{.name = "dying-path",
                  .about = "one of four paths is always dead, another one every 100 ms",
                  .shows = "no retries, or too short ones",
                  .topology = kFourPaths};
  for (int spine = 0; spine < 4; ++spine) {
    dying.faults.push_back("switch: spine" + std::to_string(spine) +
                           ", at: " + std::to_string(100 * spine) +
                           "ms, lasts: 100ms, every: 400ms, times: 100000");
  }
  all.push_back(std::move(dying));
  all.push_back({.name = "rail-down",
                 .about = "hosts have two NICs, and the second ones lose their links after 500 ms",
                 .shows = "programs that take a rail for there for ever: no other one is tried",
                 .topology = kTwoRails,
                 .faults = {"link: \"host*-plane1*\", at: 500ms, down: true"}});
  Condition slow{
      .name = "slow-peer",
      .about = "the last host's programs stand still for 150 ms, every 300 ms, ten times",
      .shows = "impatience: time-outs of one's own that are too short"};
  for (int pause = 0; pause < 10; ++pause) {
    slow.stops.push_back("{last}@" + std::to_string(100 + 300 * pause) + "ms+150ms");
  }
  all.push_back(std::move(slow));
  all.push_back({.name = "receiver-not-ready",
                 .about = "NICs overlook posted receives for 20 ms",
                 .shows = "programs that send without retries, forget what was refused, or "
                          "lose buffers with errors",
                 .late_receives = "20ms"});
  all.push_back({.name = "peer-dies",
                 .about = "the last host's programs are killed after half a second",
                 .shows = "programs that wait for ever for a peer that is gone, or crash",
                 .kills = {"{last}@500ms"}});
  return all;
}

std::string filled(std::string_view text, std::string_view placeholder, const std::string& value) {
  std::string out(text);
  if (const std::size_t at = out.find(placeholder); at != std::string::npos) {
    out.replace(at, placeholder.size(), value);
  }
  return out;
}

}  // namespace

std::string of_the_last_host(const std::string& mishap, std::size_t hosts) {
  return filled(mishap, "{last}", "h" + std::to_string(hosts));
}

const std::vector<Condition>& all_conditions() {
  static const std::vector<Condition> all = make_conditions();
  return all;
}

const Condition* find_condition(std::string_view name) {
  const auto found = std::ranges::find(all_conditions(), name, &Condition::name);
  return found == all_conditions().end() ? nullptr : &*found;
}

std::string topology_text(const Condition& condition, std::size_t hosts) {
  constexpr std::size_t kMinHosts = 2;  // a leaf and a spine need another leaf
  return filled(condition.topology, "{hosts}", std::to_string(std::max(hosts, kMinHosts)));
}

// As words, so that people can repeat a cell by the `weft run` that its report shows.
std::vector<std::string> run_options(const Condition& condition, std::size_t hosts) {
  std::vector<std::string> words;
  const auto add = [&](const char* option, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      words.insert(words.end(), {option, of_the_last_host(value, hosts)});
    }
  };
  if (condition.through_weftd) {
    words.emplace_back("--through-weftd");
  }
  add("--fault", condition.faults);
  add("--kill", condition.kills);
  add("--stop", condition.stops);
  if (!condition.late_receives.empty()) {
    words.insert(words.end(), {"--late-receives", condition.late_receives});
  }
  return words;
}

}  // namespace weft::cli
