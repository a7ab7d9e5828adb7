// Owns `weft bench`: what things cost on this machine.
//
// The work itself is in perf/engine_bench.cpp: two engines in one process hand each other packets
// without any carrier, so what is measured is the transport alone.
#include <fmt/core.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/cli/perf/engine_bench.hpp"

namespace weft::cli {
namespace {

// The lists are the axes of a table; every combination is one case.
struct Options {
  bool json = false;
  std::uint64_t packets = 100'000;
  int rounds = 7;
  std::vector<std::uint32_t> peers{1, 64, 1024};
  std::vector<std::uint16_t> paths{1, 16, 256};
  std::vector<std::string> shapes{"send:64", "write:4096", "write:8192"};
  std::vector<std::string> checksum{"off", "on"};
};

void report(const EngineBenchCase& bench, const EngineBenchResult& result, bool json) {
  if (!json) {
    fmt::print("{:<6}{:>7}{:>6}{:>7}{:>7}{:>12.1f}\n", bench.operation, bench.size,
               bench.checksum ? "yes" : "no", bench.peers, bench.paths, result.ns_per_packet);
    return;
  }
  nlohmann::ordered_json line;
  line["bench"] = "engine";
  line["case"] = bench.operation;
  line["size"] = bench.size;
  line["crc"] = bench.checksum;
  line["peers"] = bench.peers;
  line["paths"] = bench.paths;
  line["ns_per_packet"] = result.ns_per_packet;
  line["packets"] = result.packets;
  fmt::print("{}\n", line.dump());
}

// Every combination of shapes, checksums, peers and paths, one line each, as soon as it is
// measured. The validators of register_bench() have seen to it that every shape can be read.
int run_engine(const Options& options) {
  if (!options.json) {
    fmt::print("{:<6}{:>7}{:>6}{:>7}{:>7}{:>12}\n", "case", "bytes", "crc", "peers", "paths",
               "ns/packet");
  }
  for (const std::string& shape : options.shapes) {
    const std::size_t colon = shape.find(':');
    const auto size = static_cast<std::uint32_t>(std::stoul(shape.substr(colon + 1)));
    for (const std::string& checksum : options.checksum) {
      for (const std::uint32_t peers : options.peers) {
        for (const std::uint16_t paths : options.paths) {
          EngineBenchCase bench{shape.substr(0, colon), size, checksum == "on", peers, paths};
          report(bench, run_engine_bench(bench, options.packets, options.rounds), options.json);
        }
      }
    }
  }
  return kSuccess;
}

}  // namespace

void register_bench(CLI::App& program, Work& work) {
  CLI::App* bench = add_command(program, "bench");
  bench->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* engine = bench->add_subcommand(
      "engine", "Nanoseconds per delivered packet: both ends, acknowledgements and one copy");
  engine->add_flag("--json", options->json, "One JSON object per line (docs/json.md)");
  engine->add_option("--packets", options->packets, "Packets of a round")
      ->check(positive())
      ->capture_default_str();
  engine->add_option("--rounds", options->rounds, "Rounds; the median counts")
      ->check(positive())
      ->capture_default_str();
  engine->add_option("--peers", options->peers, "Numbers of peers to try")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  engine->add_option("--paths", options->paths, "Numbers of paths to try")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  engine->add_option("--case", options->shapes, "Operations and sizes: send:BYTES or write:BYTES")
      ->delimiter(',')
      ->check(CLI::Validator(
          [](const std::string& shape) {
            const std::size_t colon = shape.find(':');
            const std::string operation = shape.substr(0, colon);
            const char* const end = shape.data() + shape.size();
            int bytes = 0;
            const bool good = (operation == "send" || operation == "write") &&
                              colon != std::string::npos &&
                              std::from_chars(&shape[colon + 1], end, bytes).ptr == end &&
                              bytes >= 1 && bytes <= 8192;
            return good ? "" : "'" + shape + "' is not send:BYTES or write:BYTES, 1 to 8192";
          },
          "OPERATION:BYTES"));
  engine->add_option("--crc", options->checksum, "Whether packets carry a checksum: off, on")
      ->delimiter(',')
      ->check(CLI::IsMember({"off", "on"}));
  engine->callback([&work, options] { work = [options] { return run_engine(*options); }; });
}

}  // namespace weft::cli
