// Owns the texts that are made of a matrix's results: a table for the terminal, Markdown, JUnit and
// JSON. All are made from the same list; output of programs may be any bytes, and is made printable
// for each format.
#include "emu/cli/matrix/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "srd/base/joined.hpp"

namespace weft::cli {
namespace {

// Devices with their seeds, and conditions, in the order in which they first come.
struct Grid {
  std::vector<std::string> columns;
  std::vector<std::string> rows;
  std::vector<std::vector<std::string>> words;  // [row][column]
};

// With one seed only the columns need not name it.
Grid grid_of(const std::vector<CellResult>& results) {
  const auto one_seed = std::ranges::all_of(results, [&](const CellResult& result) {
    return result.cell.seed == results.front().cell.seed;
  });
  const auto place_of = [](std::vector<std::string>& names, const std::string& name) {
    const auto at = std::ranges::find(names, name);
    const auto place = static_cast<std::size_t>(at - names.begin());
    if (at == names.end()) {
      names.push_back(name);
    }
    return place;
  };
  Grid grid;
  for (const CellResult& result : results) {
    const Cell& cell = result.cell;
    const std::size_t row = place_of(grid.rows, cell.condition->name);
    const std::size_t column = place_of(
        grid.columns, one_seed ? cell.device : fmt::format("{} #{}", cell.device, cell.seed));
    // Each cell may bring a new row or column. Places without a cell stay empty.
    grid.words.resize(grid.rows.size());
    for (auto& words : grid.words) {
      words.resize(grid.columns.size());
    }
    grid.words[row][column] = matrix_word(result);
  }
  return grid;
}

std::size_t count(const std::vector<CellResult>& results, Verdict verdict) {
  return static_cast<std::size_t>(std::ranges::count(results, verdict, &CellResult::verdict));
}

std::string summary(const std::vector<CellResult>& results) {
  std::string text =
      fmt::format("{} green, {} red", count(results, Verdict::green), count(results, Verdict::red));
  for (const auto& [verdict, name] :
       {std::pair{Verdict::skipped, "skipped"}, {Verdict::not_run, "not run"}}) {
    if (const std::size_t cells = count(results, verdict); cells != 0) {
      text += fmt::format(", {} {}", cells, name);
    }
  }
  return text;
}

std::string title(const CellResult& result) {
  return fmt::format("{}, {}, seed {}", result.cell.condition->name, result.cell.device,
                     result.cell.seed);
}

// How many bytes of `text` at `at` are one character of UTF-8 that XML allows; 0: none.
std::size_t character(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  // ASCII, of whose control characters only tabs and line ends are kept.
  const std::uint32_t first = byte(at);
  if (first < 0x80) {
    return first >= 0x20 || first == '\t' || first == '\n' ? (first == 0x7F ? 0 : 1) : 0;
  }
  // By the leading bits of the first byte.
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  std::uint32_t code = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) {
      return 0;
    }
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  // By length: a longer form of a smaller number is not allowed, nor are surrogates, and the last
  // two numbers of each plane.
  constexpr std::uint32_t kMinCode[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool allowed = first >= 0xC2 && first < 0xF8 && code >= kMinCode[length] &&
                       code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF) &&
                       (code & 0xFFFE) != 0xFFFE;
  return allowed ? length : 0;
}

// Programs print any bytes.
std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character(text, at);
    out += length == 0 ? std::string_view("?") : text.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      // In an attribute XML takes a bare line end or tab for a blank.
      case '\n':
        out += "&#10;";
        break;
      case '\t':
        out += "&#9;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Of a table: a bar would end the cell, and the others would be taken for marks.
std::string in_markdown(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (std::string_view("\\`*_{}[]<>#|~").find(c) != std::string_view::npos) {
      out += '\\';
    }
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// What there is to say of a red cell, line by line.
std::vector<std::string> story(const CellResult& result) {
  std::vector<std::string> lines;
  for (const std::string& wait : result.waits) {
    lines.push_back(wait);
  }
  lines.insert(lines.end(), result.stacks.begin(), result.stacks.end());
  if (!result.command.empty()) {
    lines.push_back("repeat: " + result.command);
  }
  if (!result.log.empty()) {
    lines.push_back("log: " + result.log);
  }
  for (const std::string& line : result.tail) {
    lines.push_back("| " + line);
  }
  return lines;
}

}  // namespace

std::string matrix_word(const CellResult& result) {
  switch (result.verdict) {
    case Verdict::green:
      return fmt::format("{:.1f} s", result.seconds);
    case Verdict::red:
      // The long form is below the table.
      return "FAILED " + result.reason.substr(0, result.reason.find(": not over"));
    case Verdict::skipped:
      return "skipped";
    case Verdict::not_run:
      break;
  }
  return "not run";
}

std::string matrix_table(const std::vector<CellResult>& results) {
  const Grid grid = grid_of(results);
  std::vector<std::size_t> widths{std::string_view("condition").size()};
  for (const std::string& row : grid.rows) {
    widths[0] = std::max(widths[0], row.size());
  }
  for (std::size_t column = 0; column < grid.columns.size(); ++column) {
    std::size_t width = grid.columns[column].size();
    for (const auto& words : grid.words) {
      width = std::max(width, words[column].size());
    }
    widths.push_back(width);
  }
  const auto line = [&](const std::string& first, const std::vector<std::string>& words) {
    std::string text = fmt::format("{:<{}}", first, widths[0]);
    for (std::size_t i = 0; i < words.size(); ++i) {
      text += fmt::format("  {:<{}}", words[i], widths[i + 1]);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line("condition", grid.columns);
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    text += line(grid.rows[row], grid.words[row]);
  }
  return text + summary(results) + "\n";
}

std::string matrix_failures(const std::vector<CellResult>& results) {
  std::string text;
  for (const CellResult& result : results) {
    if (result.verdict == Verdict::red) {
      text += fmt::format("\n{}: {}\n", title(result), result.reason);
      for (const std::string& line : story(result)) {
        text += "  " + line + "\n";
      }
    }
  }
  return text;
}

std::string matrix_markdown(const std::vector<CellResult>& results) {
  const Grid grid = grid_of(results);
  std::string text = "### weft matrix: " + summary(results) + "\n\n| condition |";
  std::string rule = "|---|";
  for (const std::string& column : grid.columns) {
    text += " " + in_markdown(column) + " |";
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    text += "| " + in_markdown(grid.rows[row]) + " |";
    for (const std::string& word : grid.words[row]) {
      const bool failed = word.starts_with("FAILED");
      text += (failed ? " **" : " ") + in_markdown(word) + (failed ? "** |" : " |");
    }
    text += "\n";
  }
  for (const CellResult& result : results) {
    if (result.verdict == Verdict::red) {
      text += "\n**" + in_markdown(title(result) + ": " + result.reason) + "**\n\n";
      // Indented by four blanks a line is code, whatever stands in it. Commands and names of
      // processes may have line ends of their own.
      for (const std::string& lines : story(result)) {
        std::istringstream stream(printable(lines));
        for (std::string line; std::getline(stream, line);) {
          text += "    " + line + "\n";
        }
      }
    }
  }
  return text;
}

// JUnit knows no cells that were not run: they are skipped ones, or their number would not add up.
std::string matrix_junit(const std::vector<CellResult>& results) {
  double seconds = 0;
  for (const CellResult& result : results) {
    seconds += result.seconds;
  }
  const std::string figures =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3f}\"",
                  results.size(), count(results, Verdict::red),
                  count(results, Verdict::skipped) + count(results, Verdict::not_run), seconds);
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {0}>\n"
      "  <testsuite name=\"weft matrix\" {0}>\n",
      figures);
  for (const CellResult& result : results) {
    text += fmt::format(
        "    <testcase classname=\"weft.matrix.{}\" name=\"{} seed {}\" time=\"{:.3f}\"",
        xml(result.cell.device), xml(result.cell.condition->name), result.cell.seed,
        result.seconds);
    if (result.verdict == Verdict::green) {
      text += "/>\n";
      continue;
    }
    if (result.verdict == Verdict::red) {
      text += fmt::format(">\n      <failure message=\"{}\">{}</failure>\n", xml(result.reason),
                          xml(joined(story(result), "\n")));
    } else {
      text += fmt::format(">\n      <skipped message=\"{}\"/>\n", xml(result.reason));
    }
    text += "    </testcase>\n";
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

std::string matrix_json(const std::vector<CellResult>& results) {
  std::string text;
  const auto add = [&text](const nlohmann::ordered_json& line) {
    text += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  };
  constexpr std::string_view kVerdicts[] = {"not_run", "skipped", "green", "red"};
  for (const CellResult& result : results) {
    nlohmann::ordered_json line;
    line["matrix"] = true;
    line["condition"] = result.cell.condition->name;
    line["device"] = result.cell.device;
    line["seed"] = result.cell.seed;
    line["verdict"] = kVerdicts[static_cast<std::size_t>(result.verdict)];
    line["seconds"] = result.seconds;
    line["reason"] = result.reason;
    line["waits"] = result.waits;
    line["stacks"] = result.stacks;
    line["command"] = result.command;
    line["log"] =
        result.log.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(result.log);
    add(line);
  }
  nlohmann::ordered_json all;
  for (std::size_t verdict = 0; verdict < std::size(kVerdicts); ++verdict) {
    all[std::string(kVerdicts[verdict])] = count(results, static_cast<Verdict>(verdict));
  }
  // The last line, so that a reader knows that there are no more.
  add({{"cells", all}});
  return text;
}

}  // namespace weft::cli
