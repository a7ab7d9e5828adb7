// Owns one resource as the kubelet sees it: a gRPC server on a socket of its own, and its
// registration.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "integration/kubernetes/inventory.hpp"
#include "srd/base/result.hpp"

namespace weft::kubernetes {

// What a container is given to use its NICs.
struct ContainerEdits {
  std::vector<std::pair<std::string, std::string>> environment;
  std::string host_path;
  std::string container_path;
};

// Which file a path leads to: two are equal only if the file was not replaced in between.
struct FileIdentity {
  dev_t device = 0;
  ino_t number = 0;
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;

  bool operator==(const FileIdentity&) const = default;
};

using EditsFor = std::function<Result<ContainerEdits>(const std::vector<std::size_t>& nics)>;

// The functions are called from one thread, while gRPC's own threads serve the kubelet. The plugin
// stays registered until it is destroyed or the kubelet restarts; is_lost() tells of that, and
// serve_and_register() repairs it.
class Plugin {
 public:
  // `folder`: of kubelet.sock. `edits_for` is called by gRPC's threads, one at a time.
  Plugin(std::string folder, std::string resource, Inventory inventory, EditsFor edits_for);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Whether the kubelet has to be told of this plugin: it never was, or another kubelet has come
  // since, which clears the folder of all plugins' sockets.
  [[nodiscard]] bool is_lost() const;
  // Serves on a new socket, and registers it. An error while another process serves the resource:
  // the kubelet knows one plugin of each, and two would take each other's place for ever.
  [[nodiscard]] Result<void> serve_and_register();

  // Tells kubelets that watch, if it changes something.
  void set_health(const std::map<std::size_t, bool>& healthy_nics);

  [[nodiscard]] std::string socket() const;

 private:
  class Service;
  void remove_socket(const FileIdentity& ours) const;

  std::string folder_;
  std::string resource_;
  std::unique_ptr<Service> service_;
  struct Registered;
  std::unique_ptr<Registered> registered_;
};

}  // namespace weft::kubernetes
