// Owns a fixture: a switchboard between two hosts, and no weftd around it.
//
// The loop that would call the switchboard is the test: frames move when it says so, and at the
// time that it says, so that a test can count what one call did.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "emu/daemon/switchboard.hpp"

namespace weft::daemon {

// The hosts have one NIC each and no processes: a test adds the slots or ports that it needs.
class TwoHosts : public ::testing::Test {
 protected:
  TwoHosts() {
    Plant::Options options;
    options.hosts = {"h1", "h2"};
    plant_ = std::make_unique<Plant>(std::move(*Plant::make(options)));
    // No process is given a direct ring: every frame goes through the switchboard.
    switchboard_ = std::make_unique<Switchboard>(*plant_, [](Slot&, Slot&) { return true; });
  }
  [[nodiscard]] std::uint64_t dropped(FrameDrop reason) const {
    return switchboard_->counters().dropped[static_cast<std::size_t>(reason)];
  }

  std::unique_ptr<Plant> plant_;
  std::unique_ptr<Switchboard> switchboard_;
};

}  // namespace weft::daemon
