// Owns the laboratory of the engine's stories: a few processes, each with one engine, in virtual
// time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/world/world.hpp"

namespace weft::testing {

using namespace std::chrono_literals;
using srd::Completion;
using srd::Qpn;
using srd::Status;
using world::Action;
using world::Packet;

inline constexpr Qpn kEndpoint{17};
inline constexpr std::uint32_t kQkey = 0x1CE;
inline constexpr std::uint32_t kDomain = 3;
inline constexpr std::size_t kMemorySize = 1 << 20;

// How a request departs from the usual one. What is not named here is as Node::boot() has set it up
// at both ends.
struct How {
  Qpn source = kEndpoint;
  Qpn destination = kEndpoint;
  std::uint32_t qkey = kQkey;
  std::optional<std::uint32_t> immediate{};
  std::uint8_t rnr_retry = srd::kRnrRetryForever;
  std::optional<srd::RegionKey> key{};
  std::optional<std::uint64_t> address{};  // instead of the offset into the target's memory
};

struct LabConfig {
  srd::EngineConfig engine;
  world::LinkModel link;
  std::uint64_t seed = 1;
};
// One-way latency 5 us, 16 paths, 1 KiB packets: small numbers that a story can speak about.
[[nodiscard]] LabConfig lab_config();

// What a receive has brought, or a write with immediate data (whose text is empty).
struct Message {
  std::string text;
  Completion completion;
};

class Lab;

// One process: an engine, an endpoint, registered memory that others may read and write. A crash
// takes all of it, requests included; what boot() makes is new, and only completions(), inbox() and
// cookies go on.
class Node {
 public:
  Node(Lab& lab, std::uint32_t host) : lab_(lab), host_(host) {}
  Node(const Node&) = delete;

  [[nodiscard]] std::uint32_t host() const { return host_; }
  [[nodiscard]] srd::Engine& engine();
  [[nodiscard]] const srd::EngineConfig& config() const { return config_; }
  [[nodiscard]] srd::PeerId peer(const Node& other);

  // --- Posting. The returned cookie names the request; nullopt means that the engine refused it.
  // The request's memory belongs to it alone and is freed when it completes.
  std::optional<std::uint64_t> try_send(const Node& to, std::string_view text, const How& how = {});
  std::optional<std::uint64_t> try_write(const Node& to, std::uint64_t offset,
                                         std::string_view bytes, const How& how = {});
  std::optional<std::uint64_t> try_read(const Node& from, std::uint64_t offset, std::size_t length,
                                        const How& how = {});
  // The same, where a refusal would be a failure of the test.
  std::uint64_t send(const Node& to, std::string_view text, const How& how = {});
  std::uint64_t write(const Node& to, std::uint64_t offset, std::string_view bytes,
                      const How& how = {});
  std::uint64_t read(const Node& from, std::uint64_t offset, std::size_t length,
                     const How& how = {});
  // Bytes that exist nowhere: for messages too large for a test's memory.
  std::uint64_t write_phantom(const Node& to, std::uint64_t length, const How& how = {});
  bool try_receive(std::size_t size = 4096, Qpn endpoint = kEndpoint);
  void receive(std::size_t count = 1, std::size_t size = 4096, Qpn endpoint = kEndpoint);

  void open(Qpn qpn, const srd::EndpointConfig& config);
  void close(Qpn qpn);

  // --- What came of it
  [[nodiscard]] std::optional<Status> status(std::uint64_t cookie) const;
  [[nodiscard]] std::string read_result(std::uint64_t cookie) const;
  // All that have come, in their order.
  [[nodiscard]] const std::vector<Completion>& completions() const { return completions_; }
  [[nodiscard]] const std::vector<Message>& inbox() const { return inbox_; }
  [[nodiscard]] std::vector<std::string> texts() const;
  [[nodiscard]] std::size_t outstanding() const { return outstanding_; }
  [[nodiscard]] std::size_t receives_posted() const { return receives_.size(); }

  // --- Memory that peers reach with key().
  [[nodiscard]] std::string memory(std::uint64_t offset, std::size_t length) const;
  void fill_memory(std::uint64_t offset, std::string_view bytes);
  [[nodiscard]] srd::RegionKey key() const { return key_; }
  [[nodiscard]] srd::RegionKey phantom_key() const { return phantom_key_; }
  static constexpr std::uint64_t kMemoryAddress = 0x10000000;
  static constexpr std::uint64_t kPhantomAddress = 0x7000000000;

  // Takes what has completed; the lab calls it after every step.
  void collect();

 private:
  friend class Lab;
  struct Request {
    std::unique_ptr<std::byte[]> buffer;
    std::size_t length = 0;
    std::optional<Status> status;
    std::string result;
  };

  void boot(const srd::EngineConfig& config);
  void finish(const Completion& completion);
  template <class Post>
  std::optional<std::uint64_t> post(std::size_t length, std::string_view content, const Node& to,
                                    const How& how, Post&& request);

  Lab& lab_;
  std::uint32_t host_;
  srd::EngineConfig config_;
  std::unique_ptr<std::byte[]> memory_;
  srd::RegionKey key_;
  srd::RegionKey phantom_key_;
  std::map<std::uint64_t, Request> requests_;
  std::map<std::uint64_t, Request> receives_;
  std::vector<Completion> completions_;
  std::vector<Message> inbox_;
  std::size_t outstanding_ = 0;
  std::uint64_t last_cookie_ = 1000;
};

// The processes and the network between them, driven step by step; every step also checks the rules
// that no run may break (world().broken()).
class Lab {
 public:
  explicit Lab(std::uint32_t nodes, const LabConfig& config = lab_config());
  virtual ~Lab() = default;

  [[nodiscard]] Node& operator[](std::uint32_t i) { return nodes_[i]; }
  [[nodiscard]] world::VirtualWorld& world() { return world_; }
  [[nodiscard]] world::VirtualNetwork& network() { return world_.network(); }
  [[nodiscard]] TimePoint now() const { return world_.now(); }
  // Virtual time since the laboratory was set up.
  [[nodiscard]] Duration elapsed() const { return world_.now() - start_; }
  [[nodiscard]] Duration rtt() { return network().link().latency * 2; }

  void run_for(Duration duration);
  // False: the limit came first, or nothing is left that could happen.
  bool run_until(const std::function<bool()>& reached, Duration limit = 10s);
  // Until every request (posted receives aside) has completed and nothing is under way any more.
  bool run_until_idle(Duration limit = 10s);

  // The process dies and, at once, the next one of the same name starts with a later life.
  void restart(Node& node);
  void restart(Node& node, srd::Life life);
  void crash(Node& node);
  void boot(Node& node, const srd::EngineConfig& config) { node.boot(config); }
  // Nothing passes between the two any more, in either direction; others are not affected.
  void partition(Node& a, Node& b);
  void rejoin(Node& a, Node& b);

 private:
  bool step(TimePoint limit);

  world::VirtualWorld world_;
  std::deque<Node> nodes_;
  TimePoint start_;
};

// The two-engine laboratory that most stories happen in.
class Pair : public Lab {
 public:
  explicit Pair(const LabConfig& config = lab_config()) : Lab(2, config) {}
  Node& a = (*this)[0];
  Node& b = (*this)[1];
};

// `length` bytes that depend on `seed` and on their place.
[[nodiscard]] std::string pattern(std::size_t length, std::uint64_t seed = 1);

}  // namespace weft::testing
