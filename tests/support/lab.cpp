// Owns the laboratory's processes: their memory, their requests, and what came of them.
#include "tests/support/lab.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

namespace weft::testing {

LabConfig lab_config() {
  LabConfig config;
  config.engine.paths = 16;
  config.engine.mtu_payload = 1024;
  // The round trip of the link while it is idle.
  config.engine.base_rtt = 10us;
  // Room for stories that post thousands of requests without a pause. Those about full queues set
  // smaller limits.
  config.engine.max_work_requests = 4096;
  config.engine.max_completions = 16384;
  config.link.latency = 5us;
  return config;
}

std::string pattern(std::size_t length, std::uint64_t seed) {
  // A hash for each eight bytes of the text, so that a byte in a wrong place, or of another text,
  // differs.
  std::string out(length, '\0');
  for (std::size_t i = 0; i < length; ++i) {
    out[i] = static_cast<char>(mix64(seed * 0x10001 + i / 8) >> (8 * (i % 8)));
  }
  return out;
}

// --- Node

srd::Engine& Node::engine() { return lab_.world().engine(host_); }

srd::PeerId Node::peer(const Node& other) {
  const auto found = engine().peer(world::address_of_host(other.host()), other.config().attachment);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
  return found.value_or(srd::PeerId{});
}

void Node::boot(const srd::EngineConfig& config) {
  config_ = config;
  requests_.clear();
  receives_.clear();
  outstanding_ = 0;
  lab_.world().start(host_, config);
  memory_ = std::make_unique<std::byte[]>(kMemorySize);
  using srd::Access;
  const Access all = Access::local_write | Access::remote_read | Access::remote_write;
  key_ = engine()
             .memory()
             .insert({.data = memory_.get(),
                      .address = kMemoryAddress,
                      .length = kMemorySize,
                      .access = all,
                      .domain = kDomain})
             .value();
  // Four gibibytes of addresses with no memory behind them: keys and bounds are checked as for any
  // other region, and no byte is stored.
  phantom_key_ = engine()
                     .memory()
                     .insert({.address = kPhantomAddress,
                              .length = std::uint64_t{1} << 32,
                              .access = all,
                              .domain = kDomain,
                              .placement = srd::Placement::phantom})
                     .value();
  open(kEndpoint, {.qkey = kQkey, .domain = kDomain, .receive_depth = 8192});
}

void Node::open(Qpn qpn, const srd::EndpointConfig& config) {
  const auto opened = engine().open_endpoint(qpn, config);
  EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().message);
}

void Node::close(Qpn qpn) {
  engine().close_endpoint(qpn);
  collect();
}

template <class Post>
std::optional<std::uint64_t> Node::post(std::size_t length, std::string_view content,
                                        const Node& to, const How& how, Post&& request) {
  Request entry;
  entry.length = length;
  // The memory is allocated apart from the entry: moving the entry into the map leaves the
  // addresses in the segments valid.
  entry.buffer = std::make_unique<std::byte[]>(length);
  std::ranges::copy(std::as_bytes(std::span(content)), entry.buffer.get());
  request.peer = peer(to);
  request.source = how.source;
  request.destination = how.destination;
  request.qkey = how.qkey;
  request.rnr_retry = how.rnr_retry;
  request.cookie = ++last_cookie_;
  // Two pieces, so that gathering and scattering are always exercised.
  const auto first = static_cast<std::uint32_t>(length / 3);
  request.segments[0] = {entry.buffer.get(), first};
  request.segments[1] = {entry.buffer.get() + first, static_cast<std::uint32_t>(length) - first};
  if (engine().post(request) != srd::PostResult::accepted) {
    return std::nullopt;
  }
  ++outstanding_;
  const std::uint64_t cookie = request.cookie;
  requests_.emplace(cookie, std::move(entry));
  return cookie;
}

std::optional<std::uint64_t> Node::try_send(const Node& to, std::string_view text, const How& how) {
  srd::SendRequest request;
  request.immediate = how.immediate;
  return post(text.size(), text, to, how, request);
}

