// Owns the cases that wait by looking at a byte of their own memory, as ib_write_lat does.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/guest/ranks.hpp"
#include "tests/conformance/guest/raw_queue.hpp"

namespace weft::conformance {
namespace {

using Clock = std::chrono::steady_clock;

// Without a call, until the byte is there.
void await(const std::uint8_t& byte, std::uint8_t wanted) {
  const volatile std::uint8_t& seen = byte;
  const auto begin = Clock::now();
  // The clock is asked seldom, because asking it takes longer than looking.
  for (std::uint32_t looks = 1; seen != wanted; ++looks) {
    if (looks % (1U << 20) == 0) {
      demand(Clock::now() - begin < std::chrono::seconds{30}, "a message does not come");
    }
  }
  std::atomic_thread_fence(std::memory_order_acquire);
}

int turns() {
  const char* const text = std::getenv("SPIN_TURNS");
  return text == nullptr ? 2000 : std::atoi(text);
}

// Runs `exchange_one(turn)`, a message each way, and tells the time of one way.
template <class F>
void measure(const char* name, F&& exchange_one) {
  const int count = turns();
  std::vector<double> times;
  auto before = Clock::now();
  for (int turn = 0; turn < count; ++turn) {
    exchange_one(turn);
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double, std::micro>(now - before).count() / 2);
    before = now;
  }
  if (own_rank() == 0) {
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (const double time : times) {
      sum += time;
    }
    std::printf("%s, us one way: median %.2f, 90%% %.2f, 99%% %.2f, mean %.2f, most %.1f\n", name,
                times[times.size() / 2], times[times.size() * 9 / 10],
                times[times.size() * 99 / 100], sum / count, times.back());
  }
}

// Never 0, which memory holds before the first message.
std::uint8_t value_of(int turn) { return static_cast<std::uint8_t>(turn % 255 + 1); }

// Receives land in their slots in turn, so the next message is awaited in the next slot, and no
// completion is needed to find it.
int spin_on_receives(QueuePair::Calls calls, const char* name) {
  constexpr std::uint32_t kSlots = 8;
  constexpr std::uint32_t kSize = 8;
  QueuePair queue(kSlots, kSize, calls);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    queue.post_receive(slot);
  }
  const std::uint32_t peer = exchange("number", queue.number());
  const bool first = own_rank() == 0;
  int next = 0;
  const auto send = [&](int turn) {
    queue.send_slot(0)[kSize - 1] = value_of(turn);
    demand(queue.post_send(0, 1000, peer), "no room");
    ibv_wc done{};
    for (bool sent = false; !sent;) {
      if (queue.poll(done)) {
        demand(done.status == IBV_WC_SUCCESS, ibv_wc_status_str(done.status));
        sent = done.wr_id == 1000;
        if (!sent) {
          queue.post_receive(done.wr_id);
        }
      }
    }
  };
  measure(name, [&](int turn) {
    if (first) {
      send(turn);
    }
    await(queue.receive_slot(static_cast<std::uint64_t>(next))[kSize - 1], value_of(turn));
    next = (next + 1) % static_cast<int>(kSlots);
    if (!first) {
      send(turn);
    }
  });
  return 0;
}

}  // namespace

int spin_calls() { return spin_on_receives(QueuePair::Calls::hooked, "calls"); }
int spin_stores() { return spin_on_receives(QueuePair::Calls::stock, "stores"); }

int spin_writes() {
  ibv_context* const context = open_first_device();
  ibv_gid gid;
  demand(ibv_query_gid(context, 1, 0, &gid) == 0, "no GID");
  ibv_close_device(context);
  const char* const asked = std::getenv("SPIN_BYTES");
  const std::uint32_t size = asked == nullptr ? 8 : static_cast<std::uint32_t>(std::atoi(asked));
  std::vector<std::uint8_t> memory(std::size_t{2} * size);
  std::uint8_t* const target = memory.data();
  std::uint8_t* const source = memory.data() + size;
  RawQueue queue(gid, memory);
  const std::uint32_t peer = exchange("number", queue.number());
  const std::uint32_t key = exchange("key", queue.key());
  const auto address = reinterpret_cast<std::uint64_t>(target);
  const std::uint64_t low = exchange("low", static_cast<std::uint32_t>(address));
  const std::uint64_t high = exchange("high", static_cast<std::uint32_t>(address >> 32));
  const bool first = own_rank() == 0;
  const auto write = [&](int turn) {
    source[size - 1] = value_of(turn);
    queue.post_write(peer, source, size, high << 32 | low, key);
    const auto begin = Clock::now();
    for (std::uint32_t looks = 1; !queue.poll(); ++looks) {
      if (looks % (1U << 20) == 0) {
        demand(Clock::now() - begin < std::chrono::seconds{30}, "a completion does not come");
      }
    }
  };
  measure("writes", [&](int turn) {
    if (first) {
      write(turn);
    }
    await(target[size - 1], value_of(turn));
    if (!first) {
      write(turn);
    }
  });
  return 0;
}

}  // namespace weft::conformance
