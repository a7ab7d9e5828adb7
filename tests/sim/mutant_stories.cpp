// Owns the stories by which single broken rules of the engine are found.
#include "tests/sim/mutant_stories.hpp"

#include <algorithm>
#include <vector>

#include "tests/support/lab.hpp"

namespace weft::testing {

// The first write holds the second one back in the engine while its target restarts.
bool one_sided_work_ends_with_its_life() {
  Pair pair;
  pair.a.read(pair.b, 0, 8);
  (void)pair.run_until_idle();
  pair.a.write(pair.b, 0, pattern(900'000));
  const auto waiting = pair.a.write(pair.b, 0, pattern(900'000));
  pair.run_for(15us);
  pair.restart(pair.b);
  return pair.run_until_idle() && pair.a.status(waiting) == Status::peer_restarted;
}

// A key of the life before must not be one of the present life by chance.
bool keys_end_with_their_life() {
  Pair pair;
  const auto former = pair.b.key();
  pair.restart(pair.b);
  const auto write = pair.a.write(pair.b, 0, "with an old key", {.key = former});
  return pair.run_until_idle() && pair.a.status(write) == Status::bad_key;
}

// The answer to a read that was flushed comes when a second read is open: its bytes may not be
// taken for the second one's.
bool late_answers_land_nowhere() {
  Pair pair;
  pair.b.fill_memory(0, std::string(20'000, 'W'));
  pair.b.fill_memory(100'000, std::string(20'000, 'R'));
  pair.a.read(pair.b, 0, 8);
  (void)pair.run_until_idle();
  pair.network().delay_next(Packet::read_response, 300us, 20);
  pair.a.read(pair.b, 0, 20'000);
  pair.run_for(30us);
  pair.a.engine().flush(pair.a.peer(pair.b), kEndpoint);
  pair.network().delay_next(Packet::read_request, 400us);
  const auto second = pair.a.read(pair.b, 100'000, 20'000);
  return pair.run_until([&] { return pair.a.status(second).has_value(); }) &&
         pair.a.read_result(second) == std::string(20'000, 'R');
}

// A megabyte is asked for and given up when about 100 us of it have come: the responder must be
// told, and stop.
bool cancelled_reads_end_at_their_responder() {
  LabConfig config = lab_config();
  config.link.rate = config.engine.line_rate = Rate::gbps(10);
  Pair pair(config);
  pair.a.read(pair.b, 0, 1'000'000);
  pair.run_for(100us);
  pair.a.engine().flush(pair.a.peer(pair.b), kEndpoint);
  return pair.run_until_idle() && pair.b.engine().counters().rdma_read_resp_bytes < 400'000;
}

// As many requests are under way as there is room for completions, at both ends at once.
bool both_ends_full_make_progress() {
  LabConfig config = lab_config();
  config.engine.max_work_requests = config.engine.max_completions = 8;
  Pair pair(config);
  pair.a.receive(8);
  pair.b.receive(8);
  for (int i = 0; i < 8; ++i) {
    pair.a.send(pair.b, "ab");
    pair.b.send(pair.a, "ba");
  }
  return pair.run_until_idle(100ms);
}

// The answer of 8 bytes leaves from a host that is sending 64 MiB of its own; at 10 Gb/s those take
// 54 ms.
bool small_reads_do_not_wait_behind_bulk() {
  LabConfig config = lab_config();
  config.link.rate = config.engine.line_rate = Rate::gbps(10);
  Pair pair(config);
  pair.b.write_phantom(pair.a, 64U << 20);
  pair.run_for(100us);
  const auto read = pair.a.read(pair.b, 0, 8);
  return pair.run_until([&] { return pair.a.status(read).has_value(); }, 1ms);
}

// More writes are refused than the receiver's table of incomplete messages holds; then one to an
// endpoint that is ready comes.
bool refused_immediates_hold_up_nobody() {
  Pair pair;
  const Qpn other{31};
  pair.b.open(other, {.qkey = kQkey, .domain = kDomain, .receive_depth = 8});
  pair.b.receive(1, 100, other);
  for (int i = 0; i < 40; ++i) {
    pair.a.write(pair.b, 0, pattern(3000), {.immediate = 2, .rnr_retry = 0});
    (void)pair.run_until_idle();
  }
  const auto write = pair.a.write(pair.b, 0, pattern(3000), {.destination = other, .immediate = 3});
  return pair.run_until([&] { return pair.a.status(write).has_value(); }, 1ms);
}

// The receive is posted only after the write was refused.
bool refused_immediates_complete_in_the_end() {
  Pair pair;
  pair.a.write(pair.b, 0, pattern(5000), {.immediate = 1});
  pair.run_for(1ms);
  pair.b.receive();
  return pair.run_until([&] { return pair.b.inbox().size() == 1; }, 100ms);
}

// A write is lost whole. Then more messages are begun and given up than the receiver has places
// for. Their places become free only when the write is settled, and it needs one.
bool oldest_packet_finds_a_place() {
  Pair pair;
  const Qpn other{31};
  for (Node* const node : {&pair.a, &pair.b}) {
    node->open(other, {.qkey = kQkey, .domain = kDomain, .receive_depth = 8});
  }
  pair.b.receive();
  pair.network().lose_next(Packet::write, 3);
  const auto write = pair.a.write(pair.b, 0, pattern(3000), {.immediate = 1});
  pair.run_for(100ns);
  std::uint32_t left = 0;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    // Of each message that follows, the second packet is lost.
    if (event == world::NetworkEvent::sent && world::kind_of(packet.bytes) == Packet::write &&
        ++left % 2 == 1) {
      pair.network().lose_next(Packet::write);
    }
  });
  for (int i = 0; i < 40; ++i) {
    pair.a.write(pair.b, 0, pattern(2000), {.source = other, .destination = other, .immediate = 2});
  }
  pair.run_for(1us);
  pair.network().observe({});
  pair.run_for(5us);  // what was not lost has arrived, and nothing has been answered
  pair.a.engine().flush(pair.a.peer(pair.b), other);
  return pair.run_until([&] { return pair.a.status(write).has_value(); }, 10ms);
}

// Most of what is sent is refused, again and again, so that answers come all the time; and one
// message is lost.
bool refusals_show_losses() {
  Pair pair;
  for (int i = 0; i < 200; ++i) {
    pair.a.send(pair.b, "not yet");
    pair.run_for(7us);
  }
  pair.network().lose_next(Packet::write);
  const auto write = pair.a.write(pair.b, 0, "lost");
  return pair.run_until([&] { return pair.a.status(write).has_value(); }, 1ms);
}

// REPS sends along the paths of acknowledgements: not along those that were marked.
bool marks_of_a_burst_are_heard() {
  LabConfig config = lab_config();
  config.engine.paths = 256;
  Pair pair(config);
  pair.a.read(pair.b, 0, 8);
  (void)pair.run_until_idle();
  pair.b.receive(40);
  std::vector<std::uint16_t> paths;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    if (event == world::NetworkEvent::sent && world::kind_of(packet.bytes) == Packet::send) {
      paths.push_back(packet.path.value());
    }
  });
  pair.network().link().mark = 1.0;
  // All twelve wait for the receiver, so that one acknowledgement tells of many marks.
  pair.world().pause(1);
  for (int i = 0; i < 12; ++i) {
    pair.a.send(pair.b, "x");
  }
  pair.run_for(20us);
  pair.world().resume(1);
  (void)pair.run_until_idle();
  for (int i = 0; i < 8; ++i) {
    pair.a.send(pair.b, "x");
  }
  (void)pair.run_until_idle();
  std::sort(paths.begin(), paths.end());
  return std::adjacent_find(paths.begin(), paths.end()) == paths.end();
}

}  // namespace weft::testing
