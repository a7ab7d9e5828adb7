// Owns a process that has attached properly and then keeps to none of weftd's rules.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "emu/attach/protocol.hpp"
#include "srd/io/ring_ports.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"

namespace weft::daemon {

// Speaks the attach protocol by hand and gets what every process gets: the memory of two rings and
// a bell. A test then writes there what it likes, which the classes that processes use would not
// do.
struct Intruder {
  explicit Intruder(const Weftd& weftd) {
    auto connected = attach::connect_seqpacket(weftd.attach_socket());
    EXPECT_TRUE(connected && attach::send_struct(connected->get(), attach::AttachRequest{}));
    attach::Received received = attach::await_message(connected->get(), 5000);
    const auto reply = received.as<attach::AttachReply>();
    EXPECT_TRUE(reply && received.fds.size() == 2);
    socket = std::move(*connected);
    memory = *srd::Mapping::map(received.fds[0].get(), srd::ring_pair_bytes(reply->ring_bytes));
    bell = std::move(received.fds[1]);
    place.address.bytes = reply->address;
    place.id = srd::AttachmentId{static_cast<std::uint16_t>(reply->attachment)};
    place.life = srd::Life{reply->life};
  }
  void ring() const {
    const std::byte message[1]{};
    (void)::send(bell.get(), message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  // Set while the reader of weftd's ring to this process, the first of the two, sleeps: then weftd
  // rings, and clears it.
  [[nodiscard]] std::atomic_ref<std::uint32_t> asleep() const {
    return std::atomic_ref(
        *reinterpret_cast<std::uint32_t*>(memory.data() + offsetof(srd::RingHeader, asleep)));
  }

  // The ring that weftd reads from, the second one: its header, with the records behind.
  [[nodiscard]] std::byte* outgoing() { return memory.data() + memory.size() / 2; }
  [[nodiscard]] std::size_t capacity() const { return memory.size() / 2 - srd::kRingHeaderBytes; }

  attach::Attachment place;
  srd::UniqueFd socket;
  srd::Mapping memory;
  srd::UniqueFd bell;
};

}  // namespace weft::daemon
