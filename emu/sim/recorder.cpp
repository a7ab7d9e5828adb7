// Owns what the recorder notes while a run goes on, and what follows from it.
//
// Samples are taken at a fixed interval of virtual time. When there are too many, neighbours are
// merged and the interval doubles, so a run of any length has a series of bounded size. For each
// occurrence of a fault it notes losses and the senders' reactions, and derives when it was
// noticed, when traffic had left the broken place, and when goodput was back.
#include "emu/sim/recorder.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "emu/sim/engine_transport.hpp"
#include "srd/engine/paths/path_policy.hpp"

namespace weft::sim {
namespace {

constexpr std::size_t kRecent = 20;  // finest samples whose mean is the goodput before a fault
constexpr std::size_t kMaxTraceDrops = 100'000;
constexpr std::size_t kMaxLosses = 100'000;
constexpr std::size_t kShareAfterAbandoning = 20;  // one in so many, see abandoned_at()
constexpr double kSamplesOfIdeal = 200;            // samples of a run as long as the ideal time
constexpr double kBackToNormal = 0.95;             // of the goodput before the fault

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::uint64_t sender_and_path(fabric::PortId port, std::uint16_t path) {
  return std::uint64_t{port} << 16 | path;
}

}  // namespace

Recorder::Recorder(const Scenario& scenario, Simulation& simulation, bool series, bool trace)
    : scenario_(scenario),
      simulation_(simulation),
      series_(series),
      trace_(trace),
      // From 1 us to 1 ms: so many samples that the curve of an ideal run has detail.
      every_(std::clamp<fabric::Picos>(
          static_cast<fabric::Picos>(ideal_us(scenario) * 1e6 / kSamplesOfIdeal), 1'000'000,
          1'000'000'000)),
      of_link_(scenario.topology.links().size()) {
  const auto& flows = scenario.traffic.flows;
  watched_ = static_cast<std::uint32_t>(
      std::max_element(flows.begin(), flows.end(),
                       [](const auto& a, const auto& b) { return a.bytes < b.bytes; }) -
      flows.begin());
  for (std::uint32_t index = 0; index < scenario.faults.size(); ++index) {
    const fabric::Fault& fault = scenario.faults[index];
    const std::uint32_t times = fault.every > Duration::zero() ? fault.times : 1;
    for (std::uint32_t n = 0; n < std::min(times, kMaxOccurrences); ++n) {
      const fabric::Picos from = fabric::picos(fault.at + fault.every * n);
      const auto id = static_cast<std::uint32_t>(occurrences_.size());
      Occurrence& it = occurrences_.emplace_back();
      it.fault = index;
      it.from = from;
      it.until =
          fault.lasts > Duration::zero() ? from + fabric::picos(fault.lasts) : fabric::kNoTime;
      for (const fabric::LinkId link : scenario.fault_links[index]) {
        of_link_[link].push_back(id);
      }
    }
  }
  // Only the real engine tells of losses and paths. Without faults nobody listens, and the engines
  // stay fast.
  if (!occurrences_.empty()) {
    for (fabric::PortId port = 0; port < simulation.fabric().port_count(); ++port) {
      if (auto* engine = dynamic_cast<EngineTransport*>(simulation.transport(port));
          engine != nullptr) {
        listeners_.push_back(std::make_unique<Listener>(*this, port));
        engine->engine().observe(listeners_.back().get());
      }
    }
  }
}

// A fault is detected when a sender that has lost a frame to it gives up that frame's path or takes
// a packet on it for lost. A trimmed packet is congestion and no sign of a fault.
void Recorder::on_event(fabric::PortId port, const srd::Event& event) {
  const bool suspicious = event.kind == srd::Event::Kind::path_abandoned ||
                          (event.kind == srd::Event::Kind::packet_lost &&
                           event.detail != static_cast<std::uint64_t>(srd::PathEvent::trimmed));
  if (!suspicious) {
    return;
  }
  const fabric::Picos when = fabric::picos(event.when);
  for (Occurrence& it : occurrences_) {
    if (when >= it.from && it.lost_on.contains(sender_and_path(port, event.path.value()))) {
      it.detected = std::min(it.detected, when);  // hosts may run ahead of each other
    }
  }
}

// Goodput has recovered at the first sample, after one that had fallen, that reaches kBackToNormal
// of the mean before the fault.
void Recorder::follow_faults(fabric::Picos now, double goodput) {
  for (Occurrence& it : occurrences_) {
    if (now <= it.from) {
      continue;
    }
    if (!it.begun) {
      it.begun = true;
      if (!recent_.empty()) {
        it.before = std::accumulate(recent_.begin(), recent_.end(), 0.0) /
                    static_cast<double>(recent_.size());
      }
    }
    const bool normal = goodput >= kBackToNormal * it.before;
    if (it.fell && normal) {
      it.recovered = std::min(it.recovered, now);
    }
    it.fell = it.fell || !normal;
  }
  recent_.push_back(goodput);
  if (recent_.size() > kRecent) {
    recent_.pop_front();
  }
}

// Called every `every_` of virtual time; `stride_` calls make a sample.
void Recorder::on_sample(fabric::Picos now) {
  const fabric::FabricTotals& totals = simulation_.fabric().totals();
  const double goodput =
      static_cast<double>(payload_ - payload_before_) * 8e3 / static_cast<double>(every_);
  follow_faults(now, goodput);
  pending_.at_us = fabric::microseconds(now);
  pending_.goodput_gbps += goodput;
  pending_.drops += static_cast<std::uint32_t>(totals.dropped_all() - before_.dropped_all());
  pending_.trims += static_cast<std::uint32_t>(totals.trimmed - before_.trimmed);
  pending_.marks += static_cast<std::uint32_t>(totals.marked - before_.marked);
  payload_before_ = payload_;
  before_ = totals;
  if (++gathered_ < stride_) {
    return;
  }
  pending_.goodput_gbps /= stride_;
  samples_.push_back(std::exchange(pending_, {}));
  gathered_ = 0;
  if (series_) {
    const auto& links = scenario_.topology.links();
    for (fabric::LinkId id = 0; id < links.size(); ++id) {
      const fabric::LinkProperties& is = links[id].properties;
      // Queues are told as time; the share of the buffer is that of the time the full buffer takes.
      const auto room = static_cast<double>(is.rate.picoseconds_for(std::max<Bytes>(is.buffer, 1)));
      queues_.push_back(
          is.buffer == 0
              ? std::uint8_t{0}
              : static_cast<std::uint8_t>(std::min(
                    255.0, static_cast<double>(simulation_.fabric().backlog(id)) / room * 255)));
    }
  }
  if (samples_.size() == kMaxSamples) {
    halve();
  }
  for (auto& path : path_use_) {
    path.resize(samples_.size(), 0);
  }
}

// Rates become means, counts sums, queues the longer of two: a short peak must not vanish.
void Recorder::halve() {
  for (std::size_t i = 0; i < kMaxSamples / 2; ++i) {
    const Sample& one = samples_[2 * i];
    const Sample& other = samples_[2 * i + 1];
    samples_[i] = {.at_us = other.at_us,
                   .goodput_gbps = (one.goodput_gbps + other.goodput_gbps) / 2,
                   .drops = one.drops + other.drops,
                   .trims = one.trims + other.trims,
                   .marks = one.marks + other.marks};
  }
  samples_.resize(kMaxSamples / 2);
  if (series_) {
    const std::size_t links = scenario_.topology.links().size();
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      for (std::size_t link = 0; link < links; ++link) {
        queues_[i * links + link] =
            std::max(queues_[2 * i * links + link], queues_[(2 * i + 1) * links + link]);
      }
    }
    queues_.resize(samples_.size() * links);
  }
  for (auto& path : path_use_) {
    path.resize(kMaxSamples, 0);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      path[i] = path[2 * i] + path[2 * i + 1];
    }
    path.resize(samples_.size());
  }
  stride_ *= 2;
}

std::vector<std::uint8_t> Recorder::queue_of(fabric::LinkId link) const {
  std::vector<std::uint8_t> values;
  const std::size_t links = scenario_.topology.links().size();
  for (std::size_t at = link; at < queues_.size(); at += links) {
    values.push_back(queues_[at]);
  }
  return values;
}

void Recorder::on_delivered(fabric::Picos /*now*/, fabric::PortId to, const FrameStore::Head& frame,
                            const fabric::CalendarEvent& event) {
  if (frame.payload == 0) {
    return;
  }
  if ((event.flags & fabric::kTrimmed) == 0) {
    payload_ += frame.payload;
  }
  const fabric::FlowSpec& watched = scenario_.traffic.flows[watched_];
  if (series_ && frame.from == watched.source && to == watched.destination && !samples_.empty()) {
    if (path_use_.size() <= frame.path) {
      path_use_.resize(frame.path + 1U);
    }
    auto& use = path_use_[frame.path];
    use.resize(samples_.size(), 0);
    ++use.back();
  }
}

// Full queues are congestion, not the fault's doing; control frames carry no path whose loss a
// sender would notice.
void Recorder::on_dropped(fabric::Picos now, const FrameStore::Head& frame,
                          const fabric::CalendarEvent& event, fabric::LossReason reason,
                          fabric::LinkId link) {
  for (const std::uint32_t id : of_link_[link]) {
    Occurrence& it = occurrences_[id];
    if (now >= it.from && (it.until == fabric::kNoTime || now <= it.until) &&
        reason != fabric::LossReason::queue_full && (event.flags & fabric::kControl) == 0) {
      it.last_loss = it.last_loss == fabric::kNoTime ? now : std::max(it.last_loss, now);
      ++it.lost;
      if (it.losses.size() < kMaxLosses) {
        it.losses.push_back(now);
        it.lost_on.insert(sender_and_path(frame.from, frame.path));
      }
    }
  }
  if (trace_ && trace_drops_.size() < kMaxTraceDrops) {
    trace_drops_.push_back({now, link, reason});
  }
}

// At once if goodput has not suffered; never if nothing can be said.
fabric::Picos Recorder::recovered_after(const Occurrence& it) const {
  if (!it.begun || it.before < 0) {
    return fabric::kNoTime;
  }
  return it.fell ? it.recovered : it.from;
}

// The last loss before traffic has left the broken place: before the first round trip in which at
// most a twentieth of the first round trip's losses happen. What comes later are attempts to use it
// again.
fabric::Picos Recorder::abandoned_at(const Occurrence& it) const {
  if (it.losses.empty()) {
    return fabric::kNoTime;
  }
  std::vector<fabric::Picos> losses = it.losses;
  std::sort(losses.begin(), losses.end());
  const fabric::Picos window = fabric::picos(scenario_.transport.engine.base_rtt);
  const auto within = [&](std::size_t first) {
    const auto end = std::upper_bound(losses.begin(), losses.end(), losses[first] + window);
    return static_cast<std::size_t>(end - losses.begin()) - first - 1;
  };
  const std::size_t few = within(0) / kShareAfterAbandoning;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (within(i) <= few) {
      return losses[i];
    }
  }
  return losses.back();
}

