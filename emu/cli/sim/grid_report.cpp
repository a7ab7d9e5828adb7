// Colours tell the ratio to the best policy of the same cell, because times of different cells
// differ by orders of magnitude. What is judged is the grid's first policy; the others are there to
// be compared with.
#include "emu/cli/sim/grid_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace weft::cli {
namespace {

using sim::Grid;
using sim::GridCell;

constexpr int kSide = 11;  // pixels of a square, with its gap

// Upper ends of the classes of colours.
struct Shade {
  double at_most;
  const char* color;
  const char* name;
};
constexpr Shade kShades[] = {
    // Equal to the best, whatever a division has done to the last digit.
    {1.0 + 1e-9, "#1a7f4b", "the best"}, {1.05, "#7cc48f", "up to 5 % worse"},
    {1.2, "#f2d469", "up to 20 %"},      {1.5, "#ef9a4f", "up to 50 %"},
    {2.0, "#d9534f", "up to twice"},     {1e300, "#8a1538", "worse"}};

const Shade& shade_of(double of_best) {
  // The last class takes the rest, infinity among it.
  return *std::find_if(std::begin(kShades), std::end(kShades) - 1,
                       [&](const Shade& shade) { return of_best <= shade.at_most; });
}

// Names come from a file that people write: they must not become markup.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return out;
}

std::string shown(double value) {
  return std::isfinite(value) ? fmt::format("{:.3g}", value) : "unfinished";
}

// The comparison of each cell in which the judged policy is farthest from the best: a cell is one
// square, whatever number of metrics it has.
std::map<const GridCell*, const GridComparison*> by_cell(const GridJudgement& judgement) {
  std::map<const GridCell*, const GridComparison*> cells;
  for (const GridComparison& it : judgement.comparisons) {
    const auto [at, added] = cells.try_emplace(it.cell, &it);
    if (!added && it.of_best() > at->second->of_best()) {
      at->second = &it;
    }
  }
  return cells;
}

std::string verdict_line(const GridVerdict& verdict) {
  return verdict.cells == 0 ? "no cell"
                            : fmt::format("{} of {} cells {}; worst {}", verdict.met, verdict.cells,
                                          verdict.limit, shown(verdict.worst));
}

const char* word_of(const GridVerdict& verdict) {
  return verdict.cells == 0 ? "-" : verdict.holds ? "met" : "missed";
}

// How a policy did over all comparisons: shares (0..1) of those in which it is within 5 % of the
// best or the best itself, and its median ratio to the best.
struct Standing {
  std::string policy;
  double share = 0;
  double median = 0;
  double best = 0;
};

// Where the best value is 0 there is no ratio: the comparison counts as 1 for every policy.
std::vector<Standing> standings(const Grid& grid, const GridJudgement& judgement) {
  std::vector<Standing> list;
  for (std::size_t policy = 0; policy < grid.policies.size(); ++policy) {
    std::vector<double> of_best;
    Standing standing{.policy = grid.policies[policy].name};
    for (const GridComparison& it : judgement.comparisons) {
      of_best.push_back(it.best > 0 ? it.values[policy] / it.best : 1);
      standing.share += of_best.back() <= 1.05 ? 1 : 0;
      standing.best += it.best_policy == standing.policy ? 1 : 0;
    }
    if (!of_best.empty()) {
      std::sort(of_best.begin(), of_best.end());
      standing.share /= static_cast<double>(of_best.size());
      standing.best /= static_cast<double>(of_best.size());
      standing.median = of_best[of_best.size() / 2];
    }
    list.push_back(standing);
  }
  return list;
}

// Stable: cells that are equally bad stay in the order of the grid, so that two reports can be
// compared.
std::vector<const GridComparison*> worst(const GridJudgement& judgement, std::size_t count) {
  std::vector<const GridComparison*> list;
  for (const GridComparison& it : judgement.comparisons) {
    list.push_back(&it);
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const auto* a, const auto* b) { return a->of_best() > b->of_best(); });
  list.resize(std::min(list.size(), count));
  return list;
}

// A field of the document: the comparisons of one workload under one condition, how many of them
// are within 5 % of the best, and the worst ratio.
struct Square {
  std::size_t all = 0;
  std::size_t near = 0;
  double worst = 0;
};

