// Owns running fi_pingpong and reading its table.
#include "emu/cli/perf/peers.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "emu/launch/find_program.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/program_group.hpp"

namespace weft::cli {
namespace {

using namespace std::chrono_literals;

// "4k", "1m", "1.2k": what it prints instead of numbers of bytes.
double scaled(const std::string& text) {
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    return -1;
  }
  const char unit = used < text.size() ? text[used] : ' ';
  return unit == 'k' ? value * 1024 : unit == 'm' ? value * 1024 * 1024 : value;
}

// A fraction of a second for each size.
std::uint32_t iterations_for(std::uint32_t size) {
  return std::clamp<std::uint32_t>(200'000'000 / (size + 20'000), 100, 5000);
}

}  // namespace

// bytes  #sent  #ack  total  time  MB/sec  usec/xfer  Mxfers/sec
std::vector<PeerRow> parse_pingpong(const std::string& output) {
  std::vector<PeerRow> rows;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);) {
    std::istringstream fields(line);
    std::vector<std::string> words;
    for (std::string word; fields >> word;) {
      words.push_back(word);
    }
    if (words.size() != 8 || scaled(words[0]) <= 0 || scaled(words[6]) <= 0) {
      continue;
    }
    PeerRow row;
    row.size = static_cast<std::uint32_t>(scaled(words[0]));
    row.latency_us = scaled(words[6]);
    row.messages_per_s = 1e6 / row.latency_us;
    row.gbytes_per_s = row.messages_per_s * row.size / 1e9;
    rows.push_back(row);
  }
  return rows;
}

Result<PeerRow> measure_peer(const std::string& provider, std::uint32_t size) {
  if (launch::find_program("fi_pingpong").empty()) {
    return fail(ErrorCode::not_found, "no fi_pingpong here: install libfabric-bin for --peers");
  }
  // A port of this run's own: the one before may still be in TIME_WAIT.
  static unsigned runs = 0;
  const std::string port =
      std::to_string(20000 + (static_cast<unsigned>(::getpid()) * 31 + 7 * runs++) % 20000);
  std::string output;
  std::string said;
  launch::ProgramGroup group;
  group.set_output(
      [&](std::size_t stream, const std::string& text) { (stream == 0 ? output : said) += text; });
  for (const bool server : {true, false}) {
    launch::Program program;
    program.label = " ";
    program.words = {"fi_pingpong",
                     "-p",
                     provider,
                     "-e",
                     "rdm",
                     "-I",
                     std::to_string(iterations_for(size)),
                     "-S",
                     std::to_string(size),
                     server ? "-B" : "-P",
                     port};
    if (!server) {
      // The client starts when the server listens: fi_pingpong does not try again.
      group.wait_until([&] { return group.is_serving(0); }, 5s);
      if (group.interrupt() != 0) {
        break;
      }
      // What has been printed so far is the server's.
      output.clear();
      program.words.emplace_back("127.0.0.1");
    }
    if (auto started = group.start(program); !started) {
      return tl::unexpected(started.error());
    }
  }
  const auto ends = group.finish(1s, 60s);
  if (group.interrupt() != 0) {
    throw launch::Interrupted(group.interrupt());
  }
  // Labels are "[ ] " before every line.
  std::string table;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    table += line.substr(std::min<std::size_t>(4, line.size())) + "\n";
  }
  auto rows = parse_pingpong(table);
  if (rows.empty() || ends.back().code != 0) {
    return fail(ErrorCode::io_error,
                fmt::format("fi_pingpong -p '{}' failed: {}", provider,
                            said.substr(0, std::min<std::size_t>(said.find('\n'), 200))));
  }
  rows.back().provider = provider;
  // It rounds the sizes that it prints; the one that was asked for is exact.
  rows.back().size = size;
  rows.back().gbytes_per_s = rows.back().messages_per_s * size / 1e9;
  return rows.back();
}

}  // namespace weft::cli
