// Owns the transfer of `weft demo`: a sender that writes blocks into the receiver's memory, and a
// receiver that checks each and sends back its number. Both drive an Engine through a Host and
// rings, as any program of this tree does, and note on the shared board what they have seen.
#include "emu/cli/demo/endpoint.hpp"

#include <bit>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "emu/attach/client.hpp"
#include "emu/cli/unwrap.hpp"
#include "srd/base/rng.hpp"
#include "srd/engine/engine.hpp"
#include "srd/engine/process_config.hpp"
#include "srd/run/clock.hpp"
#include "srd/run/host.hpp"
#include "srd/run/idle.hpp"

namespace weft::cli {
namespace {

using Host = srd::Host<srd::Engine>;

// Both ends have to agree on the queue key; any value does.
constexpr std::uint32_t kQkey = 0xDE30;
constexpr std::uint32_t kDomain = 1;
constexpr std::size_t kTicket = sizeof(std::uint64_t);  // of a send back: the block's number
constexpr Duration kIdleSleep = std::chrono::milliseconds{1};
constexpr std::size_t kWords = kDemoBlock / sizeof(std::uint64_t);

// The word at that place of that block. All words of a run differ, so a byte in the wrong place
// shows.
std::uint64_t word_of(std::uint64_t seed, std::uint64_t block, std::size_t word) {
  return (seed ^ block * 0x9E3779B97F4A7C15ULL) + word * 0xD1B54A32D192ED03ULL;
}

void fill(std::byte* to, std::uint64_t seed, std::uint64_t block) {
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t word = word_of(seed, block, i);
    std::memcpy(to + i * sizeof word, &word, sizeof word);
  }
}

// Looks at the whole block, right or wrong: a loop without an exit is the fastest.
bool is_right(const std::byte* from, std::uint64_t seed, std::uint64_t block) {
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint64_t word;
    std::memcpy(&word, from + i * sizeof word, sizeof word);
    difference |= word ^ word_of(seed, block, i);
  }
  return difference == 0;
}

// Notes what the engine tells, for the story on the screen.
class Listener final : public srd::Observer {
 public:
  explicit Listener(DemoBoard& board) : board_(board) {}
  void on_event(const srd::Event& event) override {
    using Kind = srd::Event::Kind;
    if (event.kind == Kind::packet_sent) {
      board_.packets.fetch_add(1, std::memory_order_relaxed);
      board_.path_packets[event.path.value() % kDemoPaths].fetch_add(1, std::memory_order_relaxed);
      if (event.detail != 0) {
        board_.retransmitted.fetch_add(1, std::memory_order_relaxed);
      }
      return;
    }
    if (event.kind == Kind::packet_lost) {
      board_.lost.fetch_add(1, std::memory_order_relaxed);
    } else if (event.kind != Kind::path_abandoned && event.kind != Kind::path_recovered) {
      return;
    }
    // Only the sender's thread adds events. The showing process reads the count (acquire) and then
    // finds all events below it complete.
    const std::uint32_t index = board_.events.load(std::memory_order_relaxed);
    if (index < DemoBoard::kEvents) {
      board_.event[index] = {event.kind, nanoseconds(event.when), event.path.value()};
      board_.events.store(index + 1, std::memory_order_release);
    }
  }

 private:
  DemoBoard& board_;
};

// A process attached to the network, with its engine.
struct Endpoint {
  std::unique_ptr<Host> host;
  srd::Address address;
  srd::AttachmentId attachment;
  srd::Qpn qpn;
};

// Joins the network as the host of that name. Throws std::runtime_error.
Endpoint join(const DemoPlan& plan, const char* name) {
  auto attached = unwrap(attach::attach({.socket = plan.socket, .host = name}));
  auto config = srd::process_config(attached.io->capabilities(), attached.id, attached.life);
  config.paths = kDemoPaths;
  unwrap(srd::validate(config, attached.io->capabilities()));
  Endpoint endpoint;
  endpoint.address = attached.address;
  endpoint.attachment = attached.id;
  endpoint.qpn = srd::Qpn{attached.first_qpn + 1};
  endpoint.host =
      unwrap(Host::create(std::make_unique<srd::Engine>(config), std::move(attached.io)));
  return endpoint;
}

