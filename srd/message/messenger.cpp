// Owns the calls of the messenger's user, and finds the record that a completion of the engine is
// for.
#include "srd/message/messenger.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "srd/base/check.hpp"

namespace weft::srd {

using message::kNone;

namespace {

constexpr std::uint32_t kEndpoints = 3;
constexpr std::uint32_t kSpareAnswers = 64;  // to requests that are refused
constexpr std::uint32_t kMaxArrivals = 1U << 24;
constexpr std::uint32_t kMaxSends = 1U << 24;

Result<void> validate(const EngineConfig& engine, const MessengerConfig& config) {
  if (config.endpoint.value() > wire::kQpnMask - (kEndpoints - 1)) {
    return fail(ErrorCode::invalid_argument,
                "endpoint " + std::to_string(config.endpoint.value()) +
                    " and the next two must have 24 bits: give a lower one");
  }
  if (engine.mtu_payload <= sizeof(message::Header)) {
    return fail(ErrorCode::invalid_argument, "mtu_payload is " +
                                                 std::to_string(engine.mtu_payload) +
                                                 ": messages need more than their header of " +
                                                 std::to_string(sizeof(message::Header)));
  }
  if (config.receive_buffers == 0 || config.control_buffers == 0 || config.max_sends == 0 ||
      config.max_receives == 0 || config.max_partners == 0 || config.max_completions == 0) {
    return fail(ErrorCode::invalid_argument, "every limit of a messenger must be at least 1");
  }
  if (config.max_sends > kMaxSends) {
    return fail(ErrorCode::invalid_argument, "max_sends is " + std::to_string(config.max_sends) +
                                                 ", must be from 1 to " +
                                                 std::to_string(kMaxSends));
  }
  return {};
}

std::uint32_t max_arrivals(const MessengerConfig& config) {
  const std::uint64_t most = std::uint64_t{config.max_partners} * message::kMaxRequestsHeld;
  return config.receive_buffers +
         static_cast<std::uint32_t>(std::min<std::uint64_t>(most, kMaxArrivals));
}

}  // namespace

// No half-made messenger is ever returned: open() closes again what it has opened.
Result<std::unique_ptr<Messenger>> Messenger::create(Engine& engine,
                                                     const MessengerConfig& config) {
  if (const Result<void> valid = validate(engine.config(), config); !valid) {
    return tl::unexpected<Error>(valid.error());
  }
  std::unique_ptr<Messenger> messenger{new Messenger(engine, config)};
  if (const Result<void> opened = messenger->open(); !opened) {
    return tl::unexpected<Error>(opened.error());
  }
  return messenger;
}

Messenger::Messenger(Engine& engine, const MessengerConfig& config)
    : engine_(engine),
      config_(config),
      eager_limit_(engine.max_send_size() - sizeof(Header)),
      partners_(config.max_partners),
      sends_(config.max_sends),
      receives_(config.max_receives + kSpareAnswers),
      arrivals_(max_arrivals(config)),
      posted_(config.max_receives),
      waiting_(max_arrivals(config)),
      data_buffers_(new std::byte[config.receive_buffers * engine.max_send_size()]),
      control_buffers_(new std::byte[config.control_buffers * sizeof(Header)]) {}

// All endpoints or, after a failure, none.
Result<void> Messenger::open() {
  EndpointConfig endpoint;
  endpoint.qkey = config_.qkey;
  endpoint.domain = config_.domain;
  endpoint.unsolicited_immediate = true;
  const std::array<std::uint32_t, kEndpoints> depths{config_.receive_buffers,
                                                     config_.control_buffers, 0};
  for (std::uint32_t i = 0; i < kEndpoints; ++i) {
    endpoint.receive_depth = depths[i];
    const Result<void> opened = engine_.open_endpoint(Qpn{config_.endpoint.value() + i}, endpoint);
    if (!opened) {
      for (std::uint32_t j = 0; j < i; ++j) {
        engine_.close_endpoint(Qpn{config_.endpoint.value() + j});
      }
      config_.endpoint = Qpn{kNone};  // the destructor must not close what others opened
      return opened;
    }
  }
  for (std::uint32_t i = 0; i < config_.receive_buffers; ++i) {
    give_back(i);
  }
  for (std::uint32_t i = 0; i < config_.control_buffers; ++i) {
    ReceiveRequest receive;
    receive.segments[0] = {control_buffers_.get() + i * sizeof(Header), sizeof(Header)};
    receive.cookie = cookie_of(Lane::control, i);
    WEFT_CHECK(engine_.post_receive(control_endpoint(), receive) == PostResult::accepted);
  }
  return {};
}

Messenger::~Messenger() {
  if (config_.endpoint == Qpn{kNone}) {
    return;
  }
  for (std::uint32_t i = 0; i < kEndpoints; ++i) {
    engine_.close_endpoint(Qpn{config_.endpoint.value() + i});
  }
  for (std::uint32_t index = 0; index < sends_.capacity(); ++index) {
    engine_.memory().erase(sends_[index].region);
  }
}

std::uint32_t Messenger::find_or_make_partner(const MessageAddress& address) {
  std::uint32_t index = by_address_.find(key_of(address));
  if (index == FlatMap<std::uint64_t>::kAbsent) {
    const auto history = engine_.history_of(address.peer);
    index = history ? partners_.allocate() : kNone;
    if (index == kNone) {
      return kNone;
    }
    by_address_.insert(key_of(address), index);
    partners_[index].address = address;
    partners_[index].restarts = history->restarts;
  }
  return index;
}

// --- Posting

// What all posts that go to a partner have in common. kNone: refused, for the reason in `result`.
std::uint32_t Messenger::new_send(SendRecord::Kind kind, const MessageAddress& to,
                                  std::size_t length, std::uint64_t cookie, PostResult& result) {
  result = PostResult::queue_full;
  if (length > kMaxTransfer) {
    result = PostResult::too_long;
    return kNone;
  }
  const auto history = engine_.history_of(to.peer);
  if (!history) {
    result = PostResult::no_such_peer;
    return kNone;
  }
  const std::uint32_t partner = find_or_make_partner(to);
  if (partner == kNone || completions_.size() >= config_.max_completions) {
    return kNone;
  }
  notice_restart(partner);  // ends what was posted before this request
  const std::uint32_t index = sends_.allocate();
  if (index == kNone) {
    return kNone;
  }
  result = PostResult::accepted;
  SendRecord& record = sends_[index];
  record = SendRecord{};
  record.kind = kind;
  record.cookie = cookie;
  record.length = static_cast<std::uint32_t>(length);
  record.partner = partner;
  record.qkey = to.qkey;
  record.restarts = history->restarts;
  partners_[partner].address.qkey = to.qkey;
  return index;
}

PostResult Messenger::post_send(const MessageSend& send) {
  PostResult result = PostResult::accepted;
  const std::uint32_t index =
      new_send(SendRecord::Kind::message, send.to, send.data.size(), send.cookie, result);
  if (index == kNone) {
    return result;
  }
  SendRecord& record = sends_[index];
  record.data = send.data.data();
  record.tag = send.tag;
  record.has_immediate = send.immediate.has_value();
  record.immediate = send.immediate.value_or(0);
  record.request = send.data.size() > eager_limit_;
  Partner& partner = partners_[record.partner];
  partner.under_way.push(sends_, index);
  partner.waiting.push(sends_, index);
  launch(record.partner);
  return PostResult::accepted;
}

// Ends a post of a read or write: a refused one has no effect, so its record goes.
PostResult Messenger::finish_post(std::uint32_t index, PostResult result) {
  if (result != PostResult::accepted) {
    release_send(index);
    return result;
  }
  sends_[index].in_engine = true;
  return result;
}

PostResult Messenger::post_write(const MessageWrite& write) {
  PostResult result = PostResult::accepted;
  const std::uint32_t index =
      new_send(SendRecord::Kind::write, write.to, write.data.size(), write.cookie, result);
  if (index == kNone) {
    return result;
  }
  WriteRequest request;
  request.peer = write.to.peer;
  request.source = data_endpoint();
  request.destination = write.to.endpoint;
  request.qkey = write.to.qkey;
  request.cookie = cookie_of(Lane::one_sided, index);
  // The engine only reads what it sends.
  request.segments[0] = {const_cast<std::byte*>(write.data.data()), sends_[index].length};
  request.remote_address = write.offset;
  request.remote_key = write.key;
  request.immediate = write.immediate;
  return finish_post(index, engine_.post(request));
}

PostResult Messenger::post_read(const MessageRead& read) {
  PostResult result = PostResult::accepted;
  const std::uint32_t index =
      new_send(SendRecord::Kind::read, read.from, read.data.size(), read.cookie, result);
  if (index == kNone) {
    return result;
  }
  ReadRequest request;
  request.peer = read.from.peer;
  request.source = data_endpoint();
  request.destination = read.from.endpoint;
  request.qkey = read.from.qkey;
  request.cookie = cookie_of(Lane::one_sided, index);
  request.segments[0] = {read.data.data(), sends_[index].length};
  request.remote_address = read.offset;
  request.remote_key = read.key;
  return finish_post(index, engine_.post(request));
}

Result<RegionKey> Messenger::share(std::span<std::byte> memory, Access access) {
  Region region;
  region.data = memory.data();
  region.length = memory.size();
  region.access = access;
  region.domain = config_.domain;
  return engine_.memory().insert(region);
}

// --- Progress

// Also gives another chance to what found no room in the engine: partners with messages to send,
// receives that owe a read or an answer. Each is tried once, and queues itself again if need be.
void Messenger::progress() {
  std::array<Completion, 32> batch;
  while (completions_.size() < config_.max_completions) {
    const std::size_t count = engine_.poll(batch);
    for (std::size_t i = 0; i < count; ++i) {
      (void)on_completion(batch[i]);
    }
    if (count == 0) {
      break;
    }
  }
  if (seen_restarts_ != engine_.counters().peer_restarts) {
    seen_restarts_ = engine_.counters().peer_restarts;
    notice_silent_restarts();
  }
  for (std::size_t n = stalled_.size(); n > 0; --n) {
    const std::uint32_t partner = stalled_.front();
    stalled_.pop();
    partners_[partner].stalled = false;
    launch(partner);
  }
  for (std::size_t n = owed_.size(); n > 0; --n) {
    const std::uint32_t index = owed_.front();
    owed_.pop();
    receives_[index].waits = false;
    resume(index);
  }
}

bool Messenger::on_completion(const Completion& completion) {
  if (completion.endpoint.value() - config_.endpoint.value() >= kEndpoints) {
    return false;
  }
  if (completion.kind == Completion::Kind::receive_write_imm) {
    on_written(completion);
    return true;
  }
  const auto index = static_cast<std::uint32_t>(completion.cookie);
  const auto lane = static_cast<Lane>(completion.cookie >> 32);
  switch (lane) {
    case Lane::data:
    case Lane::control:
      on_message(lane, index, completion);
      break;
    case Lane::send:
      on_send_done(index, completion.status);
      break;
    case Lane::answer:
      on_answer_done(index, completion.status);
      break;
    case Lane::read:
      on_read_done(index, completion.status);
      break;
    case Lane::one_sided:
      on_one_sided_done(index, completion.status);
      break;
    case Lane::watch:
      on_watch_done(index, completion.status);
      break;
  }
  return true;
}

// A key belongs to one life of the peer. If the peer has restarted since the request was posted,
// the engine may have used the key in the next life, on memory that the user never meant. So
// the request counts as failed.
void Messenger::on_one_sided_done(std::uint32_t index, Status status) {
  SendRecord& record = sends_[index];
  record.in_engine = false;
  const auto history = engine_.history_of(partners_[record.partner].address.peer);
  const bool restarted = history->restarts != record.restarts;
  end_send(index, restarted && status == Status::ok ? Status::peer_restarted : status);
}

void Messenger::on_written(const Completion& completion) {
  MessageCompletion written;
  written.kind = MessageCompletion::Kind::written;
  written.status = completion.status;
  written.has_immediate = completion.has_immediate;
  written.immediate = completion.immediate;
  written.length = completion.length;
  written.peer = {completion.peer, completion.remote, 0};
  const std::uint32_t partner = by_address_.find(key_of(written.peer));
  if (partner != FlatMap<std::uint64_t>::kAbsent) {
    written.peer.qkey = partners_[partner].address.qkey;
  }
  complete(written);
}

void Messenger::complete(const MessageCompletion& completion) {
  WEFT_CHECK(completions_.push(completion));
}

std::size_t Messenger::poll(std::span<MessageCompletion> completions) {
  std::size_t count = 0;
  for (; count < completions.size() && !completions_.empty(); completions_.pop()) {
    completions[count++] = completions_.front();
  }
  return count;
}

}  // namespace weft::srd
