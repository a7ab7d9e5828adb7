// Owns the program weft-device-plugin: the kubelet's view of the NICs of a network that is up.
//
// Three programs come and go by themselves: weftd, the kubelet, and this one. So nothing is waited
// for; in a loop it looks at what is there, and does what is missing.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emu/fabric/yaml_reader.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/shared_folder.hpp"
#include "emu/launch/weftd_process.hpp"
#include "emu/options/option_format.hpp"
#include "integration/kubernetes/plugin.hpp"
#include "integration/kubernetes/plugin_config.hpp"

namespace weft::kubernetes {
namespace {

constexpr int kUsage = 2;
// How late a link that went down is told.
constexpr std::chrono::milliseconds kTurn{500};

void say(const std::string& text) {
  (void)std::fputs(("weft-device-plugin: " + text + "\n").c_str(), stderr);
}

// The NICs of a host of the network, and whether each has a link: one at least. If `host` is empty,
// it becomes the first host of the network. Without an answer of weftd the error is an io_error,
// and without such a host not_found.
Result<std::map<std::size_t, bool>> ask_health(const PluginConfig& config, std::string& host) {
  const std::string network = "network '" + config.network + "'";
  const auto directory = launch::named_directory(config.network, false);
  const auto reply = directory ? launch::ask_weftd(*directory, {{"cmd", "status"}})
                               : tl::unexpected(directory.error());
  if (!reply) {
    return fail(ErrorCode::io_error, network + (reply.error().code == ErrorCode::not_found
                                                    ? " is not up"
                                                    : ": " + reply.error().message));
  }
  std::map<std::size_t, bool> nics;
  // Once chosen, the host stays, also when weftd comes back with others: the kubelet remembers
  // devices by numbers that are those of this host.
  for (const auto& nic : (*reply)["status"]["nics"]) {
    const auto name = nic["host"].get<std::string>();
    host = host.empty() ? name : host;
    if (name == host) {
      nics[nic["nic"].get<std::size_t>()] = nic["link_up"].get<bool>();
    }
  }
  if (nics.empty()) {
    return fail(ErrorCode::not_found,
                network + " has no host " + (host.empty() ? "" : "'" + host + "' ") + "with NICs");
  }
  return nics;
}

// What a container needs to use these NICs. Made anew for each allocation: weftd may have been
// started again since the last one.
Result<ContainerEdits> edits_for(const PluginConfig& config, const std::string& host,
                                 const devices::Profile& kind,
                                 const std::vector<std::size_t>& nics) {
  const auto directory = launch::named_directory(config.network, false);
  if (!directory) {
    return tl::unexpected(directory.error());
  }
  const auto furnished = launch::furnish_shared_folder(*directory, kind);
  const auto device = furnished ? launch::share_nics(*directory, kind, host, nics)
                                : tl::unexpected(furnished.error());
  // Whatever it was, to the kubelet it is a device that cannot be had now: the request was right.
  if (!device) {
    return tl::unexpected(Error{ErrorCode::io_error, device.error().message});
  }
  const std::string shared = launch::shared_folder(*directory);
  std::error_code error;
  const auto folder = std::filesystem::canonical(shared, error);
  // The network may have gone since; without a path the kubelet would be told to mount nothing.
  if (error) {
    return fail(ErrorCode::io_error, "cannot find '" + shared + "': " + error.message());
  }
  return ContainerEdits{device->environment, folder.string(), launch::kMountPoint};
}

// The numbers in the configuration are checked against the NICs that the host has now.
Result<std::unique_ptr<Plugin>> make_plugin(const PluginConfig& config, const std::string& host,
                                            const NodeResource& resource,
                                            const std::map<std::size_t, bool>& nics) {
  auto kind = launch::parse_device_kind(resource.device.empty() ? launch::default_device()
                                                                : resource.device);
  if (!kind) {
    return tl::unexpected(kind.error());
  }
  if (!*kind) {
    return fail(ErrorCode::invalid_argument, "'device: none' is no device");
  }
  std::vector<std::size_t> numbers = resource.nics;
  for (const auto& [number, healthy] : nics) {
    // The resource names none, which means all.
    if (resource.nics.empty()) {
      numbers.push_back(number);
    }
  }
  for (const std::size_t number : numbers) {
    if (!nics.contains(number)) {
      return fail(ErrorCode::not_found, "resource '" + resource.name + "': host '" + host +
                                            "' has no NIC " + std::to_string(number));
    }
  }
  return std::make_unique<Plugin>(
      config.folder, resource.name, Inventory(numbers, resource.shares),
      [config, host, profile = **kind](const std::vector<std::size_t>& wanted) {
        return edits_for(config, host, profile, wanted);
      });
}

// The loop of the program, until a signal. Plugins are made once, when the host is there for the
// first time; a kubelet or a weftd that comes later, or again, is found in the next turn.
int serve(const PluginConfig& config) {
  const launch::Interruptible interruptible;
  std::string host = config.host;
  std::vector<std::unique_ptr<Plugin>> plugins;
  std::optional<ErrorCode> trouble;  // with the network, in the last turn
  std::vector<std::string> said;     // the problems of the last turn
  while (true) {
    launch::check_interrupt();  // by an exception: destructors take the sockets away
    const auto nics = ask_health(config, host);
    // Said when it begins and when it ends. Its words are not compared: a weftd that is killed
    // hangs up first, and then nobody listens, which is one trouble.
    if (const auto now = nics ? std::nullopt : std::optional(nics.error().code);
        std::exchange(trouble, now) != now) {
      say(nics ? "network '" + config.network + "' is up: host '" + host + "' has " +
                     std::to_string(nics->size()) + (nics->size() == 1 ? " NIC" : " NICs")
               : nics.error().message +
                     (plugins.empty() ? "; waiting" : "; all devices are unhealthy meanwhile"));
    }
    if (plugins.empty() && nics) {
      for (const NodeResource& resource : config.resources) {
        auto plugin = make_plugin(config, host, resource, *nics);
        // Somebody has to change the configuration, or start the network with more NICs. The
        // program's end is noticed sooner than a line in its log.
        if (!plugin) {
          say(plugin.error().message);
          return 1;
        }
        plugins.push_back(std::move(*plugin));
      }
    }
    std::vector<std::string> problems;
    for (const auto& plugin : plugins) {
      // Devices of whose NICs nothing is known are unhealthy.
      plugin->set_health(nics.value_or(std::map<std::size_t, bool>{}));
      if (!plugin->is_lost()) {
        continue;
      }
      if (const auto done = plugin->serve_and_register(); !done) {
        problems.push_back(done.error().message);
      } else {
        say("registered " + plugin->socket());
      }
    }
    // Said once, and not twice a second.
    for (const std::string& problem : problems) {
      if (std::ranges::find(said, problem) == said.end()) {
        say(problem);
      }
    }
    said = std::move(problems);
    std::this_thread::sleep_for(kTurn);
  }
}

int run(int argc, char** argv) {
  CLI::App app{"weft-device-plugin: gives emulated NICs to pods, as the kubelet's device plugin"};
  app.formatter(std::make_shared<options::OptionFormat>());
  std::string file;
  app.add_option("config", file, "YAML: network, host, kubelet, resources (docs/kubernetes.md)")
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const auto text = fabric::read_text_file(file);
  const auto config = text ? read_plugin_config(file, *text) : tl::unexpected(text.error());
  if (!config) {
    say(config.error().message);
    return 1;
  }
  return serve(*config);
}

}  // namespace
}  // namespace weft::kubernetes

int main(int argc, char** argv) {
  // A kubelet that leaves in the middle of an answer must not end this program.
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return weft::kubernetes::run(argc, argv);
  } catch (const weft::launch::Interrupted& interrupted) {
    return 128 + interrupted.signal();
  } catch (const std::exception& error) {
    weft::kubernetes::say(error.what());
    return 1;
  }
}
