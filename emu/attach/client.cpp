// Owns the client's side of attaching: the handshake, and the messages that weftd sends later.
//
// attach() blocks: it connects, sends a request, waits for the reply, and maps the ring memory that
// came with it. After that the Keeper reads weftd's messages within the program's own polls: which
// peers have got a direct ring, which have lost it, whether the link is up. It has no thread.
#include "emu/attach/client.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emu/attach/protocol.hpp"
#include "emu/attach/seqpacket.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::attach {
namespace {

constexpr std::size_t kMinMtu = 256;
constexpr std::size_t kMaxMtu = 65000;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Fills in what the caller has left empty, from the environment where it says it.
Result<void> complete(AttachOptions& options) {
  if (options.socket.empty()) {
    options.socket = environment("WEFT_SOCKET");
  }
  if (options.socket.empty()) {
    return fail(ErrorCode::invalid_argument,
                "WEFT_SOCKET is not set: start programs with 'weft run' or 'weft exec'");
  }
  if (options.host.empty()) {
    options.host = environment("WEFT_HOST");
  }
  if (options.protocol == nullptr) {
    options.protocol = &srd::kNetworkProtocol<srd::wire::SrdCodec>;
  }
  if (options.host.size() >= kMaxHostName) {
    return fail(ErrorCode::invalid_argument, "host name '" + options.host + "' is too long");
  }
  return {};
}

AttachRequest request_for(const AttachOptions& options) {
  AttachRequest request;
  std::memcpy(request.host.data(), options.host.c_str(), options.host.size());
  request.nic = options.nic;
  request.udp_port = options.protocol->udp_port;
  request.flags = options.direct_rings ? 0U : kNoDirectRings;
  request.ring_bytes = static_cast<std::uint32_t>(options.ring_bytes);
  return request;
}

// The error for an answer that does not grant a place: weftd's own reason if it gave one.
Error refusal(const Received& received) {
  if (received.state == Received::State::nothing) {
    return {ErrorCode::io_error, "weftd does not answer"};
  }
  if (auto refused = received.as<RefusedReply>();
      refused && refused->header.type == AttachMessage::refused) {
    refused->text.back() = '\0';
    return {ErrorCode::not_permitted, "weftd refused: " + std::string(refused->text.data())};
  }
  return {ErrorCode::io_error, received.state == Received::State::closed
                                   ? "weftd closed the connection"
                                   : "weftd speaks another version"};
}

srd::Address to_address(const std::array<std::byte, 16>& bytes) {
  srd::Address address;
  address.bytes = bytes;
  return address;
}

srd::NetworkModel network_of(const AttachReply& reply) {
  constexpr std::uint64_t kMaxRoundTrip = 10'000'000'000;  // 10 s: more is nonsense
  return {
      .rate = Rate::bits_per_second(std::max<std::uint64_t>(reply.bits_per_second, 1)),
      .round_trip = Duration{static_cast<std::int64_t>(std::min(reply.round_trip, kMaxRoundTrip))},
      .trims = reply.trims != 0};
}

// An accepted reply, with its descriptors checked and mapped.
struct Place {
  AttachReply reply;
  srd::RingPort uplink;
};

// One end of a pair of rings: their memory and the end of their bell come with a message.
Result<srd::RingPort> open_port(Received& received, std::size_t ring_bytes, int end,
                                std::size_t mtu) {
  auto bell = srd::Bell::adopt(std::move(received.fds[1]));
  if (!bell) {
    return tl::unexpected(bell.error());
  }
  return srd::RingPort::open(received.fds[0].get(), ring_bytes, end, srd::net::max_frame_for(mtu),
                             std::move(*bell));
}

// Checks what weftd says before anything is built on it: weftd may be of another version, or not be
// weftd.
Result<Place> accept_reply(Received& received) {
  const auto reply = received.as<AttachReply>();
  if (!is_well_formed(reply, AttachMessage::attached) || received.fds.size() != 2) {
    return tl::unexpected(refusal(received));
  }
  if (reply->mtu < kMinMtu || reply->mtu > kMaxMtu) {
    return fail(ErrorCode::io_error, "weftd gave an MTU of " + std::to_string(reply->mtu));
  }
  auto uplink = open_port(received, reply->ring_bytes, 1, reply->mtu);
  if (!uplink) {
    return tl::unexpected(uplink.error());
  }
  return Place{*reply, std::move(*uplink)};
}

// The PortKeeper of the rings, owned by them. It runs in polls, under the Host's lock, so it waits
// only where a claim asks weftd. While weftd is gone it tries to connect ten times a second (a
// timer that wakes sleepers), and asks for its old place; until then direct rings go on working,
// and the uplink drops.
class Keeper final : public srd::PortKeeper, public Services {
 public:
  Keeper(AttachOptions options, const AttachReply& place, srd::UniqueFd socket)
      : options_(std::move(options)),
        place_(place),
        socket_(std::move(socket)),
        link_up_(place.link_up != 0) {}

