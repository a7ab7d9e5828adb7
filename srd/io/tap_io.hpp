// Owns Ethernet frames to and from the kernel of this machine, through a tap device. One thread.
//
// One system call per frame: preadv2() and pwritev2() with RWF_NOWAIT, so that no call blocks. What
// the kernel's queue has no room for is lost, as on a wire.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "srd/base/result.hpp"
#include "srd/io/frame_io.hpp"
#include "srd/io/posix.hpp"

namespace weft::srd {

class TapIo final : public FrameIo {
 public:
  static constexpr std::size_t kBurst = 32;

  struct Config {
    std::string name;  // of the device; empty: the kernel chooses
    std::size_t max_frame = 9216;
  };
  // Makes the device, or takes one that is there and belongs to us. Needs CAP_NET_ADMIN in the
  // network namespace.
  [[nodiscard]] static Result<UniqueFd> open_device(std::string& name);
  [[nodiscard]] static Result<std::unique_ptr<TapIo>> create(const Config& config);
  // A device that another process has opened, maybe in another network namespace. On failure the
  // caller keeps the descriptor.
  [[nodiscard]] static Result<std::unique_ptr<TapIo>> adopt(const Config& config,
                                                            UniqueFd&& device);

  [[nodiscard]] FrameTraits traits() const override {
    return {.max_frame = config_.max_frame, .burst = kBurst};
  }
  [[nodiscard]] FrameCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const RxFrame> receive() override;
  void release() override {}
  [[nodiscard]] std::size_t transmit(std::span<const TxFrame> frames) override;
  [[nodiscard]] std::size_t transmit_room() override { return kBurst; }
  [[nodiscard]] int wait_fd() const override { return device_.get(); }
  [[nodiscard]] bool arm() override;
  void disarm() override {}
  [[nodiscard]] const std::string& name() const { return config_.name; }

 private:
  TapIo(const Config& config, UniqueFd device);

  Config config_;
  UniqueFd device_;
  std::unique_ptr<std::byte[]> buffer_;
  std::array<RxFrame, kBurst> received_;
  FrameCounters counters_;
};

}  // namespace weft::srd
