// Owns serving the kubelet.
//
// The protocol is the kubelet's device plugin API, v1beta1: a plugin listens on a socket in the
// kubelet's folder and registers it at kubelet.sock; from then on the kubelet asks which devices
// there are, and what a container needs to use some of them.
#include "integration/kubernetes/plugin.hpp"

#include <device_plugin.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "integration/kubernetes/plugin_config.hpp"
#include "srd/io/posix.hpp"

namespace weft::kubernetes {
namespace {

constexpr const char* kVersion = "v1beta1";
constexpr std::chrono::seconds kPatience{5};          // with the kubelet's answer
constexpr std::chrono::milliseconds kWatchTurn{200};  // to see that the kubelet has left
constexpr int kMaxMessage = 1 << 20;  // of the kubelet's, in bytes: room for all ids of a resource

// The identity of the file at `path`; zeros if there is none. The time belongs to it because file
// systems soon give the number of a removed file to another one.
FileIdentity identity_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0
             ? FileIdentity{info.st_dev, info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec}
             : FileIdentity{};
}

// Whether some process accepts connections there: a socket stays when its process is killed.
bool is_served(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return false;
  }
  path.copy(address.sun_path, path.size());
  const srd::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         // Its queue is full: somebody listens.
         errno == EAGAIN;
}

// gRPC removes what has the name of its socket, before it listens and when it ends, whosever that
// is by then. So it listens under a name that nobody else has, and the socket is then moved. Empty,
// with the errno, if the folder takes no file.
std::string draft_name(const std::string& folder) {
  std::string name = folder + "/" + std::string(kDraftName);
  const srd::UniqueFd file(::mkstemp(name.data()));
  return file && ::unlink(name.c_str()) == 0 ? name : "";
}

std::vector<std::string> words(const google::protobuf::RepeatedPtrField<std::string>& list) {
  return {list.begin(), list.end()};
}

grpc::Status refuse(const Error& error) {
  const auto code = error.code == ErrorCode::not_found     ? grpc::StatusCode::NOT_FOUND
                    : error.code == ErrorCode::wrong_state ? grpc::StatusCode::FAILED_PRECONDITION
                    : error.code == ErrorCode::io_error    ? grpc::StatusCode::UNAVAILABLE
                                                           : grpc::StatusCode::INVALID_ARGUMENT;
  return {code, error.message};
}

}  // namespace

// The calls of the kubelet, on gRPC's threads. The mutex guards all members; it is not held while a
// stream writes, as a kubelet that does not read would block the other calls.
class Plugin::Service final : public v1beta1::DevicePlugin::Service {
 public:
  Service(Inventory inventory, EditsFor edits_for)
      : inventory_(std::move(inventory)), edits_for_(std::move(edits_for)) {}

