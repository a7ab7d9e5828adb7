// Owns the cost of the vocabulary on hot paths: deadlines, slabs, random numbers.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "srd/base/deadline_heap.hpp"
#include "srd/base/rng.hpp"
#include "srd/base/siphash.hpp"
#include "srd/base/slab.hpp"

namespace weft {
namespace {

// What a retransmission timer does: it moves a little further with each packet. range(0): armed
// timers.
void deadline_heap_postpone(benchmark::State& state) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  DeadlineHeap heap;
  std::int64_t now = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    heap.set(i, time_at(Duration{++now}));
  }
  std::uint32_t index = 0;
  for (auto _ : state) {
    heap.set(index, time_at(Duration{++now}));
    index = index + 1 == count ? 0 : index + 1;
    benchmark::DoNotOptimize(heap.earliest());
  }
}
BENCHMARK(deadline_heap_postpone)->Arg(1)->Arg(1000)->Arg(10'000);

// The worst for a heap: each new deadline may belong anywhere.
void deadline_heap_random(benchmark::State& state) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  DeadlineHeap heap;
  Rng rng{1};
  for (std::uint32_t i = 0; i < count; ++i) {
    heap.set(i, time_at(Duration{rng.below(1'000'000)}));
  }
  for (auto _ : state) {
    heap.set(rng.below(count), time_at(Duration{rng.below(1'000'000)}));
    benchmark::DoNotOptimize(heap.earliest());
  }
}
BENCHMARK(deadline_heap_random)->Arg(1)->Arg(1000)->Arg(10'000);

void slab_allocate_release(benchmark::State& state) {
  struct Thing {
    std::uint64_t words[8];
  };
  Slab<Thing> slab{1 << 16};
  for (auto _ : state) {
    const std::uint32_t index = slab.allocate();
    slab[index].words[0] = index;
    benchmark::ClobberMemory();
    slab.release(index);
  }
}
BENCHMARK(slab_allocate_release);

void rng_next(benchmark::State& state) {
  Rng rng{1};
  for (auto _ : state) {
    benchmark::DoNotOptimize(rng.next());
  }
}
BENCHMARK(rng_next);

void rng_below(benchmark::State& state) {
  Rng rng{1};
  for (auto _ : state) {
    benchmark::DoNotOptimize(rng.below(256));
  }
}
BENCHMARK(rng_below);

// The tag of a frame between two machines. range(0): bytes.
void siphash(benchmark::State& state) {
  const std::vector<std::byte> frame(static_cast<std::size_t>(state.range(0)), std::byte{0x5A});
  for (auto _ : state) {
    SipHash hash(SipHash::Key{});
    hash.add(frame);
    benchmark::DoNotOptimize(hash.finish());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
// A small frame, one of 4 KiB with its headers, and a jumbo one.
BENCHMARK(siphash)->Arg(100)->Arg(4138)->Arg(9000);

}  // namespace
}  // namespace weft
