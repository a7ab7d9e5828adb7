// Owns the connections of one NIC: how they are made and closed, and what arrives for them.
//
// core.cpp has what calls of NCCL do, arrive.cpp what completions of the engine do, watch.cpp what
// the passing of time does. How an end behaves by itself is in send_comm and receive_comm.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "integration/nccl/core/links.hpp"
#include "integration/nccl/core/receive_comm.hpp"
#include "integration/nccl/core/send_comm.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/base/rng.hpp"

namespace weft::nccl {

struct CoreConfig {
  srd::Address address;  // of the NIC
  srd::AttachmentId attachment;
  srd::Qpn first_qpn;  // of three
  std::uint64_t seed = 1;
  void* owner = nullptr;  // of requests and connections, for the caller
};

// What listen() gives to the other side: how to reach the listener. It travels as bytes, and its
// last three members are the sender's own notes between two calls of connect().
struct ListenHandle {
  boost::endian::big_uint32_buf_t magic{0};
  boost::endian::big_uint16_buf_t version{0};
  boost::endian::big_uint16_buf_t attachment{0};
  std::array<std::byte, 16> address{};
  boost::endian::big_uint32_buf_t control{0};  // queue pair
  boost::endian::big_uint32_buf_t qkey{0};
  boost::endian::big_uint32_buf_t listener{0};
  boost::endian::big_uint64_buf_t secret{0};
  boost::endian::big_uint32_buf_t asked{0};  // 1: the two below are valid
  boost::endian::big_uint32_buf_t number{0};
  boost::endian::big_uint32_buf_t nonce{0};
};
static_assert(sizeof(ListenHandle) <= 64);  // the oldest tables have no more room

// Pure: one caller at a time, which drives the engine and then calls progress(), or take() for each
// completion and follow_up(). A peer that dies while something waits for it is noticed by a message
// without bytes to an endpoint where nothing is received: the engine tries for as long as the peer
// lives.
//
// References to connections are valid from connect() or accept() until close(), those to requests
// until their connection is closed.
class Core {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Core>> create(srd::Engine& engine,
                                                            const CoreConfig& config);
  ~Core() { links_.close(); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  void progress(TimePoint now);
  // For a caller that takes the completions itself because some are meant for others (NetMachine).
  void take(const srd::Completion& completion);
  void follow_up(TimePoint now);
  [[nodiscard]] TimePoint next_timeout() const { return next_check_; }

  [[nodiscard]] std::uint32_t listen(ListenHandle& handle);
  // To be repeated with the same handle while it says ok and gives no connection.
  [[nodiscard]] Outcome connect(ListenHandle& handle, SendComm*& connection);
  // connect() will not be repeated with this handle.
  void call_off(const ListenHandle& handle);
  // Takes the oldest hello that waits, if any; also to be repeated while it says ok and gives no
  // connection. `listener` must be one.
  [[nodiscard]] Outcome accept(std::uint32_t listener, ReceiveComm*& connection);
  // Afterwards hellos to this listener are refused.
  void close_listener(std::uint32_t listener);
  // Afterwards no memory that was lent or registered for it is touched.
  void close(SendComm& connection);
  void close(ReceiveComm& connection);

  // What is received into must be open to the partner's writes; no partner reaches what is sent.
  [[nodiscard]] Result<CommRegion*> register_memory(SendComm& connection, std::byte* data,
                                                    std::size_t size);
  [[nodiscard]] Result<CommRegion*> register_memory(ReceiveComm& connection, std::byte* data,
                                                    std::size_t size);
  // False: there is no such region. Afterwards its memory is not touched, unless it was registered
  // more often than deregistered.
  [[nodiscard]] bool deregister(SendComm& connection, const CommRegion* region);
  [[nodiscard]] bool deregister(ReceiveComm& connection, const CommRegion* region);

  [[nodiscard]] Outcome send(SendComm& connection, std::byte* data, std::size_t size,
                             std::int64_t tag, const CommRegion* region, Request*& out) {
    return connection.post(links_, data, size, tag, region, out);
  }
  [[nodiscard]] Outcome receive(ReceiveComm& connection, std::span<const Buffer> buffers,
                                bool early, Request*& out) {
    return connection.post(links_, buffers, early, out);
  }

  [[nodiscard]] const CoreCounters& counters() { return links_.counters(); }
  [[nodiscard]] bool has_connections() const {
    const auto lives = [](const auto& end) {
      return end != nullptr && end->state != Comm::State::closed;
    };
    return std::any_of(senders_.ends.begin(), senders_.ends.end(), lives) ||
           std::any_of(receivers_.ends.begin(), receivers_.ends.end(), lives);
  }
  // Of a process without connections: a watch message finds no receive and is repeated for as long
  // as it is wanted, also after its peer was told that this process ends.
  void stop_watching();
  // An eager message of a closed connection is still under way.
  [[nodiscard]] bool is_closing() const { return goodbyes_due_ != 0; }
  // Nothing of ours is on its way.
  [[nodiscard]] bool idle() const;

 private:
  struct Hello {
    RemoteEnd partner;
    std::uint16_t number = 0;
    std::uint32_t nonce = 0;
    [[nodiscard]] bool operator==(const Hello&) const = default;
  };
  // Hellos that name the listener and its secret, until accept() takes them. A stranger who does
  // not have the handle cannot fill this queue.
  struct Listener {
    std::uint64_t secret = 0;
    RingQueue<Hello> waiting{kMaxWaiting};
  };
  // One per peer, however many connections there are with it: it asks for a process, not a
  // connection.
  struct Watch {
    bool under_way = false;
    bool wanted = false;
    RemoteEnd partner;  // to which it is under way
  };
  static constexpr std::size_t kMaxWaiting = 1024;  // connections that were not accepted yet
  // Often enough against the seconds after which a peer counts as dead; each check visits all ends.
  static constexpr Duration kCheckEvery = std::chrono::milliseconds{50};
  static constexpr std::size_t kMaxConnections = 1U << 16;  // of each kind; numbers have 16 bits

  // One kind of ends. A number rests for a while before it is used again.
  template <class C>
  struct Table {
    std::vector<std::unique_ptr<C>> ends;
    RingQueue<std::uint16_t> resting;

    [[nodiscard]] C* find(std::uint32_t number) {
      return number < ends.size() ? ends[number].get() : nullptr;
    }
    [[nodiscard]] C* make();
    void remove(std::uint16_t number) {
      ends[number].reset();
      (void)resting.push(number);
    }
  };

  Core(srd::Engine& engine, const CoreConfig& config);

  // core.cpp
  template <class C>
  [[nodiscard]] C* make_end(Table<C>& table, const RemoteEnd& partner);
  void forget_memory(Comm& connection);
  void say_goodbye(const Comm& connection, std::uint8_t flags);
  template <class F>
  [[nodiscard]] static Result<CommRegion*> add_region(Comm& connection, std::byte* data,
                                                      std::size_t size, F&& make_key);
  template <class C>
  [[nodiscard]] static std::unique_ptr<CommRegion> take_region(C& connection,
                                                               const CommRegion* region,
                                                               bool& found);

  // arrive.cpp
  void on_control(const srd::Completion& completion, std::span<const std::byte> message);
  [[nodiscard]] bool knows(const Listener& listener, const Hello& hello) const;
  void dismiss(const srd::Completion& completion, const ControlHeader& header,
               std::uint8_t flags = 0);
  void on_hello(const srd::Completion& completion, const ControlHeader& header);
  void on_welcome(const srd::Completion& completion, const ControlHeader& header);
  void on_announce(const srd::Completion& completion, const ControlHeader& header,
                   std::span<const std::byte> message);
  void on_reject(const srd::Completion& completion, const ControlHeader& header);
  void on_goodbye(const srd::Completion& completion, const ControlHeader& header);
  void on_eager(const srd::Completion& completion, const ControlHeader& header,
                std::span<const std::byte> message);
  void on_immediate(const srd::Completion& completion);
  void on_written(Cookie cookie, srd::Status status);
  void on_eager_sent(Cookie cookie, srd::Status status);
  void finish_closing(SendComm& connection);
  [[nodiscard]] SendComm* sender(const srd::Completion& completion, const ControlHeader& header);
  [[nodiscard]] ReceiveComm* receiver(const srd::Completion& completion,
                                      const ControlHeader& header);

  // watch.cpp
  void check();
  void take_back_watches();
  template <class C>
  void check_end(C& connection);
  void watch(srd::PeerId peer, const RemoteEnd& partner, Watch& one);
  void on_failure(const RemoteEnd& partner, srd::Status status);
  // Those with this partner, or with anybody at its peer.
  void fail_all(const RemoteEnd& partner, bool at_peer);
  void notice_restarts();
  [[nodiscard]] std::uint32_t restarts_of(srd::PeerId peer) const;

  CoreConfig config_;
  Rng rng_;
  srd::Engine& engine_;
  Links links_;
  Table<SendComm> senders_;
  Table<ReceiveComm> receivers_;
  std::map<std::uint32_t, Listener> listeners_;
  std::uint32_t last_listener_ = 0;
  std::map<std::uint32_t, Watch> watches_;  // by peer
  std::uint64_t seen_restarts_ = 0;         // of all peers
  TimePoint next_check_ = kNever;
  std::uint32_t goodbyes_due_ = 0;
};

}  // namespace weft::nccl
