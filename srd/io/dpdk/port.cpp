// Owns frames in and out of an ethdev, and sleeping on it.
//
// A device's link may be down, for example until the other side of a memif has come. attend() looks
// at it now and then. While the link is down, frames are dropped and counted, as on an unplugged
// cable.
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "srd/io/dpdk/device.hpp"
#include "srd/io/dpdk/environment.hpp"
#include "srd/io/dpdk/interrupts.hpp"
#include "srd/io/dpdk_port.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/envelope.hpp"

namespace weft::srd::dpdk {
namespace {

constexpr std::uint16_t kBurst = 32;
constexpr std::uint32_t kPollsPerAttention = 1024;
constexpr Duration kReopenInterval = std::chrono::milliseconds{100};
// A memif client connects in a thread of the driver: give it this long before the device is made
// anew.
constexpr Duration kJoinPatience = std::chrono::seconds{10};

// Received buffers are lent until release(); frames to be sent are copied into buffers of the pool,
// and wait in `waiting_` until the device takes them.
class Port final : public FrameIo {
 public:
  explicit Port(const DpdkConfig& config) : config_(config), device_(config) {}
  ~Port() override {
    drop_waiting();
    free_received();
  }

  [[nodiscard]] Result<void> open();

  [[nodiscard]] FrameTraits traits() const override {
    return {.max_frame = device_.is_open() ? device_.max_frame() : config_.max_frame,
            .burst = kBurst,
            .gigabits = device_.gigabits(),
            .lossless_memory = device_.is_memory()};
  }
  [[nodiscard]] FrameCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const RxFrame> receive() override;
  void release() override { free_received(); }
  [[nodiscard]] std::size_t transmit(std::span<const TxFrame> frames) override;
  [[nodiscard]] std::size_t transmit_room() override;
  [[nodiscard]] int wait_fd() const override { return wait_ ? wait_.get() : -1; }
  [[nodiscard]] bool arm() override;
  void disarm() override;

 private:
  void attend();
  void watch_interrupt();
  void free_received();
  void drop_waiting();
  void flush();
  [[nodiscard]] std::uint16_t send_waiting();
  [[nodiscard]] RxFrame read(rte_mbuf* packet, std::size_t slot);
  [[nodiscard]] rte_mbuf* write(const TxFrame& frame);

