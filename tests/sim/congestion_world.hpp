// Owns a network in virtual time for the properties of congestion control: engines of n senders and
// of one receiver, whose port is the only queue.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "srd/base/rng.hpp"
#include "srd/engine/engine.hpp"

namespace weft::testing {

// A bandwidth-delay product below is `rate` times `base_rtt` of the setup, whatever the engines are
// told or set_base_rtt() changes later.
struct CongestionSetup {
  std::string control = "srd";
  std::string selector = "reps";
  std::uint16_t paths = 64;
  Rate rate = Rate::gbps(100);
  Duration base_rtt = std::chrono::microseconds{14};  // of the farthest sender, without any queue
  std::uint32_t payload = 4096;
  double buffer_products = 1;  // of the receiver's port, in bandwidth-delay products
  bool ecn = true;             // marks from 20 % to 80 % of a product, or of a smaller buffer
  bool trimming = true;        // else what does not fit is lost
  std::uint32_t senders = 1;
  double nearest = 1;   // round trip of the first sender, in base RTTs; the last one has one
  double told_rtt = 1;  // what the engines are told the base RTT is, in base RTTs
  std::uint64_t seed = 1;
};

// One thread, and time that passes only in run_for(). The engines are those of the library, with
// phantom messages of 1 GiB; the network is this class. A data packet waits for its sender's port,
// travels half a round trip (plus a detour that belongs to the path and a random part), then queues
// at the receiver's port, is trimmed or lost there. Control packets pass that queue, and what the
// receiver sends back queues nowhere but at its own port. A run is a function of its setup.
class CongestionWorld {
 public:
  explicit CongestionWorld(const CongestionSetup& setup);

  // A sender that has started always has something to send.
  void start(std::uint32_t sender);
  // No further message is posted; up to two of a gigabyte are still sent.
  void stop(std::uint32_t sender) { senders_[sender].wanted = false; }
  void start_all();
  void run_for(Duration duration);
  void run_rtts(double round_trips) {
    run_for(Duration{
        static_cast<std::int64_t>(round_trips * static_cast<double>(setup_.base_rtt.count()))});
  }

  // --- Since the last reset_counts().
  void reset_counts();
  // Bytes of data packets that arrived whole and for the first time, headers included; envelopes of
  // UDP, IP and Ethernet do not exist here.
  [[nodiscard]] double delivered(std::uint32_t sender) const {
    return static_cast<double>(senders_[sender].delivered);
  }
  // delivered() of all senders over what the port could have carried in that time.
  [[nodiscard]] double utilisation() const;
  // Jain's index over what the first n senders delivered; 0: all of them.
  [[nodiscard]] double fairness(std::uint32_t n = 0) const;
  // In bandwidth-delay products, sampled eight times a round trip.
  [[nodiscard]] double mean_queue() const { return samples_ == 0 ? 0 : queue_sum_ / samples_; }
  [[nodiscard]] double most_queue() const { return most_queue_; }
  // Of the data packets that reached the port, those that did not fit: lost or trimmed.
  [[nodiscard]] double share_lost() const;

  // --- Since the beginning.
  [[nodiscard]] std::uint64_t timeouts() const;
  [[nodiscard]] std::uint64_t lost() const { return lost_; }
  [[nodiscard]] std::uint64_t paths_abandoned() const;
  [[nodiscard]] const srd::Engine& engine(std::uint32_t sender) const {
    return *hosts_[sender + 1].engine;
  }
  [[nodiscard]] double product() const { return product_; }
  [[nodiscard]] TimePoint now() const { return now_; }
  void set_base_rtt(Duration base_rtt);

 private:
  struct Packet {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    srd::PathId path;
    srd::Ecn ecn = srd::Ecn::not_capable;
    bool trimmed = false;
    std::uint16_t header = 0;
    std::uint32_t payload = 0;
    std::array<std::byte, 192> bytes;
  };
  enum class Kind : std::uint8_t { at_port, delivered, nic_free, deadline, sample };
  struct Event {
    TimePoint when;
    // Events of one moment happen in the order in which they were posted.
    std::uint64_t order;
    Kind kind;
    std::uint32_t host;
    std::uint32_t packet;
    // Reversed, because std::priority_queue gives the greatest first.
    bool operator<(const Event& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  struct Host {
    std::unique_ptr<srd::Engine> engine;
    Duration flight{};  // one way
    // The earliest deadline event under way; later ones that it overtook are ignored when they
    // come.
    TimePoint armed = kNever;
    bool nic_busy = false;
    std::array<TimePoint, 256> latest_on_path{};  // arrivals: a path keeps its order
  };
  struct Sender {
    bool wanted = false;
    std::uint64_t delivered = 0;
    std::vector<bool> seen;  // by PSN
  };

  void post(TimePoint when, Kind kind, std::uint32_t host, std::uint32_t packet = 0) {
    events_.push({when, order_++, kind, host, packet});
  }
  void take(const Event& event);
  void serve(std::uint32_t host);
  void transmit(std::uint32_t host);
  void at_port(std::uint32_t packet);
  void deliver(std::uint32_t packet);
  void refill(std::uint32_t sender);
  [[nodiscard]] Bytes queued() const {
    return port_free_ > now_ ? setup_.rate.bytes_in(port_free_ - now_) : 0;
  }

  CongestionSetup setup_;
  double product_;
  Bytes limit_;
  double mark_low_;
  double mark_high_;
  Rng rng_;
  std::vector<Host> hosts_;  // the first one receives
  std::vector<Sender> senders_;
  std::priority_queue<Event> events_;
  std::vector<Packet> packets_;
  // Indices into packets_, which only grows: an Event names its packet by index.
  std::vector<std::uint32_t> free_packets_;
  // A member because it is large; each transmit() overwrites what the one before left there.
  srd::TxPacket out_;
  srd::RegionKey key_;
  TimePoint now_{};
  TimePoint counted_since_{};
  TimePoint port_free_{};
  std::uint64_t order_ = 0;
  std::uint64_t lost_ = 0;  // or trimmed
  std::uint64_t lost_before_ = 0;
  std::uint64_t arrived_ = 0;  // data packets at the port since the last reset
  double queue_sum_ = 0;
  double most_queue_ = 0;
  double samples_ = 0;
};

}  // namespace weft::testing
