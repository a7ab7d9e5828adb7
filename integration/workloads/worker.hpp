// Owns the shape of a rank that makes traffic of its own, and the Machine that it is together with
// its engine: the same in virtual time and in a process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "srd/engine/engine.hpp"
#include "srd/net/machine.hpp"

namespace weft::workloads {

// Where a rank can be reached, and the memory that the others may write.
struct RankPlace {
  srd::Address address{};
  srd::AttachmentId attachment{};
  srd::Qpn qpn{};
  srd::RegionKey key{};
  std::uint64_t base = 0;  // what `key` calls its first byte
};

// A run of a rank is a sequence of sections, each of which begins when it is told to; whoever
// drives it may have the ranks meet in between. All calls come from the thread that drives the
// engine.
class Worker {
 public:
  virtual ~Worker() = default;

  // Once, with all ranks' places in their order.
  virtual void meet(std::span<const RankPlace> places) = 0;
  // Before each section and after the last one: checks what has come and makes what will go. It
  // takes a while, and is nobody's business but this rank's.
  virtual void prepare() = 0;
  virtual void begin(TimePoint now) = 0;
  // Takes what has ended in the engine, and posts what can be posted.
  virtual void progress(TimePoint now) = 0;
  [[nodiscard]] virtual TimePoint next_timeout() const { return kNever; }
  // The section that has begun is, and nothing of it is under way any more.
  [[nodiscard]] virtual bool section_over() const = 0;
  // No section is left to begin.
  [[nodiscard]] virtual bool finished() const = 0;
  // Why the rank cannot go on; empty: it can.
  [[nodiscard]] virtual const std::string& failure() const = 0;
};

// Of an engine, or of all of them.
struct PacketCounters {
  std::uint64_t delivered = 0;
  std::uint64_t reordered = 0;  // those that arrived after a later one of the same peer
  std::uint64_t retransmitted = 0;

  void add(const srd::Counters& engine) {
    delivered += engine.delivered_pkts;
    reordered += engine.reordered_pkts;
    retransmitted += engine.retrans_pkts;
  }
  [[nodiscard]] double reordered_share() const {
    return delivered == 0 ? 0 : static_cast<double>(reordered) / static_cast<double>(delivered);
  }
};

// The worker is called after every round of the engine, within the same call of the driver: what a
// completion makes possible is posted before next_transmit() is asked. now() is for a driver that
// has to begin a section outside of such a call.
class WorkerMachine final : public srd::Machine {
 public:
  using Make = std::function<std::unique_ptr<Worker>(srd::Engine&)>;
  WorkerMachine(const srd::EngineConfig& config, const Make& make)
      : engine_(config), worker_(make(engine_)) {}

  void on_packet(TimePoint now, const srd::RxPacket& packet) override {
    now_ = now;
    engine_.on_packet(now, packet);
    worker_->progress(now);
  }
  void on_packets(TimePoint now, std::span<const srd::RxPacket> packets) {
    now_ = now;
    for (const srd::RxPacket& packet : packets) {
      engine_.on_packet(now, packet);
    }
    worker_->progress(now);
  }
  void on_timeout(TimePoint now) override {
    now_ = now;
    engine_.on_timeout(now);
    worker_->progress(now);
  }
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out) override {
    now_ = now;
    return engine_.next_transmit(now, out);
  }
  [[nodiscard]] TimePoint next_timeout() const override {
    return std::min(engine_.next_timeout(), worker_->next_timeout());
  }

  [[nodiscard]] Worker& worker() { return *worker_; }
  [[nodiscard]] srd::Engine& engine() { return engine_; }
  // Of the last call.
  [[nodiscard]] TimePoint now() const { return now_; }

 private:
  srd::Engine engine_;
  std::unique_ptr<Worker> worker_;
  TimePoint now_{};
};

}  // namespace weft::workloads
