// Owns a hostile application for fuzzing the kernel's face: command bytes and queue memory, of a
// device of any kind, and the loop that such a device works in.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "emu/kernel/uverbs/file.hpp"

namespace weft::kernel {

// A device alone, and the thread that drives it. Time is a microsecond per packet, so that an input
// always does the same; what the device sends is lost, unless a kind of loop does more with it.
template <class Device>
class Loop : public Runner {
 public:
  template <class... Arguments>
  explicit Loop(Arguments&&... arguments) : device(std::forward<Arguments>(arguments)...) {}
  void exclusively(const std::function<void()>& work) override {
    work();
    poll();
  }
  bool poll() override {
    srd::TxPacket packet;
    // A bound, because an input may post work that keeps its device sending for ever.
    for (int budget = 64; budget > 0 && device.next_transmit(now_, packet); --budget) {
      now_ += std::chrono::microseconds{1};
      send(packet);
    }
    device.on_timeout(now_);
    return false;
  }
  void expect_events() override {}
  Device device;

 protected:
  virtual void send(const srd::TxPacket& /*packet*/) {}
  [[nodiscard]] TimePoint now() const { return now_; }

 private:
  TimePoint now_ = time_at(std::chrono::seconds{1});
};

// The input is a list of records: a length in words, a kind, and that many words. They are the body
// of a command (whose response address is made a good one, unless the kind says otherwise), or
// bytes for a page of queue memory.
template <class DeviceLoop>
class Client {
 public:
  Client() : file_(loop_.device, loop_, nullptr) { fd_ = file_.open(); }

  void run(std::span<const std::uint8_t> input) {
    while (input.size() > 2) {
      const std::size_t size = std::min<std::size_t>(input[0] * std::size_t{4}, input.size() - 2);
      const std::uint8_t kind = input[1];
      const auto body = input.subspan(2, size);
      input = input.subspan(2 + size);
      if ((kind & 0xC0) == 0xC0) {
        scribble(body, kind);
      } else if ((kind & 0x80) != 0) {
        method(body, kind);
      } else {
        command(body, kind);
      }
    }
  }

 private:
  // The kernel writes where it is told to. An address that the input makes up, or that the fuzzer
  // has seen in a comparison, must not be one of this process: what lies there would be
  // overwritten.
  static std::uint64_t nowhere(std::uint64_t address) {
    constexpr std::uint64_t kFirstMappable = 1 << 16;
    constexpr std::uint64_t kNotCanonical = std::uint64_t{1} << 62;
    return address < kFirstMappable ? address : address | kNotCanonical;
  }
  void command(std::span<const std::uint8_t> body, std::uint8_t kind) {
    std::array<std::byte, 8 + 1024> bytes{};
    const bool extended = (kind & 0x40) != 0;
    const std::size_t used = std::min<std::size_t>(body.size(), 1020) / 4 * 4;
    std::memcpy(bytes.data() + 8, body.data(), used);
    const auto words = static_cast<std::uint16_t>(
        extended ? (used - std::min<std::size_t>(used, 16)) / 8 : (used + 8) / 4);
    const std::uint32_t number = (kind & 0x1FU) | (extended ? abi::kExtended : 0U);
    const std::uint16_t room = 64;
    std::memcpy(bytes.data(), &number, 4);
    std::memcpy(bytes.data() + 4, &words, 2);
    std::memcpy(bytes.data() + 6, &room, 2);
    if (used >= 8) {
      auto response = reinterpret_cast<std::uint64_t>(reply_.data());
      if ((kind & 0x20) != 0) {
        std::memcpy(&response, bytes.data() + 8, 8);
        response = nowhere(response);
      }
      std::memcpy(bytes.data() + 8, &response, 8);
    }
    const bool gives_descriptor = number == 0 || number == 17;
    const auto result = file_.write(fd_, bytes.data(), 8 + used);
    if (result > 0 && gives_descriptor && (kind & 0x20) == 0) {
      std::uint32_t fd = 0;
      std::memcpy(&fd, reply_.data(), 4);
      ::close(static_cast<int>(fd));
    }
  }
  // An ioctl: object in the kind, method in the first word, then attributes. Values that look like
  // the wild card are made good addresses.
  void method(std::span<const std::uint8_t> body, std::uint8_t kind) {
    constexpr std::uint64_t kWildCard = 0xAAAAAAAAAAAAAAAA;
    alignas(8) std::array<std::byte, sizeof(abi::IoctlHeader) + 64 * sizeof(abi::IoctlAttribute)>
        bytes{};
    if (body.size() < 4) {
      return;
    }
    const std::size_t count =
        std::min<std::size_t>((body.size() - 4) / sizeof(abi::IoctlAttribute), 64);
    abi::IoctlHeader header{};
    header.length = static_cast<std::uint16_t>(sizeof header + count * sizeof(abi::IoctlAttribute));
    header.object_id = kind & 0x1F;
    std::memcpy(&header.method_id, body.data(), 2);
    header.attributes = static_cast<std::uint16_t>(count + (body[2] == 0xFF ? 1U : 0U));
    std::memcpy(bytes.data(), &header, sizeof header);
    for (std::size_t i = 0; i < count; ++i) {
      abi::IoctlAttribute attribute{};
      std::memcpy(&attribute, body.data() + 4 + i * sizeof attribute, sizeof attribute);
      if (attribute.value == kWildCard) {
        attribute.value = reinterpret_cast<std::uint64_t>(reply_.data() + 64 * i);
        attribute.length = std::min<std::uint16_t>(attribute.length, 64);
      } else {
        attribute.value = nowhere(attribute.value);
      }
      std::memcpy(bytes.data() + sizeof header + i * sizeof attribute, &attribute,
                  sizeof attribute);
    }
    // A buffer's description, for commands that want one: it points into itself.
    const abi::BufferDescriptor buffer{
        1, 0, 0, 0, reinterpret_cast<std::uint64_t>(reply_.data() + 2048), 8};
    std::memcpy(reply_.data() + 64, &buffer, sizeof buffer);
    std::memcpy(reply_.data() + 128, &buffer, sizeof buffer);
    (void)file_.ioctl(abi::kIoctl, reinterpret_cast<std::uint64_t>(bytes.data()));
  }
  // Writes into whatever queues there are, at an offset from the input.
  void scribble(std::span<const std::uint8_t> body, std::uint8_t kind) {
    constexpr std::size_t kReach = 1 << 20;
    void* const window = mmap(nullptr, kReach, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (window == MAP_FAILED) {
      return;
    }
    const std::size_t page = static_cast<std::size_t>(kind & 0x3F) * 4096;
    const off_t end = lseek(fd_, 0, SEEK_END);
    if (static_cast<off_t>(page + 4096) <= end) {
      std::memcpy(static_cast<std::byte*>(window) + page, body.data(),
                  std::min<std::size_t>(body.size(), 4096));
    }
    munmap(window, kReach);
    loop_.poll();
  }

  DeviceLoop loop_;
  UverbsFile file_;
  int fd_ = -1;
  alignas(8) std::array<std::byte, 4096> reply_{};
};

}  // namespace weft::kernel
