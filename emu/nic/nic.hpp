// Owns address handles and datagram queue pairs (SRD, UD) of one process, over the engine and the
// NIC's Domains.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "emu/nic/domains.hpp"
#include "emu/nic/outcome.hpp"
#include "emu/nic/qp_attributes.hpp"
#include "emu/nic/work.hpp"
#include "srd/base/slab.hpp"
#include "srd/engine/engine.hpp"

namespace weft::nic {

// What the NIC is able to do, and its limits; fixed when it is made.
struct NicConfig {
  srd::Address address;
  // The block of queue pair numbers that this process has on the NIC. It also tells which process a
  // remote queue pair belongs to: attachment = qpn / qpn_count.
  std::uint32_t first_qpn = 0;
  std::uint32_t qpn_count = 256;
  std::uint32_t max_qp = 256;  // at a time; their numbers differ modulo this, made a power of two
  std::uint32_t max_ah = 4096;
  std::uint32_t max_rdma_size = 1U << 30;
  bool rdma_read = true;
  bool rdma_write = true;
  bool rnr_retry = true;
  bool rdma_needs_ah = false;  // only peers with an address handle here may read and write
  bool loopback = true;  // false: packets to the own address are lost, as on some real fabrics
};

// What is decided when a queue pair is made, and never changes.
struct QpInit {
  QpType type = QpType::srd;
  std::uint32_t pd = 0;
  std::uint32_t receive_depth = 0;
  bool unsolicited_immediate = false;
  void* owner = nullptr;  // the device's own object for this queue pair
};

// A queue pair. Nic makes it, changes it, and keeps it; its address and number are used again for
// another one when nothing of it is left in the engine.
class DatagramQp {
 public:
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] QpType type() const { return init_.type; }
  [[nodiscard]] QpState state() const { return state_; }
  [[nodiscard]] const QpAttributes& attributes() const { return attributes_; }
  [[nodiscard]] std::uint32_t pd() const { return init_.pd; }
  [[nodiscard]] void* owner() const { return init_.owner; }

 private:
  friend class Nic;
  std::uint32_t number_ = 0;
  QpInit init_;
  QpState state_ = QpState::reset;
  QpAttributes attributes_;
  std::uint32_t generation_ = 0;   // grows with each reset: completions of an older one are dropped
  std::uint32_t outstanding_ = 0;  // of all generations; the number is not reused until it is 0
  bool used_ = false;
  bool open_ = false;  // has an endpoint in the engine
};

// Like the engine below it, it has no lock: its callers take turns with those of the engine.
//
// post_send() and post_receive() check what a NIC would check (state, address handle, keys, domain,
// length) and post a request to the engine. Its cookie is the index of a Context, by which
// next_completion() turns the engine's completion into the queue pair's. Work that fails a check
// never enters the engine: its completion waits in local_.
class Nic {
 public:
  // The engine looks keys up in the table of these domains. Both must outlive it.
  Nic(const NicConfig& config, Domains& domains, srd::Engine& engine);

  // --- Protection domains. Freeing one that is in use is refused with EBUSY.
  [[nodiscard]] Outcome<std::uint32_t> allocate_pd();
  [[nodiscard]] Outcome<void> free_pd(std::uint32_t pd);

  // --- Memory. The caller has made sure that the region is mapped.
  [[nodiscard]] Outcome<srd::RegionKey> register_memory(const srd::Region& region);
  // Work that still uses the region ends with bad_local_key; its bytes are not touched any more.
  [[nodiscard]] Outcome<void> deregister(srd::RegionKey key);

  // --- Address handles. One number per PD and address, however often it is asked for.
  [[nodiscard]] Outcome<std::uint16_t> create_ah(std::uint32_t pd, const srd::Address& address);
  [[nodiscard]] Outcome<void> destroy_ah(std::uint32_t pd, std::uint16_t ah);

  // --- Queue pairs.
  [[nodiscard]] Outcome<DatagramQp*> create_qp(const QpInit& init);
  void set_owner(DatagramQp& qp, void* owner) { qp.init_.owner = owner; }
  [[nodiscard]] Outcome<void> modify_qp(DatagramQp& qp, std::uint32_t mask,
                                        const QpAttributes& attributes);
  // Cancels its outstanding work, which gives no completions.
  void destroy_qp(DatagramQp& qp);

  // --- Work. False: the engine is full and has taken nothing; offer the work again after poll().
  // An error in the work itself becomes the status of its completion.
  [[nodiscard]] bool post_send(DatagramQp& qp, const SendWork& work);
  [[nodiscard]] bool post_receive(DatagramQp& qp, const ReceiveWork& work);
  [[nodiscard]] std::size_t poll(std::span<WorkCompletion> completions);
  // The same for one; false if nothing has ended.
  [[nodiscard]] bool next_completion(WorkCompletion& completion);

  [[nodiscard]] const NicConfig& config() const { return config_; }
  [[nodiscard]] srd::Engine& engine() { return engine_; }
  [[nodiscard]] const srd::Engine& engine() const { return engine_; }