std::optional<std::uint64_t> Node::try_write(const Node& to, std::uint64_t offset,
                                             std::string_view bytes, const How& how) {
  srd::WriteRequest request;
  request.immediate = how.immediate;
  request.remote_key = how.key.value_or(to.key());
  request.remote_address = how.address.value_or(kMemoryAddress + offset);
  return post(bytes.size(), bytes, to, how, request);
}

std::optional<std::uint64_t> Node::try_read(const Node& from, std::uint64_t offset,
                                            std::size_t length, const How& how) {
  srd::ReadRequest request;
  request.remote_key = how.key.value_or(from.key());
  request.remote_address = how.address.value_or(kMemoryAddress + offset);
  return post(length, {}, from, how, request);
}

std::uint64_t Node::send(const Node& to, std::string_view text, const How& how) {
  const auto cookie = try_send(to, text, how);
  EXPECT_TRUE(cookie.has_value()) << "the engine refused a send";
  return cookie.value_or(0);
}

std::uint64_t Node::write(const Node& to, std::uint64_t offset, std::string_view bytes,
                          const How& how) {
  const auto cookie = try_write(to, offset, bytes, how);
  EXPECT_TRUE(cookie.has_value()) << "the engine refused a write";
  return cookie.value_or(0);
}

std::uint64_t Node::read(const Node& from, std::uint64_t offset, std::size_t length,
                         const How& how) {
  const auto cookie = try_read(from, offset, length, how);
  EXPECT_TRUE(cookie.has_value()) << "the engine refused a read";
  return cookie.value_or(0);
}

std::uint64_t Node::write_phantom(const Node& to, std::uint64_t length, const How& how) {
  srd::WriteRequest request;
  request.peer = peer(to);
  request.source = how.source;
  request.destination = how.destination;
  request.qkey = how.qkey;
  request.immediate = how.immediate;
  request.remote_key = how.key.value_or(to.phantom_key());
  request.remote_address = how.address.value_or(kPhantomAddress);
  request.phantom = true;
  request.segments[0] = {nullptr, static_cast<std::uint32_t>(length)};
  request.cookie = ++last_cookie_;
  EXPECT_EQ(engine().post(request), srd::PostResult::accepted)
      << "the engine refused a phantom write";
  ++outstanding_;
  requests_.emplace(request.cookie, Request{});
  return request.cookie;
}

bool Node::try_receive(std::size_t size, Qpn endpoint) {
  Request entry;
  entry.length = size;
  entry.buffer = std::make_unique<std::byte[]>(size);
  srd::ReceiveRequest request;
  request.cookie = ++last_cookie_;
  const auto first = static_cast<std::uint32_t>(size / 2);
  request.segments[0] = {entry.buffer.get(), first};
  request.segments[1] = {entry.buffer.get() + first, static_cast<std::uint32_t>(size) - first};
  if (engine().post_receive(endpoint, request) != srd::PostResult::accepted) {
    return false;
  }
  receives_.emplace(request.cookie, std::move(entry));
  return true;
}

void Node::receive(std::size_t count, std::size_t size, Qpn endpoint) {
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(try_receive(size, endpoint)) << "the engine refused a receive";
  }
}

void Node::collect() {
  Completion batch[16];
  if (!lab_.world().is_up(host_)) {
    return;
  }
  for (std::size_t n = engine().poll(batch); n > 0; n = engine().poll(batch)) {
    for (std::size_t i = 0; i < n; ++i) {
      finish(batch[i]);
    }
  }
}

