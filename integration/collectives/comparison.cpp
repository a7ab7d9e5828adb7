// Owns medians, ratios and their layout. Times of all rounds are kept for each network and size; a
// ratio is that of two medians, so that one disturbed round decides nothing.
#include "integration/collectives/comparison.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace weft::collectives {
namespace {

std::string formatted(const char* format, auto... values) {
  char text[200];
  (void)std::snprintf(text, sizeof text, format, values...);
  return text;
}

constexpr const char* kPlaces[] = {"out", "in"};

}  // namespace

Comparison::Comparison(const SessionOptions& options, std::vector<Contestant> contestants)
    : options_(options),
      contestants_(std::move(contestants)),
      sizes_(sizes_of(options)),
      times_(contestants_.size(), std::vector<std::vector<double>>(2 * sizes_.size())),
      wrong_(2 * sizes_.size()) {}

std::vector<std::size_t> Comparison::order(std::uint32_t round) const {
  std::vector<std::size_t> all(contestants_.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = round % 2 == 0 ? i : all.size() - 1 - i;
  }
  return all;
}

void Comparison::add(std::size_t contestant, std::span<const Measured> measured) {
  rounds_ += contestant == 0 ? 1 : 0;
  for (std::size_t row = 0; row < measured.size(); ++row) {
    if (measured[row].valid) {
      times_[contestant][row].push_back(measured[row].microseconds);
      wrong_[row] += measured[row].wrong;
    }
  }
}

double Comparison::median(std::size_t contestant, std::size_t row) const {
  std::vector<double> times = times_[contestant][row];
  if (times.empty()) {
    return 0;
  }
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 != 0 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

double Comparison::ratio(std::size_t contestant, std::size_t row) const {
  const double first = median(0, row);
  return first > 0 ? median(contestant, row) / first : 0;
}

std::string Comparison::table() const {
  std::string text = formatted(
      "# weft nccl-perf --compare: %s, %u ranks, %u channels, %s, %s\n"
      "# medians of %zu rounds of %u iterations, in turn and back again; time in us, and how many "
      "times that of %s\n#\n",
      to_string(options_.operation), options_.ranks, options_.channels,
      kAlgorithmNames[static_cast<std::size_t>(options_.algorithm)],
      kProtocolNames[static_cast<std::size_t>(options_.protocol)], rounds_, options_.iterations,
      contestants_[0].name.c_str());
  text += formatted("# %10s  %5s", "size(B)", "place");
  for (const Contestant& one : contestants_) {
    text += formatted("  %10s", one.name.c_str());
  }
  text += "  |";
  for (std::size_t i = 1; i < contestants_.size(); ++i) {
    text += formatted("  %8s", contestants_[i].name.c_str());
  }
  text += options_.check ? "  #wrong\n" : "\n";
  for (std::size_t row = 0; row < wrong_.size(); ++row) {
    if (times_[0][row].empty()) {
      continue;
    }
    text += formatted("%12zu  %5s", sizes_[row / 2], kPlaces[row % 2]);
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      text += formatted("  %10.2f", median(i, row));
    }
    text += "  |";
    for (std::size_t i = 1; i < contestants_.size(); ++i) {
      text += formatted("  %8.2f", ratio(i, row));
    }
    text += options_.check ? formatted("  %6llu\n", static_cast<unsigned long long>(wrong_[row]))
                           : "\n";
  }
  return text;
}

std::string Comparison::json() const {
  std::string text;
  for (std::size_t row = 0; row < wrong_.size(); ++row) {
    if (times_[0][row].empty()) {
      continue;
    }
    text +=
        formatted("{\"nccl_perf_compare\": true, \"op\": \"%s\", \"ranks\": %u, \"channels\": %u, ",
                  to_string(options_.operation), options_.ranks, options_.channels);
    text += formatted("\"algo\": \"%s\", \"proto\": \"%s\", \"size\": %zu, \"in_place\": %s, ",
                      kAlgorithmNames[static_cast<std::size_t>(options_.algorithm)],
                      kProtocolNames[static_cast<std::size_t>(options_.protocol)], sizes_[row / 2],
                      row % 2 != 0 ? "true" : "false");
    text += formatted("\"rounds\": %zu, \"time_us\": {", rounds_);
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      text += formatted("%s\"%s\": %.3f", i == 0 ? "" : ", ", contestants_[i].key.c_str(),
                        median(i, row));
    }
    text += "}, \"ratio\": {";
    for (std::size_t i = 1; i < contestants_.size(); ++i) {
      text += formatted("%s\"%s\": %.4f", i == 1 ? "" : ", ", contestants_[i].key.c_str(),
                        ratio(i, row));
    }
    text += formatted("}, \"wrong\": %llu}\n", static_cast<unsigned long long>(wrong_[row]));
  }
  return text;
}

}  // namespace weft::collectives
