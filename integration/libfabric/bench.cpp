// Owns a program that measures tagged messages of any libfabric provider between two processes:
// latency of a ping-pong, bandwidth and rate of a stream, after a warm-up that real programs have,
// too.
//
// The two programs find each other over a TCP connection (Line), exchange their fabric addresses
// there, and agree on numbers of iterations. All measured traffic goes over the fabric.
//
// Every measurement is repeated, and the median counts.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "weft-fabric-bench: %s\n", what.c_str());
  std::exit(1);
}

void require_ok(std::int64_t result, const std::string& call) {
  if (result != 0) {
    give_up(call + ": " + fi_strerror(static_cast<int>(-result)));
  }
}

struct Options {
  std::string provider = "efa";
  std::vector<std::size_t> sizes{64, 65536, 1048576};
  std::string port = "19790";
  std::string server;  // empty: this is the server
  int rounds = 5;
  double seconds = 0.2;  // of each measurement
  std::size_t window = 64;
  bool json = false;
};

// The TCP connection between both programs, on which they find each other and agree. It is not
// measured, and carries nothing while a measurement runs.
class Line {
 public:
  explicit Line(const Options& options)
      : fd_(options.server.empty() ? serve(options) : call(options)) {
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Line() { ::close(fd_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void send(const void* data, std::size_t size) const {
    if (::send(fd_, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) {
      give_up("the other program is gone");
    }
  }
  void receive(void* data, std::size_t size) const {
    if (::recv(fd_, data, size, MSG_WAITALL) != static_cast<ssize_t>(size)) {
      give_up("the other program is gone");
    }
  }
  // Whether receive() would find something. Looking must not block: the program that waits has to
  // make progress for the other (agree()).
  [[nodiscard]] bool has_news() const {
    char byte = 0;
    return ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }

 private:
  static int serve(const Options& options) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(static_cast<std::uint16_t>(std::stoi(options.port)));
    if (::bind(listener, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
        ::listen(listener, 1) != 0) {
      give_up("port " + options.port + ": " + std::strerror(errno));
    }
    const int fd = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    return fd;
  }
  static int call(const Options& options) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(options.server.c_str(), options.port.c_str(), &hints, &found) != 0) {
      give_up("there is no host " + options.server);
    }
    // The server may have been started at the same time, and listens within five seconds or never.
    for (int tries = 0; tries < 500; ++tries) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
        ::freeaddrinfo(found);
        return fd;
      }
      ::close(fd);
      ::usleep(10'000);
    }
    give_up("nobody listens at " + options.server + ":" + options.port);
  }

  int fd_;
};

// One endpoint with one peer. The first half of the memory is sent, the second half received into;
// it is registered as a whole. Nothing here is measured: send() and receive() only post, and
// progress() takes completions.
class Fabric {
 public:
  Fabric(const Options& options, const Line& line, std::size_t bytes) : memory_(bytes) {
    open(options);
    meet(line);
    require_ok(fi_mr_reg(domain_, memory_.data(), memory_.size(), FI_SEND | FI_RECV, 0, 1, 0,
                         &region_, nullptr),
               "fi_mr_reg");
  }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric() {
    fi_close(&region_->fid);
    for (fid* const object :
         {&endpoint_->fid, &addresses_->fid, &completions_->fid, &domain_->fid, &fabric_->fid}) {
      fi_close(object);
    }
    fi_freeinfo(info_);
  }

  [[nodiscard]] std::uint8_t* memory() { return memory_.data(); }

  // All messages have the same tag, so that they match receives in the order of posting. There is
  // one buffer for all sends and one for all receives: the content of messages under way at the
  // same time is the same, so they may overwrite each other.
  void send(std::size_t size) {
    fi_context* const context = take_context();
    post([&] {
      return fi_tsend(endpoint_, memory_.data(), size, fi_mr_desc(region_), peer_, 1, context);
    });
  }
  void receive(std::size_t size) {
    fi_context* const context = take_context();
    post([&] {
      return fi_trecv(endpoint_, memory_.data() + memory_.size() / 2, size, fi_mr_desc(region_),
                      peer_, 1, 0, context);
    });
  }
  // Until nothing is under way, or no more than `left`.
  void settle(std::size_t left = 0) {
    while (under_way_ > left) {
      progress();
    }
  }
  [[nodiscard]] std::size_t under_way() const { return under_way_; }
  void progress() {
    std::array<fi_cq_tagged_entry, 16> entries;
    const ssize_t count = fi_cq_read(completions_, entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      fi_cq_readerr(completions_, &error, 0);
      give_up(std::string("completion: ") + fi_strerror(error.err));
    }
    if (count > 0) {
      // Sends and receives are not told apart: the callers know how many of each they have posted.
      under_way_ -= static_cast<std::size_t>(count);
    }
  }

