// Owns messages of any size over an engine: matching by tag, order, back-pressure, remote memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "srd/base/flat_map.hpp"
#include "srd/base/result.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/base/slab.hpp"
#include "srd/engine/engine.hpp"
#include "srd/message/counters.hpp"
#include "srd/message/messages.hpp"
#include "srd/message/records.hpp"
#include "srd/message/take_list.hpp"

namespace weft::srd {

// It has no thread, clock or loop: the code that drives the engine calls progress() afterwards.
// docs/messages.md explains it with a program.
//
// A message that fits into one packet is eager: header and bytes are one send, into one of the
// receiver's buffers. A larger one is a request: its header alone is sent and names the sender's
// memory; once a posted receive matches, the receiver reads the bytes from there and answers
// `finished`. An eager message that finds no free buffer is refused by the receiver's engine, and
// is converted to a request, which needs none.
//
// Ordered messages to one partner carry sequence numbers, and the receiver offers them to its
// posted receives in that order, however they arrive. A failure ends the epoch: everything under
// way to that partner ends, and the numbers begin again at 0.
//
// The road of a message:
//   post_send() messenger.cpp - launch() send.cpp - take_message() arrive.cpp - receive.cpp
class Messenger {
 public:
  // Opens three endpoints of the engine, which must outlive the messenger.
  [[nodiscard]] static Result<std::unique_ptr<Messenger>> create(Engine& engine,
                                                                 const MessengerConfig& config);
  // Requests under way end without completions.
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // --- Messages. A request that is not accepted has no effect and gives no completion.
  [[nodiscard]] PostResult post_send(const MessageSend& send);
  [[nodiscard]] PostResult post_receive(const MessageReceive& receive);
  // Ends a posted receive as flushed. False if there is none with this cookie, or its message has
  // arrived already: then it completes as usual.
  bool cancel(std::uint64_t cookie);

  // --- Remote memory. Writes and reads are not ordered, neither with messages nor with each other.
  [[nodiscard]] Result<RegionKey> share(std::span<std::byte> memory, Access access);
  bool unshare(RegionKey key) { return engine_.memory().erase(key); }
  [[nodiscard]] PostResult post_write(const MessageWrite& write);
  [[nodiscard]] PostResult post_read(const MessageRead& read);

  // --- Outcomes
  // Polls the engine and handles its completions; those of other endpoints are lost. So where an
  // engine has several users, one of them polls it, offers each completion to each messenger with
  // on_completion(), and calls progress() afterwards.
  void progress();
  // False if the completion is not the messenger's.
  bool on_completion(const Completion& completion);
  [[nodiscard]] std::size_t poll(std::span<MessageCompletion> completions);

  // Longest message that leaves with its bytes in it.
  [[nodiscard]] std::size_t eager_limit() const { return eager_limit_; }
  [[nodiscard]] const MessageCounters& counters() const { return counters_; }
  // Messages that wait for a receive, or for an earlier message.
  [[nodiscard]] std::size_t unexpected() const { return arrivals_.used(); }
  [[nodiscard]] std::size_t outstanding() const { return sends_.used() + receives_.used(); }

 private:
  using Header = message::Header;
  using Partner = message::Partner;
  using SendRecord = message::SendRecord;
  using ReceiveRecord = message::ReceiveRecord;
  using Arrival = message::Arrival;

  // What a request to the engine was for: the upper half of its cookie.
  enum class Lane : std::uint32_t { data, control, send, answer, read, one_sided, watch };

  struct Waiting {  // a message that has arrived and found no receive
    std::uint64_t from = 0;
    std::uint64_t tag = 0;
    std::uint32_t arrival = 0;
  };

  Messenger(Engine& engine, const MessengerConfig& config);

