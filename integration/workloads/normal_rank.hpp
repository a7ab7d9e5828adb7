// Owns the way of dispatch and combine that is made for many tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "integration/workloads/chunk_ring.hpp"
#include "integration/workloads/expert_rank.hpp"
#include "srd/base/ring_queue.hpp"

namespace weft::workloads {

// The normal way: a token goes once to each rank that has any of its experts, together with the
// list of these, and one sum comes back. Tokens travel in chunks, each of which is one write,
// through a ring for each pair of ranks and direction, so that what others may write does not grow
// with the number of tokens. How many will come is said at the beginning. A rank is what has a NIC
// of its own: what GPUs of one machine hand each other is nobody's traffic here.
class NormalRank final : public ExpertRank {
 public:
  NormalRank(srd::Engine& engine, const ExpertSetup& setup);

  [[nodiscard]] bool section_over() const override {
    return left_to_take_ == 0 && left_to_send_ == 0 && outstanding_ == 0;
  }

 private:
  // What there is with another rank in one direction, dispatch or combine.
  struct Channel {
    explicit Channel(std::uint32_t places) : sender(places), receiver(places) {}

    RingSender sender;
    RingReceiver receiver;
    SequenceWindow numbers;
    // Of the section:
    std::uint32_t to_send = 0;  // tokens
    std::uint32_t sent = 0;
    bool total_told = false;
    bool head_due = false;
    std::optional<std::uint32_t> total{};  // tokens that come, until all are there
    std::uint32_t taken = 0;
  };
  enum class Request : std::uint8_t { nothing, total, head, tail, chunk };

  [[nodiscard]] Channel& channel(bool combine, std::uint32_t rank) {
    return channels_[(combine ? problem().ranks : 0) + rank];
  }
  [[nodiscard]] std::size_t message_bytes(bool combine) const;
  // Of a place, in the window and in what is sent from.
  [[nodiscard]] std::uint64_t place_offset(bool combine, std::uint32_t rank,
                                           std::uint32_t place) const;

  void prepare_dispatch(std::uint32_t round) override;
  void prepare_combine(std::uint32_t round) override;
  void check_dispatched() override;
  void start(TimePoint now) override;
  void prepare_channels(bool combine);
  void take_own();
  [[nodiscard]] std::vector<std::byte> results_for(std::uint32_t source) const;
  void check_from(std::uint32_t source, std::span<const Selection> route);

  void wake(std::uint32_t rank);
  void post_all(TimePoint now) override;
  [[nodiscard]] Request next_request(std::uint32_t rank);
  // False: the engine is full.
  [[nodiscard]] bool post(std::uint32_t rank, Request request);
  void fill_chunk(std::uint32_t rank, std::uint32_t first, std::uint32_t count,
                  std::byte* to) const;
  void write_message(std::uint32_t rank, std::uint32_t number, std::byte* to) const;
  [[nodiscard]] std::span<std::byte> write_head(const TokenHeader& header,
                                                std::span<const Selection> selections,
                                                std::uint32_t rank, std::span<std::byte> to) const;
  void on_completion(TimePoint now, const srd::Completion& completion) override;
  void on_mark(TimePoint now, std::uint32_t source, const Mark& mark);
  void take_what_is_there(TimePoint now, std::uint32_t source);
  void take_messages(std::uint32_t source, std::span<const std::byte> messages);
  void take_result(std::uint32_t source, std::uint32_t number, const std::byte* message);
  void note_taken(TimePoint now);

  std::uint64_t outstanding_ = 0;
  std::uint32_t left_to_take_ = 0;     // ranks of which something is to come
  std::uint32_t left_to_send_ = 0;     // ranks to which something is to go
  std::vector<Channel> channels_;      // dispatch by rank, combine by rank
  RingQueue<std::uint32_t> runnable_;  // ranks to which something can be posted, perhaps
  std::vector<bool> is_runnable_;      // by rank: it is there
  std::uint64_t waiting_now_ = 0;

  Window staging_;                                  // chunks that are under way: [rank][place]
  std::vector<std::byte> tokens_;                   // this rank's
  std::vector<std::vector<std::uint32_t>> routed_;  // by rank: which of them go there
  std::vector<std::vector<std::byte>> received_;    // by source: whole messages of a dispatch
  std::vector<std::vector<std::byte>> results_;     // by source
};

}  // namespace weft::workloads
