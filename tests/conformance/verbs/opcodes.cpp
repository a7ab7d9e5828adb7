// Owns a program of ordinary verbs that brings packets of every opcode onto the network, for who
// looks at them there.
//
//   weft_verbs_opcodes PORT ROUNDS [HOST]
//
// The end with a HOST asks, the other one answers. Each prints a line for each of its queue pairs:
//   pair TYPE MTU NUMBER PEER FIRST     with the number of the first packet that it sends.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/conformance/verbs/end.hpp"

namespace weft::conformance {
namespace {

constexpr std::uint32_t kAtOnce = 8;
constexpr ibv_mtu kMtu = IBV_MTU_256;
// No packet, one, several; each with every number of bytes of padding.
constexpr std::uint32_t kLengths[] = {0, 1, 2, 3, 4, 255, 256, 257, 511, 770, 1022, 1500};
constexpr std::uint32_t kOnePacket = 256;
constexpr std::size_t kSlot = 2048;
constexpr std::size_t kMemory = 2 * kAtOnce * kSlot;
constexpr unsigned kEverything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Shown {
  std::uint64_t address;
  std::uint32_t rkey;
};

class Opcodes {
 public:
  Opcodes(Device& device, Meeting& meeting, bool asks)
      : device_(device),
        meeting_(meeting),
        asks_(asks),
        region_(ibv_reg_mr(device.domain(), device.memory(), kMemory, kEverything)) {
    demand(region_ != nullptr, "a region cannot be registered");
    theirs_ = meeting.swap(Shown{address(kAtOnce), region_->rkey});
  }

  void reliable(int rounds);
  void unreliable(int rounds);
  void datagrams(int rounds);

 private:
  [[nodiscard]] std::unique_ptr<Link> connect(ibv_qp_type type, const char* name);
  [[nodiscard]] std::uint64_t address(std::size_t slot) const {
    return reinterpret_cast<std::uint64_t>(device_.memory() + slot * kSlot);
  }
  void receive(const Link& link, std::size_t slot) const;
  // Both ends: requests of one kind and length, and the receives that they need.
  void step(const Link& link, ibv_wr_opcode opcode, std::uint32_t length, bool heard);
  void invalidate(const Link& link, std::uint32_t length);
  void atomic_writes(const Link& link);
  void expect(std::uint32_t count) const {
    for (std::uint32_t i = 0; i < count; ++i) {
      (void)device_.expect();
    }
  }

  Device& device_;
  Meeting& meeting_;
  bool asks_;
  Owned<ibv_mr, ibv_dereg_mr> region_;
  Shown theirs_{};
};

std::unique_ptr<Link> Opcodes::connect(ibv_qp_type type, const char* name) {
  const Manner manner{.extended = type == IBV_QPT_RC};
  auto link = std::make_unique<Link>(device_, meeting_, type, nullptr, 2 * kAtOnce, kMtu, manner);
  ibv_qp_attr state{};
  ibv_qp_init_attr made{};
  demand(ibv_query_qp(link->pair(), &state, IBV_QP_SQ_PSN, &made) == 0, "no number of a packet");
  std::printf("pair %s %u %u %u %u\n", name, 128U << kMtu, link->pair()->qp_num, link->peer(),
              state.sq_psn);
  return link;
}

void Opcodes::receive(const Link& link, std::size_t slot) const {
  ibv_sge piece{address(slot), kSlot, region_->lkey};
  ibv_recv_wr request{slot, nullptr, &piece, 1};
  ibv_recv_wr* bad = nullptr;
  demand(ibv_post_recv(link.pair(), &request, &bad) == 0, "a receive cannot be posted");
}

void Opcodes::step(const Link& link, ibv_wr_opcode opcode, std::uint32_t length, bool heard) {
  if (heard && !asks_) {
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      receive(link, i);
    }
  }
  meeting_.wait();
  for (std::uint32_t i = 0; asks_ && i < kAtOnce; ++i) {
    ibv_sge piece{address(i), length, region_->lkey};
    ibv_send_wr request{};
    request.wr_id = i;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED | (i % 2) * IBV_SEND_SOLICITED;
    request.imm_data = 0x12345600U | i;
    if (link.handle() != nullptr) {
      request.wr.ud = {link.handle(), link.peer(), Link::kKey};
    } else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic = {theirs_.address, 5, 7, theirs_.rkey};
    } else {
      request.wr.rdma = {theirs_.address + i * kSlot, theirs_.rkey};
    }
    ibv_send_wr* bad = nullptr;
    demand(ibv_post_send(link.pair(), &request, &bad) == 0, "a request cannot be posted");
  }
  expect(asks_ || heard ? kAtOnce : 0);
}

