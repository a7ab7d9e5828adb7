// Owns how a run in chaos ends: connections are left with requests under way, as when NCCL aborts,
// and the memory that was registered is watched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "integration/collectives/connection.hpp"
#include "integration/collectives/net.hpp"
#include "srd/base/rng.hpp"

namespace weft::collectives {

// For some connections the receiver leaves first, for the others the sender, as the seed decides.
// After deregMr nothing may change the memory of a receive, and nothing may be sent from the memory
// of a send.
class Leaving {
 public:
  // `seed`: the same in all ranks.
  Leaving(Net& net, std::uint64_t seed, std::uint32_t rank)
      : net_(net), seed_(seed), rank_(rank), rng_(mix64(seed) + rank) {}
  ~Leaving();
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

  void add_sender(std::uint32_t peer, std::uint32_t channel, LooseEnd end);
  void add_receiver(std::uint32_t peer, std::uint32_t channel, LooseEnd end);

  // These in turn, each when all ranks have done the one before (Rank::leave_in_chaos()): so it is
  // known which end of a connection leaves first, and that the other is still there when it does.
  void post();
  void leave_first();
  void go_on_and_leave();
  void check() const;  // throws

 private:
  struct End {
    LooseEnd held;
    std::uint32_t peer = 0;
    bool sends = false;
    bool first = false;  // to leave
    std::size_t posted = 0;
    std::vector<void*> requests = {};  // that have not ended
    bool failed = false;               // and nothing is asked of it but to go
    std::vector<std::byte> left = {};  // what was in the memory then
    std::string mistake = {};
  };

  [[nodiscard]] bool receiver_is_first(std::uint32_t from, std::uint32_t to,
                                       std::uint32_t channel) const;
  void post(End& end, std::size_t count);
  // Tests its oldest request. Whether that was worth it.
  bool look(End& end);
  void leave(End& end);

  Net& net_;
  std::uint64_t seed_;
  std::uint32_t rank_;
  Rng rng_;
  std::vector<End> ends_;
};

}  // namespace weft::collectives
