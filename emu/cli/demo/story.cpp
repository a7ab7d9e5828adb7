// Owns the drawing and writing of `weft demo`: a live view that is redrawn in place on a terminal,
// plain lines elsewhere, and the report in the run's directory.
#include "emu/cli/demo/story.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "emu/sim/story_report.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBarWidth = 40;

// A bar that fills `share` (0..1) of kBarWidth characters, to an eighth of one; always kBarWidth
// wide.
std::string bar(double share) {
  static constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * kBarWidth * 8));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) {
    text += "█";
  }
  text += kParts[eighths % 8];
  text.append(static_cast<std::size_t>(kBarWidth - eighths / 8 - (eighths % 8 != 0 ? 1 : 0)), ' ');
  return text;
}

std::string milliseconds(double value) { return value < 0 ? "-" : fmt::format("{:.1f} ms", value); }

// More digits than a microsecond's would only look exact.
double rounded(double value) { return std::round(value * 1000) / 1000; }

}  // namespace

std::size_t DemoResult::paths_used() const {
  return static_cast<std::size_t>(
      std::count_if(path_packets.begin(), path_packets.end(), [](auto n) { return n != 0; }));
}

// Times of what never happened are negative.
Json DemoResult::json() const {
  Json line;
  line["demo"] = true;
  line["passed"] = passed;
  line["seed"] = seed;
  line["seconds"] = rounded(seconds);
  line["verified_bytes"] = verified_bytes;
  line["wrong_blocks"] = wrong_blocks;
  line["failed_requests"] = failed_requests;
  line["packets"] = packets;
  line["retransmitted"] = retransmitted;
  line["lost_in_network"] = lost_in_network;
  line["paths_used"] = paths_used();
  line["paths_abandoned"] = paths_abandoned;
  line["paths_recovered"] = paths_recovered;
  line["detected_ms"] = rounded(detected_ms);
  line["avoided_ms"] = rounded(avoided_ms);
  line["goodput_before_gbps"] = rounded(goodput_before);
  line["goodput_during_gbps"] = rounded(goodput_during);
  line["goodput_after_gbps"] = rounded(goodput_after);
  line["longest_gap_ms"] = rounded(longest_gap_ms);
  return line;
}

DemoStory::DemoStory(const launch::RunDirectory& run, bool terminal, bool quiet,
                     double spine_limit_gbps)
    : run_(run), terminal_(terminal && !quiet), quiet_(quiet), limit_(spine_limit_gbps) {}

// A line of text must not end up in the middle of the picture, so that goes first; the next sample
// draws it anew.
void DemoStory::tell(double at, const std::string& text) {
  lines_.push_back({at, text});
  run_.event("story", {{"at", rounded(at)}, {"text", text}});
  if (quiet_) {
    return;
  }
  erase();
  fmt::print("{:7.3f} s  {}\n", at, text);
  std::fflush(stdout);
}

// On a terminal the picture is redrawn in place: the cursor goes up over the last one.
void DemoStory::erase() {
  if (drawn_ != 0) {
    fmt::print("\033[{}A\033[J", drawn_);
    drawn_ = 0;
  }
}

void DemoStory::show(const DemoSample& sample, int dead_spine) {
  samples_.push_back(sample);
  if (quiet_) {
    return;
  }
  if (terminal_) {
    erase();
    draw(sample, dead_spine);
  } else if (sample.at >= next_plain_) {
    next_plain_ = std::floor(sample.at) + 1;  // a line a second is enough for a log
    std::string text;
    for (std::size_t i = 0; i < kDemoSpines; ++i) {
      text += static_cast<int>(i) + 1 == dead_spine
                  ? fmt::format("  spine{} dead", i + 1)
                  : fmt::format("  spine{} {:.2f}", i + 1, sample.spine_gbps[i]);
    }
    fmt::print("{:7.3f} s{} Gb/s  checked {:.2f} Gb/s, {} MB  sent again {}\n", sample.at, text,
               sample.goodput_gbps, sample.verified / 1'000'000, sample.retransmitted);
  }
  std::fflush(stdout);
}

// A bar is full when a spine carries all that it can, or h2 gets what all of them can carry.
void DemoStory::draw(const DemoSample& sample, int dead_spine) {
  fmt::print("\n");
  for (std::size_t i = 0; i < kDemoSpines; ++i) {
    const bool dead = static_cast<int>(i) + 1 == dead_spine;
    fmt::print("  h1 > spine{} > h2  {}{}\033[0m {}\n", i + 1, dead ? "\033[31m" : "\033[34m",
               bar(sample.spine_gbps[i] / limit_),
               dead ? std::string("dead") : fmt::format("{:.2f} Gb/s", sample.spine_gbps[i]));
  }
  fmt::print("  checked by h2      \033[32m{}\033[0m {:.2f} Gb/s\n",
             bar(sample.goodput_gbps / (limit_ * kDemoSpines)), sample.goodput_gbps);
  fmt::print("  {:5.1f} s   {} MB, every byte checked   {} packets sent again\n", sample.at,
             sample.verified / 1'000'000, sample.retransmitted);
  // As many lines as draw() has printed, for erase().
  drawn_ = static_cast<int>(kDemoSpines) + 3;
}