// Call it after each poll; `work` is what the poll returned. Spins for a while, then sleeps until
// something arrives or kIdleSleep is over, since flags of the board wake nobody.
void pause(Host& host, srd::Idler& idler, std::size_t work) {
  if (work != 0) {
    idler.worked();
  } else if (idler.pause(host.last_poll())) {
    host.sleep(host.last_poll() + kIdleSleep);
  }
}

// Checks each block when its write has arrived with the block's number as immediate data, and sends
// that number back as a ticket. Only then may the sender write over the block: before, the receiver
// may still be reading it.
class Receiver {
 public:
  Receiver(DemoBoard& board, const DemoPlan& plan) : board_(board), plan_(plan) {
    memory_.resize(kDemoSlots * kDemoBlock);
    tickets_.resize(kDemoSlots * kTicket);
    self_ = join(plan, "h2");
    self_.host->with([&](srd::Engine& engine, TimePoint) {
      unwrap(engine.open_endpoint(
          self_.qpn,
          {.qkey = kQkey, .domain = kDomain, .receive_depth = 1, .unsolicited_immediate = true}));
      const auto key = unwrap(
          engine.memory().insert({.data = memory_.data(),
                                  .address = std::bit_cast<std::uint64_t>(memory_.data()),
                                  .length = memory_.size(),
                                  .access = srd::Access::local_write | srd::Access::remote_write,
                                  .domain = kDomain}));
      board_.receiver = {.address = self_.address,
                         .attachment = self_.attachment,
                         .qpn = self_.qpn,
                         .key = key,
                         .buffer = std::bit_cast<std::uint64_t>(memory_.data())};
    });
    // From here on the sender may read `receiver`.
    board_.meeting.store(1, std::memory_order_release);
  }

  void run() {
    srd::Idler idler;
    // `sent` is set when every slot is free again, so no block can come after it.
    while (!(board_.sent && open_ == 0) && !board_.failed) {
      std::array<srd::Completion, 64> completions;
      const std::size_t work = self_.host->poll([&](srd::Engine& engine, TimePoint) {
        const std::size_t count = engine.poll(completions);
        for (std::size_t i = 0; i < count; ++i) {
          take(engine, completions[i]);
        }
      });
      pause(*self_.host, idler, work);
    }
  }

 private:
  void take(srd::Engine& engine, const srd::Completion& completion) {
    if (completion.kind != srd::Completion::Kind::receive_write_imm) {
      --open_;  // a ticket has arrived, or its sender is gone
      return;
    }
    const std::uint64_t block = completion.immediate;
    const std::size_t slot = block % kDemoSlots;
    if (is_right(memory_.data() + slot * kDemoBlock, plan_.seed, block)) {
      const std::int64_t now = nanoseconds(srd::monotonic_now());
      const std::int64_t before = board_.last_progress.exchange(now);
      if (before != 0 && now - before > board_.longest_gap) {
        board_.longest_gap = now - before;
      }
      board_.verified_bytes += kDemoBlock;
      ++board_.verified_blocks;
    } else {
      ++board_.wrong_blocks;
    }
    // A wrong block gets its ticket, too: the transfer goes on and the result tells.
    std::memcpy(tickets_.data() + slot * kTicket, &block, kTicket);
    srd::SendRequest ticket;
    ticket.peer = completion.peer;
    ticket.source = self_.qpn;
    ticket.destination = completion.remote;
    ticket.qkey = kQkey;
    ticket.segments[0] = {tickets_.data() + slot * kTicket, kTicket};
    if (engine.post(ticket) != srd::PostResult::accepted) {
      throw std::runtime_error("the receiver's engine refused a request");
    }
    ++open_;
  }

  DemoBoard& board_;
  const DemoPlan& plan_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> tickets_;
  Endpoint self_;
  std::uint64_t open_ = 0;  // tickets on their way
};

