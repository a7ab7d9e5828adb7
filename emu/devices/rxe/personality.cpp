// Owns what sets soft-RoCE apart from other kinds of devices.
#include "emu/devices/rxe/personality.hpp"

#include "emu/devices/rxe/abilities.hpp"
#include "emu/devices/rxe/device.hpp"
#include "emu/kernel/interfaces.hpp"
#include "emu/roce/wire/addresses.hpp"
#include "emu/roce/wire/roce_codec.hpp"
#include "srd/base/rng.hpp"

namespace weft::devices::rxe {
std::string RxePersonality::device_name(std::size_t index) const {
  return "rxe_" + std::to_string(index);
}

std::vector<srd::Address> RxePersonality::addresses(const srd::Address& address) const {
  return roce::wire::addresses_of(address);
}

const srd::NetworkProtocol& RxePersonality::protocol() const {
  return srd::kNetworkProtocol<roce::wire::RoceCodec>;
}

std::vector<std::string> RxePersonality::profile_fields() const { return field_names(); }

Result<void> RxePersonality::read(std::string_view abilities) const {
  return abilities_from_text(abilities).map([](const Abilities&) {});
}

Result<void> RxePersonality::validate(std::string_view abilities) const {
  return abilities_from_text(abilities).and_then(
      [](const Abilities& read) { return rxe::validate(read); });
}

std::size_t RxePersonality::largest_send(std::string_view abilities) const {
  const auto read = abilities_from_text(abilities);
  return read ? read->mtu : 0;
}

Result<std::unique_ptr<NicRunner>> RxePersonality::start(const kernel::NicDescription& nic,
                                                         Network network,
                                                         kernel::Statistics* statistics) const {
  const auto abilities = abilities_from_text(nic.abilities);
  if (!abilities) {
    return tl::unexpected(abilities.error());
  }
  // The first low byte of each key is drawn with it, so that keys of the process's former life
  // rarely fit.
  const std::uint64_t salt =
      mix64(std::uint64_t{network.life.value()} << 16 | network.attachment.value());
  const roce::EngineConfig config =
      engine_config(*abilities, network.address, QpnBlock{network.first_qpn, network.qpn_count},
                    network.io->capabilities(), salt);
  auto device = std::make_unique<RxeDevice>(*abilities, config, statistics);
  device->set_late_receives(late_receives_of_environment());
  device->set_on_group(std::move(network.on_group));
  device->set_interface(kernel::interface_index(nic.index));
  return DeviceRunner<RxeDevice>::create(std::move(device), std::move(network.io));
}

}  // namespace weft::devices::rxe
