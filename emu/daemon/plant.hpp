// Owns what is attached to the network of one machine: hosts, their NICs, and the process in each
// slot of a NIC.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emu/daemon/groups.hpp"
#include "emu/daemon/loans.hpp"
#include "emu/daemon/recent_requests.hpp"
#include "emu/daemon/service_owners.hpp"
#include "srd/base/result.hpp"
#include "srd/base/time.hpp"
#include "srd/io/reader_stall.hpp"
#include "srd/io/ring_port.hpp"
#include "srd/net/address.hpp"

namespace weft::daemon {

// Attachments are 1 to 254. Number 0 is the NIC's own (management traffic), and RoCE's queue pair
// numbers that begin with 255 are for multicast.
inline constexpr std::size_t kSlotsPerNic = 255;

struct PlantNic;

struct SlotCounters {
  std::uint64_t frames_in = 0;  // from the process
  std::uint64_t bytes_in = 0;
  std::uint64_t frames_out = 0;
  std::uint64_t bytes_out = 0;
};

// A process on a NIC, as the forwarding thread knows it. The control thread's half is
// AttachServer::Process; the place that both stand for is PlaceRegistry::Place.
struct Slot {
  static constexpr std::size_t kAsked = 64;

  PlantNic* nic = nullptr;
  std::uint16_t id = 0;  // upper bits of its queue pair numbers
  std::uint32_t first_qpn = 0;
  srd::Life life;
  std::uint32_t serial = 0;  // no other slot of this weftd ever has it; 0: none
  srd::RingPort port;
  // Of each of the two rings of `port`.
  std::size_t ring_bytes = 0;
  std::int32_t pid = 0;
  bool direct_rings = true;
  bool doomed = false;  // nothing is delivered to it any more
  bool told = false;    // the control thread knows that the ring is broken
  SlotCounters counters;

  // The process has left, or lost its place: what is in its ring is still forwarded, up to a limit.
  bool ending = false;
  bool drained = false;
  std::uint32_t last_bursts = 0;

  // Where its previous frame went: most frames go the same way, and save a look-up.
  PlantNic* last_nic = nullptr;
  std::uint32_t last_target = 0;  // a serial
  // Targets for which a direct ring was asked for already, by serial.
  std::array<std::uint32_t, kAsked> asked{};

  Loans loans;  // frames in its ring that are still inside of the network

  srd::ReaderStall stall;  // while its ring is full

  std::size_t place = 0;  // in Plant::slots()
};

struct PlantNic {
  // Never change, so any thread may read them.
  std::string host;
  std::uint32_t index = 0;  // within its host
  std::uint32_t port = 0;   // of the network: its place among all NICs
  srd::Address address;

  // The forwarding thread's.
  bool link_up = true;  // in the modelled network, both directions
  std::array<std::unique_ptr<Slot>, kSlotsPerNic> slots;
  std::bitset<kSlotsPerNic> left;  // whose process has gone: not those that a new weftd waits for
  ServiceOwners services;
  RecentRequests requests;
};

class Plant {
 public:
  struct Options {
    std::vector<std::string> hosts{"h1"};
    std::uint32_t nics_per_host = 1;
    std::vector<std::uint32_t> nics_of_host;      // if given: the number of NICs of each host
    std::uint32_t first_host = 1;                 // its number in addresses
    std::array<std::uint8_t, 2> prefix{127, 77};  // NIC n of the h-th host is prefix.h.(n + 1)
  };
  [[nodiscard]] static Result<Plant> make(const Options& options);

  // --- Any thread: these never change.

  // The host of that name, or the first one for an empty name. Where no host is called h<number>
  // (in topologies with names of their own) h<n> counts them, from first_host.
  [[nodiscard]] Result<std::vector<PlantNic*>> nics_of(const std::string& host);
  [[nodiscard]] PlantNic* find(const srd::Address& address) const {
    const auto found = by_address_.find(address);
    return found == by_address_.end() ? nullptr : found->second;
  }

  [[nodiscard]] const std::vector<std::unique_ptr<PlantNic>>& nics() const { return nics_; }
  [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }

  // --- The forwarding thread. The slot's number must be free on its NIC.
  void put(std::unique_ptr<Slot> slot);
  [[nodiscard]] std::unique_ptr<Slot> take(Slot& slot);
  [[nodiscard]] const std::vector<Slot*>& slots() const { return occupied_; }
  [[nodiscard]] Groups& groups() { return groups_; }

 private:
  bool counted_ = true;  // no host is called h<number>
  std::uint32_t first_host_ = 1;
  std::vector<std::string> hosts_;
  std::vector<std::unique_ptr<PlantNic>> nics_;
  std::unordered_map<srd::Address, PlantNic*> by_address_;
  std::vector<Slot*> occupied_;
  Groups groups_;
};

}  // namespace weft::daemon
