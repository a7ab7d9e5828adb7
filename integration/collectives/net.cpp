// Owns the adapters from the tables of all versions to one face, Net. load_net() takes the newest
// table that the library has, or the one that was asked for; TableNet calls it with the types of
// that version.
#include "integration/collectives/net.hpp"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <type_traits>

namespace weft::collectives {
namespace {

using namespace nccl::abi;
using nccl::abi::Result;

template <class Table>
constexpr int kVersion = 0;
template <>
constexpr int kVersion<TableV6> = 6;
template <>
constexpr int kVersion<TableV7> = 7;
template <>
constexpr int kVersion<TableV8> = 8;
template <>
constexpr int kVersion<TableV9> = 9;
template <>
constexpr int kVersion<TableV10> = 10;
template <>
constexpr int kVersion<TableV11> = 11;
template <>
constexpr int kVersion<TableV12> = 12;

// What NCCL_DEBUG lets through.
__attribute__((format(printf, 5, 6))) void log(int level, unsigned long, const char* file, int line,
                                               const char* format, ...) {
  const char* const wanted = std::getenv("NCCL_DEBUG");
  const int limit = wanted != nullptr && std::string_view(wanted) == "INFO" ? kInfo : kWarn;
  if (level > limit) {
    return;
  }
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "plugin: %s:%d %s\n", file == nullptr ? "" : file, line, text);
}

// All differences between versions are here, decided when this is compiled; whatever stands above
// Net is written once.
template <class Table>
class TableNet final : public Net {
 public:
  explicit TableNet(const Table& table) : table_(table) {}

  Result init() override {
    if constexpr (kVersion<Table> >= 11) {
      return table_.init(&context_, 1, &config_, log, nullptr);
    } else if constexpr (kVersion<Table> == 10) {
      return table_.init(log, nullptr);
    } else {
      return table_.init(log);
    }
  }
  Result finalize() override {
    if constexpr (kVersion<Table> >= 11) {
      return table_.finalize(context_);
    }
    return kSuccess;
  }
  Result devices(int& count) override { return table_.devices(&count); }
  Result properties(int device, Properties& out) override {
    typename Table::Properties found{};
    const Result result = table_.getProperties(device, &found);
    if (result == kSuccess) {
      out = {found.name == nullptr ? "" : found.name, found.speed, found.maxRecvs,
             found.ptrSupport};
    }
    return result;
  }
  Result listen(int device, Handle& handle, void*& listener) override {
    if constexpr (kVersion<Table> >= 11) {
      return table_.listen(context_, device, handle.data(), &listener);
    } else {
      return table_.listen(device, handle.data(), &listener);
    }
  }
  Result connect(int device, Handle& handle, void*& connection) override {
    [[maybe_unused]] DeviceHandle* on_device = nullptr;
    if constexpr (kVersion<Table> >= 11) {
      return table_.connect(context_, device, handle.data(), &connection, &on_device);
    } else if constexpr (kVersion<Table> == 10) {
      return table_.connect(device, &config_, handle.data(), &connection, &on_device);
    } else if constexpr (kVersion<Table> >= 7) {
      return table_.connect(device, handle.data(), &connection, &on_device);
    } else {
      return table_.connect(device, handle.data(), &connection);
    }
  }
  Result accept(void* listener, void*& connection) override {
    [[maybe_unused]] DeviceHandle* on_device = nullptr;
    if constexpr (kVersion<Table> >= 7) {
      return table_.accept(listener, &connection, &on_device);
    } else {
      return table_.accept(listener, &connection);
    }
  }
  Result register_memory(void* connection, void* data, std::size_t size, void*& memory) override {
    if constexpr (kVersion<Table> <= 7) {
      return table_.regMr(connection, data, static_cast<int>(size), kHostMemory, &memory);
    } else {
      return table_.regMr(connection, data, size, kHostMemory, &memory);
    }
  }
  Result deregister_memory(void* connection, void* memory) override {
    return table_.deregMr(connection, memory);
  }
  Result send(void* connection, const Posted& message, void*& request) override {
    const auto size = static_cast<typename Table::Size>(message.size);
    if constexpr (kVersion<Table> >= 10) {
      return table_.isend(connection, message.data, size, message.tag, message.memory, nullptr,
                          &request);
    } else {
      return table_.isend(connection, message.data, size, message.tag, message.memory, &request);
    }
  }
  Result receive(void* connection, std::span<const Posted> buffers, bool early,
                 void*& request) override {
    void* data[kMaxBuffers];
    typename Table::Size sizes[kMaxBuffers];
    int tags[kMaxBuffers];
    void* memory[kMaxBuffers];
    [[maybe_unused]] void* profiles[kMaxBuffers] = {};
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      data[i] = buffers[i].data;
      sizes[i] = static_cast<typename Table::Size>(buffers[i].size);
      tags[i] = buffers[i].tag;
      memory[i] = buffers[i].memory;
    }
    const int count = static_cast<int>(buffers.size());
    // Since version 9 a receive says by a value in the request that its end may be told early.
    request = early && kVersion<Table> >= 9 ? kOptionalCompletion : nullptr;
    if constexpr (kVersion<Table> >= 10) {
      return table_.irecv(connection, count, data, sizes, tags, memory, profiles, &request);
    } else {
      return table_.irecv(connection, count, data, sizes, tags, memory, &request);
    }
  }
  Result test(void* request, bool& done, std::span<int> sizes) override {
    int is_done = 0;
    const Result result = table_.test(request, &is_done, sizes.empty() ? nullptr : sizes.data());
    done = is_done != 0;
    return result;
  }
  Result close_send(void* connection) override { return table_.closeSend(connection); }
  Result close_receive(void* connection) override { return table_.closeRecv(connection); }
  Result close_listener(void* listener) override { return table_.closeListen(listener); }