void Node::finish(const Completion& completion) {
  completions_.push_back(completion);
  const bool incoming = completion.kind == Completion::Kind::receive ||
                        completion.kind == Completion::Kind::receive_write_imm;
  if (!incoming) {
    const auto found = requests_.find(completion.cookie);
    ASSERT_NE(found, requests_.end()) << "a completion for a request that nobody made";
    Request& request = found->second;
    ASSERT_FALSE(request.status.has_value()) << "a second completion for one request";
    request.status = completion.status;
    request.result.assign(reinterpret_cast<const char*>(request.buffer.get()), request.length);
    // An engine that touches the memory from now on is found out by the address sanitizer.
    request.buffer.reset();
    --outstanding_;
    return;
  }
  if (!completion.consumed_receive) {
    inbox_.push_back({"", completion});
    return;
  }
  const auto found = receives_.find(completion.cookie);
  ASSERT_NE(found, receives_.end()) << "a completion for a receive that is not posted";
  if (completion.status == Status::ok) {
    const std::size_t length = completion.kind == Completion::Kind::receive ? completion.length : 0;
    ASSERT_LE(length, found->second.length);
    inbox_.push_back(
        {std::string{reinterpret_cast<const char*>(found->second.buffer.get()), length},
         completion});
  }
  receives_.erase(found);
}

std::optional<Status> Node::status(std::uint64_t cookie) const {
  const auto found = requests_.find(cookie);
  return found == requests_.end() ? std::nullopt : found->second.status;
}

std::string Node::read_result(std::uint64_t cookie) const { return requests_.at(cookie).result; }

std::vector<std::string> Node::texts() const {
  std::vector<std::string> out;
  for (const Message& message : inbox_) {
    out.push_back(message.text);
  }
  return out;
}

std::string Node::memory(std::uint64_t offset, std::size_t length) const {
  return {reinterpret_cast<const char*>(memory_.get()) + offset, length};
}

void Node::fill_memory(std::uint64_t offset, std::string_view bytes) {
  std::ranges::copy(std::as_bytes(std::span(bytes)), memory_.get() + offset);
}

// --- Lab

Lab::Lab(std::uint32_t nodes, const LabConfig& config) : world_(config.seed) {
  world_.network().link() = config.link;
  for (std::uint32_t i = 0; i < nodes; ++i) {
    srd::EngineConfig engine = config.engine;
    // Engines with the same seed would draw the same paths at the same moments.
    engine.seed = config.seed * 100 + i;
    world_.add_host(engine);
    nodes_.emplace_back(*this, i);
    nodes_.back().boot(engine);
  }
  start_ = world_.now();
}

bool Lab::step(TimePoint limit) {
  const bool more = world_.step(limit);
  for (Node& node : nodes_) {
    node.collect();
  }
  EXPECT_EQ(world_.broken(), "");
  return more;
}

void Lab::run_for(Duration duration) {
  const TimePoint limit = now() + duration;
  while (step(limit)) {
  }
}

bool Lab::run_until(const std::function<bool()>& reached, Duration limit) {
  const TimePoint end = now() + limit;
  while (!reached()) {
    if (!step(end)) {
      return reached();
    }
  }
  return true;
}

bool Lab::run_until_idle(Duration limit) {
  // What was posted a moment ago has not left, so the engines are pumped before the network is
  // asked. An event within a millisecond is work under way, such as an acknowledgement that is held
  // back; later ones are timers that wait for what may never come, and are not waited for.
  const auto idle = [this] {
    world_.pump();
    const bool all_done = std::all_of(nodes_.begin(), nodes_.end(),
                                      [](const Node& node) { return node.outstanding() == 0; });
    return all_done && network().in_flight() == 0 && world_.next_event() > now() + 1ms;
  };
  return run_until(idle, limit);
}

void Lab::restart(Node& node) { restart(node, node.config().life.plus(1)); }

void Lab::restart(Node& node, srd::Life life) {
  srd::EngineConfig config = node.config();
  // The life is all by which peers tell the new process from the old one: it has the same address
  // and attachment.
  config.life = life;
  crash(node);
  node.boot(config);
}

void Lab::crash(Node& node) {
  world_.crash(node.host());
  node.requests_.clear();
  node.receives_.clear();
  node.outstanding_ = 0;
}

void Lab::partition(Node& a, Node& b) {
  network().partition(a.host(), b.host());
  network().partition(b.host(), a.host());
}

void Lab::rejoin(Node& a, Node& b) {
  network().rejoin(a.host(), b.host());
  network().rejoin(b.host(), a.host());
}

}  // namespace weft::testing