  void set_health(const std::map<std::size_t, bool>& healthy_nics) {
    const std::lock_guard lock(mutex_);
    if (inventory_.set_health(healthy_nics)) {
      ++version_;
      changed_.notify_all();
    }
  }
  // Ends the running ListAndWatch calls: a server waits at its shutdown for all calls, and these
  // never end by themselves.
  void end_watches() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  void allow_watches() {
    const std::lock_guard lock(mutex_);
    ending_ = false;
  }

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* options) override {
    options->set_get_preferred_allocation_available(true);
    return grpc::Status::OK;
  }

  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    // Versions begin with 1: a kubelet that comes is told at once. Of several changes that come
    // while it is being told, it hears the last state.
    std::uint64_t told = 0;
    std::unique_lock lock(mutex_);
    while (!ending_ && !context->IsCancelled()) {
      if (told == version_) {
        changed_.wait_for(lock, kWatchTurn);
        continue;
      }
      told = version_;
      v1beta1::ListAndWatchResponse response;
      for (const Inventory::Device& device : inventory_.devices()) {
        auto* const entry = response.add_devices();
        entry->set_id(device.id);
        entry->set_health(device.is_healthy ? "Healthy" : "Unhealthy");
      }
      lock.unlock();
      const bool written = writer->Write(response);
      lock.lock();
      if (!written) {
        break;
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* response) override {
    const std::lock_guard lock(mutex_);
    for (const auto& container : request->container_requests()) {
      if (container.allocation_size() < 0) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "an allocation of less than no devices"};
      }
      const auto preferred = inventory_.prefer(
          words(container.available_deviceids()), words(container.must_include_deviceids()),
          static_cast<std::size_t>(container.allocation_size()));
      auto* const answer = response->add_container_responses();
      answer->mutable_deviceids()->Assign(preferred.begin(), preferred.end());
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override {
    const std::lock_guard lock(mutex_);
    for (const auto& container : request->container_requests()) {
      const auto nics = inventory_.nics_of(words(container.devicesids()));
      const auto edits = nics ? edits_for_(*nics) : tl::unexpected(nics.error());
      // All or nothing: the kubelet goes by the order of the answers, one for each container.
      if (!edits) {
        return refuse(edits.error());
      }
      auto* const answer = response->add_container_responses();
      for (const auto& [name, value] : edits->environment) {
        (*answer->mutable_envs())[name] = value;
      }
      auto* const mount = answer->add_mounts();
      mount->set_host_path(edits->host_path);
      mount->set_container_path(edits->container_path);
    }
    return grpc::Status::OK;
  }

  grpc::Status PreStartContainer(grpc::ServerContext*, const v1beta1::PreStartContainerRequest*,
                                 v1beta1::PreStartContainerResponse*) override {
    return grpc::Status::OK;  // it was not asked for
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Inventory inventory_;
  EditsFor edits_for_;
  // Counts changes of health; a watch that has told an older version has something to tell.
  std::uint64_t version_ = 1;
  bool ending_ = false;
};

struct Plugin::Registered {
  std::unique_ptr<grpc::Server> server;
  FileIdentity kubelet;  // kubelet.sock, when it was told
  FileIdentity socket;   // our own
};

Plugin::Plugin(std::string folder, std::string resource, Inventory inventory, EditsFor edits_for)
    : folder_(std::move(folder)),
      resource_(std::move(resource)),
      service_(std::make_unique<Service>(std::move(inventory), std::move(edits_for))) {}

Plugin::~Plugin() {
  if (registered_) {
    service_->end_watches();
    registered_->server->Shutdown(std::chrono::system_clock::now() + kPatience);
    remove_socket(registered_->socket);
  }
}

// By now a plugin that was started after this one may serve under that name.
void Plugin::remove_socket(const FileIdentity& ours) const {
  if (identity_of(socket()) == ours) {
    ::unlink(socket().c_str());
  }
}

std::string Plugin::socket() const { return socket_of(folder_, resource_); }

bool Plugin::is_lost() const {
  return !registered_ || identity_of(folder_ + "/kubelet.sock") != registered_->kubelet ||
         identity_of(socket()) != registered_->socket;
}

Result<void> Plugin::serve_and_register() {
  // The old socket is not removed: a new kubelet has cleared its folder, and what has the name now
  // may be another plugin's, which is_served() finds out.
  if (registered_) {
    service_->end_watches();
    registered_->server->Shutdown(std::chrono::system_clock::now() + kPatience);
    registered_.reset();
  }
  if (is_served(socket())) {
    return fail(ErrorCode::already_exists,
                "another device plugin serves '" + socket() + "': waiting for its end");
  }
  const std::string draft = draft_name(folder_);
  if (draft.empty()) {
    return fail(ErrorCode::io_error, srd::errno_text("cannot make a socket in '" + folder_ + "'"));
  }
  service_->allow_watches();
  // It serves before it has its name, and has its name before it is registered: a kubelet that
  // calls back during Register() finds it.
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + draft, grpc::InsecureServerCredentials());
  builder.RegisterService(service_.get());
  builder.SetMaxReceiveMessageSize(kMaxMessage);
  auto server = builder.BuildAndStart();
  if (!server || ::rename(draft.c_str(), socket().c_str()) != 0) {
    // gRPC says why it cannot listen in its own log only, and leaves no errno. The name is another
    // one in each turn, and would make another complaint of the same trouble.
    const std::string why = server ? std::strerror(errno) : "gRPC cannot listen in the folder";
    ::unlink(draft.c_str());
    return fail(ErrorCode::io_error, "cannot serve on '" + socket() + "': " + why);
  }
  const std::string kubelet = folder_ + "/kubelet.sock";
  auto registered = std::make_unique<Registered>();
  // Before the call: if the kubelet is replaced meanwhile, is_lost() sees another one.
  registered->kubelet = identity_of(kubelet);
  registered->socket = identity_of(socket());
  const auto channel = grpc::CreateChannel("unix:" + kubelet, grpc::InsecureChannelCredentials());
  const auto stub = v1beta1::Registration::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1beta1::RegisterRequest request;
  request.set_version(kVersion);
  // The name only: the kubelet looks in its own folder.
  request.set_endpoint(socket().substr(folder_.size() + 1));
  request.set_resource_name(resource_);
  request.mutable_options()->set_get_preferred_allocation_available(true);
  v1beta1::Empty answer;
  const grpc::Status status = stub->Register(&context, request, &answer);
  if (!status.ok()) {
    service_->end_watches();
    server->Shutdown(std::chrono::system_clock::now() + kPatience);
    remove_socket(registered->socket);
    return fail(ErrorCode::io_error, "the kubelet at '" + kubelet + "' does not take resource '" +
                                         resource_ + "': " + status.error_message());
  }
  registered->server = std::move(server);
  registered_ = std::move(registered);
  return {};
}

void Plugin::set_health(const std::map<std::size_t, bool>& healthy_nics) {
  service_->set_health(healthy_nics);
}

}  // namespace weft::kubernetes
