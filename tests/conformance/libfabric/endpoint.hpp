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
  // `label` tells several endpoints of one program apart; the peer opens one with the same label.
  explicit Endpoint(const std::string& label = "0");
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  [[nodiscard]] static int rank();
  // Repeats `post` while the provider is busy.
  void post(const std::function<ssize_t()>& post);
  // The next completion, or the end of the program if there is none for long.
  fi_cq_tagged_entry wait();
  // The next error completion.
  fi_cq_err_entry wait_error();
  void wait_for(std::size_t count);
  // Nothing is sent any more, and the peer knows: whoever ends first would not acknowledge the last
  // words of the other if the first acknowledgement was lost.
  void part();
  // Goes on with another program, which opens an endpoint with that label.
  void meet(const std::string& label) { find_peer(label); }
  // Until the peer has come here too.
  void barrier();
  // Gives the peer eight-byte words, and gets as many.
  std::vector<std::uint64_t> exchange(const std::vector<std::uint64_t>& words);

  fid_domain* domain = nullptr;
  fid_ep* ep = nullptr;
  fid_cntr* sends = nullptr;
  fid_cntr* receives = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  fi_info* info = nullptr;

 private:
  void find_peer(const std::string& label);
  bool take(fi_cq_tagged_entry& entry);

  std::string label_;
  fid_fabric* fabric_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_av* av_ = nullptr;
  fid_eq* eq_ = nullptr;
  std::deque<fi_cq_tagged_entry> early_;  // completions that a helper met before their time
};

}  // namespace weft::conformance