  [[nodiscard]] int control_fd() const { return socket_.get(); }

  [[nodiscard]] bool claim(std::uint64_t service) override {
    ServiceRequest request;
    request.service = service;
    const auto granted = ask<ServiceReply>(
        request, AttachMessage::served,
        [service](const ServiceReply& reply) { return reply.service == service; });
    if (!granted || granted->granted == 0) {
      request.wanted = 0;  // weftd may still grant it
      tell(request);
      return false;
    }
    std::erase(claimed_, service);  // it may have been ours already
    claimed_.push_back(service);
    return true;
  }
  void release(std::uint64_t service) override {
    if (std::erase(claimed_, service) != 0) {
      ServiceRequest request;
      request.service = service;
      request.wanted = 0;
      tell(request);
    }
  }

  [[nodiscard]] bool join(const srd::Address& group) override {
    const auto answer = ask_of(group, AttachMessage::group, AttachMessage::grouped);
    if (answer == 0U) {
      return false;
    }
    // Without a weftd, or with a slow one: it hears of it when it is back.
    std::erase(groups_, group);
    groups_.push_back(group);
    return true;
  }
  void leave(const srd::Address& group) override {
    if (std::erase(groups_, group) != 0) {
      AddressRequest request = request_of(group, AttachMessage::group);
      request.wanted = 0;
      tell(request);
    }
  }

  // NICs never leave a network, so what was found once is not asked for again.
  [[nodiscard]] bool may_exist(const srd::Address& address) override {
    constexpr std::size_t kMaxKnown = 1024;
    if (std::ranges::find(known_, address) != known_.end()) {
      return true;
    }
    const auto answer = ask_of(address, AttachMessage::locate, AttachMessage::located);
    if (answer == static_cast<std::uint32_t>(Presence::here) && known_.size() < kMaxKnown) {
      known_.push_back(address);
    }
    return answer != static_cast<std::uint32_t>(Presence::nobody);
  }

  void attend(srd::RingPorts& io) override {
    for (Received& early : std::exchange(early_, {})) {
      hear(io, early);
    }
    while (socket_) {
      Received received = receive_message(socket_.get());
      if (received.state == Received::State::nothing) {
        return;
      }
      if (received.state == Received::State::closed) {
        lose(io);
        break;
      }
      hear(io, received);
    }
    if (knock_) {
      knock(io);
    }
  }

 private:
  static AddressRequest request_of(const srd::Address& address, AttachMessage type) {
    AddressRequest request;
    request.header.type = type;
    request.address = address.bytes;
    return request;
  }

  template <class Request>
  void tell(const Request& request) {
    if (socket_ && !rejoining_) {
      (void)send_struct(socket_.get(), request);
    }
  }

