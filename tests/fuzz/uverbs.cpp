// Owns fuzzing the kernel's face with an EFA device behind it.
#include <cstdint>

#include "emu/devices/efa/device.hpp"
#include "tests/fuzz/uverbs_client.hpp"

namespace {

using namespace weft;
using namespace weft::kernel;
namespace efa = weft::devices::efa;

// What the device sends goes nowhere: its engine is fuzzed by tests/fuzz/engine.cpp.
class EfaLoop final : public Loop<efa::EfaDevice> {
 public:
  EfaLoop() : Loop(abilities(), srd::Address{}, efa::QpnBlock{256, 256}, config()) {}
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
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Client<EfaLoop> client;
  client.run({data, size});
  return 0;
}