 private:
  const Table& table_;
  // Since version 11: what init() gave, and listen() and connect() take.
  [[maybe_unused]] void* context_ = nullptr;
  [[maybe_unused]] CommConfig config_{kUndefined};
};

// Looks for the table of that version, unless a newer one was found or another one is asked for.
template <class Table>
bool take(void* library, std::optional<int> version, LoadedNet& found) {
  constexpr int kThis = kVersion<Table>;
  if (found.net != nullptr || (version && *version != kThis)) {
    return false;
  }
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(kThis);
  const auto* const table = static_cast<const Table*>(::dlsym(library, symbol.c_str()));
  if (table == nullptr) {
    return false;
  }
  found = {std::make_unique<TableNet<Table>>(*table), table->name == nullptr ? "" : table->name,
           kThis};
  return true;
}

}  // namespace

weft::Result<LoadedNet> load_net(const std::string& file, std::optional<int> version) {
  // One rank after another, as NCCL does it: what the library's constructors have written is then
  // there for all threads, and the thread sanitizer, which does not see the loader's own lock,
  // knows.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  // Never closed: a plugin may have threads, and hooks that run at the process's end.
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return fail(ErrorCode::not_found, why == nullptr ? file : why);
  }
  LoadedNet found;
  (void)(take<TableV12>(library, version, found) || take<TableV11>(library, version, found) ||
         take<TableV10>(library, version, found) || take<TableV9>(library, version, found) ||
         take<TableV8>(library, version, found) || take<TableV7>(library, version, found) ||
         take<TableV6>(library, version, found));
  if (found.net == nullptr) {
    return fail(ErrorCode::not_found,
                file + " exports no ncclNetPlugin_v" +
                    (version ? std::to_string(*version) : std::string("6 to v12")));
  }
  return found;
}

const char* to_string(Result result) {
  switch (result) {
    case kSuccess:
      return "ncclSuccess";
    case kSystemError:
      return "ncclSystemError";
    case kInternalError:
      return "ncclInternalError";
    case kInvalidArgument:
      return "ncclInvalidArgument";
    case kInvalidUsage:
      return "ncclInvalidUsage";
    case kRemoteError:
      return "ncclRemoteError";
  }
  return "ncclUnhandledCudaError, or a result that there is not";
}

}  // namespace weft::collectives
