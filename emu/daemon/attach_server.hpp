// Owns the attachments of processes: accepting them, giving them rings, noticing their end.
//
//   connection --> newcomer --attach--> process --socket or pid ends--> leaving --drained--> gone
//
// A newcomer has connected and not asked for anything yet. Everything here runs on the control
// thread. What forwarding has to do (add a slot, retire it, take it out) are calls through
// NetworkControl; what forwarding notices (a flow worth a direct ring, a broken ring, a ring that
// is empty at last, a link that changed) comes back as a Notice, to heed().
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emu/attach/protocol.hpp"
#include "emu/attach/seqpacket.hpp"
#include "emu/daemon/acceptor.hpp"
#include "emu/daemon/admission.hpp"
#include "emu/daemon/event_log.hpp"
#include "emu/daemon/network_control.hpp"
#include "emu/daemon/notices.hpp"
#include "emu/daemon/place_registry.hpp"
#include "emu/daemon/tap_donors.hpp"
#include "srd/base/result.hpp"

namespace weft::daemon {

class AttachServer {
 public:
  struct Options {
    std::size_t mtu = 0;
    std::size_t ring_bytes = 0;
    bool direct_rings = true;
    bool tells_network = false;  // processes learn rate and round trip of the modelled network
    TimePoint started{};
    std::vector<uid_t> other_users{};  // who may attach, too
  };
  AttachServer(boost::asio::io_context& io, SideThreads& side, Plant& plant,
               NetworkControl& network, EventLog& events, const Options& options);
  ~AttachServer();

  // From now on, that file remembers which process has which place.
  [[nodiscard]] Result<void> remember(const std::string& file);
  void listen(srd::UniqueFd listener);

  void heed(const Notice& notice);
  // An ideal network has become a modelled one: frames in direct rings would bypass it.
  void take_all_rings_back();
  [[nodiscard]] std::size_t direct_pairs() const { return direct_pairs_; }
  // Connections of users who may not attach.
  [[nodiscard]] std::uint64_t refused() const { return admission_.refused(); }

 private:
  // A connection that has not asked for a place yet, and an attached process.
  struct Newcomer;
  struct Process;

  // A life that is later than all before, also across restarts of weftd: tenths of seconds since
  // 1970, which wrap every 13 years; Life compares as a serial number.
  [[nodiscard]] static std::uint32_t life_of_now();

  void take(ClientSocket socket);
  void await_newcomer(std::uint64_t number);
  void hear_newcomer(std::uint64_t number);
  // Takes the newcomer off the list, and returns its connection.
  std::unique_ptr<ClientWatch> dismiss_newcomer(std::uint64_t number);
  void send_idle_newcomers_away();
  // True: the connection stays, as a newcomer's.
  [[nodiscard]] bool answer_describe(int socket, const attach::DescribeRequest& request);
  [[nodiscard]] Result<void> let_in(std::unique_ptr<ClientWatch>& socket,
                                    const attach::AttachRequest& request);
  [[nodiscard]] Result<PlantNic*> nic_for(const attach::AttachRequest& request) const;
  [[nodiscard]] std::size_t ring_bytes_for(const attach::AttachRequest& request) const;
  [[nodiscard]] std::unique_ptr<Slot> slot_for(const Process& process, srd::RingPort port);
  [[nodiscard]] attach::AttachReply reply_for(const Process& process) const;

  // Waits for messages of the process, and for its end.
  void watch(Process& process);
  void hear(Process& process);
  // False: it is to leave.
  [[nodiscard]] bool answer(const Process& process);
  [[nodiscard]] Process* find(const SlotKey& key);
  // Also for a process whose socket is full: it has to attach again, when it reads its socket.
  void leave(Process& process);
  void take_out(Process& process);
  // Tells `from` that its direct ring to `peer` has ended.
  void take_ring_back(Process& from, const Process& peer);
  void give_direct_ring(Process& from, Process& to);
  void tell_of_link(std::uint32_t nic, bool up);

  boost::asio::io_context& io_;
  SideThreads& side_;
  Plant& plant_;
  NetworkControl& network_;
  EventLog& events_;
  Options options_;
  Admission admission_;
  PlaceRegistry registry_;
  TapDonors taps_;
  std::unique_ptr<Acceptor> acceptor_;
  boost::asio::steady_timer sweep_;
  bool sweeping_ = false;
  srd::Life first_life_{life_of_now() + 1};
  std::uint64_t numbers_ = 0;  // of connections, given out so far
  std::uint32_t serials_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Newcomer>>
      newcomers_;  // connected, not attached
  std::map<uid_t, std::size_t> newcomers_of_;
  // By the number of the connection, which is never used again: a handler that comes late finds
  // nothing instead of a stranger. by_place_ has the same processes by NIC and attachment.
  std::unordered_map<std::uint64_t, std::unique_ptr<Process>> processes_;
  std::unordered_map<std::uint64_t, Process*> by_place_;
  std::size_t direct_pairs_ = 0;
};

}  // namespace weft::daemon
