// Owns the laboratory of messages: processes with an engine and a messenger each, in virtual time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "emu/world/world.hpp"
#include "srd/message/messenger.hpp"

namespace weft::testing {

using namespace std::chrono_literals;
using Bytes8 = std::vector<std::byte>;

struct MessageLabConfig {
  srd::EngineConfig engine;
  srd::MessengerConfig messenger;
  world::LinkModel link;
  std::uint64_t seed = 1;
};
// One-way latency 5 us, 16 paths, packets of 1 KiB.
[[nodiscard]] MessageLabConfig message_lab_config();

// Bytes that depend on `seed` and on their place.
void fill(std::span<std::byte> bytes, std::uint64_t seed);
// The first place where they differ from what fill() writes, or bytes.size().
[[nodiscard]] std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed);

struct SendOptions {
  std::optional<std::uint32_t> immediate{};
  std::uint64_t seed = 0;  // of the content; 0: the cookie
};

struct ReceiveOptions {
  std::uint64_t ignore = 0;
  std::optional<std::uint32_t> from{};  // station
};

class MessageLab;

// One process. Memory of a request belongs to it alone; behind a receive lies a guard, and a send's
// memory is overwritten when it completes, so that code that still reads it is found out.
class Station {
 public:
  Station(MessageLab& lab, std::uint32_t host) : lab_(lab), host_(host) {}
  Station(const Station&) = delete;

  [[nodiscard]] std::uint32_t host() const { return host_; }
  [[nodiscard]] srd::Engine& engine();
  [[nodiscard]] srd::Messenger& messenger() { return *messenger_; }
  [[nodiscard]] srd::MessageAddress address(const Station& other);

  // Cookies name requests; nullopt: refused.
  std::optional<std::uint64_t> try_send(const Station& to, std::uint64_t tag, std::size_t size,
                                        const SendOptions& options = {});
  std::uint64_t send(const Station& to, std::uint64_t tag, std::size_t size,
                     const SendOptions& options = {});
  std::uint64_t receive(std::uint64_t tag, std::size_t size, const ReceiveOptions& options = {});

  // Takes what has completed; the laboratory calls it after every step. Completions of cookies
  // below 101, and those of writes and reads, are left to the test.
  void collect();
  [[nodiscard]] const std::vector<srd::MessageCompletion>& completions() const {
    return completions_;
  }
  // Of the request; nothing while it is under way.
  [[nodiscard]] const srd::MessageCompletion* result(std::uint64_t cookie) const;
  [[nodiscard]] std::optional<srd::Status> status(std::uint64_t cookie) const;
  [[nodiscard]] std::span<std::byte> memory(std::uint64_t cookie);
  // Cookies of the receives that have completed, in that order.
  [[nodiscard]] const std::vector<std::uint64_t>& received() const { return received_; }
  [[nodiscard]] std::size_t sends_open() const { return sends_open_; }
  [[nodiscard]] std::size_t receives_open() const { return receives_open_; }

 private:
  friend class MessageLab;
  struct Request {
    Bytes8 memory;
    std::size_t size = 0;
    bool is_send = false;
    std::optional<srd::MessageCompletion> result;
  };

  void boot(const srd::EngineConfig& engine, const srd::MessengerConfig& messenger);
  void stop();

  MessageLab& lab_;
  std::uint32_t host_;
  srd::EngineConfig config_;
  std::unique_ptr<srd::Messenger> messenger_;
  std::map<std::uint64_t, Request> requests_;
  std::vector<srd::MessageCompletion> completions_;
  std::vector<std::uint64_t> received_;
  std::size_t sends_open_ = 0;
  std::size_t receives_open_ = 0;
  std::uint64_t last_cookie_ = 100;
};

// As Lab (lab.hpp), with a messenger on top of each engine.
class MessageLab {
 public:
  explicit MessageLab(std::uint32_t stations,
                      const MessageLabConfig& config = message_lab_config());

  [[nodiscard]] Station& operator[](std::uint32_t i) { return stations_[i]; }
  [[nodiscard]] world::VirtualWorld& world() { return world_; }
  [[nodiscard]] world::VirtualNetwork& network() { return world_.network(); }

  bool run_until(const std::function<bool()>& reached, Duration limit = 20s);
  void run_for(Duration duration);
  // Until every send and every receive has completed.
  bool run_until_done(Duration limit = 20s);
  // The process dies; with restart() the next one of its name starts at once.
  void crash(Station& station);
  void restart(Station& station);

 private:
  friend class Station;
  bool step(TimePoint limit);

  MessageLabConfig config_;
  world::VirtualWorld world_;
  std::deque<Station> stations_;
};

}  // namespace weft::testing
