// Owns fuzzing the kernel's face with an EFA device behind it.
#include <chrono>
#include <cstdint>
#include <functional>

#include "emu/devices/efa/device.hpp"
#include "tests/fuzz/uverbs_client.hpp"

namespace {

using namespace weft;
using namespace weft::kernel;
namespace efa = weft::devices::efa;

class Loop final : public Runner {
 public:
  Loop() : device(abilities(), srd::Address{}, {256, 256}, config()) {}
  static efa::Abilities abilities() {
    efa::Abilities all;
    all.request_id_64 = all.completion_counters = true;
    return all;
  }
  static srd::EngineConfig config() {
    srd::EngineConfig base;
    base.attachment = srd::AttachmentId{1};
    return efa::engine_config(abilities(), base);
  }
  void exclusively(const std::function<void()>& work) override {
    work();
    poll();
  }
  bool poll() override {
    srd::TxPacket packet;
    for (int budget = 64; budget > 0 && device.next_transmit(now_, packet); --budget) {
      now_ += std::chrono::microseconds{1};
    }
    device.on_timeout(now_);
    return false;
  }
  void expect_events() override {}
  efa::EfaDevice device;

 private:
  TimePoint now_ = time_at(std::chrono::seconds{1});
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Client<Loop> client;
  client.run({data, size});
  return 0;
}
