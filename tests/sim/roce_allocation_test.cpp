// Owns the proof that a warm RoCEv2 engine does not allocate: operator new is counted in this
// program.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "emu/roce/engine/engine.hpp"

// Counted in counting_new.cpp, which replaces operator new.
extern std::size_t allocations;

namespace weft::roce {
namespace {

constexpr std::size_t kSize = 65536;
constexpr std::uint32_t kAll = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;

// A queue pair that is connected to itself, and a wire that keeps nothing.
class Loop {
 public:
  Loop() : engine_(config(), sink_) {
    key_ = engine_.keys().register_region({memory_.data(), address(), kSize, kAll, 0});
    QpSetup request;
    request.max_send = request.max_receive = 16;
    request.max_send_sge = request.max_receive_sge = 2;
    request.signal_all = true;
    qpn_ = engine_.create_qp(request);
    QpAttributes to;
    to.access = kAll;
    to.path_mtu = 5;
    to.timeout = 14;
    to.destination_qpn = qpn_;
    to.max_reads = to.max_dest_reads = 4;
    const auto modify = [&](QpState state, std::uint32_t mask) {
      to.state = state;
      EXPECT_EQ(engine_.modify_qp(now_, qpn_, mask | kMaskState, to), 0);
    };
    modify(QpState::init, kMaskPkeyIndex | kMaskPort | kMaskAccess);
    modify(QpState::rtr, kMaskAddress | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn |
                             kMaskMaxDestReads | kMaskMinRnrTimer);
    modify(QpState::rts,
           kMaskSqPsn | kMaskTimeout | kMaskRetryCount | kMaskRnrRetry | kMaskMaxReads);
  }

  // One of each kind, 16 KiB where that is possible; returns how many completed well.
  int round() {
    const Sge large{address(), 16384, key_};
    const Sge small{address(), 8, key_};
    EXPECT_EQ(engine_.post_receive(qpn_, 1, {&large, 1}), 0);
    WorkRequest work;
    work.rkey = key_;
    work.remote_address = address() + kSize / 2;
    for (const WrOpcode opcode :
         {WrOpcode::send, WrOpcode::write, WrOpcode::read, WrOpcode::fetch_add}) {
      work.opcode = opcode;
      EXPECT_EQ(engine_.post_send(qpn_, work, {opcode == WrOpcode::fetch_add ? &small : &large, 1}),
                0);
    }
    srd::TxPacket out;
    while (engine_.next_transmit(now_, out)) {
      std::size_t size = out.header_size;
      std::copy_n(out.header.begin(), size, wire_.begin());
      for (const auto& piece : out.payload) {
        std::copy(piece.begin(), piece.end(), wire_.begin() + static_cast<std::ptrdiff_t>(size));
        size += piece.size();
      }
      srd::RxPacket rx;
      rx.bytes = std::span(wire_).first(size);
      engine_.on_packet(now_, rx);
    }
    int well = 0;
    for (; !sink_.completions.empty(); sink_.completions.pop()) {
      well += sink_.completions.front().status == WcStatus::success ? 1 : 0;
    }
    return well;
  }

 private:
  static EngineConfig config() {
    EngineConfig config;
    config.addresses.resize(1);
    return config;
  }
  [[nodiscard]] std::uint64_t address() const {
    return reinterpret_cast<std::uint64_t>(memory_.data());
  }

  Sink sink_;
  Engine engine_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kSize);
  std::array<std::byte, 8192> wire_{};
  std::uint32_t key_ = 0;
  std::uint32_t qpn_ = 0;
  TimePoint now_ = time_at(std::chrono::milliseconds{1});
};

TEST(RoceAllocation, HappensOnlyWhileTheEngineWarmsUp) {
  Loop loop;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(loop.round(), 5);
  }
  const std::size_t before = allocations;
  int well = 0;
  for (int i = 0; i < 1000; ++i) {
    well += loop.round();
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(well, 5000);
}

}  // namespace
}  // namespace weft::roce
