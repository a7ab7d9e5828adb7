// Owns the soft-RoCE kind of devices: its name, its files, and how one comes up in a process.
#pragma once

#include "emu/devices/personality.hpp"
#include "emu/devices/rxe/abi.hpp"
#include "emu/devices/rxe/counters.hpp"

namespace weft::devices::rxe {

class RxePersonality final : public Personality {
 public:
  [[nodiscard]] std::string_view kind() const override { return "rxe"; }
  // Where there is no netlink, libraries know such devices by the beginning of their names.
  [[nodiscard]] std::string device_name(std::size_t index) const override;
  // The one in its table that programs take which look for an IPv4 address.
  [[nodiscard]] srd::Address gid(const srd::Address& address) const override { return address; }

  [[nodiscard]] std::vector<srd::Address> addresses(const srd::Address& address) const override;
  [[nodiscard]] const srd::NetworkProtocol& protocol() const override;

  [[nodiscard]] std::string_view default_profile() const override { return "soft"; }
  [[nodiscard]] std::vector<std::string> profile_fields() const override;
  [[nodiscard]] Result<void> read(std::string_view abilities) const override;
  [[nodiscard]] Result<void> validate(std::string_view abilities) const override;
  [[nodiscard]] std::size_t largest_send(std::string_view abilities) const override;

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> environment() const override {
    return {};
  }
  void write_device(kernel::TreeWriter& tree, const kernel::NicDescription& nic) const override;
  [[nodiscard]] std::string device_folder(const kernel::NicDescription& nic) const override;
  [[nodiscard]] std::span<const char* const> path_prefixes() const override;
  [[nodiscard]] bool manages_connections() const override { return true; }
  [[nodiscard]] std::uint32_t driver_id() const override { return kDriverId; }
  [[nodiscard]] std::uint8_t node_type() const override { return 1; }  // a channel adapter
  [[nodiscard]] const kernel::CounterSet& counters() const override { return kCounters; }

  [[nodiscard]] Result<std::unique_ptr<NicRunner>> start(
      const kernel::NicDescription& nic, Network network,
      kernel::Statistics* statistics) const override;
};

inline constexpr RxePersonality kPersonality;

}  // namespace weft::devices::rxe
