// Owns recording requests, and writing them down.
//
// Bars are kept in memory until the rank has ended, so that writing does not disturb the run; a
// rank that is killed leaves none. Times are those of the machine's monotonic clock, which all
// ranks share.
#include "integration/collectives/trace_net.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "integration/collectives/clock.hpp"
#include "integration/collectives/forwarding_net.hpp"

namespace weft::collectives {
namespace {

constexpr std::size_t kMaxBars = 1'000'000;

double microseconds_now() { return static_cast<double>(nanoseconds(now())) / 1e3; }

// Ranks append whole blocks, so that none gets into another one's.
void append(const std::string& file, std::string_view text, int flags) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  const bool good =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) {
    ::close(fd);
  }
  if (!good) {
    throw std::runtime_error("writing " + file + ": " + std::strerror(error));
  }
}

// A request, from its call until test() has told that it is done. `row` is the connection.
struct Bar {
  std::uint32_t row = 0;
  bool sends = false;
  std::size_t bytes = 0;
  int tag = 0;
  double began_us = 0;
  double took_us = 0;
};

class TraceNet final : public ForwardingNet {
 public:
  TraceNet(std::unique_ptr<Net> net, std::string file, std::uint32_t rank)
      : ForwardingNet(std::move(net)), file_(std::move(file)), rank_(rank) {}
  ~TraceNet() override {
    try {
      append(file_, text(), O_APPEND);
    } catch (const std::exception& error) {
      (void)std::fprintf(stderr, "rank %u: %s\n", rank_, error.what());
    }
  }
  TraceNet(const TraceNet&) = delete;
  TraceNet& operator=(const TraceNet&) = delete;

  Result send(void* connection, const Posted& message, void*& request) override {
    const double began = microseconds_now();
    const Result result = net().send(connection, message, request);
    note(connection, request, {0, true, message.size, message.tag, began, 0});
    return result;
  }
  Result receive(void* connection, std::span<const Posted> buffers, bool early,
                 void*& request) override {
    const double began = microseconds_now();
    const Result result = net().receive(connection, buffers, early, request);
    note(connection, request, {0, false, buffers[0].size, buffers[0].tag, began, 0});
    return result;
  }
  Result test(void* request, bool& done, std::span<int> sizes) override {
    const Result result = net().test(request, done, sizes);
    const auto found = under_way_.find(request);
    if (done && found != under_way_.end()) {
      Bar& bar = found->second;
      bar.took_us = microseconds_now() - bar.began_us;
      if (!bar.sends && !sizes.empty() && sizes[0] >= 0) {
        bar.bytes = static_cast<std::size_t>(sizes[0]);
      }
      if (bars_.size() < kMaxBars) {
        bars_.push_back(bar);
      }
      under_way_.erase(found);
    }
    return result;
  }

 private:
  void note(void* connection, void* request, Bar bar) {
    // The plugin was not ready. The caller asks again, and the bar begins with the call that is
    // given a request.
    if (request == nullptr) {
      return;
    }
    const auto [row, is_new] =
        rows_.emplace(connection, Row{static_cast<std::uint32_t>(rows_.size()), bar.sends});
    bar.row = row->second.number;
    under_way_[request] = bar;
  }

  [[nodiscard]] std::string text() const {
    std::string out = "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" + std::to_string(rank_) +
                      ",\"args\":{\"name\":\"rank " + std::to_string(rank_) + "\"}},\n";
    char line[256];
    for (const auto& [connection, row] : rows_) {
      (void)std::snprintf(line, sizeof line,
                          "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":"
                          "{\"name\":\"%s %u\"}},\n",
                          rank_, row.number, row.sends ? "sends" : "receives", row.number);
      out += line;
    }
    for (const Bar& bar : bars_) {
      (void)std::snprintf(line, sizeof line,
                          "{\"ph\":\"X\",\"name\":\"%s %zu\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,"
                          "\"dur\":%.3f,\"args\":{\"bytes\":%zu,\"tag\":%d}},\n",
                          bar.sends ? "isend" : "irecv", bar.bytes, rank_, bar.row, bar.began_us,
                          bar.took_us, bar.bytes, bar.tag);
      out += line;
    }
    return out;
  }

  struct Row {
    std::uint32_t number = 0;
    bool sends = false;
  };
  std::string file_;
  std::uint32_t rank_;
  std::map<void*, Row> rows_;
  // By the plugin's request. A plugin uses the address of an ended one again, so it is erased at
  // once.
  std::map<void*, Bar> under_way_;
  std::vector<Bar> bars_;
};

}  // namespace

void begin_trace(const std::string& file) { append(file, "[\n", O_TRUNC); }

// Every entry has a comma behind it, so one comes last that says nothing.
void end_trace(const std::string& file) {
  append(file,
         "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":0,\"args\":{\"labels\":\"\"}}\n]\n",
         O_APPEND);
}

std::unique_ptr<Net> add_trace(std::unique_ptr<Net> net, const std::string& file,
                               std::uint32_t rank) {
  return std::make_unique<TraceNet>(std::move(net), file, rank);
}

}  // namespace weft::collectives
