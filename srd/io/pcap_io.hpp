// Owns the recording of a carrier: each packet in and out, in a capture file.
//
// PcapIo is the decorator; FaultIo, which sits elsewhere in the chain, adds what it drops to the
// same PacketCapture. The file is written with plain system calls, at the latest before the caller
// sleeps: for diagnosis, not for speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "srd/base/result.hpp"
#include "srd/io/pcapng.hpp"
#include "srd/net/frame_codec.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

// What a capture needs of a protocol's codec. Function pointers are fast enough here: a capture
// writes to a file.
struct CaptureFormat {
  net::UdpPorts ports;
  std::uint8_t (*dscp_of)(std::span<const std::byte> packet, bool trimmed);

  template <net::FrameCodec Codec>
  [[nodiscard]] static CaptureFormat of() {
    return {Codec::kPorts, Codec::dscp_of};
  }
};

// Writes packets as the frames they are on the wire, without trailers. Where the carrier shows no
// envelope of a received packet, one is made up from its addresses, path and mark. Shared by all
// decorators of one carrier, on one thread.
class PacketCapture {
 public:
  [[nodiscard]] static Result<std::shared_ptr<PacketCapture>> create(const std::string& path,
                                                                     const Address& own,
                                                                     const CaptureFormat& format);
  PacketCapture(PcapngWriter file, const net::EnvelopeWriter& envelope, const Address& own,
                const CaptureFormat& format)
      : file_(std::move(file)), envelope_(envelope), own_(own), format_(format) {}

  // The comment is shown beside the packet: why it was dropped, for instance.
  void sent(const TxPacket& packet, std::string_view comment = {});
  void received(const RxPacket& packet);
  void flush() { file_.flush(); }
  [[nodiscard]] std::uint64_t packets() const { return file_.packets(); }

 private:
  void write_inbound(const std::array<std::span<const std::byte>, 3>& pieces);

  PcapngWriter file_;
  net::EnvelopeWriter envelope_;
  Address own_;
  CaptureFormat format_;
};

// Records what the carrier below has taken, and what it hands up; changes nothing.
class PcapIo final : public PacketIo {
 public:
  PcapIo(std::unique_ptr<PacketIo> below, std::shared_ptr<PacketCapture> capture)
      : below_(std::move(below)), capture_(std::move(capture)) {}

  [[nodiscard]] IoCapabilities capabilities() const override { return below_->capabilities(); }
  [[nodiscard]] IoCounters counters() const override { return below_->counters(); }
  [[nodiscard]] std::span<const RxPacket> receive() override;
  void release() override { below_->release(); }
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override;
  [[nodiscard]] std::size_t transmit_room() override { return below_->transmit_room(); }
  [[nodiscard]] int wait_fd() const override { return below_->wait_fd(); }
  [[nodiscard]] bool arm() override;
  void disarm() override { below_->disarm(); }

 private:
  std::unique_ptr<PacketIo> below_;
  std::shared_ptr<PacketCapture> capture_;
};

}  // namespace weft::srd
