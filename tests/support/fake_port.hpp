// Owns a port to the outside whose network is the test.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "srd/io/frame_io.hpp"

namespace weft::testing {

class FakePort final : public srd::FrameIo {
 public:
  std::vector<std::vector<std::byte>> in;   // comes with the next receive(), once
  std::vector<std::vector<std::byte>> out;  // what was sent

  [[nodiscard]] srd::FrameTraits traits() const override { return {}; }
  [[nodiscard]] srd::FrameCounters counters() const override { return {}; }
  [[nodiscard]] std::span<const srd::RxFrame> receive() override {
    shown_.assign(in.begin(), in.end());
    return shown_;
  }
  void release() override { in.clear(); }
  [[nodiscard]] std::size_t transmit(std::span<const srd::TxFrame> frames) override {
    for (const srd::TxFrame& frame : frames) {
      out.emplace_back(frame.pieces[0].begin(), frame.pieces[0].end());
    }
    return frames.size();
  }
  [[nodiscard]] std::size_t transmit_room() override { return 32; }
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool arm() override { return true; }
  void disarm() override {}

 private:
  std::vector<srd::RxFrame> shown_;
};

}  // namespace weft::testing
