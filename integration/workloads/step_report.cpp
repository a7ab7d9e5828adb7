// Owns the account of steps, and its picture.
#include "integration/workloads/step_report.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace weft::workloads {
namespace {

double milliseconds_of(Duration time) { return static_cast<double>(time.count()) / 1e6; }

// The nearest sample, without interpolation: a p99 that is shown has really occurred.
double percentile(std::vector<double> samples, double part) {
  std::sort(samples.begin(), samples.end());
  return samples.empty() ? 0
                         : samples[static_cast<std::size_t>(
                               part * static_cast<double>(samples.size() - 1) + 0.5)];
}

// With two digits behind the point.
std::string number(double value) {
  const auto hundredths = static_cast<long long>(value * 100 + (value < 0 ? -0.5 : 0.5));
  std::string text = std::to_string(std::abs(hundredths));
  text.insert(0, text.size() < 3 ? 3 - text.size() : 0, '0');
  text.insert(text.size() - 2, ".");
  return (hundredths < 0 ? "-" : "") + text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

constexpr double kWidth = 860;
constexpr double kHeight = 120;

struct Part {
  const char* colour;
  double ms;
};

std::string bars_of(const StepSeries& series, double top_ms, std::size_t columns) {
  std::string out;
  const double width = kWidth / static_cast<double>(std::max<std::size_t>(columns, 1));
  for (std::size_t i = 0; i < series.steps.size(); ++i) {
    const StepTime& step = series.steps[i];
    const std::array<Part, 3> parts = {Part{"#4878a8", step.computing_ms},
                                       Part{"#e0a030", step.slowest_ms},
                                       Part{"#c04848", std::max(step.network_ms(), 0.0)}};
    double y = kHeight;
    for (const Part& part : parts) {
      const double height = top_ms > 0 ? part.ms / top_ms * kHeight : 0;
      y -= height;
      out += "<rect x=\"" + number(static_cast<double>(i) * width) + "\" y=\"" + number(y) +
             "\" width=\"" + number(width * 0.85) + "\" height=\"" + number(height) + "\" fill=\"" +
             part.colour + "\"><title>step " + std::to_string(i) + ": " + number(step.all_ms) +
             " ms</title></rect>\n";
    }
  }
  return out;
}

}  // namespace

// A run that broke off has ranks with different numbers of steps: only those that all have ended
// are shown. A step begins when the last rank has ended the one before.
std::vector<StepTime> step_times(std::span<const std::vector<StepRecord>> ranks) {
  std::size_t count = ranks.empty() ? 0 : ranks[0].size();
  for (const auto& records : ranks) {
    const auto ended = [](const StepRecord& one) { return one.ended != Duration{}; };
    count = std::min(
        count, static_cast<std::size_t>(std::count_if(records.begin(), records.end(), ended)));
  }
  std::vector<StepTime> steps(count);
  Duration before{};
  for (std::size_t i = 0; i < count; ++i) {
    Duration last{};
    Duration slowest{};
    Duration sum{};
    for (const auto& records : ranks) {
      last = std::max(last, records[i].ended);
      slowest = std::max(slowest, records[i].computed);
      sum += records[i].computed;
    }
    steps[i].all_ms = milliseconds_of(last - before);
    steps[i].computing_ms = milliseconds_of(sum) / static_cast<double>(ranks.size());
    steps[i].slowest_ms = milliseconds_of(slowest) - steps[i].computing_ms;
    before = last;
  }
  return steps;
}

StepSummary summarise(std::span<const StepTime> steps) {
  StepSummary summary;
  std::vector<double> times;
  double all = 0;
  double computing = 0;
  double slowest = 0;
  for (const StepTime& step : steps) {
    times.push_back(step.all_ms);
    all += step.all_ms;
    computing += step.computing_ms;
    slowest += step.slowest_ms;
  }
  summary.p50_ms = percentile(times, 0.5);
  summary.p99_ms = percentile(times, 0.99);
  summary.max_ms = percentile(times, 1);
  if (all > 0) {
    summary.computing = computing / all;
    summary.slowest = slowest / all;
    summary.network = 1 - summary.computing - summary.slowest;
  }
  return summary;
}

// One character for each step, for a terminal.
std::string step_bars(std::span<const StepTime> steps, double top_ms) {
  constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string out;
  for (const StepTime& step : steps) {
    const double part = top_ms > 0 ? step.all_ms / top_ms : 0;
    out += kBlocks[static_cast<std::size_t>(std::clamp(part * 8 - 0.5, 0.0, 7.0))];
  }
  return out;
}

std::string step_page(const std::string& title, std::span<const StepSeries> all) {
  double top_ms = 0;
  std::size_t columns = 0;
  for (const StepSeries& series : all) {
    columns = std::max(columns, series.steps.size());
    for (const StepTime& step : series.steps) {
      top_ms = std::max(top_ms, step.all_ms);
    }
  }
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escaped(title) +
      "</title><style>body{font:14px sans-serif;max-width:" + number(kWidth + 40) +
      "px;margin:2em auto}svg{background:#f4f4f4}b{padding:0 .5em}</style></head><body>\n<h1>" +
      escaped(title) + "</h1>\n<p>Each bar is a step; all runs have the same scale, " +
      number(top_ms) +
      " ms at the top. <b style=\"background:#4878a8\">&nbsp;</b> computing, average of the "
      "ranks <b style=\"background:#e0a030\">&nbsp;</b> waiting for the slowest rank "
      "<b style=\"background:#c04848\">&nbsp;</b> network that nothing hid</p>\n";
  for (const StepSeries& series : all) {
    const StepSummary summary = summarise(series.steps);
    page += "<h2>" + escaped(series.name) + "</h2>\n<p>p50 " + number(summary.p50_ms) +
            " ms, p99 " + number(summary.p99_ms) + " ms; lost to the slowest rank " +
            number(100 * summary.slowest) + " %, to the network " + number(100 * summary.network) +
            " %" + (series.end.empty() ? "" : "; " + escaped(series.end)) + "</p>\n<svg width=\"" +
            number(kWidth) + "\" height=\"" + number(kHeight) + "\">\n" +
            bars_of(series, top_ms, columns) + "</svg>\n";
  }
  return page + "</body></html>\n";
}

}  // namespace weft::workloads
