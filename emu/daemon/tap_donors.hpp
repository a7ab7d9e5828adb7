// Owns the taps that clients give weftd. A tap is used as long as its client keeps the connection.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "emu/attach/protocol.hpp"
#include "emu/daemon/network_control.hpp"
#include "emu/daemon/plant.hpp"
#include "emu/daemon/side_threads.hpp"
#include "emu/daemon/watch.hpp"
#include "srd/base/result.hpp"

namespace weft::daemon {

// On the control thread. Connection -> descriptors received on a side thread -> port added ->
// connection ends -> port removed.
class TapDonors {
 public:
  TapDonors(SideThreads& side, Plant& plant, NetworkControl& network, std::size_t max_frame);
  ~TapDonors();

  // The next message of this connection carries descriptors. Answered with the host, or refused.
  void take(std::unique_ptr<ClientWatch> connection);

 private:
  struct Donor;
  struct Donation;

  void accept(std::uint64_t number, Donation& donation);
  // Attaches the tap to the link of the host that the request names.
  [[nodiscard]] Result<attach::HostReply> hang_up(Donor& donor, Donation& donation);
  void leave(std::uint64_t number);

  SideThreads& side_;
  Plant& plant_;
  NetworkControl& network_;
  std::size_t max_frame_;
  std::uint64_t numbers_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Donor>> donors_;
};

}  // namespace weft::daemon
