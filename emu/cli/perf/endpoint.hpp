// Owns one end of `weft perf`: an engine in a process of its own, measured against another one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emu/cli/perf/watched_io.hpp"
#include "emu/cli/rendezvous.hpp"
#include "srd/engine/engine.hpp"
#include "srd/net/packet_io.hpp"
#include "srd/run/host.hpp"
#include "srd/run/idle.hpp"

namespace weft::cli {

enum class PerfOperation : std::uint8_t { send, write, read };
[[nodiscard]] const char* to_string(PerfOperation operation);

// One row of the table: first latency is measured, one message at a time, then the rate.
struct PerfCase {
  PerfOperation operation = PerfOperation::send;
  std::uint32_t size = 64;
  Duration duration = std::chrono::milliseconds{200};  // of each of the two measurements
  std::uint32_t window = 128;                          // requests outstanding in the second one
};

// `valid` is false if the run was broken off; `failure` is the status of a request that failed.
struct PerfResult {
  bool valid = false;
  // One way; of a read: the whole round. None where nothing was measured.
  std::optional<double> p50_latency_us;
  std::optional<double> p99_latency_us;
  double messages_per_s = 0;
  double gbytes_per_s = 0;
  std::uint32_t paths_used = 0;  // of the 256 there can be, by the busier direction
  std::uint64_t out_of_order_packets = 0;
  std::uint64_t retransmitted = 0;
  srd::Status failure = srd::Status::ok;
};

// What the two processes share besides the network: where each side is, and which case they are in.
// It lies in shared memory. Each side writes its own half between barriers; the other one reads it
// after the next barrier, whose `step` orders the two.
struct PerfBoard {
  struct Side {
    std::atomic<std::uint32_t> step{0};  // counts barriers passed
    Rendezvous place;
    // Of the case just measured, as this side saw it arrive.
    std::uint32_t paths_used = 0;
    std::uint64_t out_of_order = 0;
    std::uint64_t retransmitted = 0;
  };
  std::array<Side, 2> sides;
  std::atomic<bool> abort{false};
  std::atomic<std::uint32_t> finished{0};  // measurements that the client is through with
};

// Where one side is in the network, whatever the network is; `io` carries its packets.
struct PerfPlace {
  srd::Address address;
  srd::AttachmentId attachment;
  srd::Life life;
  std::uint32_t qpn = 0;
  std::unique_ptr<srd::PacketIo> io;
};

// What is another than suits the carrier; nothing, where it says nothing.
struct PerfTuning {
  std::string congestion_control;
  std::optional<std::uint16_t> paths;
  std::optional<std::uint32_t> path_run;
};

// Used by one thread of its process, with a board and a partner of its own. Both sides have to call
// start() and run() with the same cases in the same order: barriers keep them in step, and `abort`
// on the board makes both throw instead of waiting for ever.
class PerfEndpoint {
 public:
  // The buffers of both sides are made once, of this size.
  static constexpr std::size_t kMaxSize = std::size_t{1} << 23;

  // Side 0 is the client, who measures.
  PerfEndpoint(PerfBoard& board, int side) : board_(board), side_(side) {}

  // Joins the network and meets the other side. Throws std::runtime_error.
  void start(PerfPlace place, bool block_when_idle, const PerfTuning& tuning);
  // Both sides, with the same case. The result is the client's.
  [[nodiscard]] PerfResult run(const PerfCase& perf_case);

 private:
  using Host = srd::Host<srd::Engine>;

  // Returns when both sides have called it as often. Polls the engine meanwhile: the other side may
  // still need our acknowledgements.
  void barrier();
  // Until the client has finished the measurement of number `until`.
  void serve(const PerfCase& perf_case, std::uint32_t until);
  void measure_latency(const PerfCase& perf_case, PerfResult& result);
  // Waits for the completions of so many requests.
  void drain(int outstanding, PerfResult& result);
  void measure_rate(const PerfCase& perf_case, PerfResult& result);
  void post_receives(srd::Engine& engine, std::uint32_t count);
  void post(srd::Engine& engine, PerfOperation operation, std::uint32_t size, std::uint64_t cookie);
  // After each poll, with what it found to do.
  void pause(std::size_t work);
  [[nodiscard]] bool is_over(std::uint32_t until) const {
    return board_.abort.load(std::memory_order_relaxed) ||
           board_.finished.load(std::memory_order_acquire) >= until;
  }

  PerfBoard& board_;
  int side_;
  std::unique_ptr<Host> host_;
  srd::Idler idler_;
  bool block_when_idle_ = false;
  std::vector<std::byte> outbox_;
  std::vector<std::byte> target_;  // what the other side writes and reads
  std::vector<std::byte> inbox_;
  srd::PeerId peer_;
  srd::Qpn own_qpn_;
  srd::Qpn peer_qpn_;
  srd::RegionKey peer_key_;
  std::uint64_t peer_buffer_ = 0;
  std::uint32_t measurements_ = 0;  // begun so far; odd numbers measure latency
  std::vector<double> samples_;     // microseconds
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
};

}  // namespace weft::cli
