// Owns connecting a rank and running programs.
//
// A rank is single-threaded and never blocks in a call of the plugin: until() makes progress on all
// channels until something is reached, and tells the board what it is waiting for, so that a hang
// can be explained from outside.
#include "integration/collectives/rank.hpp"

#include <sched.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "integration/collectives/clock.hpp"
#include "integration/collectives/leaving.hpp"

namespace weft::collectives {

Rank::Rank(Net& net, Board& board, const RankConfig& config)
    : net_(net), board_(board), config_(config), where_(board.where(config.rank)) {
  require(net_.init(), "init");
  int devices = 0;
  require(net_.devices(devices), "devices");
  if (devices <= 0) {
    throw std::runtime_error("the plugin has no device");
  }
  if (config_.devices.empty()) {
    config_.devices.resize(static_cast<std::size_t>(devices));
    std::iota(config_.devices.begin(), config_.devices.end(), 0U);
  }
  for (const std::uint32_t device : config_.devices) {
    if (device >= static_cast<std::uint32_t>(devices)) {
      throw std::runtime_error("there is no device " + std::to_string(device) +
                               ": the plugin has " + std::to_string(devices));
    }
    Properties properties;
    require(net_.properties(static_cast<int>(device), properties), "getProperties");
    if ((properties.pointers & nccl::abi::kHostMemory) == 0) {
      throw std::runtime_error("device " + std::to_string(device) + ", " + properties.name +
                               ", takes no host memory");
    }
  }
}

// Connections before the plugin: none may be open when finalize() is called.
Rank::~Rank() {
  senders_.clear();
  receivers_.clear();
  (void)net_.finalize();
}

template <class Reached>
void Rank::until(const char* what, Reached&& reached) {
  constexpr int kLooks = 4096;  // without anything moving, between two looks at the clock
  TimePoint since = kNever;
  for (int idle = 0; !reached();) {
    if (progress()) {
      idle = 0;
      since = kNever;
      where_.moved();
      continue;
    }
    ::sched_yield();
    if (++idle < kLooks) {
      continue;
    }
    idle = 0;
    const TimePoint time = now();
    if (since == kNever) {
      since = time;
      where_.say(what + waited_for());
    }
    if (time - since > config_.patience) {
      throw std::runtime_error("nothing has moved for " +
                               std::to_string((time - since) / std::chrono::seconds{1}) +
                               " s: " + what + waited_for());
    }
  }
}

std::string Rank::waited_for() const {
  std::string text;
  for (const auto& [key, one] : receivers_) {
    if (const std::uint64_t waiting = one->waiting(); waiting != 0) {
      text += ", " + std::to_string(waiting) + " receives from rank " +
              std::to_string(std::get<0>(key)) + " wait";
    }
  }
  for (const auto& [key, one] : senders_) {
    if (const std::uint64_t waiting = one->waiting(); waiting != 0) {
      text += ", " + std::to_string(waiting) + " sends to rank " +
              std::to_string(std::get<0>(key)) + " are under way";
    }
  }
  return text;
}

bool Rank::progress() {
  bool moved = false;
  for (auto& [key, one] : senders_) {
    moved = one->progress() || moved;
  }
  for (auto& [key, one] : receivers_) {
    moved = one->progress() || moved;
  }
  return moved;
}

// A connection that is being made.
struct Rank::Making {
  Key key;
  std::size_t buffer = 0;
  Mail* mail = nullptr;
  void* listener = nullptr;
  Handle handle{};
  bool told = false;
  void* connection = nullptr;
};

// Finds the connections that the programs need and that are not there yet. For each that receives,
// this rank listens from now on and puts the handle into the mail.
void Rank::plan(const std::vector<RankProgram>& programs, std::vector<Making>& sends,
                std::vector<Making>& receives) {
  const auto known = [](const std::vector<Making>& all, const Key& key) {
    return std::any_of(all.begin(), all.end(), [&](const Making& one) { return one.key == key; });
  };
  for (const RankProgram& program : programs) {
    const std::uint32_t channel = channel_of(program);
    const std::size_t buffer = buffer_of(config_.buffers, program);
    for (const std::uint32_t peer : program.to) {
      const Key key{peer, channel};
      if (!senders_.contains(key) && !known(sends, key)) {
        sends.push_back({key, buffer, &board_.mail(config_.rank, peer, channel)});
      }
    }
    for (const std::uint32_t peer : program.from) {
      const Key key{peer, channel};
      if (receivers_.contains(key) || known(receives, key)) {
        continue;
      }
      receives.push_back({key, buffer, &board_.mail(peer, config_.rank, channel)});
      Making& one = receives.back();
      require(net_.listen(device_of(key), one.handle, one.listener), "listen");
      one.mail->handle = one.handle;
      one.mail->ready.store(true, std::memory_order_release);
    }
  }
}

// First everything that receives listens, then all connections are made at once, none after
// another: so no order of ranks can make two of them wait for each other.
void Rank::connect(const Problem& problem) {
  std::vector<Making> sends;
  std::vector<Making> receives;
  plan(programs_of(problem), sends, receives);
  const auto all_made = [&] {
    const auto made = [](const Making& one) { return one.connection != nullptr; };
    return std::all_of(sends.begin(), sends.end(), made) &&
           std::all_of(receives.begin(), receives.end(), made);
  };
  until("connects", [&] {
    if (board_.aborted()) {
      throw std::runtime_error("another rank gave up: " + board_.reason());
    }
    for (Making& one : sends) {
      if (one.connection == nullptr && one.mail->ready.load(std::memory_order_acquire)) {
        // Copied once. A plugin may keep the state of a connect() that has not finished in the
        // handle, and finds it there in the next call.
        one.handle = one.told ? one.handle : one.mail->handle;
        one.told = true;
        require(net_.connect(device_of(one.key), one.handle, one.connection), "connect");
      }
    }
    for (Making& one : receives) {
      if (one.connection == nullptr) {
        require(net_.accept(one.listener, one.connection), "accept");
        if (one.connection != nullptr) {
          require(net_.close_listener(one.listener), "closeListen");
        }
      }
    }
    return all_made();
  });
  for (const Making& one : sends) {
    senders_[one.key] = std::make_unique<SendChannel>(net_, one.connection,
                                                      static_cast<int>(config_.rank), one.buffer);
  }
  for (const Making& one : receives) {
    receivers_[one.key] = std::make_unique<ReceiveChannel>(
        net_, one.connection, static_cast<int>(std::get<0>(one.key)), one.buffer);
  }
}

void Rank::run(const Problem& problem, std::span<std::byte> input, std::span<std::byte> output,
               bool audit) {
  const std::string what = std::string("runs ") + to_string(problem.operation) + " of " +
                           std::to_string(problem.bytes) + " bytes";
  // Programs of one phase run interleaved, as channels of a GPU do; none waits for another's turn.
  const std::vector<RankProgram> programs = programs_of(problem);
  std::uint32_t last_phase = 0;
  for (const RankProgram& program : programs) {
    last_phase = std::max(last_phase, program.phase);
  }
  for (std::uint32_t phase = 0; phase <= last_phase; ++phase) {
    std::vector<ProgramRunner> runners;
    for (const RankProgram& program : programs) {
      if (program.phase == phase) {
        runners.push_back(begin(program, audit));
      }
    }
    until(what.c_str(), [&] {
      bool finished = true;
      for (ProgramRunner& one : runners) {
        (void)one.advance(input, output);
        finished = finished && one.finished();
      }
      return finished;
    });
  }
}

ProgramRunner Rank::begin(const RankProgram& program, bool audit) {
  const std::uint32_t channel = channel_of(program);
  Transfer transfer{program.slices * program.steps_of_slice, program.steps_of_slice, 0, false};
  Ends ends;
  for (std::size_t end = 0; end < program.to.size(); ++end) {
    SendChannel* const sender = senders_.at({program.to[end], channel}).get();
    transfer.messages = program.messages_out(end);
    // Sends of the operation before may still be under way, and need progress to end.
    until("begins an operation", [&] { return sender->may_begin(transfer); });
    sender->begin(transfer, audit);
    ends.to.push_back(sender);
  }
  transfer.early = program.protocol != Protocol::simple;
  for (std::size_t end = 0; end < program.from.size(); ++end) {
    ReceiveChannel* const receiver = receivers_.at({program.from[end], channel}).get();
    transfer.messages = program.messages_in(end);
    receiver->begin(transfer);
    ends.from.push_back(receiver);
  }
  const std::size_t slot_bytes =
      buffer_of(config_.buffers, program) / kSteps * program.steps_of_slice;
  return {{config_.type, config_.reduction, config_.ranks, slot_bytes, audit},
          program,
          std::move(ends)};
}

void Rank::settle() {
  until("waits for its sends to end", [&] {
    return std::all_of(senders_.begin(), senders_.end(),
                       [](const auto& one) { return one.second->idle(); });
  });
}

// The barriers part the acts: an end may be closed only when the other one has posted what it is to
// lose, and marks may be looked for only when all ends are closed.
void Rank::leave_in_chaos(std::uint64_t seed) {
  Leaving leaving(net_, seed, config_.rank);
  for (auto& [key, one] : senders_) {
    leaving.add_sender(std::get<0>(key), std::get<1>(key), one->release());
  }
  for (auto& [key, one] : receivers_) {
    leaving.add_receiver(std::get<0>(key), std::get<1>(key), one->release());
  }
  senders_.clear();
  receivers_.clear();
  board_.barrier(config_.rank);
  leaving.post();
  board_.barrier(config_.rank);
  leaving.leave_first();
  board_.barrier(config_.rank);
  leaving.go_on_and_leave();
  board_.barrier(config_.rank);
  leaving.check();
}

}  // namespace weft::collectives
