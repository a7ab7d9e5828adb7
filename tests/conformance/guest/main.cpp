// Owns choosing the case: `guest CASE`. Each runs in a process of its own, because many end it, or
// leave its descriptors, handlers or memory as no other case could use them. What a case is about
// is said in cases.hpp; stock/guest_test.cpp runs them all.
#include <cstdio>
#include <cstring>

#include "tests/conformance/guest/cases.hpp"

namespace {

struct Case {
  const char* name;
  int (*run)();
};

using namespace weft::conformance;  // NOLINT: a table of them
constexpr Case kCases[] = {
    {"exit_in_handler", exit_in_handler},
    {"exit_at_once", exit_at_once},
    {"exit_cancelled", exit_cancelled},
    {"cancelled_poller", cancelled_poller},
    {"cancelled_waiter", cancelled_waiter},
    {"closed_waiter", closed_waiter},
    {"late_handler", late_handler},
    {"late_handler_of_a_full_process", late_handler_of_a_full_process},
    {"restarted_waiter", restarted_waiter},
    {"cancelled_waiters", cancelled_waiters},
    {"closed_duplicate", closed_duplicate},
    {"cancelled_questions", cancelled_questions},
    {"closed_while_written", closed_while_written},
    {"written_in_a_full_process", written_in_a_full_process},
    {"forks", forks},
    {"forked_channels", forked_channels},
    {"children_past_fork", children_past_fork},
    {"grandchildren_by_vfork", grandchildren_by_vfork},
    {"first_use", first_use},
    {"first_calls_while_loading", first_calls_while_loading},
    {"verbs_while_loading", verbs_while_loading},
    {"libraries_that_come_and_go", libraries_that_come_and_go},
    {"close_all", close_all},
    {"failed_dup", failed_dup},
    {"numbers", numbers},
    {"channels", channels},
    {"duplicated_onto_itself", duplicated_onto_itself},
    {"replaced_while_used", replaced_while_used},
    {"duplicated_while_closed", duplicated_while_closed},
    {"ioctls_of_any_file", ioctls_of_any_file},
    {"flags_of_open", flags_of_open},
    {"lowest_number", lowest_number},
    {"without_the_kernel", without_the_kernel},
    {"posts_past_fork", posts_past_fork},
    {"bad_posts", bad_posts},
    {"trap_forgets", trap_forgets},
    {"trap_with_handler", trap_with_handler},
    {"hooked_memory", hooked_memory},
    {"gone_buffers", gone_buffers},
    {"gone_everywhere", gone_everywhere},
    {"own_faults", own_faults},
    {"masked_faults", masked_faults},
    {"own_deaths", own_deaths},
    {"vfork_actions", vfork_actions},
    {"netlink_sockets", netlink_sockets},
    {"open_without_malloc", open_without_malloc},
    {"relative_paths", relative_paths},
    {"steps_back", steps_back},
    {"bad_pointers", bad_pointers},
    {"own_links", own_links},
    {"sandboxed", sandboxed},
    {"other_names", other_names},
    {"small_stacks", small_stacks},
    {"device_names", device_names},
    {"listings", listings},
    {"whereabouts", whereabouts},
    {"positions", positions},
    {"interfaces", interfaces},
    {"past_us", past_us},
    {"few_numbers", few_numbers},
    {"event_latency", event_latency},
    {"spin_calls", spin_calls},
    {"spin_stores", spin_stores},
    {"spin_writes", spin_writes},
};

}  // namespace

int main(int argc, char** argv) {
  for (const Case& one : kCases) {
    if (argc == 2 && std::strcmp(argv[1], one.name) == 0) {
      return one.run();
    }
  }
  std::fprintf(stderr, "usage: guest CASE\n");
  return 2;
}
