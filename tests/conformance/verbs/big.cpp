// Owns a program of ordinary verbs that moves messages as large as one likes, and looks at every
// byte of them: two ends send, write and read, both at the same time, with each path MTU.
//
//   weft_verbs_big PORT BYTES [HOST]
//
// The end without a HOST waits for the other one. 2 * BYTES of memory are taken.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/conformance/verbs/end.hpp"

namespace weft::conformance {
namespace {

constexpr std::size_t kMargin = 4096;
constexpr std::byte kNobodys{0xEE};

struct Kind {
  const char* name;
  ibv_wr_opcode opcode;
  [[nodiscard]] bool is_heard() const { return opcode != IBV_WR_RDMA_WRITE && !reads(); }
  [[nodiscard]] bool reads() const { return opcode == IBV_WR_RDMA_READ; }
  [[nodiscard]] bool sends() const { return opcode == IBV_WR_SEND; }
};
constexpr Kind kKinds[] = {{"send", IBV_WR_SEND},
                           {"write", IBV_WR_RDMA_WRITE},
                           {"write with immediate", IBV_WR_RDMA_WRITE_WITH_IMM},
                           {"read", IBV_WR_RDMA_READ}};

// Eight bytes of a message of that end, in that round.
std::uint64_t word_of(std::uint64_t end, std::uint64_t round, std::uint64_t at) {
  std::uint64_t value = (end << 56) ^ (round << 48) ^ at;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
  return value ^ value >> 27;
}

void paint(std::byte* to, std::size_t size, std::uint64_t end, std::uint64_t round) {
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = word_of(end, round, at);
    std::memcpy(to + at, &word, std::min(sizeof word, size - at));
  }
}

// The first byte that is wrong, or `size`.
std::size_t first_wrong(const std::byte* from, std::size_t size, std::uint64_t end,
                        std::uint64_t round) {
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = word_of(end, round, at);
    if (std::memcmp(from + at, &word, std::min(sizeof word, size - at)) != 0) {
      return at;
    }
  }
  return size;
}

// Memory of one end: what it sends or lets read, then what comes; margins around both.
class End {
 public:
  End(Device& device, Meeting& meeting, std::size_t size, std::uint64_t number)
      : device_(device), meeting_(meeting), size_(size), number_(number) {
    struct Memory {
      std::uint64_t base;
      std::uint32_t rkey;
    };
    const Memory own{reinterpret_cast<std::uint64_t>(device.memory()), device.region().rkey};
    const Memory theirs = meeting.swap(own);
    their_base_ = theirs.base;
    their_key_ = theirs.rkey;
  }

  static std::size_t memory_for(std::size_t size) { return 2 * size + 3 * kMargin; }

  void move(const Kind& kind, ibv_mtu mtu, std::uint64_t round) {
    std::fill_n(device_.memory(), memory_for(size_), kNobodys);
    paint(source(), size_, number_, round);
    Link link(device_, meeting_, IBV_QPT_RC, nullptr, 4, mtu);
    if (kind.is_heard()) {
      auto pieces = kind.sends() ? pieces_of(target(), round) : std::vector<ibv_sge>{};
      ibv_recv_wr request{};
      request.sg_list = pieces.data();
      request.num_sge = static_cast<int>(pieces.size());
      ibv_recv_wr* bad = nullptr;
      demand(ibv_post_recv(link.pair(), &request, &bad) == 0, "a receive cannot be posted");
    }
    meeting_.wait();
    post(kind, link, round);
    for (int awaited = kind.is_heard() ? 2 : 1; awaited > 0; --awaited) {
      static_cast<void>(device_.expect());
    }
    meeting_.wait();
    look(kind, round);
    meeting_.wait();
  }

 private:
  // At odd addresses, so that nothing lies as it lay in the other message.
  [[nodiscard]] std::byte* source() const { return device_.memory() + kMargin + 3; }
  [[nodiscard]] std::byte* target() const { return device_.memory() + size_ + 2 * kMargin + 5; }
  [[nodiscard]] std::uint64_t theirs(const std::byte* at) const {
    return their_base_ + static_cast<std::uint64_t>(at - device_.memory());
  }

  [[nodiscard]] std::vector<ibv_sge> pieces_of(std::byte* at, std::uint64_t round) const {
    std::vector<std::size_t> cuts{0, size_};
    for (std::uint32_t i = 1; i < Link::kMaxPieces; ++i) {
      cuts.push_back(word_of(number_, round, i) % (size_ + 1));
    }
    std::ranges::sort(cuts);
    std::vector<ibv_sge> pieces;
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      pieces.push_back({reinterpret_cast<std::uint64_t>(at + cuts[i - 1]),
                        static_cast<std::uint32_t>(cuts[i] - cuts[i - 1]), device_.region().lkey});
    }
    return pieces;
  }

  void post(const Kind& kind, const Link& link, std::uint64_t round) {
    auto pieces = pieces_of(kind.reads() ? target() : source(), round + 1);
    ibv_send_wr request{};
    request.opcode = kind.opcode;
    request.sg_list = pieces.data();
    request.num_sge = static_cast<int>(pieces.size());
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {theirs(kind.reads() ? source() : target()), their_key_};
    ibv_send_wr* bad = nullptr;
    demand(ibv_post_send(link.pair(), &request, &bad) == 0, "a request cannot be posted");
  }

  void look(const Kind& kind, std::uint64_t round) const {
    const std::size_t wrong = first_wrong(target(), size_, 1 - number_, round);
    if (wrong != size_) {
      give_up(std::string(kind.name) + ": wrong from byte " + std::to_string(wrong) + " on");
    }
    demand(first_wrong(source(), size_, number_, round) == size_, "what was sent has changed");
    const std::byte* const end = device_.memory() + memory_for(size_);
    const auto untouched = [](const std::byte* from, const std::byte* to) {
      return std::all_of(from, to, [](std::byte byte) { return byte == kNobodys; });
    };
    demand(untouched(device_.memory(), source()) && untouched(source() + size_, target()) &&
               untouched(target() + size_, end),
           "bytes around the messages have changed");
  }

  Device& device_;
  Meeting& meeting_;
  std::size_t size_;
  std::uint64_t number_;
  std::uint64_t their_base_ = 0;
  std::uint32_t their_key_ = 0;
};

}  // namespace
}  // namespace weft::conformance

int main(int argc, char** argv) {
  using namespace weft::conformance;
  demand(argc == 3 || argc == 4, "usage: weft_verbs_big PORT BYTES [HOST]");
  const std::size_t size = std::strtoull(argv[2], nullptr, 10);
  demand(size > 0 && size <= std::size_t{1} << 31, "BYTES are 1 to 2147483648");
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Device device(End::memory_for(size));
  Meeting meeting(argc == 4 ? argv[3] : nullptr, argv[1]);
  End end(device, meeting, size, argc == 4 ? 1 : 0);
  std::uint64_t round = 0;
  for (int mtu = IBV_MTU_256; mtu <= device.mtu(); ++mtu) {
    for (const Kind& kind : kKinds) {
      // Large messages in small packets take long: with one kind each.
      if (mtu == device.mtu() ||
          (round + static_cast<std::uint64_t>(mtu)) % std::size(kKinds) == 0) {
        end.move(kind, static_cast<ibv_mtu>(mtu), round);
        std::printf("%s of %zu bytes, path MTU %d: all right\n", kind.name, size, 128 << mtu);
      }
      ++round;
    }
  }
}
