// Owns the cases of asynchronous events, and of queues that change while they are in use.
#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "tests/conformance/verbs/refusals/bench.hpp"

namespace weft::conformance {
namespace {

// The next asynchronous event, or -1: there is none. It is acknowledged. -2: it is about something
// else.
int next_event(const Bench& bench, const void* element = nullptr) {
  constexpr int kTries = 200'000;
  for (int i = 0; i < kTries; ++i) {
    ibv_async_event event{};
    if (ibv_get_async_event(bench.context, &event) == 0) {
      const bool right = element == nullptr || element == event.element.qp;
      ibv_ack_async_event(&event);
      return right ? static_cast<int>(event.event_type) : -2;
    }
    ibv_wc none{};
    (void)ibv_poll_cq(bench.queue, 0, &none);
  }
  return -1;
}

void limits(const Bench& bench, Book& book) {
  book.chapter("events of shared queues");
  ibv_srq_init_attr request{nullptr, {63, 1, 0}};
  ibv_srq* const queue = ibv_create_srq(bench.domain, &request);
  demand(queue != nullptr, "a shared queue cannot be made");
  {
    const Link link(bench, IBV_QPT_RC, 15, queue);
    for (int i = 0; i < 10; ++i) {
      link.post_receive({{bench.place(8192), 64, bench.region->lkey}});
    }
    // Fewer than 8 left is what raises the event, once; then the limit has to be set again.
    ibv_srq_attr attributes{0, 0, 8};
    book.check("a limit", 0, ibv_modify_srq(queue, &attributes, IBV_SRQ_LIMIT));
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    for (int i = 0; i < 2; ++i) {
      demand(link.send(send, {{bench.place(), 8, bench.region->lkey}}) == IBV_WC_SUCCESS, "a send");
    }
    book.check("8 of 10 receives are left", -1, next_event(bench));
    demand(link.send(send, {{bench.place(), 8, bench.region->lkey}}) == IBV_WC_SUCCESS, "a send");
    book.check("7 are left", IBV_EVENT_SRQ_LIMIT_REACHED, next_event(bench, queue));
    demand(link.send(send, {{bench.place(), 8, bench.region->lkey}}) == IBV_WC_SUCCESS, "a send");
    book.check("6 are left, and it has been told", -1, next_event(bench));
    ibv_srq_attr now{};
    demand(ibv_query_srq(queue, &now) == 0, "a shared queue cannot be asked");
    book.check("the limit is gone", 0, static_cast<int>(now.srq_limit));
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    book.check("into error", 0, ibv_modify_qp(link.other(), &error, IBV_QP_STATE));
    book.check("no receive is taken any more", IBV_EVENT_QP_LAST_WQE_REACHED,
               next_event(bench, link.other()));
    book.check("once", -1, next_event(bench));
  }
  demand(ibv_destroy_srq(queue) == 0, "a shared queue cannot be destroyed");
}

void drained(const Bench& bench, Book& book) {
  book.chapter("SQD");
  const Link link(bench);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  book.check("into SQD", 0,
             ibv_modify_qp(link.one(), &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
  book.check("it has drained", IBV_EVENT_SQ_DRAINED, next_event(bench, link.one()));
}

// Completions that wait keep their order and their number.
void resizing(const Bench& bench, Book& book) {
  book.chapter("resizing a completion queue");
  ibv_cq* const queue = ibv_create_cq(bench.context, 31, nullptr, nullptr, 0);
  ibv_qp_init_attr request{};
  request.send_cq = request.recv_cq = queue;
  request.cap = {64, 64, 1, 1, 0};
  request.qp_type = IBV_QPT_RC;
  ibv_qp* const pair = ibv_create_qp(bench.domain, &request);
  demand(queue != nullptr && pair != nullptr, "objects");
  ibv_qp_attr attributes{};
  bench.lead(pair, IBV_QPS_RTS, pair->qp_num);  // to itself
  attributes.qp_state = IBV_QPS_ERR;
  demand(ibv_modify_qp(pair, &attributes, IBV_QP_STATE) == 0, "into error");
  // In error each request is flushed at once: the quickest way to 20 completions.
  for (std::uint64_t i = 0; i < 20; ++i) {
    ibv_send_wr send{};
    send.wr_id = i;
    ibv_send_wr* bad = nullptr;
    demand(ibv_post_send(pair, &send, &bad) == 0, "a send in error");
  }
  book.check("below what waits in it", EINVAL, ibv_resize_cq(queue, 10));
  book.check("to more", 0, ibv_resize_cq(queue, 100));
  book.check("to as many as wait", 0, ibv_resize_cq(queue, 20));
  std::uint64_t next = 0;
  ibv_wc done{};
  for (int i = 0; i < 100'000 && next < 20; ++i) {
    if (ibv_poll_cq(queue, 1, &done) == 1) {
      book.check("in order", static_cast<int>(next), static_cast<int>(done.wr_id));
      book.check("as they ended", IBV_WC_WR_FLUSH_ERR, done.status);
      ++next;
    }
  }
  book.check("all of them", 20, static_cast<int>(next));
  demand(ibv_destroy_qp(pair) == 0 && ibv_destroy_cq(queue) == 0, "objects");
}

// The keys stay, what they open changes.
void reregistering(const Bench& bench, Book& book) {
  book.chapter("registering again");
  ibv_mr* const region = ibv_reg_mr(bench.domain, bench.memory + 4096, 4096, 1);
  demand(region != nullptr, "a region cannot be registered");
  ibv_send_wr write{};
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma = {bench.place(4096), region->rkey};
  const std::vector<ibv_sge> pieces = {{bench.place(), 64, bench.region->lkey}};
  const auto written = [&] {
    const Link link(bench);
    write.wr.rdma.rkey = region->rkey;
    return link.send(write, pieces);
  };
  book.check("a write that is not allowed", IBV_WC_REM_ACCESS_ERR, written());
  const int error = ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 3);
  if (error == IBV_REREG_MR_ERR_CMD && errno == EOPNOTSUPP) {
    std::printf("the library does not offer it for these devices\n");
    demand(ibv_dereg_mr(region) == 0, "a region cannot be given back");
    return;
  }
  book.check("more rights", 0, error);
  book.check("a write that is", IBV_WC_SUCCESS, written());
  book.check("another domain", 0,
             ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, bench.other_domain, nullptr, 0, 0));
  book.check("a write from the former", IBV_WC_REM_ACCESS_ERR, written());
  book.check("the former domain", 0,
             ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, bench.domain, nullptr, 0, 0));
  book.check("a write then", IBV_WC_SUCCESS, written());
  book.check("rights that cannot be", IBV_REREG_MR_ERR_CMD,
             ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 2));
  demand(ibv_dereg_mr(region) == 0, "a region cannot be given back");
}

}  // namespace

void events(const Bench& bench, Book& book) {
  const int flags = fcntl(bench.context->async_fd, F_GETFL);
  demand(fcntl(bench.context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0, "the event channel");
  while (next_event(bench) >= 0) {  // of the chapters before
  }
  limits(bench, book);
  drained(bench, book);
  resizing(bench, book);
  reregistering(bench, book);
}

}  // namespace weft::conformance
