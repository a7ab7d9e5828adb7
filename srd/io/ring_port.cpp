// Owns the creation and mapping of ring pairs.
#include "srd/io/ring_port.hpp"

#include <bit>
#include <utility>

namespace weft::srd {
namespace {

bool capacity_is_valid(std::size_t capacity) {
  return std::has_single_bit(capacity) && capacity >= kMinRingBytes && capacity <= kMaxRingBytes;
}

}  // namespace

Result<UniqueFd> RingPort::create_memory(std::size_t capacity) {
  if (!capacity_is_valid(capacity)) {
    return fail(ErrorCode::invalid_argument,
                "ring: " + std::to_string(capacity) + " bytes; give a power of two from " +
                    std::to_string(kMinRingBytes) + " to " + std::to_string(kMaxRingBytes));
  }
  auto memfd = create_shared_memory("weft-ring", ring_pair_bytes(capacity));
  if (!memfd) {
    return memfd;
  }
  const auto memory = Mapping::map(memfd->get(), ring_pair_bytes(capacity));
  if (!memory) {
    return tl::unexpected(memory.error());
  }
  RingProducer::format(memory->data());
  RingProducer::format(memory->data() + kRingHeaderBytes + capacity);
  return memfd;
}

Result<RingPort> RingPort::open(int memfd, std::size_t capacity, int end, std::size_t max_frame,
                                Bell bell) {
  if (!capacity_is_valid(capacity) || max_frame >= kRingWrap ||
      ring_record_bytes(max_frame) > capacity / 4) {
    return fail(ErrorCode::invalid_argument, "ring: " + std::to_string(capacity) +
                                                 " bytes do not suit frames of " +
                                                 std::to_string(max_frame) + " bytes");
  }
  auto memory = Mapping::map(memfd, ring_pair_bytes(capacity));
  if (!memory) {
    return tl::unexpected(memory.error());
  }
  std::byte* rings[2] = {memory->data(), memory->data() + kRingHeaderBytes + capacity};
  RingPort port;
  port.tx_ = RingProducer(rings[end], capacity);
  port.rx_ = RingConsumer(rings[1 - end], capacity, max_frame);
  port.memory_ = std::move(*memory);
  port.bell_ = std::move(bell);
  return port;
}

}  // namespace weft::srd