// The different values of name(cell), in the order of the cells.
template <class Name>
std::vector<std::string> names_of(const Grid& grid, const Name& name) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const GridCell& cell : grid.cells) {
    if (known.insert(name(cell)).second) {
      names.push_back(name(cell));
    }
  }
  return names;
}

}  // namespace

std::string grid_heat_map(const Grid& grid, const GridJudgement& judgement, bool titles) {
  // One row for each workload at each of its points, one column for each network in each condition.
  const auto row_of = [](const GridCell& cell) { return cell.workload + " " + cell.point; };
  const auto column_of = [](const GridCell& cell) { return cell.topology + " " + cell.condition; };
  auto rows = names_of(grid, row_of);
  auto columns = names_of(grid, column_of);
  std::map<std::string, std::size_t> order;  // in the order of the file, not of the sample
  for (const GridCell& cell : grid.cells) {
    order.try_emplace(cell.topology, order.size());
  }
  std::stable_sort(columns.begin(), columns.end(), [&](const auto& a, const auto& b) {
    return order[a.substr(0, a.find(' '))] < order[b.substr(0, b.find(' '))];
  });
  std::map<std::string, std::size_t> row_at;
  std::map<std::string, std::size_t> column_at;
  for (const auto& row : rows) {
    row_at.try_emplace(row, row_at.size());
  }
  for (const auto& column : columns) {
    column_at.try_emplace(column, column_at.size());
  }
  constexpr int kLeft = 190;  // for the names of rows
  constexpr int kTop = 200;   // for those of columns, which stand upright
  const int width = kLeft + static_cast<int>(columns.size()) * kSide + 10;
  const int height = kTop + static_cast<int>(rows.size()) * kSide + 30;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "font-family=\"sans-serif\" font-size=\"9\" fill=\"#667085\">\n",
      width, height);
  for (const auto& row : rows) {
    text += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 4,
                        kTop + static_cast<int>(row_at[row]) * kSide + 9, escaped(row));
  }
  for (const auto& column : columns) {
    const int x = kLeft + static_cast<int>(column_at[column]) * kSide + 8;
    text += fmt::format("<text transform=\"translate({},{}) rotate(-90)\">{}</text>\n", x, kTop - 4,
                        escaped(column));
  }
  std::map<std::string, std::string> paths;
  for (const auto& [cell, it] : by_cell(judgement)) {
    const int x = kLeft + static_cast<int>(column_at[column_of(*cell)]) * kSide;
    const int y = kTop + static_cast<int>(row_at[row_of(*cell)]) * kSide;
    const char* const color = shade_of(it->of_best()).color;
    // On the page each square says what it is. In the document's picture, which has no mouse, the
    // squares of one colour are one path.
    if (titles) {
      text += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"><title>{} ({}): {} {}, "
          "{} x the best, {} of {}</title></rect>\n",
          x, y, color, escaped(cell->name), cell->half, it->metric, shown(it->value),
          shown(it->of_best()), shown(it->best), it->best_policy);
    } else {
      paths[color] += fmt::format("M{} {}h10v10h-10z", x, y);
    }
  }
  for (const auto& [color, path] : paths) {
    text += fmt::format("<path fill=\"{}\" d=\"{}\"/>\n", color, path);
  }
  int x = kLeft;
  for (const Shade& shade : kShades) {
    text += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" "
        "y=\"{}\">{}</text>\n",
        x, height - 20, shade.color, x + 14, height - 11, shade.name);
    x += 90;
  }
  return text + "</svg>\n";
}

