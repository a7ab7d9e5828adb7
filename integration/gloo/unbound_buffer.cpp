// Owns Gloo's waits: for the end of a message, for a time, or for somebody who calls it off.
#include <set>
#include <utility>

#include "integration/gloo/transport.hpp"
#include "srd/run/clock.hpp"

namespace weft::gloo {

using nccl::Core;
using nccl::Outcome;

namespace {

// How long a wait spins before it yields. A running peer answers within some microseconds; after
// that it may need this CPU in order to answer.
constexpr Duration kYieldAfter = std::chrono::microseconds{20};
constexpr Duration kSleepAfter = std::chrono::microseconds{500};
// The thread that completes a message does not wake us; a packet does.
constexpr Duration kSleep = std::chrono::microseconds{200};

const char* reason(Outcome outcome) {
  switch (outcome) {
    case Outcome::invalid_usage:
    case Outcome::invalid_argument:
      return "the two sides disagree about a message, or its memory was taken back";
    case Outcome::system_error:
    case Outcome::internal_error:
      return "no room for more memory";
    case Outcome::ok:
    case Outcome::remote_error:
      break;
  }
  return "it is gone, or has closed the connection";
}

}  // namespace

UnboundBuffer::UnboundBuffer(std::shared_ptr<Context> context, void* data, std::size_t length)
    : ::gloo::transport::UnboundBuffer(data, length), context_(std::move(context)) {}

UnboundBuffer::~UnboundBuffer() {
  try {
    context_->nic().with([&](Core& core) {
      for (Side* const side : {&sends_, &receives_}) {
        for (const auto& one : side->leases) {
          if (one->pair != nullptr) {
            one->pair->end(core, *one);
          }
        }
      }
    });
  } catch (const ::gloo::Exception&) {
    // In the child of a fork nothing is under way.
  }
}

void UnboundBuffer::send(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  begin(true, rank, slot, offset, bytes);
}

void UnboundBuffer::recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  begin(false, rank, slot, offset, bytes);
}

// The side that receives announces its buffer to one sender, so it has to know which.
void UnboundBuffer::recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset,
                         std::size_t bytes) {
  if (ranks.size() != 1) {
    GLOO_THROW_INVALID_OPERATION_EXCEPTION("weft: a receive is from one rank, not from any of ",
                                           ranks.size());
  }
  begin(false, ranks.front(), slot, offset, bytes);
}

// Checks the range, then registers and posts under one lock, so that an end of the pair is seen
// either before or by the message itself.
void UnboundBuffer::begin(bool sends, int rank, std::uint64_t slot, std::size_t offset,
                          std::size_t bytes) {
  // Gloo's rings send pieces without bytes, from behind the buffer's end.
  if (offset > size && bytes != 0) {
    GLOO_THROW_INVALID_OPERATION_EXCEPTION("weft: offset ", offset, " of a buffer of ", size);
  }
  const std::size_t length = bytes == kUnspecifiedByteCount ? size - offset : bytes;
  if ((length != 0 && length > size - offset) || length > srd::kMaxTransfer) {
    GLOO_THROW_INVALID_OPERATION_EXCEPTION("weft: ", length, " bytes at ", offset,
                                           " of a buffer of ", size,
                                           "; one message has at most 1 GiB");
  }
  Pair& pair = context_->pair(rank);
  auto made = std::make_shared<PairMessage>();
  made->rank = rank;
  made->sends = sends;
  made->data = static_cast<std::byte*>(ptr) + offset;
  made->size = length;
  made->tag = static_cast<std::int64_t>(slot);
  context_->nic().with([&](Core& core) {
    Side& side = sends ? sends_ : receives_;
    side.messages.push_back(made);
    if (length != 0) {
      made->lease = lease_at(core, pair, side, sends);
      made->end = made->lease == nullptr ? std::optional(Outcome::remote_error) : std::nullopt;
    }
    if (!made->end) {
      pair.begin(core, made);
    }
  });
}

// Messages of one rank end for Gloo in the order in which they were asked for, which is not that of
// the network: it goes on with the piece whose turn it is.
std::shared_ptr<PairMessage> UnboundBuffer::take_ended(Side& side) {
  std::set<int> waits;
  for (auto next = side.messages.begin(); next != side.messages.end(); ++next) {
    if (!(*next)->end) {
      waits.insert((*next)->rank);
    } else if (!waits.contains((*next)->rank)) {
      std::shared_ptr<PairMessage> ended = *next;
      side.messages.erase(next);
      return ended;
    }
  }
  return nullptr;
}

// The whole buffer is registered once for a rank and direction. Null: see Pair::lease().
const Lease* UnboundBuffer::lease_at(Core& core, Pair& pair, Side& side, bool sends) {
  for (const auto& one : side.leases) {
    if (one->pair == &pair) {
      return one.get();
    }
  }
  auto made = pair.lease(core, static_cast<std::byte*>(ptr), size, sends);
  if (made == nullptr) {
    return nullptr;
  }
  side.leases.push_back(std::move(made));
  return side.leases.back().get();
}

// The loop polls the device itself, since there is no thread of Gloo's that would. A message that
// failed ends the wait with an exception, as Gloo's own transports do.
bool UnboundBuffer::wait(Side& side, int* rank, std::chrono::milliseconds timeout) {
  if (timeout == ::gloo::transport::kUnsetTimeout) {
    timeout = context_->getTimeout();
  }
  nccl::PluginNic& nic = context_->nic();
  const TimePoint begin = srd::monotonic_now();
  for (;;) {
    (void)nic.poll();
    std::shared_ptr<PairMessage> ended;
    nic.with([&](Core& core) {
      context_->advance(core);
      ended = take_ended(side);
    });
    if (ended != nullptr && *ended->end == Outcome::ok) {
      if (rank != nullptr) {
        *rank = ended->rank;
      }
      return true;
    }
    if (ended != nullptr) {
      GLOO_THROW_IO_EXCEPTION("weft: ", ended->sends ? "sending to" : "receiving from", " rank ",
                              ended->rank, ": ", reason(*ended->end));
    }
    if (side.aborted.exchange(false)) {
      return false;
    }
    const Duration waited = srd::monotonic_now() - begin;
    if (timeout != ::gloo::kNoTimeout && took_longer(begin, timeout)) {
      nic.with([&](Core& core) { context_->shut(core); });
      GLOO_THROW_IO_EXCEPTION("weft: timed out after ", timeout.count(), " ms");
    }
    if (waited > kSleepAfter) {
      nic.sleep(kSleep);
    } else if (waited > kYieldAfter) {
      srd::give_way();
    }
  }
}

}  // namespace weft::gloo
