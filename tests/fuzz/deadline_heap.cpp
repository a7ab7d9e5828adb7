// Owns the fuzz target of weft::DeadlineHeap: any sequence of calls agrees with a plain ordered
// map.
//
// 256 indices and 255 deadlines, so that indices meet again and equal deadlines are common.
#include "srd/base/deadline_heap.hpp"

#include <cstddef>
#include <cstdint>
#include <map>

#include "srd/base/check.hpp"

// Two bytes a call: which index, and the deadline that it gets (0 clears it).
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::DeadlineHeap heap;
  std::map<std::uint32_t, weft::TimePoint> model;
  for (std::size_t i = 0; i + 1 < size; i += 2) {
    const std::uint32_t index = data[i];
    if (data[i + 1] == 0) {
      heap.clear(index);
      model.erase(index);
    } else {
      const auto when = weft::time_at(weft::Duration{data[i + 1]});
      heap.set(index, when);
      model[index] = when;
    }
    auto earliest = weft::kNever;
    std::uint32_t earliest_index = 0;
    // In the order of indices: of equal deadlines the first one found is the one with the lowest
    // index, as the heap promises.
    for (const auto& [candidate, when] : model) {
      WEFT_CHECK(heap.deadline_of(candidate) == when);
      if (when < earliest) {
        earliest = when;
        earliest_index = candidate;
      }
    }
    WEFT_CHECK(heap.empty() == model.empty());
    WEFT_CHECK(heap.earliest() == earliest);
    WEFT_CHECK(model.empty() || heap.earliest_index() == earliest_index);
  }
  return 0;
}
