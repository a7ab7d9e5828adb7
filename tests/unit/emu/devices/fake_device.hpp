// Owns the smallest kind of device: all that a new one must bring, with one verb. Of packets it
// only counts those that come.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emu/devices/personality.hpp"
#include "srd/net/machine.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::devices::fake {

namespace abi = kernel::abi;

inline constexpr std::uint32_t kDriverId = 99;

// Two GIDs and one verb: protection domains. Everything else is refused by what kernel::Device says
// by default, and nothing is ever sent.
class FakeDevice final : public kernel::Device, public srd::Machine {
 public:
  explicit FakeDevice(const Network& network) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      gids_.push_back({network.address.bytes, i, 1, /*type=*/i, /*interface=*/7});
    }
  }

  // --- Device
  [[nodiscard]] std::uint32_t driver_id() const override { return kDriverId; }
  [[nodiscard]] kernel::Statistics& statistics() override { return statistics_; }
  [[nodiscard]] std::uint32_t completion_vectors() const override { return 1; }
  void query_device(abi::QueryDevice& to) const override { to.max_pd = 1; }
  [[nodiscard]] nic::Outcome<void> query_port(std::uint8_t port,
                                              abi::QueryPort& to) const override {
    if (port != 1) {
      return nic::refuse(EINVAL);
    }
    to.gid_tbl_len = static_cast<std::uint32_t>(gids_.size());
    to.state = abi::port_state(port_up());
    return {};
  }
  [[nodiscard]] std::span<const abi::GidEntry> gids() const override { return gids_; }
  [[nodiscard]] std::uint64_t port_speed() const override { return 10; }
  [[nodiscard]] nic::Outcome<std::unique_ptr<kernel::Pd>> alloc_pd(
      kernel::Udata& /*udata*/) override {
    return std::make_unique<kernel::Pd>();
  }

  // --- Machine
  void on_packet(TimePoint /*now*/, const srd::RxPacket& /*packet*/) override { ++packets_; }
  void on_timeout(TimePoint /*now*/) override {}
  [[nodiscard]] bool next_transmit(TimePoint /*now*/, srd::TxPacket& /*out*/) override {
    return false;
  }
  [[nodiscard]] TimePoint next_timeout() const override { return kNever; }
  void take_leave(TimePoint /*now*/, srd::Leave /*how*/) {}
  void stop_waiting() {}
  [[nodiscard]] bool is_awaited() const { return false; }

  [[nodiscard]] std::size_t packets() const { return packets_; }

 private:
  std::size_t packets_ = 0;
  std::vector<abi::GidEntry> gids_;
  kernel::Statistics statistics_;
};

class FakeCounters final : public kernel::CounterSet {
 public:
  void visit(Place place, const kernel::Statistics& /*statistics*/,
             const Visit& visit) const override {
    if (place == Place::port) {
      visit("wing_beats", 0);
    }
  }
  [[nodiscard]] kernel::Traffic traffic(const kernel::Statistics& /*statistics*/) const override {
    return {};
  }
};

// Its abilities are one line, "wings 2", or none.
class FakePersonality final : public Personality {
 public:
  [[nodiscard]] std::string_view kind() const override { return "fake"; }
  [[nodiscard]] std::string device_name(std::size_t index) const override {
    return "fake_" + std::to_string(index);
  }
  [[nodiscard]] srd::Address gid(const srd::Address& address) const override { return address; }
  [[nodiscard]] const srd::NetworkProtocol& protocol() const override {
    return srd::kNetworkProtocol<srd::wire::SrdCodec>;
  }
  [[nodiscard]] std::string_view default_profile() const override { return "only"; }
  [[nodiscard]] std::vector<std::string> profile_fields() const override { return {"wings"}; }
  [[nodiscard]] Result<void> read(std::string_view abilities) const override {
    if (abilities.empty() || abilities == "wings 2\n") {
      return {};
    }
    return fail(ErrorCode::parse_error, "field wings is not 2");
  }
  [[nodiscard]] Result<void> validate(std::string_view abilities) const override {
    return read(abilities);
  }
  [[nodiscard]] std::size_t largest_send(std::string_view /*abilities*/) const override {
    return 1024;
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> environment() const override {
    return {};
  }
  void write_device(kernel::TreeWriter& tree, const kernel::NicDescription& nic) const override {
    tree.file(device_folder(nic) + "/infiniband/" + nic.name + "/ports/1/state", "4: ACTIVE");
  }
  [[nodiscard]] std::string device_folder(const kernel::NicDescription& nic) const override {
    return "sys/devices/fake" + std::to_string(nic.index);
  }
  [[nodiscard]] std::span<const char* const> path_prefixes() const override { return {}; }
  [[nodiscard]] std::uint32_t driver_id() const override { return kDriverId; }
  [[nodiscard]] std::uint8_t node_type() const override { return 7; }
  [[nodiscard]] const kernel::CounterSet& counters() const override { return counters_; }
  [[nodiscard]] Result<std::unique_ptr<NicRunner>> start(
      const kernel::NicDescription& /*nic*/, Network network,
      kernel::Statistics* /*statistics*/) const override {
    auto device = std::make_unique<FakeDevice>(network);
    return DeviceRunner<FakeDevice>::create(std::move(device), std::move(network.io));
  }

 private:
  FakeCounters counters_;
};

}  // namespace weft::devices::fake