// A window of the answering end's for each message, which ends it.
void Opcodes::invalidate(const Link& link, std::uint32_t length) {
  const Owned<ibv_mr, ibv_dereg_mr> bindable(
      ibv_reg_mr(device_.domain(), device_.memory(), kMemory,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND));
  demand(bindable != nullptr, "a region for windows cannot be registered");
  const Owned<ibv_mw, ibv_dealloc_mw> window(ibv_alloc_mw(device_.domain(), IBV_MW_TYPE_2));
  demand(window != nullptr, "there is no window of type 2");
  const std::uint32_t key = ibv_inc_rkey(window->rkey);
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  request.send_flags = IBV_SEND_SIGNALED;
  if (!asks_) {
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw = {
        window.get(), key, {bindable.get(), address(0), kSlot, IBV_ACCESS_REMOTE_WRITE}};
    demand(ibv_post_send(link.pair(), &request, &bad) == 0, "a window cannot be bound");
    expect(1);
    receive(link, 0);
  }
  request.invalidate_rkey = meeting_.swap(key);
  if (asks_) {
    ibv_sge piece{address(0), length, region_->lkey};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND_WITH_INV;
    demand(ibv_post_send(link.pair(), &request, &bad) == 0, "SEND with invalidate: not posted");
  }
  expect(1);
}

void Opcodes::atomic_writes(const Link& link) {
  if (!asks_) {
    return;
  }
  ibv_qp_ex* const pair = ibv_qp_to_qp_ex(link.pair());
  demand(pair != nullptr, "there is no extended queue pair");
  for (std::uint32_t i = 0; i < kAtOnce; ++i) {
    const std::uint64_t value = i;
    ibv_wr_start(pair);
    pair->wr_id = i;
    pair->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_write(pair, theirs_.rkey, theirs_.address, &value);
    demand(ibv_wr_complete(pair) == 0, "an atomic write cannot be posted");
  }
  expect(kAtOnce);
}

void Opcodes::reliable(int rounds) {
  const auto link = connect(IBV_QPT_RC, "RC");
  for (int round = 0; round < rounds; ++round) {
    for (const std::uint32_t length : kLengths) {
      step(*link, IBV_WR_SEND, length, true);
      step(*link, IBV_WR_SEND_WITH_IMM, length, true);
      step(*link, IBV_WR_RDMA_WRITE, length, false);
      step(*link, IBV_WR_RDMA_WRITE_WITH_IMM, length, true);
      step(*link, IBV_WR_RDMA_READ, length, false);
      invalidate(*link, length);
    }
    step(*link, IBV_WR_ATOMIC_CMP_AND_SWP, 8, false);
    step(*link, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, false);
    atomic_writes(*link);
  }
  meeting_.wait();  // the other end's queue pair stays until all is answered
}

void Opcodes::unreliable(int rounds) {
  const auto link = connect(IBV_QPT_UC, "UC");
  for (int round = 0; round < rounds; ++round) {
    for (const std::uint32_t length : kLengths) {
      step(*link, IBV_WR_SEND, length, true);
      step(*link, IBV_WR_SEND_WITH_IMM, length, true);
      step(*link, IBV_WR_RDMA_WRITE, length, false);
      step(*link, IBV_WR_RDMA_WRITE_WITH_IMM, length, true);
    }
  }
  meeting_.wait();
}

void Opcodes::datagrams(int rounds) {
  const auto link = connect(IBV_QPT_UD, "UD");
  for (int round = 0; round < rounds; ++round) {
    for (const std::uint32_t length : kLengths) {
      step(*link, IBV_WR_SEND, std::min(length, kOnePacket), true);
      step(*link, IBV_WR_SEND_WITH_IMM, std::min(length, kOnePacket), true);
    }
  }
  meeting_.wait();
}

int run(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: %s PORT ROUNDS [HOST]\n", words[0]);
    return 2;
  }
  const char* const host = count > 3 ? words[3] : nullptr;
  const int rounds = std::atoi(words[2]);
  Meeting meeting(host, words[1]);
  Device device(kMemory);
  Opcodes opcodes(device, meeting, host != nullptr);
  opcodes.reliable(rounds);
  opcodes.unreliable(rounds);
  opcodes.datagrams(rounds);
  return 0;
}

}  // namespace
}  // namespace weft::conformance

int main(int count, char** words) { return weft::conformance::run(count, words); }
