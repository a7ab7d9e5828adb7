// Owns starting the sides of `weft perf`, and a side's way through all cases.
#include "emu/cli/perf/sides.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "emu/attach/client.hpp"
#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/output.hpp"
#include "emu/cli/perf/fault.hpp"
#include "emu/cli/perf/report.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/cores.hpp"
#include "emu/launch/interrupt.hpp"
#include "srd/base/death_signal.hpp"
#include "srd/io/pcap_io.hpp"
#include "srd/io/udp_io.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::cli {
namespace {

// In the process of that side: h1 and h2 are the first pair, h3 and h4 the second.
PerfPlace place_on_ring(const launch::PrivateWeftd& weftd, int pair, int side) {
  attach::Attachment attached = unwrap(attach::attach(
      {.socket = weftd.socket(), .host = "h" + std::to_string(2 * pair + side + 1)}));
  return {.address = attached.address,
          .attachment = attached.id,
          .life = attached.life,
          .qpn = attached.first_qpn + 1,
          .io = std::move(attached.io)};
}

// Loopback addresses of this run alone, made from the number of the process that started both
// sides: an address serves one process.
PerfPlace place_on_udp(int side) {
  const auto run = static_cast<unsigned>(::getppid());
  srd::Address addresses[2];
  for (unsigned i = 0; i < 2; ++i) {
    addresses[i] = srd::Address::v4(127, 80 + run / 250 % 100, run % 250, i + 1);
  }
  return {.address = addresses[side],
          .attachment = srd::AttachmentId{1},
          // Another run is another life; its queue pairs are in the block of attachment 1, from 256
          // on.
          .life = srd::Life{run},
          .qpn = 257,
          .io = unwrap(srd::UdpIo<srd::wire::SrdCodec>::create(
              {.own = addresses[side], .mtu = 8192 + 64, .paths = 16}))};
}

// Where there is no modelled network, what a side sends is troubled on its way out.
void trouble(const PerfOptions& options, PerfPlace& place, int side) {
  for (const std::string& text : options.faults) {
    if (options.io == "ring") {
      return;  // there weftd models the network, and its faults
    }
    // Another seed for each side, so that the two do not lose the same packets in step.
    auto config = unwrap(parse_packet_fault(text));
    config.seed = 2 * options.seed + static_cast<std::uint64_t>(side);
    place.io = std::make_unique<srd::FaultIo>(config, std::move(place.io));
  }
}

void record(const PerfOptions& options, PerfPlace& place, int side) {
  if (options.capture.empty()) {
    return;
  }
  std::filesystem::create_directories(options.capture);
  auto capture = unwrap(srd::PacketCapture::create(
      options.capture + (side == 0 ? "/client.pcapng" : "/server.pcapng"), place.address,
      srd::CaptureFormat::of<srd::wire::SrdCodec>()));
  place.io = std::make_unique<srd::PcapIo>(std::move(place.io), std::move(capture));
}

}  // namespace

// Anonymous and shared: the sides are forked afterwards and see the same pages.
Boards::Boards(std::size_t pairs) {
  const std::size_t size = pairs * sizeof(PairBoard);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("no memory for the sides to share");
  }
  all_ = {static_cast<PairBoard*>(memory), pairs};
  for (PairBoard& board : all_) {
    new (&board) PairBoard;
  }
}

Boards::~Boards() { ::munmap(all_.data(), all_.size_bytes()); }

PerfPlace Ground::place(int pair, int side) const {
  return weftd  ? place_on_ring(*weftd, pair, side)
         : dpdk ? place_on_dpdk(*dpdk, side, static_cast<unsigned>(::getppid()))
                : place_on_udp(side);
}

int run_side(const PerfOptions& options, PairBoard& board, int pair, int side,
             const Ground& ground) {
  try {
    const std::size_t cores = launch::core_count();
    if (cores > 1 && is_pinned(options)) {
      const bool shared = ground.weftd && passes_weftd(options);
      launch::pin_to_core(0, core_of_side(static_cast<std::size_t>(pair),
                                          static_cast<std::size_t>(side), shared, cores));
    }
    PerfEndpoint endpoint(board.perf, side);
    PerfPlace place = ground.place(pair, side);
    // The capture lies nearest to the carrier: it shows what a fault on this side lets through.
    record(options, place, side);
    trouble(options, place, side);
    endpoint.start(std::move(place), options.block, options.tuning);
    if (side == 0 && !options.json && options.pairs == 1) {
      print_head();
    }
    std::size_t number = 0;
    bool passed = true;
    for (const PerfCase& one : cases_of(options)) {
      std::vector<PerfResult> results;
      for (int round = 0; round < options.rounds; ++round) {
        results.push_back(endpoint.run(one));
      }
      if (side == 0) {
        const PerfResult result = median(results);
        passed = passed && result.failure == srd::Status::ok;
        if (options.pairs == 1) {
          print_row(options, one, result);
          flush_output();
        } else {
          board.medians.at(number++) = result;
        }
      }
    }
    return passed ? kSuccess : kFailure;
  } catch (const std::exception& error) {
    // Or the other side would wait at its next barrier for ever.
    board.perf.abort = true;
    complain("weft perf: side {}: {}\n", side, error.what());
    return kFailure;
  }
}

Sides::~Sides() {
  for (const pid_t pid : pids_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

void Sides::start(int side, const std::function<int()>& body) {
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // A side ends with the command even if that is killed; the signals that interrupt the command
    // are its parent's to handle.
    die_with(self, SIGKILL);
    launch::forget_interrupts();
    ::signal(SIGPIPE, SIG_DFL);  // a side has nothing to clear up: its parent does that
    ::prctl(PR_SET_NAME, side == 0 ? "weft-client" : "weft-server");
    ::_exit(end_output(body()));
  }
  if (pid < 0) {
    throw std::runtime_error(srd::errno_text("starting a process"));
  }
  pids_.push_back(pid);
}

int Sides::wait(std::span<PairBoard> boards) {
  int code = kSuccess;
  while (!pids_.empty()) {
    int status = 0;
    const pid_t ended = ::waitpid(0, &status, 0);  // weftd is in another process group
    launch::check_interrupt();                     // which may have ended them, too
    if (ended < 0) {
      continue;
    }
    std::erase(pids_, ended);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != kSuccess) {
      for (PairBoard& board : boards) {
        board.perf.abort = true;  // the others do not wait for it
      }
      // A reader that left ends the command as the signal would have.
      const bool reader_left = WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE;
      code = code != kSuccess ? code : reader_left ? 128 + SIGPIPE : kFailure;
    }
  }
  return code;
}

}  // namespace weft::cli
