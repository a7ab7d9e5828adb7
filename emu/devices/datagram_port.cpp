// Owns the calls between a NIC's runner and its port.
#include "emu/devices/datagram_port.hpp"

#include <utility>

#include "srd/io/posix.hpp"
#include "srd/run/clock.hpp"

namespace weft::devices {

DatagramPort::DatagramPort(NicRunner& runner, Claim claim, MayExist may_exist)
    : runner_(runner),
      claim_(std::move(claim)),
      may_exist_(std::move(may_exist)),
      port_(*this, runner.device().management()->facts()) {
  runner_.exclusively([this] { runner_.device().management()->set_other_agent(&port_); });
}

DatagramPort::~DatagramPort() {
  runner_.exclusively([this] { runner_.device().management()->set_other_agent(nullptr); });
}

void DatagramPort::exclusively(const std::function<void(TimePoint now)>& work) {
  const srd::Uncancellable here;
  runner_.exclusively([&work] { work(srd::monotonic_now()); });
}

void DatagramPort::expect_messages() {
  const srd::Uncancellable here;
  runner_.expect_events();
}

}  // namespace weft::devices
