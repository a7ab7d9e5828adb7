// Owns the measuring loops of `weft perf`.
//
// A case is two measurements, latency and then rate; they are numbered on from 1, so an odd number
// is a latency.
#include "emu/cli/perf/endpoint.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <span>
#include <stdexcept>

#include "emu/cli/unwrap.hpp"
#include "srd/engine/process_config.hpp"
#include "srd/run/clock.hpp"

namespace weft::cli {
namespace {

// There are more receives than requests in a default window, and each is larger than the largest
// send: no send is then refused for want of a receive, which would measure retries.
constexpr std::uint32_t kReceives = 1024;
constexpr std::uint32_t kReceiveSize = 16384;
constexpr std::uint32_t kQkey = 0x5EED;
constexpr std::uint32_t kDomain = 1;
constexpr std::size_t kCompletions = 64;
constexpr std::size_t kMaxSamples = 2'000'000;  // allocated before anything is measured
constexpr std::uint64_t kLatencyCookie = ~std::uint64_t{0};  // rates count from 0
constexpr int kWarmUp = 20;                                  // rounds that do not count

// The byte that a spinning reader of memory watches. Atomic, so that it is read anew each time.
unsigned last_byte(const std::vector<std::byte>& buffer, std::uint32_t size) {
  std::byte& last = const_cast<std::byte&>(buffer[size - 1]);
  return std::to_integer<unsigned>(
      std::atomic_ref<std::byte>(last).load(std::memory_order_acquire));
}

std::optional<double> percentile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) {
    return std::nullopt;
  }
  return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

const char* to_string(PerfOperation operation) {
  constexpr const char* kNames[] = {"send", "write", "read"};
  return kNames[static_cast<std::size_t>(operation)];
}

void PerfEndpoint::start(PerfPlace place, bool block_when_idle, const PerfTuning& tuning) {
  block_when_idle_ = block_when_idle;
  outbox_.resize(kMaxSize, std::byte{0});
  target_.resize(kMaxSize, std::byte{0});
  inbox_.resize(std::size_t{kReceives} * kReceiveSize, std::byte{0});
  samples_.reserve(kMaxSamples);
  idler_ = srd::Idler(srd::process_idle(place.io->capabilities()));
  auto config = srd::process_config(place.io->capabilities(), place.attachment, place.life);
  if (!tuning.congestion_control.empty()) {
    config.congestion_control = tuning.congestion_control;
  }
  config.paths = tuning.paths.value_or(config.paths);
  config.path_run = tuning.path_run.value_or(config.path_run);
  unwrap(srd::validate(config, place.io->capabilities()));
  host_ = unwrap(Host::create(std::make_unique<srd::Engine>(config),
                              std::make_unique<WatchedIo>(std::move(place.io), watch_)));
  own_qpn_ = srd::Qpn{place.qpn};
  auto& own = board_.sides[static_cast<std::size_t>(side_)];
  const Rendezvous& other = board_.sides[static_cast<std::size_t>(1 - side_)].place;
  // What the peer needs (address, queue pair, key, buffer) is on the board before the barrier, and
  // receives are posted before it: so nothing can come too early.
  host_->with([&](srd::Engine& engine, TimePoint) {
    const auto opened = engine.open_endpoint(
        own_qpn_, {.qkey = kQkey, .domain = kDomain, .receive_depth = 2 * kReceives});
    const auto key = engine.memory().insert(
        {.data = target_.data(),
         .address = std::bit_cast<std::uint64_t>(target_.data()),
         .length = target_.size(),
         .access = srd::Access::local_write | srd::Access::remote_read | srd::Access::remote_write,
         .domain = kDomain});
    if (!opened || !key) {
      throw std::runtime_error(!opened ? opened.error().message : key.error().message);
    }
    own.place = {.address = place.address,
                 .attachment = place.attachment,
                 .qpn = own_qpn_,
                 .key = *key,
                 .buffer = std::bit_cast<std::uint64_t>(target_.data())};
    post_receives(engine, kReceives);
  });
  barrier();
  peer_qpn_ = other.qpn;
  peer_key_ = other.key;
  peer_buffer_ = other.buffer;
  peer_ = unwrap(host_->with([&](srd::Engine& engine, TimePoint) {
    return engine.peer(other.address, other.attachment);
  }));
}

void PerfEndpoint::pause(std::size_t work) {
  if (work != 0) {
    idler_.worked();
  } else if (idler_.pause(host_->last_poll()) && block_when_idle_) {
    // A millisecond at most: the barrier and `finished` are words on the board, which wake nobody.
    host_->sleep(host_->last_poll() + std::chrono::milliseconds{1});
  }
}

// A side announces its step first and then waits for the other's: whoever comes last releases both.
void PerfEndpoint::barrier() {
  auto& own = board_.sides[static_cast<std::size_t>(side_)].step;
  const auto& other = board_.sides[static_cast<std::size_t>(1 - side_)].step;
  const std::uint32_t step = own.fetch_add(1) + 1;
  while (other.load(std::memory_order_acquire) < step) {
    if (board_.abort) {
      throw std::runtime_error("the other side gave up");
    }
    pause(host_->poll());
  }
}

void PerfEndpoint::post_receives(srd::Engine& engine, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    srd::ReceiveRequest request;
    request.segments[0] = {inbox_.data() + std::size_t{i} * kReceiveSize, kReceiveSize};
    request.cookie = i;
    if (engine.post_receive(own_qpn_, request) != srd::PostResult::accepted) {
      throw std::runtime_error("the engine refused a receive");
    }
  }
}

