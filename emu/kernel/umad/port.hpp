// Owns the agents of one port in this process: which of them a datagram is for, and what waits for
// an answer.
//
// How it is wired. A process has one UmadPort for each NIC of which it has opened umad, and one
// UmadFile for each open descriptor. The port is what reads and writes the messages of the NIC's
// queue pair 1, in its rounds of progress; commands of files come with the NIC to themselves
// (UmadHost), so that nothing here needs a lock.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "emu/kernel/abi/umad.hpp"
#include "emu/kernel/management.hpp"
#include "emu/roce/wire/mad_header.hpp"

namespace weft::kernel {

class UmadFile;

class UmadHost {
 public:
  // Runs `work` with the NIC, its port and all files of that to itself; then lets messages leave.
  virtual void exclusively(const std::function<void(TimePoint now)>& work) = 0;
  // A thread of the program is about to sleep until something comes: another thread must receive.
  virtual void expect_messages() = 0;
  // With the NIC to itself: makes requests for that method of this NIC come to this process. False:
  // another process has it.
  [[nodiscard]] virtual bool claim(std::uint64_t service) = 0;
  virtual void release(std::uint64_t service) = 0;
  // False: nobody on the NIC's network has that address.
  [[nodiscard]] virtual bool may_exist(const srd::Address& address) = 0;

 protected:
  ~UmadHost() = default;
};

// What a program asks for. Class 0: it answers to nothing, and only asks.
struct UmadRegistration {
  std::uint32_t qpn = 1;
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::array<std::uint64_t, 2> methods{};  // a bit for each
  std::uint32_t oui = 0;
  std::uint8_t rmpp_version = 0;
  std::uint32_t flags = 0;

  [[nodiscard]] bool has_method(unsigned method) const {
    return (methods[method / 64] >> method % 64 & 1) != 0;
  }
};

// A datagram of a file's, on its way.
struct UmadSend {
  UmadFile* file = nullptr;
  std::uint32_t agent = 0;     // its number on the machine
  abi::umad::Header header{};  // as the program wrote it
  ManagementMessage message{};
  roce::wire::MadHeader mad{};  // of the message, as it leaves
  bool may_repeat = false;      // a program's own segments of a long message have one number
};

// Numbers name agents across files and processes of the machine; ids are a file's own.
class UmadPort final : public ManagementAgent {
 public:
  static constexpr std::size_t kMaxWaiting = 4096;   // for an answer
  static constexpr std::size_t kMaxOutgoing = 1024;  // that have not left the NIC

  // The host must outlive it.
  UmadPort(UmadHost& host, const ManagementPort::Facts& facts);
  ~UmadPort() = default;
  UmadPort(const UmadPort&) = delete;
  UmadPort& operator=(const UmadPort&) = delete;

  [[nodiscard]] UmadHost& host() { return host_; }
  [[nodiscard]] std::span<const srd::Address> addresses() const { return addresses_; }

  // An errno, or 0 and the agent's number. `id`: the file's number for it.
  [[nodiscard]] int add(UmadFile& file, std::uint32_t id, const UmadRegistration& wanted,
                        std::uint32_t& number);
  // What it waits for will not come.
  void remove(std::uint32_t number);
  // An errno, or 0: it leaves, and if it has a time-out its file hears of the answer, or that there
  // is none.
  [[nodiscard]] int send(TimePoint now, UmadSend& send);

  // --- ManagementAgent
  void on_message(TimePoint now, const ManagementArrival& arrival) override;
  void on_timeout(TimePoint now) override;
  [[nodiscard]] bool next_message(ManagementMessage& out) override;
  [[nodiscard]] TimePoint next_timeout() const override {
    return !outgoing_.empty()   ? TimePoint{}
           : deadlines_.empty() ? kNever
                                : deadlines_.begin()->first;
  }

 private:
  struct Agent {
    UmadFile* file = nullptr;
    std::uint32_t id = 0;
    std::vector<std::uint64_t> services;  // that it answers to
  };
  // A request that waits for its answer. The map finds it by transaction, the set by deadline;
  // serial keeps the order among equal deadlines.
  struct Waiting {
    UmadSend send;
    std::uint32_t tries_left = 0;
    TimePoint deadline{};
    std::uint64_t serial = 0;  // in the order of sending
  };
  using ByTransaction = std::multimap<std::uint64_t, Waiting>;
  using Deadline = std::pair<TimePoint, ByTransaction::iterator>;
  struct Earlier {
    bool operator()(const Deadline& a, const Deadline& b) const {
      return a.first != b.first ? a.first < b.first
                                : a.second->second.serial < b.second->second.serial;
    }
  };

  [[nodiscard]] bool claim_methods(Agent& agent, const UmadRegistration& wanted,
                                   std::uint32_t number);
  void release_methods(Agent& agent);
  [[nodiscard]] bool is_duplicate(const UmadSend& send) const;
  [[nodiscard]] const Agent* agent_of_request(const roce::wire::MadHeader& mad) const;
  void take_answer(const ManagementArrival& arrival, const roce::wire::MadHeader& mad);
  ByTransaction::iterator forget(ByTransaction::iterator waiting);

  UmadHost& host_;
  std::vector<srd::Address> addresses_;
  std::uint32_t first_number_;
  std::uint32_t next_number_ = 1;
  std::uint64_t next_serial_ = 0;
  std::map<std::uint32_t, Agent> agents_;              // by number
  std::map<std::uint64_t, std::uint32_t> by_service_;  // agents' numbers
  ByTransaction waiting_;
  std::set<Deadline, Earlier> deadlines_;
  std::deque<ManagementMessage> outgoing_;
};

}  // namespace weft::kernel