 private:
  void open(const Options& options) {
    // Asks only for tagged messages of reliable datagrams, and accepts whatever a provider demands
    // about memory, so that any provider can be measured.
    fi_info* const hints = fi_allocinfo();
    hints->caps = FI_TAGGED;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->mode = FI_CONTEXT;
    hints->fabric_attr->prov_name = strdup(options.provider.c_str());
    require_ok(fi_getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &info_),
               "fi_getinfo of " + options.provider);
    fi_freeinfo(hints);
    require_ok(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
    require_ok(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_TAGGED;
    queue.size = 4096;
    require_ok(fi_cq_open(domain_, &queue, &completions_, nullptr), "fi_cq_open");
    fi_av_attr table{};
    table.type = FI_AV_TABLE;
    require_ok(fi_av_open(domain_, &table, &addresses_, nullptr), "fi_av_open");
    require_ok(fi_endpoint(domain_, info_, &endpoint_, nullptr), "fi_endpoint");
    require_ok(fi_ep_bind(endpoint_, &completions_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    require_ok(fi_ep_bind(endpoint_, &addresses_->fid, 0), "fi_ep_bind");
    require_ok(fi_enable(endpoint_), "fi_enable");
    // FI_CONTEXT: a provider may write into a context until its operation has ended. There are far
    // more of them than operations in flight, so they are reused in turn.
    contexts_.resize(1024);
  }
  void meet(const Line& line) {
    std::array<char, 256> own{};
    std::size_t size = own.size();
    require_ok(fi_getname(&endpoint_->fid, own.data(), &size), "fi_getname");
    std::array<char, 256> other{};
    line.send(own.data(), own.size());
    line.receive(other.data(), other.size());
    if (fi_av_insert(addresses_, other.data(), 1, &peer_, 0, nullptr) != 1) {
      give_up("fi_av_insert failed");
    }
  }
  // A full queue is no error: FI_EAGAIN asks the caller to make progress and to try again.
  template <class Call>
  void post(Call&& call) {
    ssize_t result = call();
    for (; result == -FI_EAGAIN; result = call()) {
      progress();
    }
    require_ok(result, "posting");
    ++under_way_;
  }
  fi_context* take_context() { return &contexts_[next_context_++ % contexts_.size()]; }

  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_cq* completions_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  fid_mr* region_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::vector<std::uint8_t> memory_;
  std::vector<fi_context> contexts_;
  std::size_t next_context_ = 0;
  std::size_t under_way_ = 0;
};

// Of one size: the medians of all rounds.
struct Numbers {
  double latency_us = 0;
  double bytes_per_s = 0;
  double messages_per_s = 0;
};

// One of the two programs. The client decides how many iterations there are; the server makes the
// same calls from its side. Neither sends a message that the other has no receive for: an
// unexpected message would measure the provider's buffering instead of its speed.
class Bench {
 public:
  Bench(const Options& options, const Line& line)
      : options_(options),
        line_(line),
        size_limit_(*std::max_element(options.sizes.begin(), options.sizes.end())),
        fabric_(options, line, 2 * std::max<std::size_t>(size_limit_, 64)) {}

  Numbers measure(std::size_t size) {
    fill(size);
    std::vector<double> latencies;
    std::vector<double> rates;
    // The first rounds establish the connection and fill caches; the second ones tell how many
    // iterations take `seconds`. The numbers are agreed before each run, so that both sides count
    // the same.
    (void)pingpong(size, agree(kWarmUp));
    const std::uint64_t turns = agree(count_for(pingpong(size, agree(kWarmUp)) / kWarmUp));
    (void)stream(size, agree(4 * options_.window));
    const std::uint64_t probe = 8 * options_.window;
    const std::uint64_t messages =
        agree(count_for(stream(size, agree(probe)) / static_cast<double>(probe)));
    for (int round = 0; round < options_.rounds; ++round) {
      latencies.push_back(pingpong(size, turns) / static_cast<double>(turns) / 2);
      rates.push_back(static_cast<double>(messages) / stream(size, messages));
    }
    check(size);
    const double rate = median(rates);
    return {median(latencies) * 1e6, rate * static_cast<double>(size), rate};
  }

 private:
  static constexpr std::uint64_t kWarmUp = 500;

  [[nodiscard]] bool is_client() const { return !options_.server.empty(); }
  [[nodiscard]] std::uint64_t count_for(double seconds_each) const {
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(options_.seconds / seconds_each),
                                     2 * options_.window, 100'000'000);
  }
  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  // The client's number, on both sides. The side that waits keeps making progress for the other.
  std::uint64_t agree(std::uint64_t number) {
    if (is_client()) {
      line_.send(&number, sizeof number);
    }
    std::uint64_t answer = number;
    while (!line_.has_news()) {
      fabric_.progress();
    }
    line_.receive(&answer, sizeof answer);
    if (!is_client()) {
      line_.send(&answer, sizeof answer);
    }
    return answer;
  }

  // A turn is a message there and one back. The next receive is posted before the answer is sent,
  // so that the answer to that always finds it.
  double pingpong(std::size_t size, std::uint64_t turns) {
    fabric_.receive(size);
    (void)agree(0);  // both have a receive posted
    const auto begin = Clock::now();
    for (std::uint64_t i = 0; i < turns; ++i) {
      if (is_client()) {
        fabric_.send(size);
      }
      // A receive is one of two requests under way, or the only one.
      fabric_.settle();
      if (i + 1 < turns) {
        fabric_.receive(size);
      }
      if (!is_client()) {
        fabric_.send(size);
      }
    }
    fabric_.settle();
    return seconds_since(begin);
  }

  // The client sends with `window` messages under way; the server keeps twice as many receives
  // posted, and sends one byte when it has all. So the time includes the arrival of the last
  // message, not only its completion at the sender.
  double stream(std::size_t size, std::uint64_t messages) {
    if (is_client()) {
      fabric_.receive(1);
    } else {
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(messages, 2 * options_.window); ++i) {
        fabric_.receive(size);
      }
    }
    (void)agree(0);
    const auto begin = Clock::now();
    if (is_client()) {
      for (std::uint64_t i = 0; i < messages; ++i) {
        fabric_.settle(options_.window);  // the receive of the last word is one of them
        fabric_.send(size);
      }
    } else {
      for (std::uint64_t i = std::min<std::uint64_t>(messages, 2 * options_.window); i < messages;
           ++i) {
        fabric_.settle(2 * options_.window - 1);
        fabric_.receive(size);
      }
      fabric_.settle();
      fabric_.send(1);
    }
    fabric_.settle();
    return seconds_since(begin);
  }

  // The size is part of the pattern: bytes that an earlier size left behind do not pass for new
  // ones.
  void fill(std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      fabric_.memory()[i] = static_cast<std::uint8_t>(i * 7 + (i >> 8) * 13 + size);
    }
  }
  // Both sides send the same bytes, and every receive lies in the same place.
  void check(std::size_t size) {
    const std::uint8_t* const got = fabric_.memory() + std::max<std::size_t>(size_limit_, 64);
    if (!is_client() && std::memcmp(got, fabric_.memory(), size) != 0) {
      give_up("what arrived is not what was sent");
    }
  }
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  const Options& options_;
  const Line& line_;
  std::size_t size_limit_;
  Fabric fabric_;
};

// Only the client prints, as both would say the same.
void print(const Options& options, std::size_t size, const Numbers& numbers) {
  if (options.json) {
    std::printf(
        "{\"fabric_bench\": true, \"provider\": \"%s\", \"size\": %zu, \"latency_us\": %.3f, "
        "\"gbytes_per_s\": %.3f, \"msgs_per_s\": %.0f}\n",
        options.provider.c_str(), size, numbers.latency_us, numbers.bytes_per_s / 1e9,
        numbers.messages_per_s);
  } else {
    std::printf("%-14s%10zu%12.2f%12.3f%14.0f\n", options.provider.c_str(), size,
                numbers.latency_us, numbers.bytes_per_s / 1e9, numbers.messages_per_s);
  }
  std::fflush(stdout);
}

constexpr const char* kUsage =
    "usage: weft-fabric-bench [OPTIONS] [SERVER]\n"
    "  -p PROVIDER   efa, tcp;ofi_rxm, ... (default: efa)\n"
    "  -s SIZE,...   bytes of a message (64,65536,1048576)\n"
    "  -w NUMBER     messages under way in a stream (64)\n"
    "  -r NUMBER     rounds; the medians count (5)\n"
    "  -t SECONDS    length of one measurement (0.2)\n"
    "  -P PORT       where both programs find each other (19790)\n"
    "  --json        one JSON object per line\n"
    "One-way latency [us], bandwidth [GB/s] and rate [1/s] of tagged messages, seen by the "
    "client.\n";

// By hand: the program needs libfabric and nothing else, so that it can be built where weft is not.
Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) {
        std::fputs(kUsage, stderr);
        std::exit(2);
      }
      return argv[++i];
    };
    if (word == "-p") {
      options.provider = value();
    } else if (word == "-s") {
      options.sizes.clear();
      const std::string list = value();
      for (std::size_t at = 0; at < list.size(); at = list.find_first_of(",", at) + 1) {
        options.sizes.push_back(std::strtoull(list.c_str() + at, nullptr, 10));
        if (list.find(',', at) == std::string::npos) {
          break;
        }
      }
    } else if (word == "-w") {
      options.window = std::strtoull(value().c_str(), nullptr, 10);
    } else if (word == "-r") {
      options.rounds = std::atoi(value().c_str());
    } else if (word == "-t") {
      options.seconds = std::atof(value().c_str());
    } else if (word == "-P") {
      options.port = value();
    } else if (word == "--json") {
      options.json = true;
    } else if (word.starts_with("-")) {
      std::fputs(kUsage, stderr);
      std::exit(word == "-h" || word == "--help" ? 0 : 2);
    } else {
      options.server = word;
    }
  }
  if (options.sizes.empty() || options.window == 0 || options.rounds < 1 || options.seconds <= 0) {
    std::fputs(kUsage, stderr);
    std::exit(2);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Line line(options);
  Bench bench(options, line);
  if (!options.server.empty() && !options.json) {
    std::printf("%-14s%10s%12s%12s%14s\n", "provider", "bytes", "lat[us]", "GB/s", "msg/s");
  }
  for (const std::size_t size : options.sizes) {
    const Numbers numbers = bench.measure(size);
    if (!options.server.empty()) {
      print(options, size, numbers);
    }
  }
  return 0;
}