// The own side of each request is the outbox: what is sent or written comes from there, and what is
// read goes there.
void PerfEndpoint::post(srd::Engine& engine, PerfOperation operation, std::uint32_t size,
                        std::uint64_t cookie) {
  const auto fill = [&](auto& request) -> auto& {
    request.peer = peer_;
    request.source = own_qpn_;
    request.destination = peer_qpn_;
    request.qkey = kQkey;
    request.cookie = cookie;
    request.segments[0] = {outbox_.data(), size};
    return request;
  };
  const auto fill_remote = [&](auto& request) -> auto& {
    request.remote_address = peer_buffer_;
    request.remote_key = peer_key_;
    return fill(request);
  };
  srd::PostResult posted{};
  switch (operation) {
    case PerfOperation::send: {
      srd::SendRequest request;
      posted = engine.post(fill(request));
      break;
    }
    case PerfOperation::write: {
      srd::WriteRequest request;
      posted = engine.post(fill_remote(request));
      break;
    }
    case PerfOperation::read: {
      srd::ReadRequest request;
      posted = engine.post(fill_remote(request));
      break;
    }
  }
  if (posted != srd::PostResult::accepted) {
    throw std::runtime_error("the engine refused a request");
  }
}

// The other side of a measurement: for latency it answers sends with sends, and writes with writes,
// whose arrival it sees by a changed last byte; reads need no answer of a program. For rates it
// only gives buffers back.
void PerfEndpoint::serve(const PerfCase& perf_case, std::uint32_t until) {
  const bool latency = until % 2 == 1;
  unsigned seen = 0;
  std::array<srd::Completion, kCompletions> completions;
  while (!is_over(until)) {
    const std::size_t work = host_->poll([&](srd::Engine& engine, TimePoint) {
      const std::size_t count = engine.poll(completions);
      for (std::size_t i = 0; i < count; ++i) {
        if (completions[i].kind != srd::Completion::Kind::receive) {
          continue;
        }
        srd::ReceiveRequest again;
        again.cookie = completions[i].cookie;
        again.segments[0] = {inbox_.data() + again.cookie * kReceiveSize, kReceiveSize};
        [[maybe_unused]] const auto posted = engine.post_receive(own_qpn_, again);
        if (latency) {
          post(engine, PerfOperation::send, perf_case.size, 0);
        }
      }
      if (latency && perf_case.operation == PerfOperation::write) {
        const unsigned now_there = last_byte(target_, perf_case.size);
        if (now_there != seen) {
          seen = now_there;
          outbox_[perf_case.size - 1] = static_cast<std::byte>(seen);
          post(engine, PerfOperation::write, perf_case.size, 0);
        }
      }
    });
    pause(work);
  }
}

// A write is answered by a write of the same mark, as a program that spins on memory would; a mark
// differs from the one before and is never 0, which run() puts there. Latencies of sends and writes
// are half a round, those of reads a whole one.
void PerfEndpoint::measure_latency(const PerfCase& perf_case, PerfResult& result) {
  std::array<srd::Completion, kCompletions> completions;
  const PerfOperation operation = perf_case.operation;
  samples_.clear();
  const double parts = operation == PerfOperation::read ? 1 : 2;
  TimePoint begin = srd::monotonic_now();
  const TimePoint end = begin + perf_case.duration;
  int rounds = 0;
  int outstanding = 0;
  unsigned mark = 0;
  while (begin < end && samples_.size() < kMaxSamples && !board_.abort &&
         result.failure == srd::Status::ok) {
    bool answered = false;
    mark = mark % 255 + 1;
    outbox_[perf_case.size - 1] = static_cast<std::byte>(mark);
    host_->with([&](srd::Engine& engine, TimePoint) {
      post(engine, operation, perf_case.size, kLatencyCookie);
    });
    ++outstanding;
    while (!answered && !board_.abort && result.failure == srd::Status::ok) {
      const std::size_t work = host_->poll([&](srd::Engine& engine, TimePoint) {
        const std::size_t count = engine.poll(completions);
        for (std::size_t i = 0; i < count; ++i) {
          const srd::Completion& completion = completions[i];
          if (completion.status != srd::Status::ok) {
            result.failure = completion.status;
          }
          if (completion.kind == srd::Completion::Kind::receive) {
            answered = answered || operation == PerfOperation::send;
            srd::ReceiveRequest again;
            again.cookie = completion.cookie;
            again.segments[0] = {inbox_.data() + again.cookie * kReceiveSize, kReceiveSize};
            [[maybe_unused]] const auto posted = engine.post_receive(own_qpn_, again);
          } else {
            --outstanding;
            answered = answered || operation == PerfOperation::read;
          }
        }
        // A written mark comes back as a write.
        answered = answered || (operation == PerfOperation::write &&
                                last_byte(target_, perf_case.size) == mark);
      });
      pause(work);
    }
    // The sample ends here; what is left of the loop is not measured.
    const TimePoint now = srd::monotonic_now();
    if (++rounds > kWarmUp) {
      samples_.push_back(static_cast<double>(nanoseconds(now - begin)) / 1000 / parts);
    }
    begin = srd::monotonic_now();
  }
  drain(outstanding, result);
  std::sort(samples_.begin(), samples_.end());
  result.p50_latency_us = percentile(samples_, 0.5);
  result.p99_latency_us = percentile(samples_, 0.99);
}

