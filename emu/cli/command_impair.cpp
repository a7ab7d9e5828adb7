// Owns `weft impair`: the impairments of a link by name, changed while programs run. weftd keeps
// what is set (emu/daemon/impairments.hpp); this command sends the change and prints the answer.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string name;
  std::string link;
  std::string loss, delay, jitter, reorder, duplicate, corrupt, rate, min_bytes;
  bool down = false;
  bool up = false;
  bool reset = false;
  bool as_json = false;
};

// "1%" or "0.01", as a number between 0 and 1. Throws CLI::ValidationError.
json share(const std::string& option, const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  if (end == text.c_str() || (!unit.empty() && unit != "%")) {
    throw CLI::ValidationError(option, "expected a share such as 1% or 0.01, found '" + text + "'");
  }
  value = unit.empty() ? value : value / 100;
  // "nan" is read as a number, and fails every comparison.
  if (!(value >= 0 && value <= 1)) {
    throw CLI::ValidationError(option, "a share lies between 0 and 100%, found '" + text + "'");
  }
  return value;
}

// The fields that the options change, and no others: weftd merges them with what is set already. A
// null takes a field away; so a rate replaces a share of the rate, and the other way round. What
// has a unit goes to weftd as text, and weftd reads it as in a scenario file.
json fields_of(const Options& options) {
  json fields = json::object();
  const auto put_share = [&](const char* option, const char* key, const std::string& text) {
    if (!text.empty()) {
      fields[key] = share(option, text);
    }
  };
  put_share("--loss", "loss", options.loss);
  put_share("--duplicate", "duplication", options.duplicate);
  put_share("--corrupt", "corruption", options.corrupt);
  if (!options.delay.empty()) {
    fields["extra_delay"] = options.delay;
  }
  if (!options.jitter.empty()) {
    fields["jitter"] = options.jitter;
  }
  if (!options.reorder.empty()) {  // "5%,100us"
    const auto comma = options.reorder.find(',');
    put_share("--reorder", "reordering", options.reorder.substr(0, comma));
    if (comma != std::string::npos) {
      fields["reorder_delay"] = options.reorder.substr(comma + 1);
    } else {
      // Without a time a frame that is held back would not be overtaken.
      fields["reorder_delay"] = "100us";
    }
  }
  if (!options.rate.empty()) {
    if (options.rate.back() == '%') {
      fields["rate_factor"] = share("--rate", options.rate);
      fields["rate"] = nullptr;
    } else {
      fields["rate"] = options.rate;
      fields["rate_factor"] = nullptr;
    }
  }
  if (!options.min_bytes.empty()) {
    fields["min_bytes"] = options.min_bytes;
  }
  if (options.down || options.up) {
    fields["down"] = options.down ? json(true) : json(nullptr);
  }
  return fields;
}

void print_table(const json& impairments) {
  if (impairments.empty()) {
    fmt::print("nothing is impaired\n");
  }
  for (const json& one : impairments) {
    std::string text;
    for (const auto& [key, value] : one.items()) {
      if (key != "link") {
        text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key,
                            value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
    fmt::print("{:<24} {}\n", one["link"].get<std::string>(), text);
  }
}

// Prints what is impaired, after the change if the options ask for one.
int run_impair(const Options& options) {
  json request{{"cmd", "impair"}};
  if (!options.link.empty()) {
    request["link"] = options.link;
  }
  json fields;
  // CLI11 reports what its own parser throws. This is thrown later, and would be a failure of the
  // command instead of a mistake on its command line.
  try {
    fields = fields_of(options);
  } catch (const CLI::ValidationError& error) {
    complain("weft impair: {}\n", error.what());
    return kUsage;
  }
  if (options.reset && !fields.empty()) {
    complain("weft impair: --reset clears the link; set what is to be there in a second command\n");
    return kUsage;
  }
  if (options.reset) {
    request["reset"] = true;
  } else if (!fields.empty()) {
    if (options.link.empty()) {
      complain("weft impair: name a link, such as 'h1->fabric' or 'h*-fabric'\n");
      return kUsage;
    }
    request["set"] = fields;
  }
  const std::string directory = unwrap(launch::named_directory(options.name, false));
  const json reply = unwrap(launch::ask_weftd(directory, request));
  if (options.as_json) {
    for (const json& one : reply["impairments"]) {
      fmt::print("{}\n", one.dump());
    }
  } else {
    print_table(reply["impairments"]);
  }
  return kSuccess;
}

}  // namespace

void register_impair(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "impair");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->required();
  command->add_option("link", options->link, "Link or pattern");
  command->add_option("--loss", options->loss, "Share of frames lost: 1% or 0.01");
  command->add_option("--delay", options->delay, "Added to every frame: 50us");
  command->add_option("--jitter", options->jitter, "Added, evenly between 0 and this");
  command->add_option("--reorder", options->reorder, "Share held back, and for how long: 5%,100us");
  command->add_option("--duplicate", options->duplicate, "Share that arrives twice");
  command->add_option("--corrupt", options->corrupt, "Share with a wrong bit");
  command->add_option("--rate", options->rate, "1Gbps, or a share of the link's own: 10%");
  command->add_option("--min-bytes", options->min_bytes, "Losses spare smaller frames");
  auto* down = command->add_flag("--down", options->down, "Everything is lost");
  command->add_flag("--up", options->up, "No longer down")->excludes(down);
  command->add_flag("--reset", options->reset, "Clear this link, or all if none is named");
  command->add_flag("--json", options->as_json, "One JSON object per link");
  command->callback([&work, options] { work = [options] { return run_impair(*options); }; });
}

}  // namespace weft::cli
