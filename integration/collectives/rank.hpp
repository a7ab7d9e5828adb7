// Owns one rank of a run: its connections, and the loop in which GPU and proxies take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "integration/collectives/board.hpp"
#include "integration/collectives/connection.hpp"
#include "integration/collectives/data.hpp"
#include "integration/collectives/net.hpp"
#include "srd/base/time.hpp"

namespace weft::collectives {

struct RankConfig {
  std::uint32_t ranks = 2;
  std::uint32_t rank = 0;
  std::uint32_t channels = 2;
  Buffers buffers{};
  Type type = Type::float32;
  Reduction reduction = Reduction::sum;
  Duration patience = std::chrono::seconds{60};  // with nothing moving: that is a hang
};

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

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t>;  // peer, channel
  class Runner;

  [[nodiscard]] std::uint32_t channel_of(const Program& program) const {
    return program.point_to_point ? config_.channels : program.channel;
  }
  [[nodiscard]] std::size_t buffer_of(const Program& program) const {
    return program.point_to_point ? config_.buffers.point_to_point * kSteps
                                  : config_.buffers.simple;
  }
  bool progress();
  template <class Reached>
  void until(Reached&& reached);

  Net& net_;
  Board& board_;
  RankConfig config_;
  std::map<Key, std::unique_ptr<SendChannel>> senders_;
  std::map<Key, std::unique_ptr<ReceiveChannel>> receivers_;
};

}  // namespace weft::collectives
