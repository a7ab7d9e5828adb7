// Owns the seam between everything that is the same for all kinds of emulated devices and one kind:
// what it is called, what its files say, and how it comes up in a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emu/devices/nic_runner.hpp"
#include "emu/kernel/nic_description.hpp"
#include "emu/kernel/statistics.hpp"
#include "emu/kernel/sysfs/tree_writer.hpp"
#include "srd/base/result.hpp"
#include "srd/engine/types.hpp"
#include "srd/io/network_protocol.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::devices {

// What a process is given on the emulated network.
struct Network {
  srd::Address address;
  srd::AttachmentId attachment;
  srd::Life life;
  // The queue pair numbers that this process has on the NIC.
  std::uint32_t first_qpn = 0;
  std::uint32_t qpn_count = 0;
  std::unique_ptr<srd::PacketIo> io;
  // Makes packets to that multicast group come to this process, or not any more. False: it is in
  // too many. Called with the NIC to itself. May be empty: there is nobody else.
  std::function<bool(const srd::Address& group, bool wanted)> on_group{};
};

// A kind of device has one of these, which lives as long as the program. To add a kind: a folder
// beside efa/ with a library weft_device_<kind>, a class that derives from this, a line in
// registry.cpp. Its profiles are the files profiles/*.yaml in that folder.
class Personality {
 public:
  // As in `weft run --device KIND`.
  [[nodiscard]] virtual std::string_view kind() const = 0;
  // Of the NIC of that index on a host, as in /sys/class/infiniband.
  [[nodiscard]] virtual std::string device_name(std::size_t index) const = 0;
  // The GID by which programs reach a NIC with that address.
  [[nodiscard]] virtual srd::Address gid(const srd::Address& address) const = 0;

  // All addresses by which others reach that NIC, itself among them. An IPv6 address that is not of
  // the link only comes last.
  [[nodiscard]] virtual std::vector<srd::Address> addresses(const srd::Address& address) const {
    return {address};
  }

  // The protocol that it speaks on the network: kNetworkProtocol of a frame codec.
  [[nodiscard]] virtual const srd::NetworkProtocol& protocol() const = 0;

  // --- Profiles. What a profile says becomes NicDescription::abilities.
  [[nodiscard]] virtual std::string_view default_profile() const = 0;
  // The names of all fields; a profile says every one of them.
  [[nodiscard]] virtual std::vector<std::string> profile_fields() const = 0;
  // Whether the text can be read: one "field value" per line, not necessarily all of them.
  [[nodiscard]] virtual Result<void> read(std::string_view abilities) const = 0;
  // Whether a device can be so; the message names the field, what it says, and what is allowed.
  [[nodiscard]] virtual Result<void> validate(std::string_view abilities) const = 0;
  // The largest send, which the network must carry in one packet.
  [[nodiscard]] virtual std::size_t largest_send(std::string_view abilities) const = 0;

  // --- Around a program.
  // What programs need in their environment to use such devices. A variable that the user has set
  // already should be left alone.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> environment() const = 0;
  // Writes what is of this kind below device_folder(nic): the device's own files, and
  // infiniband/<name>, its verbs device.
  virtual void write_device(kernel::TreeWriter& tree, const kernel::NicDescription& nic) const = 0;
  // Where that device's own folder is, below the root of the tree.
  [[nodiscard]] virtual std::string device_folder(const kernel::NicDescription& nic) const = 0;
  // How the paths of such folders, and of what leads to them, begin, from the root on: each ends
  // where a path may end or go on. No device of the machine has a name that begins like these; its
  // steps that occur in no other paths begin with kind().
  [[nodiscard]] virtual std::span<const char* const> path_prefixes() const = 0;
  // Whether such devices have a queue pair 1, over which connections are managed.
  [[nodiscard]] virtual bool manages_connections() const { return false; }
  // The number of the kernel's driver, by which libraries find theirs.
  [[nodiscard]] virtual std::uint32_t driver_id() const = 0;
  // As the kernel numbers what a device is: 1, a channel adapter; 7, nothing that has a name.
  [[nodiscard]] virtual std::uint8_t node_type() const = 0;

  // What its devices count beside commands and objects, and under which names.
  [[nodiscard]] virtual const kernel::CounterSet& counters() const = 0;

  // --- In a process.
  // Brings the NIC up. Counts into `statistics`, if not null.
  [[nodiscard]] virtual Result<std::unique_ptr<NicRunner>> start(
      const kernel::NicDescription& nic, Network network, kernel::Statistics* statistics) const = 0;

 protected:
  ~Personality() = default;
};

}  // namespace weft::devices
