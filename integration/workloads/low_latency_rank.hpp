// Owns the low-latency way of dispatch and combine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "integration/workloads/expert_rank.hpp"
#include "srd/base/ring_queue.hpp"

namespace weft::workloads {

// The low-latency way: one write for each token and expert, straight to its place; then a counter
// for each expert. Two buffers, used in turn, are enough: a rank that is a round ahead has all
// results of the round before, so the others have taken what they were sent in that round.
class LowLatencyRank final : public ExpertRank {
 public:
  LowLatencyRank(srd::Engine& engine, const ExpertSetup& setup);

  [[nodiscard]] bool section_over() const override {
    return left_ == 0 && own_left_ == 0 && outstanding_ == 0;
  }

 private:
  // To a rank's expert, or from an expert to a rank: its writes, and then its counter. `posted`
  // counts the counter too, so it ends one above the number of writes.
  struct Batch {
    std::uint32_t rank = 0;
    std::uint32_t group = 0;
    std::vector<Outbox::Item> writes;
    std::uint32_t posted = 0;
    std::uint32_t acknowledged = 0;
  };
  // What arrived of one expert and source: where in taken_bytes_, to which it was copied out of the
  // window as soon as it was believed.
  struct Taken {
    std::uint32_t source = 0;
    std::uint32_t local = 0;
    std::uint32_t count = 0;
    std::size_t offset = 0;
  };
  struct Place {  // of a token's result
    std::uint32_t token = 0;
    std::uint32_t selection = 0;
  };

  [[nodiscard]] std::uint32_t first_own() const {  // batch
    return setup().rank * problem().experts_per_rank();
  }
  [[nodiscard]] std::size_t message_bytes() const {
    return sizeof(TokenHeader) + payload_bytes(problem().precision, problem().hidden);
  }
  // In a window.
  [[nodiscard]] std::uint64_t dispatch_offset(bool odd, std::uint32_t local, std::uint32_t source,
                                              std::uint32_t slot) const;
  [[nodiscard]] std::uint64_t combine_offset(bool odd, Place place) const;
  [[nodiscard]] std::size_t index_of(std::uint32_t rank, bool combine, bool odd,
                                     std::uint32_t group) const;

  void prepare_dispatch(std::uint32_t round) override;
  void prepare_combine(std::uint32_t round) override;
  void check_dispatched() override;
  void start(TimePoint now) override;
  void check_taken(const Taken& taken, std::span<const Selection> route);

  void post_all(TimePoint now) override;
  void post_writes();
  void take_own(TimePoint now);
  void take_own_batch(const Batch& batch);
  // False: the engine is full.
  [[nodiscard]] bool post_next(std::uint32_t index);
  [[nodiscard]] bool post_one(std::uint32_t index, Outbox::Item item, Mark mark);
  [[nodiscard]] bool can_post(const Batch& batch) const;
  void on_completion(TimePoint now, const srd::Completion& completion) override;
  void on_mark(TimePoint now, std::uint32_t source, const Mark& mark);
  void believe(TimePoint now, std::uint32_t source, const Mark& mark);
  void note_if_all_taken(TimePoint now);
  void take_dispatched(std::uint32_t source, std::uint32_t local, std::uint32_t count);
  void take_combined(std::uint32_t source, std::uint32_t local, std::uint32_t count);

  std::uint32_t left_ = 0;      // counters that have not been believed
  std::uint32_t own_left_ = 0;  // batches of the rank's own that have not been taken
  std::uint64_t outstanding_ = 0;
  std::vector<Batch> batches_;
  RingQueue<std::uint32_t> runnable_;    // batches that have something to post
  std::vector<SequenceWindow> windows_;  // by index_of()
  std::vector<GroupArrivals> arrivals_;
  std::uint64_t waiting_now_ = 0;
  // Counters that were believed before their section began here.
  struct EarlyMark {
    std::uint32_t source = 0;
    Mark mark;
  };
  std::vector<EarlyMark> early_;

  std::vector<std::vector<Place>> by_expert_;  // this round's route by expert
  std::vector<TokenHeader> headers_;
  std::vector<std::byte> tokens_;   // this rank's
  std::vector<std::byte> results_;  // of its experts, for everybody
  std::vector<Taken> taken_;
  std::vector<std::byte> taken_bytes_;  // not given back: its pages would have to be made anew
};

}  // namespace weft::workloads