 private:
  // What a completion of the engine belongs to. Small: there is one per posted receive.
  struct Context {
    DatagramQp* qp = nullptr;
    std::uint64_t wr_id = 0;
    std::uint32_t generation = 0;
    std::uint32_t length = 0;
    std::uint32_t inline_data = kNone;                   // in inline_data_
    std::array<srd::RegionKey, kMaxReceiveSges> keys{};  // of the regions it uses, then nothing
    Operation operation = Operation::send;
  };
  using InlineData = std::array<std::byte, kMaxInline>;
  static constexpr std::uint32_t kNone = Slab<InlineData>::kNone;
  // The address handles of one domain.
  struct Handles {
    std::unordered_map<srd::Address, std::uint16_t> numbers;
    // The latest answer of find(), until they change.
    bool found_is_valid = false;
    std::uint16_t found = 0;
    srd::Address found_for;

    [[nodiscard]] std::uint16_t find(const srd::Address& address);
  };
  // An address of a peer's NIC, within one domain. It counts how often it was asked for.
  struct AddressHandle {
    srd::Address address;
    std::uint32_t pd = 0;
    std::uint32_t references = 0;
    std::vector<srd::PeerId> peers;  // by attachment; kNoPeer until used
  };
  static constexpr srd::PeerId kNoPeer{0xFFFFFFFF};

  [[nodiscard]] Handles& handles_of(std::uint32_t pd);
  [[nodiscard]] AddressHandle* find_ah(std::uint32_t pd, std::uint16_t ah);
  // The process on that NIC to which the queue pair belongs; kNoPeer if the engine has no room for
  // one more.
  [[nodiscard]] srd::PeerId peer_of(AddressHandle& ah, std::uint32_t qpn);
  // Checks a request, and finds the memory that it names. What it allocates goes with the context.
  [[nodiscard]] WorkStatus prepare(const DatagramQp& qp, const SendWork& work,
                                   std::uint32_t context, srd::SegmentList& segments);
  // Turns pieces of registered memory into segments, and notes in `user` which regions are in use.
  // Stops at the first one that is not allowed.
  [[nodiscard]] WorkStatus resolve(const DatagramQp& qp, std::span<const Sge> sges,
                                   srd::Access access, Context& user,
                                   std::span<srd::Segment> segments, std::uint64_t& length);
  [[nodiscard]] std::uint32_t new_context(DatagramQp& qp, std::uint64_t wr_id, Operation operation);
  [[nodiscard]] srd::PostResult post_to_engine(const DatagramQp& qp, const SendWork& work,
                                               srd::PeerId peer, std::uint32_t context,
                                               const srd::SegmentList& segments);
  // The request goes to this NIC itself, and config().loopback says that such packets are lost.
  [[nodiscard]] bool vanishes(const DatagramQp& qp, const SendWork& work) const;
  void release(std::uint32_t context);
  void complete_locally(DatagramQp& qp, const SendWork& work, WorkStatus status,
                        std::uint32_t length);
  // The queue pair's completion for one of the engine's. False: the program is not told, because
  // the queue pair was reset or destroyed meanwhile.
  [[nodiscard]] bool translate(const srd::Completion& from, WorkCompletion& to);
  [[nodiscard]] bool translate_unsolicited(const srd::Completion& from, WorkCompletion& to);
  void fill_source(const srd::Completion& from, WorkCompletion& to);
  // Does what the state asks for in the engine: opens or closes the endpoint, lets it receive.
  [[nodiscard]] Outcome<void> enter(DatagramQp& qp, QpState next, const QpAttributes& attributes);
  void close_endpoint(DatagramQp& qp);
  // Libraries keep queue pairs in a table with as many places as the device has queue pairs, by
  // their numbers: two that exist at a time must not share a place.
  [[nodiscard]] bool& table_place(std::uint32_t number) {
    return qp_table_[number & (qp_table_.size() - 1)].taken;
  }
  void forget_work(DatagramQp& qp);

  NicConfig config_;
  Domains& domains_;
  srd::Engine& engine_;
  std::vector<Handles> handles_of_;  // by domain
  std::vector<AddressHandle> handles_;
  std::vector<std::uint16_t> free_handles_;
  std::vector<std::unique_ptr<DatagramQp>> qps_;
  struct TablePlace {
    bool taken = false;
  };
  std::vector<TablePlace> qp_table_;  // a power of two
  std::uint32_t used_qps_ = 0;
  std::uint32_t next_qp_ = 0;  // a number is reused late: a late completion finds no new queue pair
  // Neither has a limit of its own: receives are bounded by the depth of each queue pair, requests
  // by what the engine takes. So receives cannot use up the room of requests, nor requests theirs.
  Slab<Context> contexts_{kNone};
  std::vector<std::uint32_t> region_users_;  // contexts per region, by MemoryTable::index_of()
  // Copies: the queue's entry may be overwritten before the work is sent for the last time.
  Slab<InlineData> inline_data_{kNone};
  std::deque<WorkCompletion> local_;  // that never entered the engine
};

}  // namespace weft::nic
