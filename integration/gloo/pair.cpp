// Owns the two connections of a pair, and the messages on them.
//
// Gloo has no thread here that makes progress: whoever waits (UnboundBuffer::wait()) advances all
// pairs of the group, and the NIC's background thread moves packets in between.
#include <cstring>
#include <utility>

#include "integration/gloo/transport.hpp"
#include "srd/run/clock.hpp"

namespace weft::gloo {

using nccl::Core;
using nccl::Outcome;
using nccl::Request;

std::string PairAddress::str() const { return "a listener of weft"; }

std::vector<char> PairAddress::bytes() const {
  std::vector<char> bytes(sizeof handle_);
  std::memcpy(bytes.data(), &handle_, sizeof handle_);
  return bytes;
}

// Listens at once: Gloo collects the addresses of all pairs before any of them connects.
Pair::Pair(Context& context, int rank) : context_(context), rank_(rank) {
  nccl::ListenHandle handle;
  listener_ = context.nic().with([&](Core& core) { return core.listen(handle); });
  listens_ = true;
  address_ = std::make_unique<PairAddress>(handle);
}

// Both ranks run this at the same time, so each has to ask and to accept in turns; waiting for
// either alone would be a deadlock.
void Pair::connect(const std::vector<char>& bytes) {
  if (bytes.size() != sizeof asked_) {
    GLOO_THROW_INVALID_OPERATION_EXCEPTION("weft: an address of ", bytes.size(), " bytes");
  }
  std::memcpy(&asked_, bytes.data(), sizeof asked_);
  nccl::PluginNic& nic = context_.nic();
  const auto limit = context_.getTimeout();
  const TimePoint begin = srd::monotonic_now();
  Outcome outcome = Outcome::ok;
  while (sender_ == nullptr || receiver_ == nullptr) {
    (void)nic.poll();
    nic.with([&](Core& core) {
      if (sender_ == nullptr) {
        outcome = core.connect(asked_, sender_);
      }
      if (outcome == Outcome::ok && receiver_ == nullptr) {
        outcome = core.accept(listener_, receiver_);
      }
    });
    if (outcome != Outcome::ok) {
      GLOO_THROW_IO_EXCEPTION("weft: rank ", rank_, " cannot be reached");
    }
    if (limit != ::gloo::kNoTimeout && took_longer(begin, limit)) {
      GLOO_THROW_IO_EXCEPTION("weft: no connection with rank ", rank_, " after ", limit.count(),
                              " ms");
    }
    srd::give_way();
  }
  nic.with([&](Core& core) { core.close_listener(listener_); });
  listens_ = false;
  sender_->exact = true;  // Gloo's two sides say the same size
}

void Pair::close() {
  try {
    context_.nic().with([&](Core& core) { shut(core); });
  } catch (const ::gloo::Exception&) {
    // In the child of a fork there is nothing to close.
  }
}

// Every message ends here, because somebody may be waiting for it. Messages and leases outlive the
// pair in the buffers' hands and must not lead back to it.
void Pair::shut(Core& core) {
  for (const auto& one : messages_) {
    one->end = one->end.value_or(Outcome::remote_error);
    one->request = nullptr;
    one->pair = nullptr;
  }
  messages_.clear();
  for (const auto& one : leases_) {
    one->pair = nullptr;
  }
  leases_.clear();
  if (std::exchange(listens_, false)) {
    core.close_listener(listener_);
  }
  if (sender_ != nullptr) {
    core.close(*std::exchange(sender_, nullptr));
  } else {
    core.call_off(std::exchange(asked_, {}));
  }
  if (receiver_ != nullptr) {
    core.close(*std::exchange(receiver_, nullptr));
  }
}

// Buffers bound to a pair and a slot: an older interface, whose memory would stay registered.
std::unique_ptr<::gloo::transport::Buffer> Pair::createSendBuffer(int, void*, std::size_t) {
  GLOO_THROW_INVALID_OPERATION_EXCEPTION("weft: only unbound buffers can be sent");
}

std::unique_ptr<::gloo::transport::Buffer> Pair::createRecvBuffer(int, void*, std::size_t) {
  GLOO_THROW_INVALID_OPERATION_EXCEPTION("weft: only unbound buffers can be received");
}

void Pair::send(::gloo::transport::UnboundBuffer* buffer, std::uint64_t slot, std::size_t offset,
                std::size_t size) {
  buffer->send(rank_, slot, offset, size);
}

void Pair::recv(::gloo::transport::UnboundBuffer* buffer, std::uint64_t slot, std::size_t offset,
                std::size_t size) {
  buffer->recv(rank_, slot, offset, size);
}

void Pair::begin(Core& core, const std::shared_ptr<PairMessage>& message) {
  message->pair = this;
  messages_.push_back(message);
  advance(core);
}

// False: there is no room for it at present, so those behind it must wait, too.
bool Pair::post(Core& core, PairMessage& message) {
  if (sender_ == nullptr || receiver_ == nullptr) {
    finish(message, Outcome::remote_error);
    return true;
  }
  const nccl::CommRegion* const region = message.lease == nullptr ? nullptr : message.lease->region;
  const nccl::Buffer buffer{message.data, message.size, message.tag, region};
  const Outcome outcome =
      message.sends
          ? core.send(*sender_, message.data, message.size, message.tag, region, message.request)
          : core.receive(*receiver_, {&buffer, 1}, false, message.request);
  if (outcome != Outcome::ok) {
    finish(message, outcome);
    return true;
  }
  return message.request != nullptr;
}

// The request goes back to its pool: nobody calls the plugin's test() for it here.
void Pair::finish(PairMessage& message, Outcome end) {
  if (message.request != nullptr) {
    message.request->state.store(Request::State::free, std::memory_order_relaxed);
    message.request = nullptr;
  }
  message.end = end;
}

// Messages of one direction are posted in their order, since NCCL's core matches them in that
// order. The two directions do not hold each other up.
void Pair::advance(Core& core) {
  bool room[2] = {true, true};
  for (auto next = messages_.begin(); next != messages_.end();) {
    PairMessage& one = **next;
    if (one.request == nullptr && room[one.sends]) {
      room[one.sends] = post(core, one);
    }
    if (one.request != nullptr) {
      switch (one.request->state.load(std::memory_order_relaxed)) {
        case Request::State::done:
          // Gloo's two sides say the same size.
          finish(one, one.request->sizes[0] == one.size ? Outcome::ok : Outcome::invalid_usage);
          break;
        case Request::State::failed:
          finish(one, one.request->outcome);
          break;
        case Request::State::pending:
        case Request::State::free:
          break;
      }
    }
    next = one.end ? messages_.erase(next) : std::next(next);
  }
}

std::shared_ptr<Lease> Pair::lease(Core& core, std::byte* data, std::size_t size, bool sends) {
  if (sender_ == nullptr || receiver_ == nullptr) {
    return nullptr;
  }
  const auto made = sends ? core.register_memory(*sender_, data, size)
                          : core.register_memory(*receiver_, data, size);
  if (!made) {
    return nullptr;
  }
  leases_.push_back(std::make_shared<Lease>(Lease{this, sends, *made}));
  return leases_.back();
}

// The buffer goes, whatever is under way.
void Pair::end(Core& core, Lease& lease) {
  advance(core);
  bool broken = false;
  for (const auto& one : messages_) {
    if (one->lease == &lease) {
      one->end = Outcome::invalid_usage;
      broken = true;
    }
  }
  // The other side waits for them, or has announced their place.
  if (broken) {
    shut(core);
    return;
  }
  (void)(lease.sends ? core.deregister(*sender_, lease.region)
                     : core.deregister(*receiver_, lease.region));
  std::erase_if(leases_, [&](const auto& one) { return one.get() == &lease; });
}

}  // namespace weft::gloo
