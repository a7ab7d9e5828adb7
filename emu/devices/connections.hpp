// Owns connection management in this process: one manager behind the queue pairs 1 of its NICs, and
// the ids of the device files that programs open for it.
//
// Locks, outermost first: those of all NICs, in order, then that of the manager. A round of
// progress of one NIC holds that NIC's and takes the manager's; a program's command takes all,
// because it may ask any NIC's network which process answers to a port.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "emu/devices/nic_runner.hpp"
#include "emu/kernel/management.hpp"
#include "emu/kernel/ucma/contexts.hpp"
#include "emu/kernel/ucma/file.hpp"
#include "emu/roce/cm/manager.hpp"
#include "srd/io/posix.hpp"
#include "srd/run/try_lock.hpp"

namespace weft::devices {

class Connections final : public kernel::CmHost,
                          private roce::cm::ServiceClaims,
                          private roce::cm::Reachability {
 public:
  struct Nic {
    NicRunner* runner = nullptr;
    std::uint32_t index = 0;  // as NETLINK_RDMA numbers devices
    // Makes requests for that service of this NIC come to this process, or not any more. False:
    // another process has it. Called with the NIC to itself.
    std::function<bool(std::uint64_t service, bool wanted)> claim;
    // False: nobody on the NIC's network has that address. Called with the NIC to itself. May be
    // empty: only a request finds out.
    std::function<bool(const srd::Address& address)> may_exist{};
  };
  using FileOf = std::function<std::shared_ptr<kernel::CmFile>(int fd)>;

  // Of NICs whose devices have a management(). They must outlive this.
  Connections(std::vector<Nic> nics, std::uint64_t seed, FileOf file_of);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  [[nodiscard]] std::unique_ptr<kernel::CmFile> make_file() {
    return std::make_unique<kernel::CmFile>(contexts_, *this);
  }
  // This thread is inside already, or inside a NIC: a signal handler has interrupted it there.
  [[nodiscard]] bool held_here() const;
  // Says good-bye to all peers, before the process ends. Not where held_here(). Gives up after a
  // moment if other threads do not leave the NICs: they may be waiting for the end of the process.
  void leave();

  // --- CmHost
  void exclusively(
      const std::function<void(roce::cm::Manager& manager, TimePoint now)>& work) override;
  void expect_events() override;
  [[nodiscard]] std::shared_ptr<kernel::CmFile> file_of(int fd) override { return file_of_(fd); }

 private:
  // What a NIC's rounds of progress call.
  class Agent final : public kernel::ManagementAgent {
   public:
    Agent(Connections& all, Nic nic) : all_(all), nic_(std::move(nic)) {}

    void on_message(TimePoint now, const kernel::ManagementArrival& arrival) override;
    void on_timeout(TimePoint now) override;
    [[nodiscard]] bool next_message(kernel::ManagementMessage& out) override;
    [[nodiscard]] TimePoint next_timeout() const override {
      return due_.load(std::memory_order_relaxed) ? TimePoint{} : all_.next_timeout();
    }

   private:
    friend Connections;
    // With the manager's lock. What there is no room for is dropped.
    void add(const roce::cm::Outgoing& message);

    Connections& all_;
    Nic nic_;
    // Under the manager's lock.
    std::deque<roce::cm::Outgoing> outgoing_;
    std::size_t last_words_ = 0;    // of outgoing_
    std::atomic<bool> due_{false};  // there are some
  };

  [[nodiscard]] roce::cm::Config config_of(const std::vector<Nic>& nics, std::uint64_t seed) const;
  void with_all_nics(std::size_t first, const std::function<void()>& work);
  // False: another thread has one of them, and nothing was done.
  [[nodiscard]] bool try_with_all_nics(std::size_t first, const std::function<void()>& work);
  // With the manager's lock: `work`, and what follows from it. `inside`: the NIC that this is a
  // round of.
  void make_round(TimePoint now, const Agent* inside,
                  const std::function<void(roce::cm::Manager&, TimePoint)>& work);
  [[nodiscard]] Agent* agent_with(const srd::Address& address) const;
  void hand_out(TimePoint now);
  void show_whether_it_listens();
  [[nodiscard]] TimePoint next_timeout() const {
    return time_at(Duration{next_timeout_.load(std::memory_order_relaxed)});
  }

  // --- ServiceClaims: for all NICs, or none.
  [[nodiscard]] bool claim(std::uint64_t service) override;
  void release(std::uint64_t service) override;
  // --- Reachability
  [[nodiscard]] int reach(const srd::Address& source,
                          const srd::Address& destination) const override;

  FileOf file_of_;
  std::vector<std::unique_ptr<Agent>> agents_;
  srd::TryLock lock_;
  TimePoint last_now_{};
  std::atomic<std::int64_t> next_timeout_;
  roce::cm::Manager manager_;
  kernel::Contexts contexts_;
  srd::UniqueFd sign_;  // see listening_sign.hpp
};

}  // namespace weft::devices
