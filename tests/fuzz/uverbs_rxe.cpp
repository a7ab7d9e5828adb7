// Owns fuzzing the kernel's face with a soft-RoCE device behind it: its rings are the application's
// to write, and what it sends comes back to it.
#include <cstdint>
#include <vector>

#include "emu/devices/rxe/device.hpp"
#include "emu/roce/wire/icrc.hpp"
#include "srd/net/address_text.hpp"
#include "tests/fuzz/uverbs_client.hpp"

namespace {

using namespace weft;
using namespace weft::kernel;
namespace rxe = weft::devices::rxe;

class RxeLoop final : public Loop<rxe::RxeDevice> {
 public:
  RxeLoop() : Loop(rxe::Abilities{}, config(), nullptr) {}
  static srd::Address address() { return *srd::parse_address("127.77.1.1"); }
  static roce::EngineConfig config() {
    srd::IoCapabilities carrier;
    carrier.mtu = 9200;
    return rxe::engine_config(rxe::Abilities{}, address(), {256, 256}, carrier, 1);
  }

 private:
  // Back to the device, so that its receiving side works on the application's memory as well.
  void send(const srd::TxPacket& packet) override {
    std::vector<std::byte> bytes(packet.header.begin(), packet.header.begin() + packet.header_size);
    for (const auto& piece : packet.payload) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    bytes.resize(bytes.size() + roce::wire::kIcrcSize);
    // As it left: from and to the same address of the NIC.
    srd::RxPacket packet_in{.from = address(), .path = packet.path, .bytes = bytes, .more = {}};
    packet_in.to = packet.source;
    device.on_packet(now(), packet_in);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Client<RxeLoop> client;
  client.run({data, size});
  return 0;
}
