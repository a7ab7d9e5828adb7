// Owns asking a device which verbs it has, one after the other: each line is a verb and what came
// of it, "yes" or the name of the error. offered.py makes a table of it.
#include <fcntl.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/conformance/verbs_objects.hpp"

namespace weft::conformance {
namespace {

void say(const char* verb, bool good) {
  std::printf("%s\t%s\n", verb, good ? "yes" : strerrorname_np(errno));
}
// Of functions that return an errno.
void say_error(const char* verb, int error) {
  errno = std::abs(error);
  say(verb, error == 0);
}
// Made, told, and gone again.
template <class T, class Free>
void say_made(const char* verb, T* made, const Free& free) {
  say(verb, made != nullptr);
  if (made != nullptr) {
    demand(free(made) == 0, verb);
  }
}

constexpr std::size_t kSize = 8192;

struct Asked {
  ibv_context* context = open_first_device();
  ibv_pd* domain = ibv_alloc_pd(context);
  ibv_cq* queue = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  void* memory = std::aligned_alloc(4096, kSize);
  ibv_gid gid{};
};

void ask_device(const Asked& it) {
  ibv_device_attr_ex all{};
  say_error("ibv_query_device_ex", ibv_query_device_ex(it.context, nullptr, &all));
  ibv_port_attr port{};
  say_error("ibv_query_port", ibv_query_port(it.context, 1, &port));
  ibv_gid_entry entry{};
  say_error("ibv_query_gid_ex", ibv_query_gid_ex(it.context, 1, 0, &entry, 0));
  ibv_values_ex clock{IBV_VALUES_MASK_RAW_CLOCK, {}};
  say_error("ibv_query_rt_values_ex", ibv_query_rt_values_ex(it.context, &clock));
  ibv_context* const again = ibv_import_device(dup(it.context->cmd_fd));
  say("ibv_import_device", again != nullptr);
}

void ask_memory(const Asked& it) {
  const auto region = [&](const char* verb, int access) {
    say_made(verb, ibv_reg_mr(it.domain, it.memory, kSize, access), ibv_dereg_mr);
  };
  region("ibv_reg_mr", IBV_ACCESS_LOCAL_WRITE);
  region("ibv_reg_mr, remote reads", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  region("ibv_reg_mr, remote writes", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  region("ibv_reg_mr, atomics", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  region("ibv_reg_mr, windows", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  region("ibv_reg_mr, zero-based", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
  region("ibv_reg_mr, on demand", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  region("ibv_reg_mr, relaxed ordering", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  ibv_mr* const again = ibv_reg_mr(it.domain, it.memory, kSize, IBV_ACCESS_LOCAL_WRITE);
  if (again != nullptr) {
    const int code = ibv_rereg_mr(again, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0);
    say("ibv_rereg_mr", code == 0);
    (void)ibv_dereg_mr(again);
  }
  say_made("ibv_alloc_mw, type 1", ibv_alloc_mw(it.domain, IBV_MW_TYPE_1), ibv_dealloc_mw);
  say_made("ibv_alloc_mw, type 2", ibv_alloc_mw(it.domain, IBV_MW_TYPE_2), ibv_dealloc_mw);
  say_made("ibv_reg_dmabuf_mr", ibv_reg_dmabuf_mr(it.domain, 0, 4096, 0, 0, 0), ibv_dereg_mr);
  say_made("ibv_alloc_null_mr", ibv_alloc_null_mr(it.domain), ibv_dereg_mr);
  ibv_alloc_dm_attr on_card{64, 0, 0};
  say_made("ibv_alloc_dm", ibv_alloc_dm(it.context, &on_card), ibv_free_dm);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(it.memory), 64, 0};
  say_error("ibv_advise_mr", ibv_advise_mr(it.domain, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1));
  ibv_td_init_attr threads{};
  say_made("ibv_alloc_td", ibv_alloc_td(it.context, &threads), ibv_dealloc_td);
  ibv_parent_domain_init_attr parent{};
  parent.pd = it.domain;
  say_made("ibv_alloc_parent_domain", ibv_alloc_parent_domain(it.context, &parent), ibv_dealloc_pd);
}

void ask_completions(const Asked& it) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(it.context);
  say("ibv_create_comp_channel", channel != nullptr);
  say_made("ibv_create_cq", ibv_create_cq(it.context, 16, nullptr, channel, 0), ibv_destroy_cq);
  demand(ibv_destroy_comp_channel(channel) == 0, "a channel");
  say_error("ibv_req_notify_cq", ibv_req_notify_cq(it.queue, 0));
  say_error("ibv_resize_cq", ibv_resize_cq(it.queue, 32));
  ibv_cq_init_attr_ex more{};
  more.cqe = 16;
  more.wc_flags = IBV_WC_STANDARD_FLAGS;
  const auto destroy = [](ibv_cq_ex* cq) { return ibv_destroy_cq(ibv_cq_ex_to_cq(cq)); };
  say_made("ibv_create_cq_ex", ibv_create_cq_ex(it.context, &more), destroy);
  more.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  say_made("ibv_create_cq_ex, time stamps", ibv_create_cq_ex(it.context, &more), destroy);
  ibv_modify_cq_attr moderation{IBV_CQ_ATTR_MODERATE, {4, 10}};
  say_error("ibv_modify_cq, moderation", ibv_modify_cq(it.queue, &moderation));
}

ibv_qp_init_attr_ex queue_pair_of(const Asked& it, ibv_qp_type type) {
  ibv_qp_init_attr_ex request{};
  request.qp_type = type;
  request.send_cq = request.recv_cq = it.queue;
  request.cap = {4, 4, 1, 1, 0};
  request.comp_mask = IBV_QP_INIT_ATTR_PD;
  request.pd = it.domain;
  return request;
}

void ask_queue_pairs(const Asked& it) {
  const auto made = [&](const char* verb, ibv_qp_type type, std::uint64_t operations = 0) {
    ibv_qp_init_attr_ex request = queue_pair_of(it, type);
    if (operations != 0) {
      request.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      request.send_ops_flags = operations;
    }
    say_made(verb, ibv_create_qp_ex(it.context, &request), ibv_destroy_qp);
  };
  made("ibv_create_qp, RC", IBV_QPT_RC);
  made("ibv_create_qp, UC", IBV_QPT_UC);
  made("ibv_create_qp, UD", IBV_QPT_UD);
  made("ibv_create_qp, raw packets", IBV_QPT_RAW_PACKET);
  made("ibv_create_qp, XRC", IBV_QPT_XRC_SEND);
  ibv_qp_init_attr srd{};
  srd.send_cq = srd.recv_cq = it.queue;
  srd.cap = {4, 4, 1, 1, 0};
  srd.qp_type = IBV_QPT_DRIVER;
  say_made("efadv_create_driver_qp, SRD",
           efadv_create_driver_qp(it.domain, &srd, EFADV_QP_DRIVER_TYPE_SRD), ibv_destroy_qp);
  made("ibv_wr_send", IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
  made("ibv_wr_rdma_write, RC", IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
  made("ibv_wr_rdma_read, RC", IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ);
  made("ibv_wr_atomic_fetch_add, RC", IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
  made("ibv_wr_atomic_write, RC", IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE);
  made("ibv_wr_send_inv, RC", IBV_QPT_RC, IBV_QP_EX_WITH_SEND_WITH_INV);
  made("ibv_wr_bind_mw, RC", IBV_QPT_RC, IBV_QP_EX_WITH_BIND_MW);
  made("ibv_wr_send_tso, UD", IBV_QPT_UD, IBV_QP_EX_WITH_TSO);
  ibv_srq_init_attr shared{nullptr, {4, 1, 0}};
  say_made("ibv_create_srq", ibv_create_srq(it.domain, &shared), ibv_destroy_srq);
  ibv_xrcd_init_attr xrc{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  say_made("ibv_open_xrcd", ibv_open_xrcd(it.context, &xrc), ibv_close_xrcd);
}

void ask_paths(const Asked& it) {
  ibv_ah_attr way{};
  way.is_global = 1;
  way.grh.dgid = it.gid;
  way.grh.hop_limit = 64;
  way.port_num = 1;
  say_made("ibv_create_ah", ibv_create_ah(it.domain, &way), ibv_destroy_ah);
  ibv_qp_init_attr_ex request = queue_pair_of(it, IBV_QPT_UD);
  ibv_qp* const pair = ibv_create_qp_ex(it.context, &request);
  if (pair != nullptr) {
    ibv_gid group{};
    constexpr unsigned char kGroup[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 1, 1};
    std::memcpy(group.raw, kGroup, sizeof kGroup);
    say_error("ibv_attach_mcast", ibv_attach_mcast(pair, &group, 0));
    (void)ibv_detach_mcast(pair, &group, 0);
    ibv_flow_attr flow{};
    flow.type = IBV_FLOW_ATTR_NORMAL;
    flow.size = sizeof flow;
    flow.port = 1;
    say_made("ibv_create_flow", ibv_create_flow(pair, &flow), ibv_destroy_flow);
    ibv_ece enhanced{};
    say_error("ibv_query_ece", ibv_query_ece(pair, &enhanced));
    demand(ibv_destroy_qp(pair) == 0, "a queue pair");
  }
  ibv_wq_init_attr receives{};
  receives.wq_type = IBV_WQT_RQ;
  receives.max_wr = 4;
  receives.max_sge = 1;
  receives.pd = it.domain;
  receives.cq = it.queue;
  say_made("ibv_create_wq", ibv_create_wq(it.context, &receives), ibv_destroy_wq);
  ibv_counters_init_attr none{};
  say_made("ibv_create_counters", ibv_create_counters(it.context, &none), ibv_destroy_counters);
}

void ask_all() {
  Asked it;
  demand(it.domain != nullptr && it.queue != nullptr && it.memory != nullptr &&
             ibv_query_gid(it.context, 1, 0, &it.gid) == 0,
         "the device refuses the basic objects");
  ask_device(it);
  ask_memory(it);
  ask_completions(it);
  ask_queue_pairs(it);
  ask_paths(it);
}

}  // namespace
}  // namespace weft::conformance

int main() {
  weft::conformance::ask_all();
  return 0;
}
