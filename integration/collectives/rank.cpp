// Owns connecting a rank and running programs.
#include "integration/collectives/rank.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace weft::collectives {
namespace {

TimePoint now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time_at(std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec});
}

}  // namespace

// The GPU's part of a program: waits for slots, copies and reduces.
class Rank::Runner {
 public:
  Runner(const RankConfig& config, const Program& program, SendChannel* sender,
         ReceiveChannel* receiver)
      : config_(config), program_(program), sender_(sender), receiver_(receiver) {}

  [[nodiscard]] bool finished() const { return step_ == program_.steps.size(); }

  bool advance(std::span<std::byte> input, std::span<std::byte> output, bool audit,
               std::size_t slot_bytes) {
    const std::size_t element = size_of(config_.type);
    bool moved = false;
    for (; !finished(); moved = true) {
      const Step& step = program_.steps[step_];
      const Slice slice = slice_of(step.count, program_.slices, slice_, slot_bytes / element);
      std::byte* const in = step.receives ? receiver_->slot() : nullptr;
      std::byte* const out = step.sends ? sender_->slot() : nullptr;
      if ((step.receives && in == nullptr) || (step.sends && out == nullptr)) {
        break;
      }
      const std::size_t bytes = slice.count * element;
      if (step.receives && receiver_->arrived_bytes() != bytes) {
        throw std::runtime_error("a message of " + std::to_string(receiver_->arrived_bytes()) +
                                 " bytes has come where one of " + std::to_string(bytes) +
                                 " was due");
      }
      const auto at = [&](std::span<std::byte> user, std::size_t offset) {
        return offset == Step::kNone ? nullptr : user.data() + (offset + slice.offset) * element;
      };
      work(in, at(input, step.from), out, at(output, step.to), slice.count);
      if (step.receives) {
        receiver_->pop(audit);
      }
      if (step.sends) {
        sender_->push(bytes);
      }
      if (++slice_ == program_.slices) {
        slice_ = 0;
        ++step_;
      }
    }
    return moved;
  }

 private:
  // Either source and either target may be missing.
  void work(const std::byte* in, const std::byte* own, std::byte* out, std::byte* result,
            std::size_t count) {
    const std::size_t bytes = count * size_of(config_.type);
    std::byte* const target = out != nullptr ? out : result;
    if (bytes == 0 || target == nullptr) {
      return;
    }
    const std::byte* const source = own != nullptr ? own : in;
    if (target != source) {
      std::memcpy(target, source, bytes);
    }
    if (own != nullptr && in != nullptr) {
      reduce(config_.type, config_.reduction, target, in, count);
    }
    if (result != nullptr && result != target) {
      std::memcpy(result, target, bytes);
    }
  }

  const RankConfig& config_;
  const Program& program_;
  SendChannel* sender_;
  ReceiveChannel* receiver_;
  std::size_t step_ = 0;
  std::uint32_t slice_ = 0;
};

Rank::Rank(Net& net, Board& board, const RankConfig& config)
    : net_(net), board_(board), config_(config) {
  require(net_.init(), "init");
  int devices = 0;
  require(net_.devices(devices), "devices");
  if (devices <= 0) {
    throw std::runtime_error("the plugin has no device");
  }
  Properties properties;
  require(net_.properties(0, properties), "getProperties");
  if ((properties.pointers & nccl::abi::kHostMemory) == 0) {
    throw std::runtime_error("the plugin's device takes no host memory");
  }
}

Rank::~Rank() {
  senders_.clear();
  receivers_.clear();
  (void)net_.finalize();
}

template <class Reached>
void Rank::until(Reached&& reached) {
  constexpr int kLooks = 4096;  // without anything moving, between two looks at the clock
  TimePoint since = kNever;
  for (int idle = 0; !reached(); ++idle) {
    if (progress()) {
      idle = 0;
      since = kNever;
      continue;
    }
    ::sched_yield();
    if (idle % kLooks != kLooks - 1) {
      continue;
    }
    const TimePoint time = now();
    since = std::min(since, time);
    if (time - since > config_.patience) {
      throw std::runtime_error("nothing has moved for " +
                               std::to_string((time - since) / std::chrono::seconds{1}) + " s");
    }
  }
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

void Rank::connect(const Problem& problem) {
  struct Making {
    Key key;
    std::size_t buffer = 0;
    Mail* mail = nullptr;
    void* listener = nullptr;
    Handle handle{};
    bool told = false;
    void* connection = nullptr;
  };
  std::vector<Making> sends;
  std::vector<Making> receives;
  for (const Program& program : programs_of(problem)) {
    const std::uint32_t channel = channel_of(program);
    if (program.to != Program::kNobody && !senders_.contains({program.to, channel})) {
      sends.push_back({{program.to, channel},
                       buffer_of(program),
                       &board_.mail(config_.rank, program.to, channel)});
    }
    if (program.from != Program::kNobody && !receivers_.contains({program.from, channel})) {
      receives.push_back({{program.from, channel},
                          buffer_of(program),
                          &board_.mail(program.from, config_.rank, channel)});
      Making& one = receives.back();
      require(net_.listen(0, one.handle, one.listener), "listen");
      one.mail->handle = one.handle;
      one.mail->ready.store(true, std::memory_order_release);
    }
  }
  const auto all_made = [&] {
    const auto made = [](const Making& one) { return one.connection != nullptr; };
    return std::all_of(sends.begin(), sends.end(), made) &&
           std::all_of(receives.begin(), receives.end(), made);
  };
  until([&] {
    if (board_.aborted()) {
      throw std::runtime_error("another rank gave up: " + board_.reason());
    }
    for (Making& one : sends) {
      if (one.connection == nullptr && one.mail->ready.load(std::memory_order_acquire)) {
        one.handle = one.told ? one.handle : one.mail->handle;
        one.told = true;
        require(net_.connect(0, one.handle, one.connection), "connect");
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
  const std::vector<Program> programs = programs_of(problem);
  std::vector<Runner> runners;
  std::vector<std::size_t> slots;
  for (const Program& program : programs) {
    const std::uint32_t channel = channel_of(program);
    Transfer transfer{program.slices * program.steps_of_slice, program.steps_of_slice,
                      program.messages_out()};
    SendChannel* sender = nullptr;
    ReceiveChannel* receiver = nullptr;
    if (program.to != Program::kNobody) {
      sender = senders_.at({program.to, channel}).get();
      until([&] { return sender->may_begin(transfer); });
      sender->begin(transfer, audit);
    }
    if (program.from != Program::kNobody) {
      transfer.messages = program.messages_in();
      receiver = receivers_.at({program.from, channel}).get();
      receiver->begin(transfer);
    }
    runners.emplace_back(config_, program, sender, receiver);
    slots.push_back(buffer_of(program) / kSteps * program.steps_of_slice);
  }
  until([&] {
    bool finished = true;
    for (std::size_t i = 0; i < runners.size(); ++i) {
      (void)runners[i].advance(input, output, audit, slots[i]);
      finished = finished && runners[i].finished();
    }
    return finished;
  });
}

void Rank::settle() {
  until([&] {
    return std::all_of(senders_.begin(), senders_.end(),
                       [](const auto& one) { return one.second->idle(); });
  });
}

}  // namespace weft::collectives
