// Owns one end of a pair of libfabric programs: an endpoint of the stock efa provider and its
// helpers.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace weft::conformance {

// Says what went wrong and ends the program; the test that started it fails.
[[noreturn]] void give_up(const std::string& what);
void require(bool condition, const std::string& what);
void require_ok(std::int64_t result, const std::string& call);

// Memory that the provider may use, with a pattern that depends on position and seed.
class Buffer {
 public:
  Buffer(fid_domain* domain, std::size_t size);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void fill(std::uint32_t seed);
  void clear() { bytes_.assign(bytes_.size(), 0); }
  void check(std::uint32_t seed, std::size_t offset, std::size_t length) const;
  [[nodiscard]] bool is_clear(std::size_t offset, std::size_t length) const;
  [[nodiscard]] std::uint8_t* data() { return bytes_.data(); }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] void* desc() const { return fi_mr_desc(region_); }
  [[nodiscard]] std::uint64_t key() const { return fi_mr_key(region_); }

 private:
  std::vector<std::uint8_t> bytes_;
  fid_mr* region_ = nullptr;
};

class Endpoint {
 public:
  // `label` tells several endpoints of one program apart; every other rank opens one with the same.
  explicit Endpoint(const std::string& label = "0");
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  static int round;  // which time a case is run; part of every label
  [[nodiscard]] static int rank();
  [[nodiscard]] static int ranks();
  // Repeats `post` while the provider is busy.
  void post(const std::function<ssize_t()>& post);
  // The next completion, or the end of the program if there is none for long.
  fi_cq_tagged_entry wait();
  // Whether there is one; progress is made in any case.
  bool poll(fi_cq_tagged_entry& entry);
  // Until that is so, with progress.
  void wait_until(const std::function<bool()>& condition, const std::string& what);
  // The next error completion.
  fi_cq_err_entry wait_error();
  void wait_for(std::size_t count);
  // Nothing is sent any more, and the peer knows: an end that left first would not acknowledge the
  // last words of the other if the first acknowledgement was lost.
  void part();
  // Goes on with another program, which opens an endpoint with that label.
  void meet(const std::string& label) { find_peers(label); }
  // Takes the peer's address out of the vector and puts it in again, as the peer does with ours;
  // nothing is under way meanwhile.
  void forget_and_meet_again();
  [[nodiscard]] fi_addr_t address_of(int other) const {
    return addresses_.at(static_cast<std::size_t>(other));
  }
  // Until the peer has come here too. Of two ranks only.
  void barrier();
  // Gives the peer eight-byte words, and gets as many.
  std::vector<std::uint64_t> exchange(const std::vector<std::uint64_t>& words);

  fid_domain* domain = nullptr;
  fid_ep* ep = nullptr;
  fid_cntr* sends = nullptr;
  fid_cntr* receives = nullptr;
  fid_cntr* writes = nullptr;
  fid_cntr* reads = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;  // the next rank; of two, the other one
  fi_info* info = nullptr;

 private:
  void find_peers(const std::string& label);
  fi_addr_t insert_address_of(int other);
  // A file says that we have come so far; until the others have, too. Nothing is sent.
  void meet_at(const std::string& place);
  [[nodiscard]] std::string path(const std::string& what, int who) const;
  bool take(fi_cq_tagged_entry& entry);

  std::string label_;
  int meetings_ = 0;
  std::vector<fi_addr_t> addresses_;  // by rank
  fid_fabric* fabric_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_av* av_ = nullptr;
  fid_eq* eq_ = nullptr;
  std::deque<fi_cq_tagged_entry> early_;  // completions that a helper met before their time
};

}  // namespace weft::conformance
