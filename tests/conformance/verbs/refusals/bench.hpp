// Owns what the cases of weft_verbs_refusals stand on: a device with two queue pairs that are
// connected to each other, and the book of what was expected and what came.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/verbs_objects.hpp"

namespace weft::conformance {

// Counts cases, and says of each that ends otherwise than Linux ends it.
class Book {
 public:
  // A chapter's cases are counted together.
  void chapter(const std::string& name);
  // `got`: an errno, a completion status, or 0 for success.
  void check(const std::string& what, int expected, int got);
  void check(const std::string& what, bool good) { check(what, 1, good ? 1 : 0); }
  // Prints the last chapter; the number of wrong cases.
  [[nodiscard]] int finish();

 private:
  void print();

  std::string chapter_;
  int cases_ = 0;
  int wrong_ = 0;
  int all_cases_ = 0;
  int all_wrong_ = 0;
};

constexpr std::size_t kMemory = 65536;

// Objects of one device; they live as long as the program.
struct Bench {
  Bench();

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_pd* other_domain = nullptr;
  ibv_cq* queue = nullptr;
  std::byte* memory = nullptr;  // kMemory bytes
  ibv_mr* region = nullptr;     // all of it, with every right
  ibv_gid gid{};

  [[nodiscard]] std::uint64_t place(std::size_t at = 0) const {
    return reinterpret_cast<std::uint64_t>(memory) + at;
  }
  [[nodiscard]] ibv_qp* make(ibv_qp_type type, ibv_srq* srq = nullptr) const;
  [[nodiscard]] ibv_ah_attr way() const;
  // The attributes and the mask that lead there from the state before.
  [[nodiscard]] ibv_qp_attr step(ibv_qp_type type, ibv_qp_state to, int& mask,
                                 std::uint32_t peer = 1) const;
  void lead(ibv_qp* pair, ibv_qp_state to, std::uint32_t peer = 1) const;
  // The next completion; nothing within the patience of a test.
  [[nodiscard]] std::optional<ibv_wc> next() const;
};

// Two queue pairs, connected to each other, that are gone afterwards.
class Link {
 public:
  // `access`: of the second one. `srq`: of the second one, may be null.
  explicit Link(const Bench& bench, ibv_qp_type type = IBV_QPT_RC, int access = 15,
                ibv_srq* srq = nullptr, int max_reads = 4);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] ibv_qp* one() const { return one_; }
  [[nodiscard]] ibv_qp* other() const { return other_; }

  // Posts on the first one and returns how it ends: the status of its completion, or the errno that
  // posting gives, negative. -1000: it does not end.
  [[nodiscard]] int send(ibv_send_wr request, std::vector<ibv_sge> pieces) const;
  void post_receive(std::vector<ibv_sge> pieces, std::uint64_t id = 77) const;
  // The second one's next completion, also if it came while the first one waited for its own.
  [[nodiscard]] std::optional<ibv_wc> receive() const;
  // Its status; -1000: there is none.
  [[nodiscard]] int receive_status() const;

 private:
  const Bench& bench_;
  ibv_qp* one_;
  ibv_qp* other_;
  mutable std::optional<ibv_wc> heard_;
};

// --- The chapters.
void states(const Bench& bench, Book& book);    // states.cpp: transitions and attributes
void objects(const Bench& bench, Book& book);   // objects.cpp: what may be made and destroyed
void requests(const Bench& bench, Book& book);  // requests.cpp: how work ends
void keys(const Bench& bench, Book& book);      // keys.cpp: rights, bounds, domains
void windows(const Bench& bench, Book& book);   // windows.cpp: memory windows, invalidation
void events(const Bench& bench, Book& book);    // events.cpp: limits, last receives, resizing

}  // namespace weft::conformance
