// Owns fuzzing the kernel's face with a soft-RoCE device behind it: its rings are the application's
// to write, and what it sends comes back to it.
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "emu/devices/rxe/device.hpp"
#include "emu/roce/wire/icrc.hpp"
#include "srd/net/address_text.hpp"
#include "tests/fuzz/uverbs_client.hpp"

namespace {

using namespace weft;
using namespace weft::kernel;
namespace rxe = weft::devices::rxe;

class Loop final : public Runner {
 public:
  Loop() : device(rxe::Abilities{}, config(), nullptr) {}
  static srd::Address address() { return *srd::parse_address("127.77.1.1"); }
  static roce::EngineConfig config() {
    srd::IoCapabilities carrier;
    carrier.mtu = 9200;
    return rxe::engine_config(rxe::Abilities{}, address(), {256, 256}, carrier, 1);
  }
  void exclusively(const std::function<void()>& work) override {
    work();
    poll();
  }
  bool poll() override {
    srd::TxPacket packet;
    for (int budget = 64; budget > 0 && device.next_transmit(now_, packet); --budget) {
      now_ += std::chrono::microseconds{1};
      std::vector<std::byte> bytes(packet.header.begin(),
                                   packet.header.begin() + packet.header_size);
      for (const auto& piece : packet.payload) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
      }
      bytes.resize(bytes.size() + roce::wire::kIcrcSize);
      // As it left: from and to the same address of the NIC.
      srd::RxPacket packet_in{.from = address(), .path = packet.path, .bytes = bytes, .more = {}};
      packet_in.to = packet.source;
      device.on_packet(now_, packet_in);
    }
    device.on_timeout(now_);
    return false;
  }
  void expect_events() override {}
  rxe::RxeDevice device;

 private:
  TimePoint now_ = time_at(std::chrono::seconds{1});
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Client<Loop> client;
  client.run({data, size});
  return 0;
}
