// Owns one rank of a run: its connections, and the loop in which GPU and proxies take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "integration/collectives/board.hpp"
#include "integration/collectives/connection.hpp"
#include "integration/collectives/data.hpp"
#include "integration/collectives/net.hpp"
#include "integration/collectives/program_runner.hpp"
#include "srd/base/time.hpp"

namespace weft::collectives {

struct RankConfig {
  std::uint32_t ranks = 2;
  std::uint32_t rank = 0;
  std::uint32_t channels = 2;
  std::vector<std::uint32_t> devices{};  // of the plugin's that are used; empty: all
  Buffers buffers{};
  Type type = Type::float32;
  Reduction reduction = Reduction::sum;
  Duration patience = std::chrono::seconds{60};  // with nothing moving: that is a hang
};

// Connections stay from connect() to the end, and all operations use them: a plugin sees few
// connections with many messages, as from NCCL.
class Rank {
 public:
  // `net` is initialised here, and finalised by the destructor.
  Rank(Net& net, Board& board, const RankConfig& config);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Connects what the operation needs. All ranks call it with the same.
  void connect(const Problem& problem);
  // Once, with these buffers. `audit`: memory that was read is poisoned.
  void run(const Problem& problem, std::span<std::byte> input, std::span<std::byte> output,
           bool audit);
  // Until all sends have completed.
  void settle();
  // Ends all connections with requests under way. All ranks call it with the same seed, and nothing
  // but the destructor after it.
  void leave_in_chaos(std::uint64_t seed);

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t>;  // peer, channel

  [[nodiscard]] std::uint32_t channel_of(const RankProgram& program) const {
    return program.point_to_point ? config_.channels : program.channel;
  }
  // Channels take the devices in turn, as those that NCCL finds for several NICs; so do the pairs
  // of point-to-point operations. Both ends of a connection take the same.
  [[nodiscard]] int device_of(const Key& key) const {
    const auto [peer, channel] = key;
    const std::uint32_t turn = channel < config_.channels ? channel : config_.rank + peer;
    return static_cast<int>(config_.devices[turn % config_.devices.size()]);
  }
  struct Making;
  void plan(const std::vector<RankProgram>& programs, std::vector<Making>& sends,
            std::vector<Making>& receives);
  [[nodiscard]] ProgramRunner begin(const RankProgram& program, bool audit);
  // Lets the proxies of all connections go on. Returns whether anything moved.
  bool progress();
  // `what` the rank is doing, for reports of a hang.
  template <class Reached>
  void until(const char* what, Reached&& reached);
  [[nodiscard]] std::string waited_for() const;

  Net& net_;
  Board& board_;
  RankConfig config_;
  RankActivity& where_;
  std::map<Key, std::unique_ptr<SendChannel>> senders_;
  std::map<Key, std::unique_ptr<ReceiveChannel>> receivers_;
};

}  // namespace weft::collectives
