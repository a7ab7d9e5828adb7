// Owns two NICs joined by a perfect wire, in virtual time.
//
// The NIC is what stands between verbs (queue pairs, address handles, keys) and the SRD engine.
// Both sides run in this thread; packets are carried from one engine to the other as they are.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "emu/nic/nic.hpp"
#include "srd/base/lent_memory.hpp"

namespace weft::nic {

inline srd::Address address_number(std::uint8_t number) {
  srd::Address address;
  address.bytes[15] = std::byte{number};
  return address;
}

// One side: a NIC with a protection domain, a registered buffer, and queue pairs.
struct Side {
  Side(std::uint8_t number, const NicConfig& base)
      : address(address_number(number)),
        attachment(number),
        domains(16, number),
        engine(engine_config(number), nullptr, &domains.table()),
        nic(config(base, number), domains, engine),
        pd(*nic.allocate_pd()),
        memory(64 * 1024),
        key(*nic.register_memory(srd::Region{.data = memory.data(),
                                             .address = kIova,
                                             .length = memory.size(),
                                             .access = srd::Access::local_write |
                                                       srd::Access::remote_read |
                                                       srd::Access::remote_write,
                                             .domain = pd})) {}

  static srd::EngineConfig engine_config(std::uint8_t number) {
    srd::EngineConfig config;
    config.attachment = srd::AttachmentId{number};
    // Much shorter than the usual one, so that a test can wait for it.
    config.peer_timeout = std::chrono::milliseconds{50};
    return config;
  }
  NicConfig config(NicConfig base, std::uint8_t number) const {
    base.address = address;
    base.qpn_count = 256;
    // Numbers of the two sides differ, so that a mix-up cannot go unnoticed.
    base.first_qpn = 256U * number;
    return base;
  }

  // Ready to send and to receive; the queue pair belongs to the NIC.
  DatagramQp& ready_qp(QpType type = QpType::srd, std::uint32_t qkey = 7) {
    DatagramQp& qp = **nic.create_qp({.type = type, .pd = pd, .receive_depth = 16});
    to_rts(qp, qkey);
    return qp;
  }
  void to_rts(DatagramQp& qp, std::uint32_t qkey = 7) {
    const auto step = [&](QpState to, std::uint32_t mask, QpAttributes attributes) {
      attributes.state = static_cast<std::uint8_t>(to);
      ASSERT_TRUE(nic.modify_qp(qp, kMaskState | mask, attributes));
    };
    step(QpState::init, kMaskPkeyIndex | kMaskPort | kMaskQkey, {.port = 1, .qkey = qkey});
    step(QpState::rtr, 0, {});
    step(QpState::rts, kMaskSqPsn, {.sq_psn = 1});
  }
  [[nodiscard]] Sge sge(std::uint64_t offset, std::uint32_t length) const {
    return {kIova + offset, length, key.value()};
  }
  bool receive(DatagramQp& qp, std::uint64_t wr_id, std::uint64_t offset = 0,
               std::uint32_t length = 4096) {
    return nic.post_receive(qp, {.wr_id = wr_id, .sges = {sge(offset, length)}, .sge_count = 1});
  }
  [[nodiscard]] std::string text(std::uint64_t offset, std::size_t length) const {
    return {reinterpret_cast<const char*>(memory.data()) + offset, length};
  }
  void fill(std::uint64_t offset, const std::string& text) {
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(),
                memory.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  // All that have come; a burst that is not full was the last.
  std::vector<WorkCompletion> poll() {
    std::array<WorkCompletion, 16> burst;
    std::vector<WorkCompletion> all;
    for (std::size_t count = burst.size(); count == burst.size();) {
      count = nic.poll(burst);
      all.insert(all.end(), burst.begin(), burst.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return all;
  }

  // The address by which requests name the first byte of `memory`; other than where it lies.
  static constexpr std::uint64_t kIova = 0x5000;
  srd::Address address;
  std::uint8_t attachment;
  Domains domains;
  srd::Engine engine;
  Nic nic;
  std::uint32_t pd;
  std::vector<std::byte> memory;
  srd::RegionKey key;
};

// Time passes only in run(); until then what is posted stays where it is. Work goes from the left
// side to the right one.
class TwoNics : public ::testing::Test {
 protected:
  explicit TwoNics(const NicConfig& config = {}) : left(1, config), right(2, config) {}

  // Lets `time` pass, a microsecond at a time.
  void run(Duration time = std::chrono::milliseconds{2}) {
    for (const TimePoint end = now_ + time; now_ < end; now_ += std::chrono::microseconds{1}) {
      carry(left);
      carry(right);
    }
  }
  // The text is kept until the next call: one such request is to be posted before the next is made.
  [[nodiscard]] SendWork send(const DatagramQp& to, const std::string& inline_text,
                              std::uint64_t wr_id) {
    kept_ = inline_text;
    SendWork work;
    work.wr_id = wr_id;
    work.ah = ah;
    work.destination = to.number();
    work.qkey = 7;
    work.inline_data = std::as_bytes(std::span(kept_));
    return work;
  }
  // From the left side to a queue pair and the memory of the right one.
  [[nodiscard]] SendWork work(Operation operation, const DatagramQp& to, std::uint64_t wr_id,
                              const Sge& local) const {
    SendWork made;
    made.wr_id = wr_id;
    made.operation = operation;
    made.ah = ah;
    made.destination = to.number();
    made.qkey = 7;
    made.sges[0] = local;
    made.sge_count = 1;
    made.remote_address = Side::kIova;
    made.remote_key = right.key.value();
    return made;
  }
  // The one completion that there has to be.
  WorkCompletion only(std::vector<WorkCompletion> completions) {
    EXPECT_EQ(completions.size(), 1U);
    return completions.empty() ? WorkCompletion{} : completions.front();
  }

  Side left;
  Side right;
  std::uint16_t ah = *left.nic.create_ah(left.pd, right.address);
  bool cut = false;  // nothing arrives any more

 private:
  void carry(Side& from) {
    if (from.engine.next_timeout() <= now_) {
      from.engine.on_timeout(now_);
    }
    srd::TxPacket packet;
    while (from.engine.next_transmit(now_, packet)) {
      std::vector<std::byte> bytes(packet.header.begin(),
                                   packet.header.begin() + packet.header_size);
      bool readable = true;
      for (const auto& piece : packet.payload) {
        bytes.resize(bytes.size() + piece.size());
        readable =
            readable && (piece.empty() || copy_from_lent(bytes.data() + bytes.size() - piece.size(),
                                                         piece.data(), piece.size()));
      }
      if (!readable) {
        continue;  // as carriers do
      }
      for (Side* const to : {&left, &right}) {
        if (to->address == packet.to && !cut) {
          to->engine.on_packet(now_, srd::RxPacket{.from = from.address,
                                                   .path = packet.path,
                                                   .ecn = packet.ecn,
                                                   .trimmed = false,
                                                   .bytes = bytes,
                                                   .more = {}});
        }
      }
    }
  }
  TimePoint now_ = time_at(std::chrono::seconds{1});
  std::string kept_;
};

}  // namespace weft::nic
