// Owns a rank's requests to the others: where each is, and which request goes to whom.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "integration/workloads/worker.hpp"
#include "srd/engine/engine.hpp"

namespace weft::workloads {

// All ranks use one Q_Key, one domain and one region each: a rank's place is all that the others
// have to know. open() comes first, then meet() with the places of all, then post().
class Outbox {
 public:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  static constexpr std::uint32_t kQkey = 0x0E9;
  static constexpr std::uint32_t kDomain = 1;

  Outbox(srd::Engine& engine, srd::Qpn qpn) : engine_(engine), qpn_(qpn) {}

  // Opens the rank's endpoint and lets all others write into `region`. Once.
  void open(RankPlace& place, srd::Region region);
  void meet(std::span<const RankPlace> places, std::uint32_t self);

  struct Item {
    std::uint32_t rank = 0;
    std::uint64_t cookie = 0;
    srd::SegmentList segments{};
    std::uint64_t offset = 0;  // in the rank's region
    std::optional<std::uint32_t> immediate{};
    bool phantom = false;
  };
  // False: the engine is full, and takes more when something has ended.
  [[nodiscard]] bool post(const Item& item);
  // Or kNobody.
  [[nodiscard]] std::uint32_t rank_of(srd::PeerId peer) const;

 private:
  srd::Engine& engine_;
  srd::Qpn qpn_;
  std::vector<RankPlace> places_;
  std::vector<srd::PeerId> peers_;    // by rank
  std::vector<std::uint32_t> ranks_;  // by the number of a peer
};

}  // namespace weft::workloads
