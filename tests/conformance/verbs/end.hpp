// Owns what one end of weft_verbs_data stands on: the socket over which the ends meet, the device
// with its memory, and queue pairs.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "tests/conformance/verbs_objects.hpp"

namespace weft::conformance {

// The other end, before and between the traffic.
class Meeting {
 public:
  // Without a host it waits for the other end to call.
  Meeting(const char* host, const char* port);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  template <class T>
  [[nodiscard]] T swap(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    T theirs;
    say(&mine, sizeof mine);
    hear(&theirs, sizeof theirs);
    return theirs;
  }
  // Returns when the other end has come as far.
  void wait() { static_cast<void>(swap('.')); }

 private:
  void say(const void* from, std::size_t size) const;
  void hear(void* to, std::size_t size) const;

  int fd_ = -1;
};

template <class T, int (*Free)(T*)>
struct Freed {
  void operator()(T* object) const { demand(Free(object) == 0, "an object cannot be destroyed"); }
};
template <class T, int (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

// The first device, and memory that it knows.
class Device {
 public:
  explicit Device(std::size_t memory);

  [[nodiscard]] ibv_pd* domain() const { return domain_.get(); }
  [[nodiscard]] ibv_cq* queue() const { return queue_.get(); }
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }
  [[nodiscard]] std::uint8_t gid_index() const { return gid_index_; }
  [[nodiscard]] ibv_mtu mtu() const { return port_.active_mtu; }
  [[nodiscard]] std::byte* memory() const { return memory_.get(); }
  [[nodiscard]] const ibv_mr& region() const { return *region_; }

  // The next completion; nothing if none comes for so long.
  [[nodiscard]] std::optional<ibv_wc> next(int milliseconds);
  // The same, where one has to come, and has to be a good one.
  [[nodiscard]] ibv_wc expect();

 private:
  void choose_gid();

  static constexpr int kEntries = 256;

  Owned<ibv_context, ibv_close_device> context_;
  Owned<ibv_pd, ibv_dealloc_pd> domain_;
  Owned<ibv_comp_channel, ibv_destroy_comp_channel> channel_;
  Owned<ibv_cq, ibv_destroy_cq> queue_;
  std::unique_ptr<std::byte[]> memory_;
  Owned<ibv_mr, ibv_dereg_mr> region_;
  ibv_port_attr port_{};
  ibv_gid gid_{};
  std::uint8_t gid_index_ = 0;
};

// What one end's queue pair of a reliable connection allows, and how patient it is.
struct Manner {
  unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  std::uint8_t max_dest_rd_atomic = 4;
  std::uint8_t timeout = 0;  // 0: as the environment says
  std::uint8_t retries = 7;
  std::uint8_t rnr_retries = 7;  // without end
  bool extended = false;         // offers atomic writes, which need a queue pair of the newer kind
};

// A queue pair, and its way to the one at the other end.
class Link {
 public:
  static constexpr std::uint32_t kMaxPieces = 6;
  static constexpr std::uint32_t kMaxInline = 200;

  // Both ends make it at the same time. `srq` may be null.
  Link(const Device& device, Meeting& meeting, ibv_qp_type type, ibv_srq* srq, std::uint32_t depth,
       ibv_mtu mtu, const Manner& manner = {});

  [[nodiscard]] ibv_qp* pair() const { return pair_.get(); }
  // Of a datagram: where it goes.
  [[nodiscard]] ibv_ah* handle() const { return handle_.get(); }
  [[nodiscard]] std::uint32_t peer() const { return peer_.number; }

  static constexpr std::uint32_t kKey = 0x11111111;

 private:
  struct Address {
    std::uint32_t number;
    std::uint32_t first_packet;
    ibv_gid gid;
  };
  void to_init(ibv_qp_type type);
  void to_receive(ibv_qp_type type, ibv_mtu mtu);
  void to_send(ibv_qp_type type, std::uint32_t first_packet);
  [[nodiscard]] ibv_ah_attr way() const;

  std::uint8_t gid_index_;
  Manner manner_;
  Owned<ibv_qp, ibv_destroy_qp> pair_;
  Owned<ibv_ah, ibv_destroy_ah> handle_;
  Address peer_{};
};

}  // namespace weft::conformance
