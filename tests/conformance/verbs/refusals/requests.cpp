// Owns the cases of work: what ends how on each type of queue pair, and what may not be posted.
#include <vector>

#include "tests/conformance/verbs/refusals/bench.hpp"

namespace weft::conformance {
namespace {

constexpr std::uint32_t kKey = 0x11111111;

ibv_send_wr plain(ibv_wr_opcode opcode) {
  ibv_send_wr request{};
  request.opcode = opcode;
  return request;
}

ibv_sge piece(const Bench& bench, std::size_t at, std::uint32_t length) {
  return {bench.place(at), length, bench.region->lkey};
}

ibv_qp_state state_of(ibv_qp* pair) {
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  demand(ibv_query_qp(pair, &now, IBV_QP_STATE, &init) == 0, "a queue pair cannot be asked");
  return now.qp_state;
}

void reliable(const Bench& bench, Book& book) {
  book.chapter("work on RC");
  {
    const Link link(bench);
    book.check("SEND without a receive", IBV_WC_RNR_RETRY_EXC_ERR,
               link.send(plain(IBV_WR_SEND), {piece(bench, 0, 8)}));
    book.check("and then the queue pair is in error", IBV_QPS_ERR, state_of(link.one()));
    book.check("and what is posted is flushed", IBV_WC_WR_FLUSH_ERR,
               link.send(plain(IBV_WR_SEND), {piece(bench, 0, 8)}));
    book.check("and the other end is as it was", IBV_QPS_RTS, state_of(link.other()));
  }
  {
    const Link link(bench);
    ibv_send_wr request = plain(IBV_WR_RDMA_WRITE_WITH_IMM);
    request.wr.rdma = {bench.place(4096), bench.region->rkey};
    book.check("WRITE with immediate without a receive", IBV_WC_RNR_RETRY_EXC_ERR,
               link.send(request, {piece(bench, 0, 8)}));
  }
  // One packet, two, and six: the path's MTU is 1024.
  for (const std::uint32_t excess : {1U, 100U, 5000U}) {
    const Link link(bench);
    link.post_receive({piece(bench, 4096, 1000)});
    book.check("SEND that is longer than its receive by " + std::to_string(excess),
               IBV_WC_REM_INV_REQ_ERR,
               link.send(plain(IBV_WR_SEND), {piece(bench, 16384, 1000 + excess)}));
    book.check("its receive", IBV_WC_LOC_LEN_ERR, link.receive_status());
    book.check("and the other end is in error", IBV_QPS_ERR, state_of(link.other()));
  }
  {
    const Link link(bench);
    link.post_receive({});
    book.check("SEND of no bytes into no pieces", IBV_WC_SUCCESS,
               link.send(plain(IBV_WR_SEND), {}));
    book.check("its receive", IBV_WC_SUCCESS, link.receive_status());
  }
  // A queue pair that was told to answer no reads has to refuse the first.
  for (const int most : {0, 1}) {
    const Link link(bench, IBV_QPT_RC, 15, nullptr, most);
    ibv_send_wr request = plain(IBV_WR_RDMA_READ);
    request.wr.rdma = {bench.place(4096), bench.region->rkey};
    book.check("READ of a queue pair that answers " + std::to_string(most),
               most == 0 ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS,
               link.send(request, {piece(bench, 0, 8)}));
  }
  for (std::uint64_t off = 1; off < 8; ++off) {
    for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
      const Link link(bench);
      ibv_send_wr request = plain(opcode);
      request.wr.atomic = {bench.place(4096) + off, 1, 0, bench.region->rkey};
      // The library refuses it before the device sees it.
      book.check("atomic at an odd address", -EINVAL, link.send(request, {piece(bench, 0, 8)}));
    }
  }
  {
    const Link link(bench);
    int mask = 0;
    ibv_qp* const lonely = bench.make(IBV_QPT_RC);
    // No queue pair has this number.
    bench.lead(lonely, IBV_QPS_RTS, 0xFFFFF0);
    ibv_sge sge = piece(bench, 0, 8);
    ibv_send_wr request = plain(IBV_WR_SEND);
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    book.check("posting to nobody", 0, ibv_post_send(lonely, &request, &bad));
    const auto done = bench.next();
    book.check("ends with", IBV_WC_RETRY_EXC_ERR, done ? static_cast<int>(done->status) : -1);
    ibv_qp_attr attributes = bench.step(IBV_QPT_RC, IBV_QPS_INIT, mask);
    book.check("from error to INIT", EINVAL, ibv_modify_qp(lonely, &attributes, mask));
    attributes.qp_state = IBV_QPS_RESET;
    book.check("from error to RESET", 0, ibv_modify_qp(lonely, &attributes, IBV_QP_STATE));
    demand(ibv_destroy_qp(lonely) == 0, "a queue pair");
  }
}

// What a type does not have. The library lets all of it pass.
void types(const Bench& bench, Book& book) {
  book.chapter("operations of UC and UD");
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                                     IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV}) {
    const Link link(bench, IBV_QPT_UC, 3);
    ibv_send_wr request = plain(opcode);
    if (opcode == IBV_WR_RDMA_READ) {
      request.wr.rdma = {bench.place(4096), bench.region->rkey};
    } else {
      request.wr.atomic = {bench.place(4096), 1, 0, bench.region->rkey};
    }
    book.check("UC: operation " + std::to_string(opcode), IBV_WC_LOC_QP_OP_ERR,
               link.send(request, {piece(bench, 0, 8)}));
    book.check("and then it is in SQE", IBV_QPS_SQE, state_of(link.one()));
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    book.check("from which it comes back", 0, ibv_modify_qp(link.one(), &attributes, IBV_QP_STATE));
    link.post_receive({piece(bench, 8192, 8)});
    book.check("and sends", IBV_WC_SUCCESS, link.send(plain(IBV_WR_SEND), {piece(bench, 0, 8)}));
  }
  ibv_ah_attr way = bench.way();
  ibv_ah* const handle = ibv_create_ah(bench.domain, &way);
  ibv_ah* const foreign = ibv_create_ah(bench.other_domain, &way);
  demand(handle != nullptr && foreign != nullptr, "address handles");
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV}) {
    const Link link(bench, IBV_QPT_UD);
    ibv_send_wr request = plain(opcode);
    request.wr.ud = {handle, link.other()->qp_num, kKey};
    book.check("UD: operation " + std::to_string(opcode), IBV_WC_LOC_QP_OP_ERR,
               link.send(request, {piece(bench, 0, 8)}));
  }
  // A datagram is gone when it is sent: it ends well for the sender even where nobody takes it. A
  // receiver needs 40 bytes more than its text, for the GRH before it.
  const auto datagram = [&](ibv_ah* to, std::uint32_t key, std::uint32_t length, std::uint32_t room,
                            const char* what, int status, bool heard) {
    const Link link(bench, IBV_QPT_UD);
    link.post_receive({piece(bench, 8192, room)});
    ibv_send_wr request = plain(IBV_WR_SEND);
    request.wr.ud = {to, link.other()->qp_num, key};
    book.check(std::string("UD: ") + what, status, link.send(request, {piece(bench, 0, length)}));
    if (heard) {
      book.check(std::string("UD heard: ") + what, IBV_WC_SUCCESS, link.receive_status());
    }
  };
  datagram(handle, kKey, 100, 140, "a good one", IBV_WC_SUCCESS, true);
  datagram(handle, 0x80000000, 100, 140, "with the own key", IBV_WC_SUCCESS, true);
  datagram(handle, kKey, 0, 40, "of no bytes", IBV_WC_SUCCESS, true);
  datagram(handle, kKey + 1, 100, 140, "with a wrong key", IBV_WC_SUCCESS, false);
  datagram(handle, kKey, 101, 140, "without room for it", IBV_WC_SUCCESS, false);
  datagram(handle, kKey, 4097, 8000, "longer than a packet", IBV_WC_SUCCESS, false);
  datagram(foreign, kKey, 100, 140, "by a handle of another domain", IBV_WC_LOC_QP_OP_ERR, false);
  demand(ibv_destroy_ah(handle) == 0 && ibv_destroy_ah(foreign) == 0, "address handles");
}

