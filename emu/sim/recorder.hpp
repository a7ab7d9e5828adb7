// Owns what reports and traces need beyond the figures: series over time, the use of paths, the
// story of faults.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "emu/sim/result.hpp"
#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"
#include "srd/engine/observer.hpp"

namespace weft::sim {

// Takes notes while a run goes on. Make it before the run starts and pass it to
// Simulation::observe() with sample_every(); `scenario` and `simulation` have to outlive it.
// `series`: also note what the report draws; `trace`: also the drops that perfetto() tells of.
//
// Memory is bounded, however long a run is: when there are kMaxSamples samples, each two become
// one, and a sample stands for twice the time from then on. The timelines of faults always go by
// the finest interval.
class Recorder final : public SimulationObserver {
 public:
  Recorder(const Scenario& scenario, Simulation& simulation, bool series, bool trace);

  static constexpr std::size_t kMaxSamples = 2000;      // even
  static constexpr std::uint32_t kMaxOccurrences = 64;  // of a fault that comes again

  [[nodiscard]] fabric::Picos sample_every() const { return every_; }
  // One timeline for each time that a fault strikes, for the first 64 times of a fault that
  // repeats.
  [[nodiscard]] std::vector<FaultTimeline> timelines() const;
  // A trace in the JSON form that ui.perfetto.dev opens.
  [[nodiscard]] std::string perfetto() const;

  // --- For the report.
  struct Sample {
    double at_us = 0;
    double goodput_gbps = 0;  // payload that arrived whole, packets sent again included
    std::uint32_t drops = 0;
    std::uint32_t trims = 0;
    std::uint32_t marks = 0;
  };
  [[nodiscard]] const std::vector<Sample>& samples() const { return samples_; }
  // One value per sample, 0..255 of the link's buffer.
  [[nodiscard]] std::vector<std::uint8_t> queue_of(fabric::LinkId link) const;
  // The flow whose use of paths is recorded: the largest, the first of those of equal size.
  [[nodiscard]] std::uint32_t watched() const { return watched_; }
  // Of the watched flow: packets that arrived, by path and sample.
  [[nodiscard]] const std::vector<std::vector<std::uint32_t>>& path_use() const {
    return path_use_;
  }

  void on_sample(fabric::Picos now) override;
  void on_delivered(fabric::Picos now, fabric::PortId to, const FrameStore::Head& frame,
                    const fabric::CalendarEvent& event) override;
  void on_dropped(fabric::Picos now, const FrameStore::Head& frame,
                  const fabric::CalendarEvent& event, fabric::LossReason reason,
                  fabric::LinkId link) override;

 private:
  // One time that a fault strikes; kNoTime: has not happened, or for `until`: stays.
  struct Occurrence {
    std::uint32_t fault = 0;
    fabric::Picos from = 0;
    fabric::Picos until = fabric::kNoTime;
    fabric::Picos detected = fabric::kNoTime;
    fabric::Picos last_loss = fabric::kNoTime;
    std::uint64_t lost = 0;
    std::vector<fabric::Picos> losses;  // times of losses, nearly in order, at most kMaxLosses
    std::unordered_set<std::uint64_t> lost_on;  // of these losses: see sender_and_path()
    // The goodput before it, and what came of it.
    bool begun = false;
    double before = -1;  // payload in Gb/s; -1: nothing was measured
    bool fell = false;
    fabric::Picos recovered = fabric::kNoTime;
  };
  // Receives the events of one host's engine; the engine gives no port with them.
  struct Listener final : srd::Observer {
    Listener(Recorder& its_recorder, fabric::PortId its_port)
        : recorder(its_recorder), port(its_port) {}
    void on_event(const srd::Event& event) override { recorder.on_event(port, event); }
    Recorder& recorder;
    fabric::PortId port;
  };
  struct TraceDrop {
    fabric::Picos when = 0;
    fabric::LinkId link = 0;
    fabric::LossReason reason = fabric::LossReason::loss;
  };

  void on_event(fabric::PortId port, const srd::Event& event);
  // `goodput` of the finest interval that ends `now`, in Gb/s.
  void follow_faults(fabric::Picos now, double goodput);
  // Merges neighbouring samples when the store is full.
  void halve();
  [[nodiscard]] fabric::Picos recovered_after(const Occurrence& it) const;
  [[nodiscard]] fabric::Picos abandoned_at(const Occurrence& it) const;

  const Scenario& scenario_;
  Simulation& simulation_;
  bool series_;
  bool trace_;
  fabric::Picos every_;
  std::uint32_t watched_ = 0;
  std::uint64_t payload_ = 0;  // delivered so far
  std::uint64_t payload_before_ = 0;
  fabric::FabricTotals before_;
  std::deque<double> recent_;  // goodput of the latest finest samples
  std::uint32_t stride_ = 1;   // finest samples in one
  std::uint32_t gathered_ = 0;
  Sample pending_;  // their sums
  std::vector<Sample> samples_;
  std::vector<std::uint8_t> queues_;  // sample by sample, link by link
  std::vector<std::vector<std::uint32_t>> path_use_;
  std::vector<Occurrence> occurrences_;
  std::vector<std::vector<std::uint32_t>> of_link_;  // occurrences that touch a link
  std::vector<TraceDrop> trace_drops_;
  std::vector<std::unique_ptr<Listener>> listeners_;
};

}  // namespace weft::sim