std::string grid_page(const Grid& grid, const GridJudgement& judgement) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>weft sim "
      "--grid</title><style>body{font:15px/1.5 system-ui,sans-serif;color:#1d2330;margin:20px auto;"
      "max-width:1120px;padding:0 16px}table{border-collapse:collapse;margin:8px 0 20px}td,th{text-"
      "align:left;padding:3px 12px 3px 0;border-bottom:1px solid #e4e6ea}.met{color:#177245}"
      ".missed{color:#b3261e}div{overflow-x:auto}</style></head><body>\n";
  text += fmt::format(
      "<h1>{}</h1>\n<p>{} cells, {} policies; {} runs did not finish within the time "
      "limit. Lower is better everywhere.</p>\n<table>\n",
      escaped(grid.title), grid.cells.size(), grid.policies.size(), judgement.unfinished);
  for (const GridVerdict& verdict : judgement.verdicts) {
    text += fmt::format("<tr><td>{}</td><td class=\"{}\">{}</td><td>{}</td><td>{}</td></tr>\n",
                        escaped(verdict.what), word_of(verdict), word_of(verdict),
                        escaped(verdict_line(verdict)), escaped(verdict.worst_cell));
  }
  text += "</table>\n<div>" + grid_heat_map(grid, judgement, true) +
          "</div>\n<h2>Policies</h2>\n<table><tr><th>policy</th><th>within 5 % of the "
          "best</th><th>the best itself</th><th>median</th></tr>\n";
  for (const Standing& it : standings(grid, judgement)) {
    text += fmt::format(
        "<tr><td>{}</td><td>{:.0f} %</td><td>{:.0f} %</td><td>{} x the best</td></tr>\n",
        escaped(it.policy), it.share * 100, it.best * 100, shown(it.median));
  }
  text +=
      "</table>\n<h2>Where it is worst</h2>\n<table><tr><th>cell</th><th>half</th><th>metric</th>"
      "<th>" +
      escaped(grid.policies.front().name) + "</th><th>best</th><th>by</th><th>x best</th></tr>\n";
  for (const GridComparison* it : worst(judgement, 100)) {
    text += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escaped(it->cell->name), it->cell->half, it->metric, shown(it->value), shown(it->best),
        escaped(it->best_policy), shown(it->of_best()));
  }
  return text + "</table></body></html>\n";
}

std::string grid_document(const Grid& grid, const GridJudgement& judgement,
                          const std::string& command) {
  std::string text = fmt::format(
      "## Results\n\nMade by `{}`: {} cells with {} policies, {} runs not finished within the time "
      "limit.\n\n| must hold | verdict | cells | worst in |\n|---|---|---|---|\n",
      command, grid.cells.size(), grid.policies.size(), judgement.unfinished);
  for (const GridVerdict& verdict : judgement.verdicts) {
    text += fmt::format("| {} | {} | {} | {} |\n", verdict.what, word_of(verdict),
                        verdict_line(verdict), verdict.worst_cell);
  }
  text +=
      "\n![each cell's distance from the best policy](grid.svg)\n\n### Policies\n\n| policy | "
      "within 5 % of the best | the best itself | median distance |\n|---|---|---|---|\n";
  for (const Standing& it : standings(grid, judgement)) {
    text += fmt::format("| {} | {:.0f} % | {:.0f} % | {} |\n", it.policy, it.share * 100,
                        it.best * 100, shown(it.median));
  }
  text += fmt::format(
      "\n### {} by workload and condition\n\nComparisons within 5 % of the best, of how "
      "many; the worst.\n\n| |",
      grid.policies.front().name);
  const auto conditions = names_of(grid, [](const GridCell& cell) { return cell.condition; });
  std::map<std::string, std::map<std::string, Square>> squares;
  for (const GridComparison& it : judgement.comparisons) {
    Square& square = squares[it.cell->workload][it.cell->condition];
    ++square.all;
    square.near += it.of_best() <= 1.05 ? 1 : 0;
    square.worst = std::max(square.worst, it.of_best());
  }
  std::string line = "|---|";
  for (const std::string& condition : conditions) {
    text += " " + condition + " |";
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const auto& [workload, by_condition] : squares) {
    text += "| " + workload + " |";
    for (const std::string& condition : conditions) {
      const auto it = by_condition.find(condition);
      text += it == by_condition.end() ? std::string(" |")
                                       : fmt::format(" {}/{}, {} |", it->second.near,
                                                     it->second.all, shown(it->second.worst));
    }
    text += "\n";
  }
  text +=
      "\n### Where it is worst\n\n| cell | metric | ours | best | by | x best "
      "|\n|---|---|---|---|---|---|\n";
  for (const GridComparison* it : worst(judgement, 30)) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", it->cell->name, it->metric,
                        shown(it->value), shown(it->best), it->best_policy, shown(it->of_best()));
  }
  return text;
}

}  // namespace weft::cli
