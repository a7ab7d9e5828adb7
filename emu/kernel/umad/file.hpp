// Owns one open /dev/infiniband/umadN: what programs ask of it, with Linux's errors, and the
// datagrams that wait to be read.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "emu/kernel/abi/umad.hpp"
#include "emu/kernel/readable_pair.hpp"
#include "emu/kernel/umad/port.hpp"

namespace weft::kernel {

// Classes whose messages may have several segments.
[[nodiscard]] bool may_be_long(std::uint8_t management_class);

// Errors are returned negative. Nothing sleeps. Every call takes the NIC for itself
// (UmadHost::exclusively()), so calls may come from any thread.
class UmadFile {
 public:
  static constexpr std::size_t kMaxUnread = 8192;  // what comes then is lost

  // The port must outlive it.
  explicit UmadFile(UmadPort& port) : port_(port) {}
  // Its agents end.
  ~UmadFile();
  UmadFile(const UmadFile&) = delete;
  UmadFile& operator=(const UmadFile&) = delete;

  // The program's descriptor, or -1 with errno set. Its fstat() must say that it is a device.
  [[nodiscard]] int open() { return readable_.open(); }
  // To sleep at.
  [[nodiscard]] StreamEnds* ends() const { return readable_.ends(); }
  [[nodiscard]] ssize_t write(const void* buffer, std::size_t size);
  // EAGAIN: there is nothing. Then the caller sleeps until the descriptor is readable, if that is
  // what the program wants, and tries again.
  [[nodiscard]] ssize_t read(void* buffer, std::size_t size);
  [[nodiscard]] int ioctl(unsigned long request, std::uint64_t argument);
  // Before that sleep.
  void expect_messages() { port_.host().expect_messages(); }

  // --- Called by the port.
  void deliver(std::uint32_t id, const ManagementArrival& arrival);
  // Nobody has answered.
  void expire(const UmadSend& send);

 private:
  // An entry of the file's table; its index is the id that the program knows.
  struct Agent {
    std::uint32_t number = 0;  // 0: none
    std::uint8_t rmpp_version = 0;
    bool kernel_segments = false;  // the kernel cuts and joins its long messages
  };
  struct Unread {
    abi::umad::Header header;
    std::array<std::byte, kManagementBytes> mad;
    std::size_t size;
  };

  [[nodiscard]] std::size_t header_size() const {
    return has_pkey_ ? sizeof(abi::umad::Header) : abi::umad::kShortHeader;
  }
  [[nodiscard]] int send(TimePoint now, UmadSend& send, std::uint64_t body, std::size_t size);
  [[nodiscard]] int address(UmadSend& send) const;
  [[nodiscard]] ssize_t take_first(void* buffer, std::size_t size);
  [[nodiscard]] int register_agent(std::uint64_t argument);
  [[nodiscard]] int register_agent2(std::uint64_t argument);
  [[nodiscard]] int add(const UmadRegistration& wanted, std::uint64_t argument);
  [[nodiscard]] int unregister_agent(std::uint64_t argument);
  [[nodiscard]] int enable_pkey();
  void queue(const Unread& unread);

  UmadPort& port_;
  std::array<Agent, abi::umad::kMaxAgents> agents_{};
  bool has_pkey_ = false;
  bool used_ = false;
  std::deque<Unread> unread_;
  ReadablePair readable_;
};

}  // namespace weft::kernel