  // Asks and waits for the answer. What else weftd says meanwhile is heard by the next attend().
  // Nothing: there is no weftd, or it is too slow.
  template <class Reply, class Request, class Matches>
  [[nodiscard]] std::optional<Reply> ask(const Request& request, AttachMessage type,
                                         Matches&& matches) {
    constexpr int kMilliseconds = 2000;
    if (!socket_ || rejoining_ || !send_struct(socket_.get(), request)) {
      return std::nullopt;
    }
    while (true) {
      Received received = await_message(socket_.get(), kMilliseconds);
      if (received.state != Received::State::message) {
        return std::nullopt;
      }
      if (const auto reply = received.as<Reply>(); is_well_formed(reply, type)) {
        if (matches(*reply)) {
          return *reply;
        }
        continue;  // late, of one that was not waited for
      }
      early_.push_back(std::move(received));
    }
  }
  [[nodiscard]] std::optional<std::uint32_t> ask_of(const srd::Address& address,
                                                    AttachMessage asked, AttachMessage answered) {
    const auto reply = ask<AddressReply>(
        request_of(address, asked), answered,
        [&address](const AddressReply& of) { return of.address == address.bytes; });
    return reply ? std::optional(reply->answer) : std::nullopt;
  }

  // One message of weftd. What is not understood is left alone.
  void hear(srd::RingPorts& io, Received& received) {
    if (rejoining_) {
      rejoin(io, received);
      return;
    }
    if (const auto link = received.as<LinkNotice>(); is_well_formed(link, AttachMessage::link)) {
      set_link(link->up != 0);
      return;
    }
    if (const auto served = received.as<ServiceReply>();
        is_well_formed(served, AttachMessage::served)) {
      if (served->granted == 0) {
        std::erase(claimed_, served->service);
      }
      return;
    }
    const auto notice = received.as<DirectNotice>();
    if (!notice || notice->header.magic != kAttachMagic) {
      return;
    }
    const srd::Address peer = to_address(notice->peer);
    const srd::AttachmentId attachment{static_cast<std::uint16_t>(notice->attachment)};
    if (notice->header.type == AttachMessage::undirect) {
      io.remove_direct(peer, attachment);
    } else if (notice->header.type == AttachMessage::direct && received.fds.size() == 2 &&
               notice->end < 2) {
      auto port =
          open_port(received, notice->ring_bytes, static_cast<int>(notice->end), place_.mtu);
      if (port) {
        [[maybe_unused]] const bool added = io.add_direct(
            {.address = peer, .attachment = attachment, .life = srd::Life{notice->life}},
            std::move(*port));
      }
    }
  }

  // The connection has ended: weftd is gone, or has taken the place away. Begins to knock.
  void lose(srd::RingPorts& io) {
    socket_.reset();
    rejoining_ = false;
    io.close_uplink();  // direct rings live on
    if (!knock_) {
      knock_ = srd::UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
      const itimerspec every{{0, 100'000'000}, {0, 100'000'000}};
      ::timerfd_settime(knock_.get(), 0, &every, nullptr);
      [[maybe_unused]] const auto watched = io.watch(knock_.get());
    }
  }

  // The timer has expired: connects and asks for the old place, with its life. The answer is
  // awaited by attend(), as any other message.
  void knock(srd::RingPorts& io) {
    std::uint64_t expirations;
    if (socket_ || ::read(knock_.get(), &expirations, sizeof expirations) < 0) {
      return;
    }
    // This runs inside a poll that holds the host's lock: it must not wait.
    auto socket = connect_seqpacket(options_.socket, Duration{0});
    if (!socket) {
      return;
    }
    AttachRequest request = request_for(options_);
    request.attachment = place_.attachment;
    request.life = place_.life;
    if (send_struct(socket->get(), request) && io.watch(socket->get())) {
      socket_ = std::move(*socket);
      rejoining_ = true;
    }
  }

  // The answer to knock(). The place must be the old one in every respect, because peers know it by
  // these numbers.
  void rejoin(srd::RingPorts& io, Received& received) {
    auto place = accept_reply(received);
    if (!place || place->reply.attachment != place_.attachment ||
        place->reply.life != place_.life || place->reply.address != place_.address ||
        place->reply.mtu != place_.mtu) {
      socket_.reset();  // and knock again
      return;
    }
    if (io.replace_uplink(std::move(place->uplink))) {
      rejoining_ = false;
      knock_.reset();
      set_link(place->reply.link_up != 0);
      io.remove_all_direct();  // the new weftd knows nothing of them, and gives new ones
      for (const std::uint64_t service : claimed_) {
        ServiceRequest request;
        request.service = service;
        (void)send_struct(socket_.get(), request);  // hear() learns if another process was faster
      }
      for (const srd::Address& group : groups_) {
        (void)send_struct(socket_.get(), request_of(group, AttachMessage::group));
      }
    }
  }

