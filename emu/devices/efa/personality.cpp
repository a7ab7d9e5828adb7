// Owns what sets EFA apart from other kinds of devices. The environment holds what libfabric's efa
// provider needs to be told on a machine without EFA hardware.
#include "emu/devices/efa/personality.hpp"

#include "emu/devices/efa/abilities.hpp"
#include "emu/devices/efa/device.hpp"
#include "emu/devices/efa/gid.hpp"
#include "srd/engine/process_config.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::devices::efa {

std::string EfaPersonality::device_name(std::size_t index) const {
  return "efa_" + std::to_string(index);
}

srd::Address EfaPersonality::gid(const srd::Address& address) const { return gid_of(address); }

const srd::NetworkProtocol& EfaPersonality::protocol() const {
  return srd::kNetworkProtocol<srd::wire::SrdCodec>;
}

std::vector<std::string> EfaPersonality::profile_fields() const { return field_names(); }

Result<void> EfaPersonality::read(std::string_view abilities) const {
  return abilities_from_text(abilities).map([](const Abilities&) {});
}

Result<void> EfaPersonality::validate(std::string_view abilities) const {
  return abilities_from_text(abilities).and_then(
      [](const Abilities& read) { return efa::validate(read); });
}

std::size_t EfaPersonality::largest_send(std::string_view abilities) const {
  const auto read = abilities_from_text(abilities);
  return read ? read->mtu : 0;
}

std::vector<std::pair<std::string, std::string>> EfaPersonality::environment() const {
  return {
      // Programs on one machine are to meet on the emulated network, not in shared memory beside
      // it.
      {"FI_EFA_ENABLE_SHM_TRANSFER", "0"},
      // Newer libfabric bypasses the verbs library, and with it the hooks that make progress cheap.
      {"FI_EFA_USE_DATA_PATH_DIRECT", "0"},
      // The provider posts all the receives there are, and uses their buffers in turn: 75 MB per
      // endpoint that no cache holds.
      {"FI_EFA_RX_SIZE", "1024"},
      // Its emulation of long messages copies each byte once more than a read does, which costs a
      // processor here and not there.
      {"FI_EFA_INTER_MIN_READ_MESSAGE_SIZE", "65536"},
  };
}

Result<std::unique_ptr<NicRunner>> EfaPersonality::start(const kernel::NicDescription& nic,
                                                         Network network,
                                                         kernel::Statistics* statistics) const {
  const auto abilities = abilities_from_text(nic.abilities);
  if (!abilities) {
    return tl::unexpected(abilities.error());
  }
  const srd::EngineConfig config = engine_config(
      *abilities,
      srd::process_config(network.io->capabilities(), network.attachment, network.life));
  if (const auto valid = srd::validate(config, network.io->capabilities()); !valid) {
    return tl::unexpected(valid.error());
  }
  auto device = std::make_unique<EfaDevice>(*abilities, network.address,
                                            QpnBlock{network.first_qpn, network.qpn_count}, config,
                                            statistics);
  device->set_late_receives(late_receives_of_environment());
  return DeviceRunner<EfaDevice>::create(std::move(device), std::move(network.io));
}

}  // namespace weft::devices::efa
