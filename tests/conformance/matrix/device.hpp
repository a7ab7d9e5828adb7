// Owns the queue pair of a program that runs on any device: of SRD where there is such a thing,
// else a reliable connection.
#pragma once

#include <infiniband/efadv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "tests/conformance/verbs_objects.hpp"

namespace weft::conformance {

inline constexpr std::uint32_t kQkey = 0x4D58;

// Where an end is, as it tells the other one.
struct Place {
  ibv_gid gid;
  std::uint32_t qpn, key;
  std::uint64_t block;
};

struct Retries {
  std::uint8_t lost = 7;
  std::uint8_t refused = 7;  // for ever: a reliable connection does not survive giving up
  // Of SRD a request that found no receive ends in an error, and the program decides what then.
  std::uint8_t refused_datagram = 1;
};

class Device {
 public:
  Device(Which which, const Retries& retries, std::vector<std::uint8_t>& memory)
      : retries_(retries) {
    context_ = open_device(which);
    efadv_device_attr efa{};
    // Only EFA's library answers this.
    is_srd_ = efadv_query_device(context_, &efa, sizeof efa) == 0;
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 256, nullptr, nullptr, 0);
    // The other end reads blocks from here, and writes nothing.
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    region_ = ibv_reg_mr(pd_, memory.data(), memory.size(), access);
    demand(pd_ != nullptr && cq_ != nullptr && region_ != nullptr, "no memory");
    if (is_srd_) {
      ibv_qp_init_attr_ex wanted{};
      wanted.send_cq = wanted.recv_cq = cq_;
      wanted.cap = {64, 64, 1, 1, 0};
      wanted.qp_type = IBV_QPT_DRIVER;
      wanted.sq_sig_all = 1;
      // Reads of SRD go by the newer calls only, which have to be asked for here.
      wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      wanted.pd = pd_;
      wanted.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
      efadv_qp_init_attr own{};
      own.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
      qp_ = efadv_create_qp_ex(context_, &wanted, &own, sizeof own);
    } else {
      ibv_qp_init_attr wanted{};
      wanted.send_cq = wanted.recv_cq = cq_;
      wanted.cap = {64, 64, 1, 1, 0};
      wanted.qp_type = IBV_QPT_RC;
      wanted.sq_sig_all = 1;
      qp_ = ibv_create_qp(pd_, &wanted);
    }
    demand(qp_ != nullptr, "no queue pair");
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qkey = kQkey;
    to.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    demand(ibv_modify_qp(qp_, &to,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                             (is_srd_ ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0,
           "no INIT");
    demand(ibv_query_gid(context_, 1, 0, &gid_) == 0, "no GID");
  }

  void connect(const Place& there) {
    there_ = there;
    ibv_ah_attr address{};
    address.is_global = 1;
    address.port_num = 1;
    address.grh.dgid = there.gid;
    address.grh.hop_limit = 64;
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_4096;
    to.dest_qp_num = there.qpn;
    to.max_dest_rd_atomic = 1;
    to.min_rnr_timer = 10;
    to.ah_attr = address;
    demand(ibv_modify_qp(qp_, &to,
                         is_srd_ ? IBV_QP_STATE
                                 : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER) == 0,
           "no RTR");
    to = {};
    to.qp_state = IBV_QPS_RTS;
    // Without retries a wait for a core must not look like a loss: 1 s instead of 0.13 s.
    to.timeout = retries_.lost == 0 ? 18 : 15;
    to.retry_cnt = retries_.lost;
    to.rnr_retry = is_srd_ ? retries_.refused_datagram : retries_.refused;
    to.max_rd_atomic = 1;
    demand(
        ibv_modify_qp(qp_, &to,
                      is_srd_ ? IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY
                              : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
        "no RTS");
    if (is_srd_) {
      ah_ = ibv_create_ah(pd_, &address);
      demand(ah_ != nullptr, "no address handle");
    }
  }

  Place place() const { return {gid_, qp_->qp_num, region_->rkey, 0}; }
  bool is_srd() const { return is_srd_; }

  void post_receive(std::uint8_t* to, std::uint32_t length, std::uint64_t id) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(to), length, region_->lkey};
    ibv_recv_wr work{};
    ibv_recv_wr* bad = nullptr;
    work.wr_id = id;
    work.sg_list = &piece;
    work.num_sge = 1;
    demand(ibv_post_recv(qp_, &work, &bad) == 0, "cannot post a receive");
  }
  void post_send(std::uint8_t* from, std::uint32_t length, std::uint64_t id) {
    post(from, length, id, 0);
  }
  void post_read(std::uint8_t* to, std::uint32_t length, std::uint64_t from, std::uint64_t id) {
    post(to, length, id, from);
  }
  // False: nothing has ended.
  bool poll(ibv_wc& done) {
    const int count = ibv_poll_cq(cq_, 1, &done);
    demand(count >= 0, "polling fails");
    return count == 1;
  }

 private:
  // `remote`: 0, a send.
  void post(std::uint8_t* memory, std::uint32_t length, std::uint64_t id, std::uint64_t remote) {
    if (is_srd_) {
      ibv_qp_ex* const qp = ibv_qp_to_qp_ex(qp_);
      ibv_wr_start(qp);
      qp->wr_id = id;
      qp->wr_flags = IBV_SEND_SIGNALED;
      if (remote != 0) {
        ibv_wr_rdma_read(qp, there_.key, remote);
      } else {
        ibv_wr_send(qp);
      }
      ibv_wr_set_sge(qp, region_->lkey, reinterpret_cast<std::uintptr_t>(memory), length);
      ibv_wr_set_ud_addr(qp, ah_, there_.qpn, kQkey);
      demand(ibv_wr_complete(qp) == 0, "cannot post");
      return;
    }
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory), length, region_->lkey};
    ibv_send_wr work{};
    ibv_send_wr* bad = nullptr;
    work.wr_id = id;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = remote != 0 ? IBV_WR_RDMA_READ : IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.rdma = {remote, there_.key};
    demand(ibv_post_send(qp_, &work, &bad) == 0, "cannot post");
  }

  Retries retries_;
  bool is_srd_ = false;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_ah* ah_ = nullptr;
  ibv_gid gid_{};
  Place there_{};
};

}  // namespace weft::conformance
