// Owns `weft env`: a shell becomes a host of a network that is up.
//
// A program cannot change its parent's environment, so it prints lines that the shell evaluates.
// What the shell had before is kept in variables of that shell, and so ends with it.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/shell_quoted.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::string name = "default";
  std::string host = "h1";
  std::string device;
  std::string names;
  bool unset = false;
};

// The variable kOurs names what an earlier `weft env` has set in this shell. Those that had a value
// before have it in a variable whose name begins with kSaved.
constexpr const char* kOurs = "WEFT_ENV";
constexpr const char* kSaved = "WEFT_SAVED_";

// Names come from the environment, which may say anything, and a shell evaluates what this command
// prints: nothing but a plain name may get through.
bool is_identifier(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return c == '_' || (std::isalnum(c) != 0 && c < 128); });
}

std::vector<std::string> pieces_of(const char* text, const char* separators) {
  std::vector<std::string> pieces;
  const std::string all = text == nullptr ? "" : text;
  for (std::size_t at = 0; (at = all.find_first_not_of(separators, at)) != std::string::npos;) {
    const std::size_t end = std::min(all.find_first_of(separators, at), all.size());
    pieces.push_back(all.substr(at, end - at));
    at = end;
  }
  return pieces;
}

// LD_PRELOAD without our library, whatever else has changed it meanwhile.
std::string foreign_preloads() {
  std::string rest;
  for (const std::string& library : pieces_of(::getenv("LD_PRELOAD"), ": ")) {
    if (!library.ends_with("/libweft-preload.so")) {
      rest += (rest.empty() ? "" : ":") + library;
    }
  }
  return rest;
}

// Lines for the shell that change one variable there and in this process.
void set_variable(std::string& script, const std::string& name, const std::string& value) {
  ::setenv(name.c_str(), value.c_str(), 1);
  script += "export " + name + "=" + shell_quoted(value) + "\n";
}
void unset_variable(std::string& script, const std::string& name) {
  ::unsetenv(name.c_str());
  script += "unset " + name + "\n";
}

// Undoes an earlier `weft env`, here and in the shell.
std::string undo() {
  std::string script;
  for (const std::string& name : pieces_of(::getenv(kOurs), " ")) {
    if (!is_identifier(name)) {
      continue;
    }
    const std::string saved = kSaved + name;
    if (const char* value = ::getenv(saved.c_str()); value != nullptr) {
      set_variable(script, name, value);
      unset_variable(script, saved);
    } else {
      unset_variable(script, name);
    }
  }
  if (::getenv("LD_PRELOAD") != nullptr) {
    if (const std::string rest = foreign_preloads(); rest.empty()) {
      unset_variable(script, "LD_PRELOAD");
    } else {
      set_variable(script, "LD_PRELOAD", rest);
    }
  }
  unset_variable(script, kOurs);
  return script;
}

// Prints lines for `eval`; nothing is printed if anything fails, so that a shell is never half a
// host. LD_PRELOAD is not among the saved ones: others may have added to it meanwhile, so undo()
// takes out our library alone.
int run_env(const Options& options) {
  // A shell that was another host before keeps nothing of that. undo() also changes this process,
  // so that what is saved below is what the shell had of its own.
  std::string script = undo();
  if (!options.unset) {
    const std::string directory = unwrap(launch::named_directory(options.name, false));
    const launch::DeviceKind kind =
        unwrap(launch::device_of_network(directory, options.device, options.names));
    std::string ours;
    for (const auto& [name, value] : unwrap(launch::equip_host(directory, options.host, kind))) {
      if (name != "LD_PRELOAD") {
        ours += (ours.empty() ? "" : " ") + name;
        if (const char* before = ::getenv(name.c_str()); before != nullptr) {
          set_variable(script, kSaved + name, before);
        }
      }
      set_variable(script, name, value);
    }
    set_variable(script, kOurs, ours);
  }
  fmt::print("{}", script);
  return kSuccess;
}

}  // namespace

void register_env(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "env");
  auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "Name of the network")->capture_default_str();
  command->add_option("host", options->host, "Host: h1, h2, ...")->capture_default_str();
  command->add_option("--device", options->device,
                      launch::known_devices() + "; default: what `weft up` was told");
  command->add_option("--names", options->names, launch::kAboutNames);
  command->add_flag("--unset", options->unset, "Print what undoes it");
  command->callback([&work, options] { work = [options] { return run_env(*options); }; });
}

}  // namespace weft::cli
