// Owns the ranks' processes: attaching, meeting, and driving a worker from section to section.
// Barriers stand around each section, so that no rank is in one that another has not prepared, or
// has left.
#include "emu/cli/workloads/live.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstring>
#include <stdexcept>

#include "emu/attach/client.hpp"
#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/weftd_process.hpp"
#include "integration/collectives/board.hpp"
#include "integration/collectives/rank_processes.hpp"
#include "srd/engine/process_config.hpp"
#include "srd/run/background.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/host.hpp"
#include "srd/run/idle.hpp"

namespace weft::cli {
namespace {

using collectives::Board;
using workloads::RankPlace;
using workloads::Worker;
using workloads::WorkerMachine;

// What the processes share: a board, the places of all ranks, and their results. Mapped before the
// ranks are forked, at the same address in each; the parts begin at cache lines, so that ranks do
// not slow each other down.
class Shared {
 public:
  explicit Shared(const LiveJob& job)
      : board_bytes_(round_up(Board::bytes(job.ranks, 1))),
        places_bytes_(round_up(job.ranks * sizeof(RankPlace))),
        result_bytes_(job.result_bytes),
        size_(board_bytes_ + places_bytes_ + job.ranks * job.result_bytes),
        data_(static_cast<std::byte*>(
            ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (data_ == MAP_FAILED) {
      throw std::runtime_error("no memory for the ranks to share");
    }
    board_ = &Board::create(data_, job.ranks, 1);
    places_ = {new (data_ + board_bytes_) RankPlace[job.ranks], job.ranks};
  }
  ~Shared() { ::munmap(data_, size_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  [[nodiscard]] Board& board() const { return *board_; }
  [[nodiscard]] std::span<RankPlace> places() const { return places_; }
  [[nodiscard]] std::span<std::byte> result(std::uint32_t rank) const {
    return all_results().subspan(rank * result_bytes_, result_bytes_);
  }
  [[nodiscard]] std::span<std::byte> all_results() const {
    return {data_ + board_bytes_ + places_bytes_, size_ - board_bytes_ - places_bytes_};
  }

 private:
  static std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::size_t board_bytes_;
  std::size_t places_bytes_;
  std::size_t result_bytes_;
  std::size_t size_;
  std::byte* data_;
  Board* board_ = nullptr;
  std::span<RankPlace> places_;
};

// One rank in its process. A background thread receives while the rank computes, as a NIC would; so
// the machine is touched only through the Host, which locks it.
class LiveRank {
 public:
  using Host = srd::Host<WorkerMachine>;

  LiveRank(const LiveJob& job, std::uint32_t rank, const Shared& shared, const std::string& socket)
      : job_(job), rank_(rank), shared_(shared) {
    attach::Attachment attached =
        unwrap(attach::attach({.socket = socket, .host = fmt::format("h{}", rank + 1)}));
    // Each rank writes its own place before the first barrier of run(), and reads the others' after
    // it.
    RankPlace& place = shared.places()[rank];
    place = {.address = attached.address,
             .attachment = attached.id,
             .qpn = srd::Qpn{attached.first_qpn + 1}};
    const srd::IoCapabilities carrier = attached.io->capabilities();
    srd::EngineConfig config = srd::process_config(carrier, attached.id, attached.life);
    config.peer_timeout = job.peer_timeout;
    unwrap(srd::validate(config, carrier));
    idler_ = srd::Idler(srd::process_idle(carrier));
    host_ = unwrap(Host::create(
        std::make_unique<WorkerMachine>(
            config, [&](srd::Engine& engine) { return job.make(engine, rank, place); }),
        std::move(attached.io)));
    background_ = std::make_unique<srd::BackgroundThread<WorkerMachine>>(*host_);
  }

  // Runs all sections. Barriers before and after each: nobody writes to a rank that has not
  // prepared, and nobody prepares the next section while others still write. Throws if the rank
  // fails, but not before its results have been collected.
  void run() {
    Board& board = shared_.board();
    board.barrier(rank_);
    host_->look([&](WorkerMachine& machine) { machine.worker().meet(shared_.places()); });
    while (true) {
      // The watch must not take a long computation for a hang.
      board.where(rank_).computes(true);
      const bool finished = host_->look([](WorkerMachine& machine) {
        machine.worker().prepare();
        return machine.worker().finished();
      });
      board.where(rank_).computes(false);
      if (finished) {
        break;
      }
      board.barrier(rank_);
      host_->with([](WorkerMachine& machine, TimePoint now) { machine.worker().begin(now); });
      const std::string failure = until_section_is_over();
      if (!failure.empty()) {
        collect();
        throw std::runtime_error(failure);
      }
      board.barrier(rank_);
    }
    collect();
  }

 private:
  void collect() {
    host_->look([&](WorkerMachine& machine) {
      workloads::PacketCounters packets;
      packets.add(machine.engine().counters());
      job_.collect(rank_, machine.worker(), packets, shared_.result(rank_));
    });
  }

  // Returns why the rank cannot go on; empty: it can.
  [[nodiscard]] std::string until_section_is_over() {
    std::string failure;
    const auto over = [&](WorkerMachine& machine) {
      failure = machine.worker().failure();
      return !failure.empty() || machine.worker().section_over();
    };
    Board& board = shared_.board();
    while (!host_->look(over)) {
      // A rank that gives up stops the others, unless a death is part of the run: then they have to
      // find out by themselves.
      if (board.aborted() && !job_.victim) {
        return "another rank gave up: " + board.reason();
      }
      if (host_->poll() != 0) {
        idler_.worked();
        board.where(rank_).moved();
      } else if (idler_.pause(host_->last_poll())) {
        // Not longer than a millisecond: that another rank has given up is told by a flag, which
        // wakes nobody.
        host_->sleep(host_->last_poll() + std::chrono::milliseconds{1});
      }
    }
    return failure;
  }

  const LiveJob& job_;
  std::uint32_t rank_;
  const Shared& shared_;
  srd::Idler idler_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<srd::BackgroundThread<WorkerMachine>> background_;
};

int run_rank(const LiveJob& job, std::uint32_t rank, const Shared& shared,
             const std::string& socket) {
  try {
    LiveRank(job, rank, shared, socket).run();
    return kSuccess;
  } catch (const std::exception& error) {
    complain("{}: rank {}: {}\n", job.command, rank, error.what());
    shared.board().give_up(fmt::format("rank {}: {}", rank, error.what()));
    return kFailure;
  }
}

}  // namespace

bool run_live(const LiveJob& job, std::vector<std::byte>& results) {
  const launch::Interruptible interruptible;
  const auto weftd = unwrap(launch::PrivateWeftd::start({.hosts = job.ranks,
                                                         .direct_rings = !job.through_weftd,
                                                         .topology = job.topology,
                                                         .seed = job.seed,
                                                         .dilation = job.dilation}));
  for (const std::string& fault : job.faults) {
    unwrap(launch::apply_fault(weftd.directory(), fault));
  }
  const Shared shared(job);
  collectives::RankProcesses ranks(
      shared.board(),
      {.prepare =
           [](std::uint32_t) {
             launch::forget_interrupts();
             ::signal(SIGPIPE, SIG_DFL);
           },
       .run = [&](std::uint32_t rank) { return run_rank(job, rank, shared, weftd.socket()); },
       .threads = 1});
  const bool good = ranks.wait(
      {.patience = Duration{static_cast<std::int64_t>(job.patience * 1e9)},
       .victim = job.victim,
       .look = launch::check_interrupt,
       .complain = [&](const std::string& text) { complain("{}: {}\n", job.command, text); }});
  const auto all = shared.all_results();
  // Also of a run that failed: what the ranks found until then may say why.
  results.assign(all.begin(), all.end());
  return good;
}

}  // namespace weft::cli