void DemoStory::finish_live() {
  if (terminal_ && drawn_ != 0) {
    drawn_ = 0;  // the last picture stays
  }
}

void DemoStory::program(const std::string& note, const std::string& output) {
  program_note_ = note;
  program_output_ = output;
}

// The same numbers as in result.json, for people who do not open the report.
void DemoStory::print_table(const DemoResult& result) const {
  if (quiet_) {
    return;
  }
  const auto row = [](const char* name, const std::string& value) {
    fmt::print("  {:<34}{}\n", name, value);
  };
  fmt::print("\n");
  row("bytes sent, checked one by one", fmt::format("{}", result.verified_bytes));
  row("wrong blocks, failed requests",
      fmt::format("{}, {}", result.wrong_blocks, result.failed_requests));
  row("paths used", fmt::format("{} of {}", result.paths_used(), result.path_packets.size()));
  row("paths given up / taken back",
      fmt::format("{} / {}", result.paths_abandoned, result.paths_recovered));
  row("frames that the dead spine lost", fmt::format("{}", result.lost_in_network));
  row("packets, of these sent again", fmt::format("{}, {}", result.packets, result.retransmitted));
  row("first loss noticed after", milliseconds(result.detected_ms));
  row("last path given up after", milliseconds(result.avoided_ms));
  row("goodput before / during / after",
      fmt::format("{:.2f} / {:.2f} / {:.2f} Gb/s", result.goodput_before, result.goodput_during,
                  result.goodput_after));
  row("longest time without progress", milliseconds(result.longest_gap_ms));
  row("verdict", result.passed ? "passed" : "FAILED");
}

// The page holds the numbers as JSON and draws them itself (emu/sim/story_report.hpp): no file but
// this one is needed to read it.
void DemoStory::write_report(const DemoResult& result) const {
  const auto series = [&](const std::string& name, const auto& value) {
    Json points = Json::array();
    for (const DemoSample& sample : samples_) {
      points.push_back({rounded(sample.at), rounded(value(sample))});
    }
    return Json{{"name", name}, {"points", points}};
  };
  Json spines = Json::array();
  for (std::size_t i = 0; i < kDemoSpines; ++i) {
    spines.push_back(series(fmt::format("spine{}", i + 1),
                            [i](const DemoSample& s) { return s.spine_gbps[i]; }));
  }
  const auto chart = [](const char* title, const char* note, const char* unit, Json list) {
    return Json{{"title", title}, {"note", note}, {"unit", unit}, {"series", std::move(list)}};
  };
  Json story;
  story["title"] = "Two hosts, four spines, one of them dies";
  story["note"] = fmt::format(
      "EMULATED network: what is compared here is behaviour, not a wire's speed. Seed {}.",
      result.seed);
  story["seconds"] = result.seconds;
  story["facts"] = Json::array(
      {Json::array({fmt::format("{} MB", result.verified_bytes / 1'000'000),
                    "sent, every byte checked", result.passed ? "ok" : "bad"}),
       Json::array({fmt::format("{} / {}", result.wrong_blocks, result.failed_requests),
                    "wrong blocks / failed requests"}),
       Json::array({fmt::format("{} of {}", result.paths_used(), result.path_packets.size()),
                    "paths used"}),
       Json::array({fmt::format("{}", result.lost_in_network), "frames lost in the dead spine"}),
       Json::array(
           {fmt::format("{} of {}", result.retransmitted, result.packets), "packets sent again"}),
       Json::array({milliseconds(result.detected_ms), "until the first loss was noticed"}),
       Json::array({milliseconds(result.longest_gap_ms), "longest time without progress"}),
       Json::array({fmt::format("{:.2f} / {:.2f} / {:.2f}", result.goodput_before,
                                result.goodput_during, result.goodput_after),
                    "Gb/s before / during / after"})});
  story["charts"] = Json::array(
      {chart("Each spine", "frames through it; shaded: it is dead", "Gb/s", spines),
       chart("What arrived and was right", "", "Gb/s",
             Json::array({series("checked", [](const auto& s) { return s.goodput_gbps; })})),
       chart("Packets taken for lost", "", "per second",
             Json::array({series("lost", [](const auto& s) { return s.lost_per_s; })}))});
  story["marks"] = Json::array({{{"name", "spine dead"}, {"from", dead_from_}, {"to", dead_to_}}});
  story["paths"] = result.path_packets;
  Json events = Json::array();
  for (const Line& line : lines_) {
    events.push_back({{"at", line.at}, {"text", line.text}});
  }
  story["events"] = events;
  story["program"] =
      program_note_.empty() ? Json() : Json{{"note", program_note_}, {"output", program_output_}};
  story["result"] = result.json();
  run_.write("report.html",
             sim::story_html(story.dump(-1, ' ', false, Json::error_handler_t::replace)));
  run_.write("result.json", result.json().dump() + "\n");
}

}  // namespace weft::cli
