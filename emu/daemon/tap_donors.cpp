// Owns receiving a tap from a client, and giving it up.
#include "emu/daemon/tap_donors.hpp"

#include <fcntl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emu/attach/protocol.hpp"
#include "emu/attach/seqpacket.hpp"
#include "emu/daemon/attach_answers.hpp"
#include "srd/io/tap_io.hpp"

namespace weft::daemon {

struct TapDonors::Donor {
  std::unique_ptr<ClientWatch> connection;
  std::optional<std::size_t> port;
};

// What the side thread works on: it receives the descriptors, since that can block.
struct TapDonors::Donation {
  srd::UniqueFd connection;
  std::optional<attach::TapRequest> request;
  Result<std::unique_ptr<srd::TapIo>> tap = fail(ErrorCode::io_error, "");

  void receive(std::size_t max_frame) {
    attach::Received received = attach::receive_message(connection.get());
    request = received.as<attach::TapRequest>();
    if (!attach::is_well_formed(request, attach::AttachMessage::tap)) {
      tap = fail(ErrorCode::invalid_argument, "descriptors come with tap requests only");
    } else if (received.fds.size() != 1) {
      tap = fail(ErrorCode::invalid_argument, "a tap request brings one descriptor");
    } else {
      tap = srd::TapIo::adopt({.name = {}, .max_frame = max_frame}, std::move(received.fds[0]));
    }
    attach::close_unwanted(received.fds);
  }
};

TapDonors::TapDonors(SideThreads& side, Plant& plant, NetworkControl& network,
                     std::size_t max_frame)
    : side_(side), plant_(plant), network_(network), max_frame_(max_frame) {}

TapDonors::~TapDonors() = default;

void TapDonors::take(std::unique_ptr<ClientWatch> connection) {
  const int socket = connection->fd();
  if (donors_.size() >= Outside::kMaxPorts) {
    refuse(socket, "all ports to the outside are taken");
    return;
  }
  auto donation = std::make_shared<Donation>();
  donation->connection = srd::UniqueFd(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!donation->connection) {
    refuse(socket, "weftd has no file descriptor left (ulimit -n)");
    return;
  }
  const std::uint64_t number = ++numbers_;
  donors_.emplace(number, std::make_unique<Donor>(Donor{std::move(connection), {}}));
  side_.run([donation, max_frame = max_frame_] { donation->receive(max_frame); },
            [this, number, donation] { accept(number, *donation); });
}

void TapDonors::accept(std::uint64_t number, Donation& donation) {
  Donor& donor = *donors_.at(number);
  const auto reply = hang_up(donor, donation);
  if (!reply) {
    refuse(donor.connection->fd(), reply.error().message);
  }
  if (!reply || !attach::send_struct(donor.connection->fd(), *reply)) {
    leave(number);
    return;
  }
  // A donor sends nothing more: whatever is readable is its end, or a mistake.
  donor.connection->when_readable([this, number] { leave(number); });
}

Result<attach::HostReply> TapDonors::hang_up(Donor& donor, Donation& donation) {
  if (!donation.tap) {
    return tl::unexpected(donation.tap.error());
  }
  const auto nics = nics_named(plant_, donation.request->host);
  if (!nics) {
    return tl::unexpected(nics.error());
  }
  const PlantNic& nic = *nics->front();
  const std::string name = "tap:" + (*donation.tap)->name() + "@" + nic.host;
  const auto port = network_.add_port(name, std::move(*donation.tap), &nic);
  if (!port) {
    return tl::unexpected(port.error());
  }
  donor.port = *port;
  attach::HostReply reply;
  reply.nics = 1;
  reply.addresses[0] = nic.address.bytes;
  return reply;
}

void TapDonors::leave(std::uint64_t number) {
  const auto donor = donors_.extract(number);
  if (donor.empty() || !donor.mapped()->port) {
    return;
  }
  // Closed on a side thread: the kernel waits for other users of the device.
  side_.run([tap = std::shared_ptr(network_.remove_port(*donor.mapped()->port))]() mutable {
    tap.reset();
  });
}

}  // namespace weft::daemon
