// Owns starting the next cell when one has ended.
//
// One thread runs all cells: it looks at each in turn, and sleeps in poll() until one has output or
// a moment has passed. No call here waits for a single cell, or the time limits of the others would
// slip.
#include "emu/cli/matrix/runner.hpp"

#include <poll.h>

#include <exception>

#include "emu/cli/complain.hpp"
#include "emu/cli/matrix/report.hpp"
#include "emu/launch/interrupt.hpp"

namespace weft::cli {
namespace {

constexpr int kBetweenLooksMs = 10;

}  // namespace

MatrixRunner::MatrixRunner(MatrixPlan plan, const std::vector<Cell>& cells, std::size_t jobs,
                           const Shelf& shelf)
    : plan_(std::move(plan)), jobs_(jobs), shelf_(shelf) {
  for (const Cell& cell : cells) {
    results_.push_back({.cell = cell});
  }
}

std::vector<CellResult> MatrixRunner::run() {
  while (next_ < results_.size() || !running_.empty()) {
    // Nothing new begins. The others are told in every turn, of which the first one counts.
    if (launch::pending_interrupt() != 0) {
      next_ = results_.size();
      for (auto& [place, cell] : running_) {
        cell->interrupt();
      }
    }
    while (next_ < results_.size() && running_.size() < jobs_) {
      start(next_++);
    }
    running_.remove_if([this](const auto& one) { return finish(one.first, *one.second); });
    wait();
  }
  return std::move(results_);
}

void MatrixRunner::start(std::size_t place) {
  CellResult& result = results_[place];
  if (result.cell.condition->needs_peer() && plan_.hosts < 2) {
    result.verdict = Verdict::skipped;
    result.reason = "needs two hosts";
    say(result);
    return;
  }
  try {
    const std::string folder = shelf_.make_place_for(result.cell, place + 1, results_.size());
    running_.emplace_back(place, std::make_unique<RunningCell>(plan_, result.cell, folder));
  } catch (const std::exception& error) {
    // What the others say is worth having all the same.
    result.verdict = Verdict::red;
    result.reason = error.what();
    say(result);
  }
}

bool MatrixRunner::finish(std::size_t place, RunningCell& cell) {
  if (!cell.look()) {
    return false;
  }
  results_[place] = cell.result();
  shelf_.put(results_[place], cell.folder());
  say(results_[place]);
  return true;
}

void MatrixRunner::wait() const {
  std::vector<pollfd> outputs;
  for (const auto& [place, cell] : running_) {
    outputs.push_back({cell->output(), POLLIN, 0});
  }
  if (!outputs.empty()) {
    ::poll(outputs.data(), outputs.size(), kBetweenLooksMs);
  }
}

void MatrixRunner::say(const CellResult& result) {
  complain(
      "[{}/{}] {}, {}, seed {}: {}{}\n", ++done_, results_.size(), result.cell.condition->name,
      result.cell.device, result.cell.seed, matrix_word(result),
      result.verdict == Verdict::red || result.reason.empty() ? "" : " (" + result.reason + ")");
}

}  // namespace weft::cli