std::vector<FaultTimeline> Recorder::timelines() const {
  std::vector<FaultTimeline> list;
  for (const Occurrence& it : occurrences_) {
    const fabric::Fault& fault = scenario_.faults[it.fault];
    const auto after = [&](fabric::Picos when) {
      return when == fabric::kNoTime ? -1 : fabric::microseconds(when - it.from);
    };
    FaultTimeline line;
    line.name = fault.name.empty() ? fault.where : fault.name;
    line.at_us = fabric::microseconds(it.from);
    line.lost_frames = it.lost;
    line.detected_us = after(it.detected);
    line.abandoned_us = after(abandoned_at(it));
    line.last_loss_us = after(it.last_loss);
    line.recovered_us = after(recovered_after(it));
    list.push_back(std::move(line));
  }
  return list;
}

// Flows as spans by sending NIC, the network's series and drops, and faults as spans.
std::string Recorder::perfetto() const {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool first = true;
  const auto add = [&](const std::string& event) {
    text += (first ? "" : ",\n") + event;
    first = false;
  };
  const auto us = [](fabric::Picos t) { return std::to_string(fabric::microseconds(t)); };
  add(R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"flows"}})");
  add(R"({"ph":"M","pid":2,"name":"process_name","args":{"name":"network"}})");
  for (std::size_t i = 0; i < simulation_.flows().size(); ++i) {
    const FlowRecord& record = simulation_.flows()[i];
    const fabric::FlowSpec& spec = scenario_.traffic.flows[i];
    if (record.state == FlowRecord::State::waiting) {
      continue;
    }
    const fabric::Picos end =
        record.finished == fabric::kNoTime ? simulation_.now() : record.finished;
    add("{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(spec.source) + ",\"name\":\"flow " +
        std::to_string(i) + " to " + std::to_string(spec.destination) +
        "\",\"ts\":" + us(record.started) + ",\"dur\":" + us(end - record.started) +
        ",\"args\":{\"bytes\":" + std::to_string(spec.bytes) + "}}");
  }
  for (const Sample& sample : samples_) {
    const std::string at = std::to_string(sample.at_us);
    add("{\"ph\":\"C\",\"pid\":2,\"name\":\"goodput Gb/s\",\"ts\":" + at +
        ",\"args\":{\"value\":" + std::to_string(sample.goodput_gbps) + "}}");
    add("{\"ph\":\"C\",\"pid\":2,\"name\":\"marks and trims\",\"ts\":" + at +
        ",\"args\":{\"marked\":" + std::to_string(sample.marks) +
        ",\"trimmed\":" + std::to_string(sample.trims) + "}}");
  }
  for (const TraceDrop& drop : trace_drops_) {
    add("{\"ph\":\"i\",\"s\":\"p\",\"pid\":2,\"tid\":0,\"name\":" +
        quoted(std::string(to_string(drop.reason)) + " " +
               scenario_.topology.link_name(drop.link)) +
        ",\"ts\":" + us(drop.when) + "}");
  }
  for (const Occurrence& it : occurrences_) {
    const fabric::Fault& fault = scenario_.faults[it.fault];
    const fabric::Picos until = it.until == fabric::kNoTime ? simulation_.now() : it.until;
    add("{\"ph\":\"X\",\"pid\":2,\"tid\":1,\"name\":" +
        quoted(fault.name.empty() ? fault.where : fault.name) + ",\"ts\":" + us(it.from) +
        ",\"dur\":" + us(std::max<fabric::Picos>(until - it.from, 0)) + "}");
  }
  return text + "\n]}\n";
}

}  // namespace weft::sim