void postings(const Bench& bench, Book& book) {
  book.chapter("posting");
  constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  for (const ibv_qp_type type : kTypes) {
    for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
      ibv_qp* const pair = bench.make(type);
      bench.lead(pair, state);
      ibv_sge sge = piece(bench, 0, 8);
      ibv_send_wr request = plain(IBV_WR_SEND);
      request.sg_list = &sge;
      request.num_sge = 1;
      ibv_ah_attr way = bench.way();
      ibv_ah* const handle = ibv_create_ah(bench.domain, &way);
      request.wr.ud = {handle, 17, kKey};
      ibv_send_wr* bad = nullptr;
      book.check("sending on type " + std::to_string(type) + " in state " + std::to_string(state),
                 EINVAL, ibv_post_send(pair, &request, &bad));
      demand(ibv_destroy_qp(pair) == 0 && ibv_destroy_ah(handle) == 0, "a queue pair");
    }
  }
  const Link link(bench);
  // The pairs of this bench asked for 4: nine is beyond what that may have been rounded up to.
  std::vector<ibv_sge> pieces(9, piece(bench, 0, 8));
  book.check("too many pieces", -EINVAL, link.send(plain(IBV_WR_SEND), pieces));
  ibv_send_wr request = plain(IBV_WR_SEND);
  request.send_flags = IBV_SEND_INLINE;
  book.check("too much inline", -EINVAL, link.send(request, {piece(bench, 0, 65)}));
  book.check("the queue pair is as good as before", IBV_QPS_RTS, state_of(link.one()));
  ibv_recv_wr receive{};
  receive.sg_list = pieces.data();
  receive.num_sge = 9;
  ibv_recv_wr* bad = nullptr;
  book.check("too many pieces of a receive", EINVAL,
             std::abs(ibv_post_recv(link.other(), &receive, &bad)));
  // Full queues: the library's ring says so.
  receive.num_sge = 1;
  int posted = 0;
  int error = 0;
  while (posted < 1000 && (error = ibv_post_recv(link.other(), &receive, &bad)) == 0) {
    ++posted;
  }
  book.check("a full receive queue", ENOMEM, std::abs(error));
  book.check("and what it had room for", posted >= 16);
}

}  // namespace

void requests(const Bench& bench, Book& book) {
  reliable(bench, book);
  types(bench, book);
  postings(bench, book);
}

}  // namespace weft::conformance