  // messenger.cpp
  [[nodiscard]] Result<void> open();
  [[nodiscard]] std::uint32_t find_or_make_partner(const MessageAddress& address);
  [[nodiscard]] std::uint32_t new_send(SendRecord::Kind kind, const MessageAddress& to,
                                       std::size_t length, std::uint64_t cookie,
                                       PostResult& result);
  [[nodiscard]] PostResult finish_post(std::uint32_t index, PostResult result);
  void on_one_sided_done(std::uint32_t index, Status status);
  void on_written(const Completion& completion);
  void complete(const MessageCompletion& completion);
  [[nodiscard]] Qpn data_endpoint() const { return config_.endpoint; }
  [[nodiscard]] Qpn control_endpoint() const { return Qpn{config_.endpoint.value() + 1}; }
  [[nodiscard]] Qpn watch_endpoint() const { return Qpn{config_.endpoint.value() + 2}; }
  static constexpr std::uint64_t cookie_of(Lane lane, std::uint32_t index) {
    return std::uint64_t{static_cast<std::uint32_t>(lane)} << 32 | index;
  }
  static constexpr std::uint64_t key_of(const MessageAddress& address) {
    return std::uint64_t{address.peer.value()} << 32 | address.endpoint.value();
  }

  // send.cpp
  void launch(std::uint32_t partner);
  [[nodiscard]] bool start(std::uint32_t index);
  void stall(std::uint32_t partner);
  void on_send_done(std::uint32_t index, Status status);
  void give_number(std::uint32_t index);
  static constexpr std::uint64_t number_key(std::uint32_t partner, std::uint32_t number) {
    return std::uint64_t{partner} << 32 | number;
  }
  void settle_sequence(Partner& partner, std::uint32_t sequence);
  void end_send(std::uint32_t index, Status status);
  void release_send(std::uint32_t index);
  void notice_restart(std::uint32_t partner);
  void notice_silent_restarts();
  void fail_partner(std::uint32_t partner, Status status);
  void watch(std::uint32_t partner);
  void on_watch_done(std::uint32_t partner, Status status);
  void take_answer(std::uint32_t partner, const Header& header);

  // arrive.cpp
  void on_message(Lane lane, std::uint32_t buffer, const Completion& completion);
  [[nodiscard]] bool take_message(const Header& header, const MessageAddress& from,
                                  std::uint32_t buffer);
  [[nodiscard]] bool put_in_order(std::uint32_t partner, const Header& header,
                                  std::uint32_t buffer);
  void begin_epoch(std::uint32_t partner, const Header& header);
  void offer(std::uint32_t arrival);
  void refuse(const Header& header, const MessageAddress& from);
  void give_back(std::uint32_t buffer);
  void release_arrival(std::uint32_t arrival);

  // receive.cpp
  [[nodiscard]] bool sender_is_gone(const Arrival& arrival) const;
  void begin_receive(std::uint32_t index, std::uint32_t arrival);
  void resume(std::uint32_t index);
  void on_read_done(std::uint32_t index, Status status);
  void on_answer_done(std::uint32_t index, Status status);
  void end_receive(std::uint32_t index, Status status);
  void answer(std::uint32_t index, Status status);

  Engine& engine_;
  MessengerConfig config_;
  std::size_t eager_limit_;
  MessageCounters counters_;

  Slab<Partner> partners_;
  FlatMap<std::uint64_t> by_address_;
  Slab<SendRecord> sends_;
  FlatMap<std::uint64_t> sends_by_number_;  // requests, by number_key()
  Slab<ReceiveRecord> receives_;
  Slab<Arrival> arrivals_;
  message::TakeList<std::uint32_t> posted_;  // receives
  message::TakeList<Waiting> waiting_;
  std::unique_ptr<std::byte[]> data_buffers_;
  std::unique_ptr<std::byte[]> control_buffers_;

  std::uint64_t seen_restarts_ = 0;   // of all peers, when progress() was called last
  RingQueue<std::uint32_t> stalled_;  // partners, until the engine has room
  RingQueue<std::uint32_t> owed_;     // receives whose read or answer the engine had no room for
  RingQueue<MessageCompletion> completions_;
};

}  // namespace weft::srd
