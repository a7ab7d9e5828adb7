// Owns what both ways of dispatch and combine have in common: an endpoint, a window of memory that
// the other ranks write, and the account of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "integration/workloads/ordering.hpp"
#include "integration/workloads/outbox.hpp"
#include "integration/workloads/tokens.hpp"
#include "integration/workloads/worker.hpp"
#include "srd/base/ring_queue.hpp"

namespace weft::workloads {

struct ExpertSetup {
  ExpertProblem problem;
  std::uint32_t rank = 0;
  Ordering ordering = Ordering::count;
  std::uint32_t rounds = 5;
  std::uint32_t warm_up = 1;  // rounds before those that count
  RankPlace place;            // `key` and `base` are the rank's own matter
};

// Of a rank. Times are of the sections that count: from begin() to the last byte that was due.
struct ExpertResult {
  std::vector<double> dispatch_us;
  std::vector<double> combine_us;
  std::uint64_t dispatch_bytes = 0;  // that the rank's tokens make, in all rounds that count
  std::uint64_t combine_bytes = 0;
  std::uint64_t wrong = 0;  // messages or columns that are not what was sent
  std::uint64_t checked = 0;
  OrderingCounters ordering;
  std::uint64_t digest = 0;  // of all results

  void add(const ExpertResult& other);
};

// What stands before the data of a token on the wire.
struct TokenHeader {
  std::uint32_t token = 0;
  std::uint32_t rank = 0;
  std::uint32_t selection = 0;  // which of the token's experts this is for
  std::uint32_t round = 0;
};
static_assert(sizeof(TokenHeader) == 16);

// Memory that is not cleared at first: pages that are never touched cost nothing.
class Window {
 public:
  explicit Window(std::size_t bytes) : bytes_(new std::byte[bytes]), size_(bytes) {}
  [[nodiscard]] std::byte* data() const { return bytes_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

// The low-latency way: one write for each token and expert, straight to its place; then a counter
// for each expert. Two buffers, used in turn, are enough: a rank that is a round ahead has all
// results of the round before, so the others have taken what they were sent in that round.
//
// Sections are dispatch and combine in turn. All data are functions of the seed (tokens.hpp), so
// each rank can check every byte without asking the others.
class ExpertRank final : public Worker {
 public:
  ExpertRank(srd::Engine& engine, const ExpertSetup& setup);

  [[nodiscard]] const RankPlace& place() const { return setup_.place; }
  void meet(std::span<const RankPlace> places) override { outbox_.meet(places, setup_.rank); }
  void prepare() override;
  void begin(TimePoint now) override;
  void progress(TimePoint now) override;
  [[nodiscard]] bool section_over() const override { return left_ == 0 && outstanding_ == 0; }
  [[nodiscard]] bool finished() const override {
    return section_ == 2 * (setup_.rounds + setup_.warm_up);
  }
  [[nodiscard]] const std::string& failure() const override { return failure_; }
  [[nodiscard]] const ExpertResult& result() const { return result_; }

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
  // What arrived of one expert and source, copied out of the window as soon as it was believed.
  struct Taken {
    std::uint32_t source = 0;
    std::uint32_t local = 0;
    std::uint32_t count = 0;
    std::vector<std::byte> messages;
  };
  struct Place {  // of a token's result
    std::uint32_t token = 0;
    std::uint32_t selection = 0;
  };

  [[nodiscard]] const ExpertProblem& problem() const { return setup_.problem; }
  // Of the section that has begun last.
  [[nodiscard]] bool combining() const { return section_ % 2 == 0; }
  [[nodiscard]] std::uint32_t round() const { return (section_ - 1) / 2; }
  [[nodiscard]] bool counts() const { return round() >= setup_.warm_up; }
  [[nodiscard]] std::size_t message_bytes() const {
    return sizeof(TokenHeader) + payload_bytes(problem().precision, problem().hidden);
  }
  [[nodiscard]] std::size_t result_bytes() const { return std::size_t{problem().hidden} * 2; }
  // In a window.
  [[nodiscard]] std::uint64_t dispatch_offset(bool odd, std::uint32_t local, std::uint32_t source,
                                              std::uint32_t slot) const;
  [[nodiscard]] std::uint64_t combine_offset(bool odd, Place place) const;
  [[nodiscard]] std::size_t index_of(std::uint32_t rank, bool combine, bool odd,
                                     std::uint32_t group) const;

  void prepare_dispatch(std::uint32_t round);
  void prepare_combine(std::uint32_t round);
  void check_dispatched();
  void check_combined();
  void check_taken(const Taken& taken, std::span<const Selection> route);

  void post_all(TimePoint now);
  // False: the engine is full.
  [[nodiscard]] bool post_next(TimePoint now, std::uint32_t index);
  [[nodiscard]] bool post_one(TimePoint now, std::uint32_t index, Outbox::Item item, Mark mark);
  [[nodiscard]] bool can_post(const Batch& batch) const;
  void on_completion(TimePoint now, const srd::Completion& completion);
  void on_mark(TimePoint now, std::uint32_t source, const Mark& mark);
  void believe(TimePoint now, std::uint32_t source, const Mark& mark);
  void take_dispatched(std::uint32_t source, std::uint32_t local, std::uint32_t count);
  void take_combined(std::uint32_t source, std::uint32_t local, std::uint32_t count);

  srd::Engine& engine_;
  ExpertSetup setup_;
  Router router_;
  Window window_;
  Outbox outbox_;
  std::string failure_;
  ExpertResult result_;

  std::uint32_t section_ = 0;  // begun so far: dispatch and combine in turn
  TimePoint began_{};
  std::uint32_t left_ = 0;  // counters that have not been believed
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

  std::vector<Selection> route_;               // of this round
  std::vector<std::vector<Place>> by_expert_;  // the same by expert
  std::vector<TokenHeader> headers_;
  std::vector<std::byte> tokens_;   // this rank's
  std::vector<std::byte> results_;  // of its experts, for everybody
  std::vector<Taken> taken_;
  std::vector<float> sums_;
};

}  // namespace weft::workloads
