// Owns processes on a weftd of a test's own, and the packets between them.
//
// weftd runs in a child; its processes are attachments of this one, which is enough for weftd, as
// it knows processes by their connections.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "srd/wire/srd_header.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/emu/daemon/weftd.hpp"

namespace weft::daemon {

// A weftd for two hosts of two NICs each, whose folder is gone after the test. A test calls start()
// first; between its own attachments it sends single packets that carry a number. With
// `direct_rings` two processes that talk get a ring between them, past weftd.
class DaemonTest : public ::testing::Test {
 protected:
  void TearDown() override { weftd_.reset(); }
  void start(bool direct_rings) {
    DaemonOptions options;
    options.directory = directory_;
    options.plant.hosts = {"h1", "h2"};
    options.plant.nics_per_host = 2;
    options.direct_rings = direct_rings;
    weftd_ = std::make_unique<Weftd>(options);
  }
  // The attachment outlives a weftd that is killed: with direct rings packets still pass then.
  [[nodiscard]] Result<attach::Attachment> join(const std::string& host,
                                                std::uint32_t nic = 0) const {
    attach::AttachOptions options;
    options.socket = directory_ + "/attach.sock";  // which may be gone
    options.host = host;
    options.nic = nic;
    return attach::attach(std::move(options));
  }
  json ask_line(const std::string& line) const { return weftd_->ask_line(line); }
  json ask(const json& request) const { return weftd_->ask(request); }
  json status() const { return weftd_->status(); }

  // `size` in bytes, from that of a common header to about 5000. The number travels in a header
  // field that weftd does not look at. The payload is static, so the packet may be sent at any
  // time.
  static srd::TxPacket packet(const attach::Attachment& from, const attach::Attachment& to,
                              std::uint32_t number, std::size_t size = 64) {
    static const std::vector<std::byte> payload(5000, std::byte{0x5A});
    srd::TxPacket packet;
    srd::wire::CommonHeader header{};
    header.version = srd::wire::kVersion;
    header.type = 1;
    header.destination_attachment = to.id.value();
    header.source_attachment = from.id.value();
    header.source_life = from.life.value();
    header.destination_life = number;
    packet.to = to.address;
    packet.header_size = sizeof header;
    srd::wire::store(packet.header.data(), header);
    packet.payload[0] = {payload.data(), size - sizeof header};
    return packet;
  }
  static std::uint32_t number_of(const srd::RxPacket& packet) {
    srd::wire::CommonHeader header{};
    EXPECT_TRUE(srd::wire::load(packet.bytes, header));
    return header.destination_life.value();
  }
  // Sends one packet and waits for it at the other end.
  static ::testing::AssertionResult passes(attach::Attachment& from, attach::Attachment& to,
                                           std::uint32_t number) {
    const srd::TxPacket sent = packet(from, to, number);
    if (from.io->transmit({&sent, 1}) != 1) {
      return ::testing::AssertionFailure() << "not taken";
    }
    return arrives(to, number);
  }
  // Throws away what comes before it. Waits for 5 s.
  static ::testing::AssertionResult arrives(attach::Attachment& to, std::uint32_t number) {
    const auto patience = srd::monotonic_now() + std::chrono::seconds{5};
    while (srd::monotonic_now() < patience) {
      for (const srd::RxPacket& received : to.io->receive()) {
        if (number_of(received) == number) {
          to.io->release();
          return ::testing::AssertionSuccess();
        }
      }
      to.io->release();
      std::this_thread::yield();
    }
    return ::testing::AssertionFailure() << "packet " << number << " did not arrive";
  }
  // For what an attachment does only when it polls, such as taking up a ring that weftd has handed
  // over.
  static void poll_once(attach::Attachment& attachment) {
    [[maybe_unused]] const auto packets = attachment.io->receive();
    attachment.io->release();
  }

  testing::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
  std::unique_ptr<Weftd> weftd_;
};

}  // namespace weft::daemon