  DpdkConfig config_;
  EthDevice device_;
  UniqueFd wait_;
  bool link_ = false;
  bool joined_ = false;  // the link was up since the device was opened
  std::uint32_t until_attend_ = 0;
  TimePoint reopened_{};
  std::array<rte_mbuf*, kBurst> received_{};
  std::uint16_t received_count_ = 0;
  bool stashed_ = false;  // `received_` has not been shown yet
  std::array<RxFrame, kBurst> frames_;
  std::unique_ptr<std::byte[]> scratch_;  // for frames that came in several pieces
  std::array<rte_mbuf*, kBurst> waiting_{};
  std::uint16_t waiting_begin_ = 0;
  std::uint16_t waiting_end_ = 0;
  TimePoint waiting_since_{};
  FrameCounters counters_;
};

Result<void> Port::open() {
  auto opened = device_.open();
  if (opened) {
    watch_interrupt();
    reopened_ = clock_now();
    attend();
  }
  return opened;
}

void Port::watch_interrupt() {
  wait_.reset();
  if (device_.interrupt_fd() < 0) {
    return;
  }
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // edges: the driver's event counter is never read
  if (epoll && ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, device_.interrupt_fd(), &event) == 0) {
    wait_ = std::move(epoll);
  }
}

// Checks the link, every kPollsPerAttention polls, and every 32 while it is down. While it is down,
// frames are dropped, and a device that has to be made anew to find its other side again is.
void Port::attend() {
  until_attend_ = kPollsPerAttention;
  link_ = device_.link_is_up();
  if (link_) {
    joined_ = true;
    return;
  }
  drop_waiting();
  until_attend_ = 32;
  if (!device_.must_reopen()) {
    return;
  }
  const TimePoint now = clock_now();
  if (now - reopened_ < (device_.is_open() && !joined_ ? kJoinPatience : kReopenInterval)) {
    return;
  }
  reopened_ = now;
  joined_ = false;
  free_received();
  device_.close();
  if (device_.open()) {
    watch_interrupt();
  }
}

void Port::free_received() {
  if (received_count_ != 0) {
    ::rte_pktmbuf_free_bulk(received_.data(), received_count_);
    received_count_ = 0;
  }
  stashed_ = false;
}

void Port::drop_waiting() {
  if (waiting_begin_ != waiting_end_) {
    const unsigned count = waiting_end_ - waiting_begin_;
    ::rte_pktmbuf_free_bulk(&waiting_[waiting_begin_], count);
    counters_.tx_stalled += count;
  }
  waiting_begin_ = waiting_end_ = 0;
}

// The bytes of a received buffer; of several, copied together. Empty: too long.
RxFrame Port::read(rte_mbuf* packet, std::size_t slot) {
  if (packet->pkt_len > config_.max_frame) {
    return {};
  }
  if (packet->nb_segs == 1) {
    return {rte_pktmbuf_mtod(packet, const std::byte*), packet->data_len};
  }
  if (scratch_ == nullptr) {
    scratch_ = std::make_unique<std::byte[]>(kBurst * config_.max_frame);
  }
  std::byte* const begin = scratch_.get() + slot * config_.max_frame;
  std::byte* to = begin;
  for (const rte_mbuf* piece = packet; piece != nullptr; piece = piece->next) {
    std::memcpy(to, rte_pktmbuf_mtod(piece, const void*), piece->data_len);
    to += piece->data_len;
  }
  return {begin, static_cast<std::size_t>(to - begin)};
}

std::span<const RxFrame> Port::receive() {
  if (until_attend_-- == 0) [[unlikely]] {
    attend();
  }
  if (!device_.is_open()) {
    return {};
  }
  if (waiting_begin_ != waiting_end_) {
    flush();
  }
  if (!stashed_) {
    free_received();  // of a burst that the caller did not release
    const std::lock_guard guard(driver_lock());
    received_count_ = ::rte_eth_rx_burst(device_.port(), 0, received_.data(), kBurst);
  }
  stashed_ = false;
  std::size_t count = 0;
  for (std::uint16_t i = 0; i < received_count_; ++i) {
    const RxFrame frame = read(received_[i], i);
    if (frame.size() < net::kEthernetSize) {
      ++counters_.rx_dropped;
      continue;
    }
    frames_[count++] = frame;
    counters_.rx_bytes += frame.size();
  }
  counters_.rx_frames += count;
  return {frames_.data(), count};
}

rte_mbuf* Port::write(const TxFrame& frame) {
  rte_mbuf* packet = ::rte_pktmbuf_alloc(device_.pool());
  if (packet == nullptr) {
    return nullptr;
  }
  auto* to = reinterpret_cast<std::byte*>(
      ::rte_pktmbuf_append(packet, static_cast<std::uint16_t>(frame.size())));
  if (to == nullptr) {
    ::rte_pktmbuf_free(packet);
    return nullptr;
  }
  for (const auto& piece : frame.pieces) {
    if (!piece.empty()) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
  }
  return packet;
}

std::size_t Port::transmit(std::span<const TxFrame> frames) {
  flush();
  if (waiting_begin_ != waiting_end_) {
    return 0;
  }
  const std::size_t offered = std::min<std::size_t>(frames.size(), kBurst);
  for (const TxFrame& frame : frames.first(offered)) {
    if (link_ && frame.size() > device_.max_frame()) {
      ++counters_.tx_oversize;
      continue;
    }
    rte_mbuf* packet = link_ ? write(frame) : nullptr;
    if (packet == nullptr) {
      ++counters_.tx_lost;
      continue;
    }
    counters_.tx_bytes += frame.size();
    waiting_[waiting_end_++] = packet;
  }
  if (waiting_end_ != 0) {
    waiting_since_ = {};
    flush();
  }
  return offered;
}

std::uint16_t Port::send_waiting() {
  const std::lock_guard guard(driver_lock());
  return ::rte_eth_tx_burst(device_.port(), 0, &waiting_[waiting_begin_],
                            static_cast<std::uint16_t>(waiting_end_ - waiting_begin_));
}

// Offers the waiting frames again. Most of the time the device takes all at once; if it has taken
// none for `patience`, they are dropped.
void Port::flush() {
  if (waiting_begin_ == waiting_end_) {
    return;
  }
  const std::uint16_t sent = send_waiting();
  counters_.tx_frames += sent;
  waiting_begin_ = static_cast<std::uint16_t>(waiting_begin_ + sent);
  if (waiting_begin_ == waiting_end_) {
    waiting_begin_ = waiting_end_ = 0;
    return;
  }
  const TimePoint now = clock_now();
  if (sent != 0 || waiting_since_ == TimePoint{}) {
    waiting_since_ = now;
  } else if (now - waiting_since_ >= config_.patience) {
    drop_waiting();
  }
}

std::size_t Port::transmit_room() {
  flush();
  return waiting_begin_ == waiting_end_ ? kBurst : 0;
}

bool Port::arm() {
  if (stashed_) {
    return false;
  }
  if (until_attend_-- == 0) {
    attend();
  }
  if (!device_.is_open()) {
    return true;
  }
  if (wait_ && ::rte_eth_dev_rx_intr_enable(device_.port(), 0) != 0) {
    return false;
  }
  // Frames that arrived before the interrupt was enabled raise none. The only way to look is to
  // take a burst; receive() shows it next.
  free_received();
  std::unique_lock guard(driver_lock());
  received_count_ = ::rte_eth_rx_burst(device_.port(), 0, received_.data(), kBurst);
  guard.unlock();
  stashed_ = received_count_ != 0;
  if (stashed_) {
    disarm();
  }
  return !stashed_;
}

void Port::disarm() {
  if (!wait_ || !device_.is_open()) {
    return;
  }
  (void)::rte_eth_dev_rx_intr_disable(device_.port(), 0);
  epoll_event event;
  (void)::epoll_wait(wait_.get(), &event, 1, 0);
}

}  // namespace
}  // namespace weft::srd::dpdk

extern "C" __attribute__((visibility("default"))) weft::srd::FrameIo* weft_open_dpdk_port(
    const weft::srd::DpdkConfig& config, std::string& why) {
  if (auto started = weft::srd::dpdk::start_environment(config); !started) {
    why = started.error().message;
    return nullptr;
  }
  auto port = std::make_unique<weft::srd::dpdk::Port>(config);
  if (auto opened = port->open(); !opened) {
    why = opened.error().message;
    return nullptr;
  }
  return port.release();
}