// An answer can come before the request's own completion, which is not the next measurement's to
// count.
void PerfEndpoint::drain(int outstanding, PerfResult& result) {
  std::array<srd::Completion, kCompletions> completions;
  while (outstanding > 0 && !board_.abort) {
    const std::size_t work = host_->poll([&](srd::Engine& engine, TimePoint) {
      const std::size_t count = engine.poll(completions);
      for (const srd::Completion& completion : std::span(completions).first(count)) {
        if (completion.kind != srd::Completion::Kind::receive) {
          --outstanding;
          result.failure = result.failure == srd::Status::ok ? completion.status : result.failure;
        }
      }
    });
    pause(work);
  }
}

// The clock stops when the last request of the window is complete, so a rate counts only what has
// been confirmed. After a failure nothing more is posted.
void PerfEndpoint::measure_rate(const PerfCase& perf_case, PerfResult& result) {
  std::array<srd::Completion, kCompletions> completions;
  const TimePoint begin = srd::monotonic_now();
  const TimePoint end = begin + perf_case.duration;
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  const std::uint64_t window = perf_case.window;
  bool posting = true;
  while ((posting || completed < posted) && !board_.abort) {
    const std::size_t work = host_->poll([&](srd::Engine& engine, TimePoint) {
      const std::size_t count = engine.poll(completions);
      for (std::size_t i = 0; i < count; ++i) {
        if (completions[i].kind == srd::Completion::Kind::receive) {
          continue;
        }
        if (completions[i].cookie == kLatencyCookie) {
          throw std::runtime_error("a request of the measurement before has only now ended");
        }
        ++completed;
        if (completions[i].status != srd::Status::ok) {
          result.failure = completions[i].status;
          posting = false;
        }
      }
      while (posting && posted - completed < window) {
        post(engine, perf_case.operation, perf_case.size, posted);
        ++posted;
      }
    });
    posting = posting && host_->last_poll() < end;
    pause(work);
  }
  const double seconds = static_cast<double>(nanoseconds(srd::monotonic_now() - begin)) / 1e9;
  result.messages_per_s = static_cast<double>(completed) / seconds;
  result.gbytes_per_s = result.messages_per_s * perf_case.size / 1e9;
}

PerfResult PerfEndpoint::run(const PerfCase& perf_case) {
  PerfResult result;
  const std::uint32_t first = measurements_ + 1;
  measurements_ += 2;
  // Before the first barrier, after which the other side may write there.
  target_[perf_case.size - 1] = std::byte{0};
  const auto counters = [&] {
    return host_->look([](srd::Engine& engine) { return engine.counters(); });
  };
  const srd::Counters before = counters();
  host_->look([&](srd::Engine&) { watch_->begin(); });
  for (std::uint32_t measurement = first; measurement < first + 2; ++measurement) {
    barrier();
    if (side_ == 1) {
      serve(perf_case, measurement);
    } else {
      if (measurement == first) {
        measure_latency(perf_case, result);
      } else {
        measure_rate(perf_case, result);
      }
      board_.finished.store(measurement, std::memory_order_release);
    }
  }
  auto& own = board_.sides[static_cast<std::size_t>(side_)];
  const auto& other = board_.sides[static_cast<std::size_t>(1 - side_)];
  host_->look([&](srd::Engine& engine) {
    own.paths_used = static_cast<std::uint32_t>(watch_->paths.count());
    own.out_of_order = watch_->out_of_order;
    own.retransmitted = engine.counters().retrans_pkts - before.retrans_pkts;
  });
  barrier();
  // The data goes from the client, or to it if it reads; the other direction only acknowledges and
  // asks.
  result.paths_used = std::max(own.paths_used, other.paths_used);
  result.out_of_order_packets = own.out_of_order + other.out_of_order;
  result.retransmitted = own.retransmitted + other.retransmitted;
  barrier();  // before anybody begins the next case
  result.valid = !board_.abort;
  return result;
}

}  // namespace weft::cli
