// Owns a kubelet that does to device plugins what the real one does, over real sockets.
#pragma once

#include <device_plugin.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::kubernetes {

// As it starts it clears its folder of sockets. On a registration it connects to the plugin, asks
// for its options, and watches its devices until the stream ends.
class FakeKubelet final : public v1beta1::Registration::Service {
 public:
  explicit FakeKubelet(std::string folder) : folder_(std::move(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::filesystem::remove(entry.path());
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder_ + "/kubelet.sock",
                             grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeKubelet() override {
    server_->Shutdown(std::chrono::system_clock::now());
    {
      const std::lock_guard lock(mutex_);
      for (const auto& context : contexts_) {
        context->TryCancel();
      }
    }
    for (std::thread& watch : watches_) {
      watch.join();
    }
  }

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    const std::lock_guard lock(mutex_);
    if (request->version() != "v1beta1" || refusal_ != "") {
      return {grpc::StatusCode::INVALID_ARGUMENT, refusal_ == "" ? "version" : refusal_};
    }
    endpoint_ = request->endpoint();
    resource_ = request->resource_name();
    contexts_.push_back(std::make_shared<grpc::ClientContext>());
    watches_.emplace_back(
        [this, context = contexts_.back(), endpoint = endpoint_] { watch(*context, endpoint); });
    return grpc::Status::OK;
  }

  void refuse(const std::string& why) {
    const std::lock_guard lock(mutex_);
    refusal_ = why;
  }

  // Waits until the devices, by id, have this health.
  bool sees(const std::map<std::string, std::string>& devices) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds{20}, [&] { return devices_ == devices; });
  }
  // Waits until no stream is open: the plugin has gone.
  bool sees_the_end() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds{20}, [&] { return open_ == 0; });
  }
  // By id their health: what the plugin that is registered said last. None if it has gone.
  [[nodiscard]] std::map<std::string, std::string> devices() {
    const std::lock_guard lock(mutex_);
    return devices_;
  }
  [[nodiscard]] std::string resource() {
    const std::lock_guard lock(mutex_);
    return resource_;
  }
  [[nodiscard]] std::string endpoint() {
    const std::lock_guard lock(mutex_);
    return folder_ + "/" + endpoint_;
  }
  [[nodiscard]] std::unique_ptr<v1beta1::DevicePlugin::Stub> plugin() {
    return v1beta1::DevicePlugin::NewStub(
        grpc::CreateChannel("unix:" + endpoint(), grpc::InsecureChannelCredentials()));
  }

 private:
  void watch(grpc::ClientContext& context, const std::string& endpoint) {
    const auto stub = v1beta1::DevicePlugin::NewStub(grpc::CreateChannel(
        "unix:" + folder_ + "/" + endpoint, grpc::InsecureChannelCredentials()));
    v1beta1::DevicePluginOptions options;
    grpc::ClientContext asking;
    const bool answered = stub->GetDevicePluginOptions(&asking, v1beta1::Empty(), &options).ok();
    auto stream = stub->ListAndWatch(&context, v1beta1::Empty());
    v1beta1::ListAndWatchResponse said;
    note([&] { ++open_; });
    while (answered && options.get_preferred_allocation_available() && stream->Read(&said)) {
      note([&] {
        if (!is_latest(context)) {
          return;
        }
        devices_.clear();
        for (const auto& device : said.devices()) {
          devices_[device.id()] = device.health();
        }
      });
    }
    note([&] {
      if (is_latest(context)) {
        devices_.clear();
      }
      --open_;
    });
  }
  // Whether that stream is of the plugin that registered last. The end of its former self's may be
  // seen after its own beginning.
  [[nodiscard]] bool is_latest(const grpc::ClientContext& context) const {
    return contexts_.back().get() == &context;
  }
  template <class Change>
  void note(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  std::string folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string refusal_;
  std::string endpoint_;
  std::string resource_;
  std::map<std::string, std::string> devices_;
  int open_ = 0;
  std::vector<std::shared_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::thread> watches_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace weft::kubernetes
