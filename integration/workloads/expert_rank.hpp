// Owns what both ways of dispatch and combine have in common: what a rank is given to do, the
// account of a run, and the order of its sections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "integration/workloads/ordering.hpp"
#include "integration/workloads/outbox.hpp"
#include "integration/workloads/tokens.hpp"
#include "integration/workloads/worker.hpp"

namespace weft::workloads {

// low_latency: for few tokens, each straight to its experts (low_latency_rank.hpp). normal: for
// many, through rings of chunks (normal_rank.hpp).
enum class ExpertMode : std::uint8_t { low_latency, normal };
inline constexpr const char* kExpertModeNames[] = {"ll", "normal"};

struct ExpertSetup {
  ExpertProblem problem;
  ExpertMode mode = ExpertMode::low_latency;
  std::uint32_t rank = 0;
  Ordering ordering = Ordering::count;
  std::uint32_t rounds = 5;
  std::uint32_t warm_up = 1;  // rounds before those that count
  std::uint32_t chunk = 16;   // of `normal`: tokens that leave in one write
  std::uint32_t ring = 128;   // of `normal`: tokens for which a ring has room; whole chunks
  RankPlace place;            // `key` and `base` are the rank's own matter
};
// What is wrong with it; empty: nothing.
[[nodiscard]] std::string mistake_in(const ExpertSetup& setup);
// About the most that all ranks together will hold at a time, in bytes, where experts are alike.
[[nodiscard]] std::uint64_t memory_needed(const ExpertSetup& setup);

// Of a rank. Times are of the sections that count: from begin() to the last byte that was due.
struct ExpertResult {
  std::vector<double> dispatch_us;
  std::vector<double> combine_us;
  std::uint64_t dispatch_bytes = 0;  // that the rank's tokens make, in all rounds that count
  std::uint64_t combine_bytes = 0;
  std::uint64_t checked = 0;  // messages and sums
  std::uint64_t wrong = 0;    // of them
  std::uint64_t wrong_sums = 0;
  OrderingCounters ordering;
  std::uint64_t digest = 0;  // of all results

  void add(const ExpertResult& other);
};

// What stands before the data of a token on the wire.
struct TokenHeader {
  std::uint32_t token = 0;
  std::uint32_t rank = 0;
  std::uint32_t selection = 0;  // of `low_latency`: which of the token's experts this is for
  std::uint32_t round = 0;
};
static_assert(sizeof(TokenHeader) == 16);

// Zeros at first, or what the run before has left would be taken for what has arrived in this one.
// Pages that are never touched cost nothing.
class Window {
 public:
  explicit Window(std::size_t bytes)
      : bytes_(static_cast<std::byte*>(std::calloc(bytes, 1)), std::free), size_(bytes) {
    if (bytes_ == nullptr) {
      throw std::bad_alloc();
    }
  }
  [[nodiscard]] std::byte* data() const { return bytes_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> bytes_;
  std::size_t size_;
};

// Sections are dispatch and combine in turn. All data are functions of the seed (tokens.hpp), so
// each rank can check every byte without asking the others.
class ExpertRank : public Worker {
 public:
  [[nodiscard]] static std::unique_ptr<ExpertRank> make(srd::Engine& engine,
                                                        const ExpertSetup& setup);

  [[nodiscard]] const RankPlace& place() const { return setup_.place; }
  [[nodiscard]] const ExpertResult& result() const { return result_; }

  void meet(std::span<const RankPlace> places) final { outbox_.meet(places, setup_.rank); }
  void prepare() final;
  void begin(TimePoint now) final;
  void progress(TimePoint now) final;
  [[nodiscard]] bool finished() const final {
    return section_ == 2 * (setup_.rounds + setup_.warm_up);
  }
  [[nodiscard]] const std::string& failure() const final { return failure_; }

 protected:
  // The others may write into a window of so many bytes.
  ExpertRank(srd::Engine& engine, const ExpertSetup& setup, std::size_t window_bytes);

  // What goes is made, and what has come is compared with what must have been sent. Outside of the
  // time that counts.
  virtual void prepare_dispatch(std::uint32_t round) = 0;
  virtual void prepare_combine(std::uint32_t round) = 0;
  virtual void check_dispatched() = 0;
  // The section has begun.
  virtual void start(TimePoint now) = 0;
  virtual void on_completion(TimePoint now, const srd::Completion& completion) = 0;
  // What can be posted is: something has ended or come.
  virtual void post_all(TimePoint now) = 0;

  [[nodiscard]] const ExpertSetup& setup() const { return setup_; }
  [[nodiscard]] const ExpertProblem& problem() const { return setup_.problem; }
  [[nodiscard]] const Router& router() const { return router_; }
  [[nodiscard]] std::byte* window() const { return window_.data(); }
  // Of the section that has begun last.
  [[nodiscard]] bool combining() const { return section_ % 2 == 0; }
  [[nodiscard]] std::uint32_t round() const { return (section_ - 1) / 2; }
  [[nodiscard]] bool has_begun() const { return section_ != 0; }
  // Of this round, as the rank's own tokens go.
  [[nodiscard]] std::span<const Selection> route() const { return route_; }
  [[nodiscard]] std::span<const Selection> route_of(std::uint32_t token) const {
    return route().subspan(std::size_t{token} * problem().topk, problem().topk);
  }
  // What experts have made of a token is added to it.
  [[nodiscard]] std::span<float> sum_of(std::uint32_t token) {
    return std::span(sums_).subspan(std::size_t{token} * problem().hidden, problem().hidden);
  }
  [[nodiscard]] std::size_t result_bytes() const { return std::size_t{problem().hidden} * 2; }
  // All that was due has come, and the rank's tokens have made so many bytes.
  void note_time(TimePoint now, std::uint64_t bytes);
  // A request has ended badly.
  void fail_at(std::uint32_t rank, srd::Status status);
  [[nodiscard]] Outbox& outbox() { return outbox_; }
  [[nodiscard]] ExpertResult& account() { return result_; }

 private:
  void check_combined();

  srd::Engine& engine_;
  ExpertSetup setup_;
  Router router_;
  Window window_;
  Outbox outbox_;
  std::string failure_;
  ExpertResult result_;
  std::uint32_t section_ = 0;  // begun so far: dispatch and combine in turn
  TimePoint began_{};
  std::vector<Selection> route_;
  std::vector<float> sums_;
};

}  // namespace weft::workloads
