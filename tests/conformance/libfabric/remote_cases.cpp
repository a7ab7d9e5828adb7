// Owns the cases of remote memory: writes, reads, writes with data. Both ends run the same code at
// the same time, each into a window of the other's.
#include <cstring>
#include <memory>
#include <vector>

#include "tests/conformance/libfabric/cases.hpp"
#include "tests/conformance/libfabric/endpoint.hpp"

namespace weft::conformance {
namespace {

// Around what fits into one packet (8928 bytes), and up to messages of hundreds of them.
constexpr std::size_t kSizes[] = {1, 64, 4096, 8000, 8929, 65536, 100000, 1 << 20, 3 << 20};

struct Remote {
  std::uint64_t address;
  std::uint64_t key;
};
Remote swap_windows(Endpoint& e, Buffer& window) {
  const auto got = e.exchange({reinterpret_cast<std::uint64_t>(window.data()), window.key()});
  return {got[0], got[1]};
}

// `count` at a time, each to a place of its own, and back.
void write_and_read(Endpoint& e, std::uint32_t seed, std::size_t count, std::size_t size) {
  Buffer window(e.domain, count * size);
  Buffer local(e.domain, count * size);
  const Remote remote = swap_windows(e, window);
  std::vector<fi_context> contexts(count);
  local.fill(seed);
  // From the last place to the first, unlike the reads below: no place may depend on the order.
  for (std::size_t i = count; i-- > 0;) {
    e.post([&] {
      return fi_write(e.ep, local.data() + i * size, size, local.desc(), e.peer,
                      remote.address + i * size, remote.key, &contexts[i]);
    });
  }
  e.wait_for(count);
  e.barrier();
  window.check(seed, 0, count * size);
  // The provider may emulate writes with messages. Only now have both placed the other's bytes,
  // and a read by the device finds them.
  e.barrier();
  local.clear();
  for (std::size_t i = 0; i < count; ++i) {
    e.post([&] {
      return fi_read(e.ep, local.data() + i * size, size, local.desc(), e.peer,
                     remote.address + i * size, remote.key, &contexts[i]);
    });
  }
  e.wait_for(count);
  local.check(seed, 0, count * size);
  e.barrier();
}

void rma() {
  Endpoint e;
  std::uint32_t seed = 0;
  for (const std::size_t size : kSizes) {
    write_and_read(e, ++seed, 1, size);
  }
  write_and_read(e, ++seed, 64, 64);
  write_and_read(e, ++seed, 32, 9000);
  write_and_read(e, ++seed, 16, 100'000);
  write_and_read(e, ++seed, 3, 2'500'000);
}

void write_data() {
  Endpoint e;
  for (const std::size_t size : {std::size_t{1}, std::size_t{64}, std::size_t{4096},
                                 std::size_t{8929}, std::size_t{50000}, std::size_t{2} << 20}) {
    constexpr std::size_t kCount = 4;
    Buffer window(e.domain, kCount * size);
    Buffer local(e.domain, kCount * size);
    const Remote remote = swap_windows(e, window);
    fi_context contexts[kCount];
    local.fill(6);
    for (std::size_t i = 0; i < kCount; ++i) {
      e.post([&] {
        return fi_writedata(e.ep, local.data() + i * size, size, local.desc(), 0xFFFF1230 + i,
                            e.peer, remote.address + i * size, remote.key, &contexts[i]);
      });
    }
    std::uint64_t told = 0;  // a bit for each
    for (std::size_t i = 0; i < 2 * kCount; ++i) {
      const fi_cq_tagged_entry entry = e.wait();
      if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
        require(entry.data - 0xFFFF1230 < kCount, "other data");
        told |= 1ULL << (entry.data - 0xFFFF1230);
      }
    }
    require(told == (1ULL << kCount) - 1, "no completion at the target, or one twice");
    window.check(6, 0, kCount * size);
    e.barrier();
  }
}

constexpr Case kCases[] = {{"rma", rma}, {"write_data", write_data}};

}  // namespace

std::span<const Case> remote_cases() { return kCases; }

}  // namespace weft::conformance
