// Owns the seam between the queue pair 1 of a NIC and what reads and writes its messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/base/time.hpp"
#include "srd/net/address.hpp"

namespace weft::kernel {

inline constexpr std::size_t kManagementBytes = 256;  // of a message

// A message that is to leave the NIC.
struct ManagementMessage {
  srd::Address from;  // one of the NIC's
  srd::Address to;
  std::uint32_t to_qpn = 1;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::array<std::byte, kManagementBytes> bytes{};
};

// One that has come.
struct ManagementArrival {
  srd::Address from;
  srd::Address to;  // the address of the NIC that it was for
  std::uint32_t from_qpn = 1;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::span<const std::byte> message;
};

// Called with the device locked, in its rounds of progress.
class ManagementAgent {
 public:
  virtual void on_message(TimePoint now, const ManagementArrival& arrival) = 0;
  virtual void on_timeout(TimePoint now) = 0;
  // Fills `out` and returns true, or returns false when there is nothing to send now.
  [[nodiscard]] virtual bool next_message(ManagementMessage& out) = 0;
  // When it must be called again. Lies in the past while there is something to send. Costs a load.
  [[nodiscard]] virtual TimePoint next_timeout() const = 0;

 protected:
  ~ManagementAgent() = default;
};

class ManagementPort {
 public:
  struct Facts {
    std::uint64_t guid = 0;                   // of the NIC, as a number
    std::uint8_t attachment = 0;              // of this process: communication ids begin with it
    std::uint8_t path_mtu = 0;                // 1: 256 ... 5: 4096
    std::uint8_t ack_delay = 0;               // local CA ack delay
    std::span<const srd::Address> addresses;  // by index of the GID
  };
  [[nodiscard]] virtual Facts facts() const = 0;
  // With the device locked. Null: no agent; what arrives then is dropped. It must outlive the
  // device, or be taken away. The first one has the messages of connection management, the other
  // one those of all other classes.
  virtual void set_agent(ManagementAgent* agent) = 0;
  virtual void set_other_agent(ManagementAgent* agent) = 0;

 protected:
  ~ManagementPort() = default;
};

}  // namespace weft::kernel