// Keeps kDemoSlots blocks in flight. Block n always uses slot n % kDemoSlots, in the memory of both
// sides.
class Sender {
 public:
  Sender(DemoBoard& board, const DemoPlan& plan) : board_(board), plan_(plan), listener_(board) {
    memory_.resize(kDemoSlots * kDemoBlock);
    // Twice as many receives as tickets can be on their way, so that none finds the queue empty
    // while another is being posted again.
    tickets_.resize(2 * kDemoSlots * kTicket);
    self_ = join(plan, "h1");
    while (board_.meeting.load(std::memory_order_acquire) == 0 && !board_.failed) {
      srd::give_way();
    }
    self_.host->with([&](srd::Engine& engine, TimePoint) {
      engine.observe(&listener_);
      unwrap(engine.open_endpoint(
          self_.qpn, {.qkey = kQkey, .domain = kDomain, .receive_depth = 2 * kDemoSlots}));
      for (std::size_t i = 0; i < 2 * kDemoSlots; ++i) {
        expect_ticket(engine, i);
      }
      peer_ = unwrap(engine.peer(board_.receiver.address, board_.receiver.attachment));
    });
  }

  // Goes on until the blocks that are under way have arrived: both sides then count the same ones.
  void run() {
    srd::Idler idler;
    std::array<srd::Completion, 64> completions;
    while (!board_.failed) {
      const std::size_t work = self_.host->poll([&](srd::Engine& engine, TimePoint) {
        const std::size_t count = engine.poll(completions);
        for (std::size_t i = 0; i < count; ++i) {
          take(engine, completions[i]);
        }
        post(engine);
      });
      if (board_.stop && open_ == 0) {
        break;
      }
      pause(*self_.host, idler, work);
    }
    board_.sent = true;
  }

 private:
  void expect_ticket(srd::Engine& engine, std::uint64_t index) {
    srd::ReceiveRequest request;
    request.cookie = index;
    request.segments[0] = {tickets_.data() + index * kTicket, kTicket};
    if (engine.post_receive(self_.qpn, request) != srd::PostResult::accepted) {
      throw std::runtime_error("the sender's engine refused a receive");
    }
  }

  // Of a ticket, or of a write. Tickets say which block they are for, since they come in any order.
  void take(srd::Engine& engine, const srd::Completion& completion) {
    if (completion.kind == srd::Completion::Kind::receive) {
      std::uint64_t block;
      std::memcpy(&block, tickets_.data() + completion.cookie * kTicket, kTicket);
      expect_ticket(engine, completion.cookie);
      release(block % kDemoSlots);
      return;
    }
    if (completion.status == srd::Status::ok) {
      ++board_.completed_blocks;
      release(completion.cookie % kDemoSlots);
    } else {
      ++board_.failed_blocks;
      --open_;
    }
  }
  // A slot is free when its ticket has come and its write has completed, in whichever order: the
  // two travel separately. The slot of a block that failed is never used again, because its ticket
  // may still come.
  void release(std::size_t slot) {
    if (--holds_[slot] == 0) {
      --open_;
    }
  }

  // A block for each slot that is free, up to the first that is not. The bytes of a slot stay as
  // they are until its write has completed: what is sent again is read from there again.
  void post(srd::Engine& engine) {
    while (!board_.stop && holds_[next_ % kDemoSlots] == 0) {
      const std::size_t slot = next_ % kDemoSlots;
      std::byte* const data = memory_.data() + slot * kDemoBlock;
      fill(data, plan_.seed, next_);
      srd::WriteRequest write;
      write.peer = peer_;
      write.source = self_.qpn;
      write.destination = board_.receiver.qpn;
      write.qkey = kQkey;
      write.cookie = next_;
      write.segments[0] = {data, kDemoBlock};
      write.remote_address = board_.receiver.buffer + slot * kDemoBlock;
      write.remote_key = board_.receiver.key;
      write.immediate = static_cast<std::uint32_t>(next_);
      if (engine.post(write) != srd::PostResult::accepted) {
        throw std::runtime_error("the sender's engine refused a request");
      }
      holds_[slot] = 2;
      ++open_;
      ++next_;
    }
  }

  DemoBoard& board_;
  const DemoPlan& plan_;
  Listener listener_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> tickets_;
  Endpoint self_;
  srd::PeerId peer_;
  std::array<int, kDemoSlots> holds_{};  // of each slot: what release() still waits for
  std::uint64_t next_ = 0;               // block to be posted
  std::uint64_t open_ = 0;               // slots in use
};

}  // namespace

void run_demo_sender(DemoBoard& board, const DemoPlan& plan) { Sender(board, plan).run(); }
void run_demo_receiver(DemoBoard& board, const DemoPlan& plan) { Receiver(board, plan).run(); }

}  // namespace weft::cli
