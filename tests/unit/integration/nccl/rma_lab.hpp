// Owns the laboratory of remote memory access: members of one group in virtual time.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "integration/nccl/core/rma.hpp"
#include "tests/unit/integration/nccl/core_lab.hpp"

namespace weft::testing {

struct RmaLabConfig {
  NcclLabConfig lab = nccl_lab_config();
  // A put or get is cut into parts of at most this many bytes.
  std::uint32_t part_bytes = srd::kMaxTransfer;
  std::uint32_t ranks_per_nic = 1;
};

// One group of `ranks` members, each with a window of its own memory and one context.
class RmaLab {
 public:
  explicit RmaLab(std::uint32_t ranks, const RmaLabConfig& config = {});

  [[nodiscard]] nccl::Rma& rma(std::uint32_t rank) { return *rmas_[nic_of(rank)]; }
  [[nodiscard]] srd::Engine& engine(std::uint32_t rank) { return world_.engine(nic_of(rank)); }
  [[nodiscard]] world::VirtualWorld& world() { return world_; }
  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }

  struct Member {
    nccl::ListenHandle handle;
    std::uint32_t listener = 0;
    std::uint16_t group = 0;
    std::uint32_t context = 0;
  };
  [[nodiscard]] Member& member(std::uint32_t rank) { return members_[rank]; }

  // All members at once; false: some member failed.
  [[nodiscard]] bool join();
  void make_contexts();
  // The memory of each rank; gives the number of the window, or 0 if it failed.
  [[nodiscard]] std::uint32_t register_all(std::vector<std::vector<std::byte>>& memory);

  [[nodiscard]] nccl::Request* put(std::uint32_t from, std::uint32_t to, nccl::RmaPlace source,
                                   std::size_t size, nccl::RmaPlace target,
                                   std::optional<nccl::RmaSignal> signal = std::nullopt);
  [[nodiscard]] nccl::Request* get(std::uint32_t to, std::uint32_t from, nccl::RmaPlace source,
                                   std::size_t size, nccl::RmaPlace target);
  // How it ended; releases it.
  [[nodiscard]] std::optional<nccl::Outcome> ended(std::uint32_t rank, nccl::Request* request);
  [[nodiscard]] nccl::Outcome outcome(std::uint32_t rank, nccl::Request* request,
                                      Duration limit = 30s);

  bool run_until(const std::function<bool()>& reached, Duration limit = 30s);
  void run_for(Duration duration);
  void crash(std::uint32_t rank);
  void restart(std::uint32_t rank);

 private:
  [[nodiscard]] std::uint32_t nic_of(std::uint32_t rank) const {
    return rank / config_.ranks_per_nic;
  }
  void boot(std::uint32_t nic);

  RmaLabConfig config_;
  std::uint32_t ranks_;
  world::VirtualWorld world_;
  std::vector<srd::EngineConfig> engines_;
  std::vector<std::unique_ptr<nccl::Rma>> rmas_;
  std::vector<Member> members_;
};

// Members that give nobody up before 10 s.
[[nodiscard]] RmaLabConfig patient_members();

// A group that is ready, with one window of 64 KiB at each member.
struct RmaGroup {
  RmaLab lab;
  std::vector<std::vector<std::byte>> memory;
  std::uint32_t window = 0;

  explicit RmaGroup(std::uint32_t ranks, const RmaLabConfig& config = patient_members());
};

// The value of the word at `offset`.
[[nodiscard]] std::uint64_t word_at(const std::vector<std::byte>& memory, std::size_t offset);

}  // namespace weft::testing