  void set_link(bool up) {
    if (std::exchange(link_up_, up) != up && options_.on_link) {
      options_.on_link(up);
    }
  }

  AttachOptions options_;
  AttachReply place_;
  srd::UniqueFd socket_;
  srd::UniqueFd knock_;  // a timer, while weftd is gone
  bool rejoining_ = false;
  bool link_up_;
  std::vector<std::uint64_t> claimed_;
  std::vector<srd::Address> groups_;
  std::vector<srd::Address> known_;  // NICs of the network
  std::vector<Received> early_;      // heard while a question waited
};

}  // namespace

Result<Attachment> attach(AttachOptions options) {
  if (auto completed = complete(options); !completed) {
    return tl::unexpected(completed.error());
  }
  auto socket = connect_seqpacket(options.socket);
  if (!socket) {
    return tl::unexpected(socket.error());
  }
  // weftd may refuse before it reads the request. Sending may then fail, but its reason can still
  // be read.
  (void)send_struct(socket->get(), request_for(options));
  Received received = await_message(socket->get(), kHandshakeMilliseconds);
  auto place = accept_reply(received);
  if (!place) {
    return tl::unexpected(place.error());
  }
  const AttachReply& reply = place->reply;
  const srd::Address address = to_address(reply.address);
  auto io = options.protocol->open_rings(
      {.own = address, .mtu = reply.mtu, .network = network_of(reply)}, std::move(place->uplink));
  if (!io) {
    return tl::unexpected(io.error());
  }
  if (reply.link_up == 0 && options.on_link) {
    options.on_link(false);
  }
  auto keeper = std::make_unique<Keeper>(std::move(options), reply, std::move(*socket));
  if (auto watched = (*io)->watch(keeper->control_fd()); !watched) {
    return tl::unexpected(watched.error());
  }
  Services* const services = keeper.get();
  (*io)->set_keeper(std::move(keeper));
  return Attachment{.address = address,
                    .id = srd::AttachmentId{static_cast<std::uint16_t>(reply.attachment)},
                    .life = srd::Life{reply.life},
                    .first_qpn = reply.first_qpn,
                    .qpn_count = reply.qpn_count,
                    .mtu = reply.mtu,
                    .io = std::move(*io),
                    .services = services};
}

Result<std::vector<srd::Address>> describe_host(AttachOptions options) {
  if (auto completed = complete(options); !completed) {
    return tl::unexpected(completed.error());
  }
  auto socket = connect_seqpacket(options.socket);
  if (!socket) {
    return tl::unexpected(socket.error());
  }
  DescribeRequest request;
  std::memcpy(request.host.data(), options.host.c_str(), options.host.size());
  (void)send_struct(socket->get(), request);
  const Received received = await_message(socket->get(), kHandshakeMilliseconds);
  const auto reply = received.as<HostReply>();
  if (!is_well_formed(reply, AttachMessage::host) || reply->nics > kMaxNicsPerHost) {
    return tl::unexpected(refusal(received));
  }
  std::vector<srd::Address> addresses;
  for (std::uint32_t i = 0; i < reply->nics; ++i) {
    addresses.push_back(to_address(reply->addresses[i]));
  }
  return addresses;
}

Result<srd::UniqueFd> give_tap(AttachOptions options, int tap) {
  if (auto completed = complete(options); !completed) {
    return tl::unexpected(completed.error());
  }
  auto socket = connect_seqpacket(options.socket);
  if (!socket) {
    return socket;
  }
  TapRequest request;
  std::memcpy(request.host.data(), options.host.c_str(), options.host.size());
  (void)send_struct(socket->get(), request, {tap});
  const Received received = await_message(socket->get(), kHandshakeMilliseconds);
  if (!is_well_formed(received.as<HostReply>(), AttachMessage::host)) {
    return tl::unexpected(refusal(received));
  }
  return socket;
}

}  // namespace weft::attach
