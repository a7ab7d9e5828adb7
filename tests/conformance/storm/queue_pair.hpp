// Owns an SRD queue pair of a small program that uses the verbs library as it is.
#pragma once

#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/conformance/verbs_objects.hpp"

namespace weft::conformance {

inline constexpr std::uint32_t kQkey = 0x77;
inline constexpr std::uint8_t kForEver = 7;  // of tries when a receiver is not ready

// One device, one protection domain, one completion queue, one queue pair in RTS and an address
// handle to its own host; everything goes in the destructor, and that must succeed.
class QueuePair {
 public:
  // Through the device's hooks, or through the functions that the library had before they came.
  enum class Calls : std::uint8_t { hooked, stock };
  enum class Events : std::uint8_t { off, on };

  // Of the first device. Receives lie before sends in `slots` pieces of `slot_size` bytes each.
  QueuePair(std::uint32_t slots, std::uint32_t slot_size, Calls calls = Calls::hooked,
            Events events = Events::off, std::uint8_t rnr_retry = kForEver)
      : slots_(slots), slot_size_(slot_size), memory_(std::size_t{2} * slots * slot_size) {
    context_ = open_first_device();
    // The functions that libibverbs found in its provider. Hooks replace those behind
    // ibv_post_send() and ibv_poll_cq() later, and these go past them.
    if (calls == Calls::stock) {
      stock_post_send_ = context_->ops.post_send;
      stock_poll_cq_ = context_->ops.poll_cq;
    }
    pd_ = ibv_alloc_pd(context_);
    channel_ = events == Events::on ? ibv_create_comp_channel(context_) : nullptr;
    cq_ = ibv_create_cq(context_, static_cast<int>(4 * slots), nullptr, channel_, 0);
    const int access = IBV_ACCESS_LOCAL_WRITE;  // clang minds what the macro does with the constant
    region_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), access);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.cap = {slots, slots, 1, 1, 0};
    wanted.qp_type = IBV_QPT_DRIVER;
    wanted.sq_sig_all = 1;
    qp_ = efadv_create_driver_qp(pd_, &wanted, EFADV_QP_DRIVER_TYPE_SRD);
    demand(pd_ != nullptr && cq_ != nullptr && region_ != nullptr && qp_ != nullptr, "no queues");
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = kQkey;
    modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    attributes.qp_state = IBV_QPS_RTR;
    modify(attributes, IBV_QP_STATE);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.rnr_retry = rnr_retry;
    modify(attributes,
           IBV_QP_STATE | IBV_QP_SQ_PSN | (rnr_retry == kForEver ? 0 : IBV_QP_RNR_RETRY));
    union ibv_gid gid;
    demand(ibv_query_gid(context_, 1, 0, &gid) == 0, "no GID");
    ibv_ah_attr to{};
    to.is_global = 1;
    to.port_num = 1;
    to.grh.dgid = gid;  // everybody is on this host
    ah_ = ibv_create_ah(pd_, &to);
    demand(ah_ != nullptr, "no address handle");
  }
  ~QueuePair() {
    destroy_queue_pair();
    demand(ibv_destroy_ah(ah_) == 0 && ibv_dereg_mr(region_) == 0 && ibv_destroy_cq(cq_) == 0 &&
               (channel_ == nullptr || ibv_destroy_comp_channel(channel_) == 0) &&
               ibv_dealloc_pd(pd_) == 0 && ibv_close_device(context_) == 0,
           "cannot take down what was set up");
  }
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // Destroys the queue pair before the rest, for tests of what stays behind.
  void destroy_queue_pair() {
    demand(qp_ == nullptr || ibv_destroy_qp(qp_) == 0, "cannot destroy the queue pair");
    qp_ = nullptr;
  }

  // With Events::on: asks for an event with the next completion, and waits for one.
  void arm() { demand(ibv_req_notify_cq(cq_, 0) == 0, "cannot ask for an event"); }
  void sleep_until_event() {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    demand(ibv_get_cq_event(channel_, &which, &context) == 0 && which == cq_, "no event");
    ibv_ack_cq_events(cq_, 1);
  }

  [[nodiscard]] std::uint32_t number() const { return qp_->qp_num; }
  [[nodiscard]] std::uint8_t* receive_slot(std::uint64_t slot) { return at(slot); }
  [[nodiscard]] std::uint8_t* send_slot(std::uint64_t slot) { return at(slots_ + slot); }

  [[nodiscard]] ibv_pd* domain() { return pd_; }
  [[nodiscard]] ibv_context* context() { return context_; }

  void post_receive(std::uint64_t slot) { post_receive(piece_at(slot, slot_size_), slot); }
  void post_receive(ibv_sge piece, std::uint64_t id) {
    ibv_recv_wr work{};
    ibv_recv_wr* bad = nullptr;
    work.wr_id = id;
    work.sg_list = &piece;
    work.num_sge = 1;
    demand(ibv_post_recv(qp_, &work, &bad) == 0, "cannot post a receive");
  }
  // False: the queue is full.
  [[nodiscard]] bool post_send(std::uint64_t slot, std::uint64_t id, std::uint32_t to) {
    return post_send(piece_at(slots_ + slot, slot_size_), id, to);
  }
  [[nodiscard]] bool post_send(ibv_sge piece, std::uint64_t id, std::uint32_t to) {
    ibv_send_wr work{};
    ibv_send_wr* bad = nullptr;
    work.wr_id = id;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.ud.ah = ah_;
    work.wr.ud.remote_qpn = to;
    work.wr.ud.remote_qkey = kQkey;
    const int error = stock_post_send_ != nullptr ? stock_post_send_(qp_, &work, &bad)
                                                  : ibv_post_send(qp_, &work, &bad);
    demand(error == 0 || error == ENOMEM, "cannot post a send");
    return error == 0;
  }
  // Takes one completion, if there is one.
  [[nodiscard]] bool poll(ibv_wc& done) {
    const int count =
        stock_poll_cq_ != nullptr ? stock_poll_cq_(cq_, 1, &done) : ibv_poll_cq(cq_, 1, &done);
    demand(count >= 0, "polling fails");
    return count == 1;
  }

 private:
  void modify(ibv_qp_attr& attributes, int mask) {
    demand(ibv_modify_qp(qp_, &attributes, mask) == 0, "cannot bring the queue pair up");
  }
  [[nodiscard]] std::uint8_t* at(std::uint64_t slot) { return memory_.data() + slot * slot_size_; }
  [[nodiscard]] ibv_sge piece_at(std::uint64_t slot, std::uint32_t length) {
    return {reinterpret_cast<std::uintptr_t>(at(slot)), length, region_->lkey};
  }

  // Of receives, and as many of sends behind them.
  std::uint32_t slots_;
  std::uint32_t slot_size_;
  std::vector<std::uint8_t> memory_;
  ibv_context* context_ = nullptr;
  int (*stock_post_send_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  int (*stock_poll_cq_)(ibv_cq*, int, ibv_wc*) = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_ah* ah_ = nullptr;
};

}  // namespace weft::conformance
