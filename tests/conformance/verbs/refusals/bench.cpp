// Owns making those objects, and asking them.
#include "tests/conformance/verbs/refusals/bench.hpp"

#include <cstdlib>
#include <utility>

namespace weft::conformance {
namespace {

constexpr int kEntries = 256;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr int kPatience = 3'000'000;  // polls, a second or more
// The Q_Key of all pairs. Its top bit is clear: a key with that bit means "the sender's own".
constexpr std::uint32_t kKey = 0x11111111;

}  // namespace

void Book::chapter(const std::string& name) {
  print();
  chapter_ = name;
  cases_ = wrong_ = 0;
}

void Book::check(const std::string& what, int expected, int got) {
  ++cases_;
  ++all_cases_;
  if (expected != got) {
    ++wrong_;
    ++all_wrong_;
    std::printf("WRONG %s: %s: expected %d, got %d\n", chapter_.c_str(), what.c_str(), expected,
                got);
  }
}

void Book::print() {
  if (!chapter_.empty()) {
    std::printf("%s: %d cases, %d wrong\n", chapter_.c_str(), cases_, wrong_);
  }
}

int Book::finish() {
  print();
  std::printf("all: %d cases, %d wrong\n", all_cases_, all_wrong_);
  return all_wrong_;
}

Bench::Bench() : context(open_first_device()) {
  domain = ibv_alloc_pd(context);
  other_domain = ibv_alloc_pd(context);
  queue = ibv_create_cq(context, kEntries, nullptr, nullptr, 0);
  memory = static_cast<std::byte*>(std::aligned_alloc(4096, kMemory));
  demand(domain != nullptr && other_domain != nullptr && queue != nullptr && memory != nullptr,
         "the bench cannot be made");
  std::memset(memory, 0, kMemory);
  region = ibv_reg_mr(domain, memory, kMemory, kAll);
  demand(region != nullptr && ibv_query_gid(context, 1, 1, &gid) == 0, "memory or a GID");
}

ibv_qp* Bench::make(ibv_qp_type type, ibv_srq* srq) const {
  ibv_qp_init_attr request{};
  request.send_cq = request.recv_cq = queue;
  request.srq = srq;
  request.cap = {16, 16, 4, 4, 64};
  request.qp_type = type;
  ibv_qp* const pair = ibv_create_qp(domain, &request);
  demand(pair != nullptr, "a queue pair cannot be made");
  return pair;
}

// To the host itself: both ends of a link are on one NIC.
ibv_ah_attr Bench::way() const {
  ibv_ah_attr way{};
  way.is_global = 1;
  way.grh.dgid = gid;
  way.grh.sgid_index = 1;
  way.grh.hop_limit = 64;
  way.port_num = 1;
  return way;
}

ibv_qp_attr Bench::step(ibv_qp_type type, ibv_qp_state to, int& mask, std::uint32_t peer) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = to;
  // Every field has a good value, whatever the mask then says: a case that adds a bit to the mask
  // is refused for the bit and not for a zero behind it.
  attributes.cur_qp_state = IBV_QPS_RTR;
  attributes.port_num = 1;
  attributes.qkey = kKey;
  attributes.qp_access_flags = 15;
  attributes.ah_attr = way();
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4;
  attributes.min_rnr_timer = 1;
  // Short (1 ms) and few, so that a case that nobody answers ends soon.
  attributes.timeout = 8;
  attributes.retry_cnt = 2;
  attributes.rnr_retry = 1;
  mask = IBV_QP_STATE;
  const bool datagram = type == IBV_QPT_UD;
  const bool reliable = type == IBV_QPT_RC;
  if (to == IBV_QPS_INIT) {
    mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  } else if (to == IBV_QPS_RTR && !datagram) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
            (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
  } else if (to == IBV_QPS_RTS) {
    mask |= IBV_QP_SQ_PSN | (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                            IBV_QP_MAX_QP_RD_ATOMIC
                                      : 0);
  }
  return attributes;
}

// Through all states in between, each with the attributes that Linux demands there.
void Bench::lead(ibv_qp* pair, ibv_qp_state to, std::uint32_t peer) const {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (state > to) {
      return;
    }
    int mask = 0;
    ibv_qp_attr attributes = step(pair->qp_type, state, mask, peer);
    demand(ibv_modify_qp(pair, &attributes, mask) == 0, "a queue pair cannot be led");
  }
}

std::optional<ibv_wc> Bench::next() const {
  ibv_wc done{};
  for (int i = 0; i < kPatience; ++i) {
    const int count = ibv_poll_cq(queue, 1, &done);
    demand(count >= 0, "the completion queue cannot be polled");
    if (count == 1) {
      return done;
    }
  }
  return std::nullopt;
}

// The second end is the one that is reached into: the case chooses its rights and how many reads it
// answers at a time.
Link::Link(const Bench& bench, ibv_qp_type type, int access, ibv_srq* srq, int max_reads)
    : bench_(bench), one_(bench.make(type)), other_(bench.make(type, srq)) {
  bench.lead(one_, IBV_QPS_RTS, other_->qp_num);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    int mask = 0;
    ibv_qp_attr attributes = bench.step(type, state, mask, one_->qp_num);
    attributes.qp_access_flags = static_cast<unsigned>(access);
    attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(max_reads);
    demand(ibv_modify_qp(other_, &attributes, mask) == 0, "the second end cannot be led");
  }
}

Link::~Link() {
  demand(ibv_destroy_qp(one_) == 0 && ibv_destroy_qp(other_) == 0,
         "a queue pair cannot be destroyed");
  // What is still to come belongs to this pair: the next case must not take it for its own.
  ibv_wc rest{};
  while (ibv_poll_cq(bench_.queue, 1, &rest) == 1) {
  }
}

// Both ends share one completion queue. A completion of the other end that comes first is kept for
// receive().
int Link::send(ibv_send_wr request, std::vector<ibv_sge> pieces) const {
  // No errno and no status is that.
  constexpr int kNever = -1000;
  request.wr_id = 4711;
  request.send_flags |= IBV_SEND_SIGNALED;
  request.sg_list = pieces.data();
  request.num_sge = static_cast<int>(pieces.size());
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(one_, &request, &bad); error != 0) {
    return -std::abs(error);
  }
  while (const auto done = bench_.next()) {
    if (done->wr_id == request.wr_id && done->qp_num == one_->qp_num) {
      return done->status;
    }
    heard_ = done;
  }
  return kNever;
}

void Link::post_receive(std::vector<ibv_sge> pieces, std::uint64_t id) const {
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = pieces.data();
  request.num_sge = static_cast<int>(pieces.size());
  ibv_recv_wr* bad = nullptr;
  demand((other_->srq != nullptr ? ibv_post_srq_recv(other_->srq, &request, &bad)
                                 : ibv_post_recv(other_, &request, &bad)) == 0,
         "a receive cannot be posted");
}

std::optional<ibv_wc> Link::receive() const {
  return heard_ ? std::exchange(heard_, std::nullopt) : bench_.next();
}

int Link::receive_status() const {
  const auto done = receive();
  return done ? static_cast<int>(done->status) : -1000;
}

}  // namespace weft::conformance
