// Owns the cases of memory windows of both types, and of invalidation by either end.
//
// A window of type 1 is bound by a call of the library, to any queue pair of its domain; one of
// type 2 by a work request, to the queue pair that posts it. The second end of a Link binds; the
// first one reaches in. A refused access ends the queue pair, so nearly every case has a Link of
// its own.
#include <arpa/inet.h>

#include "tests/conformance/verbs/refusals/bench.hpp"

namespace weft::conformance {
namespace {

constexpr int kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

ibv_mw* made(const Bench& bench, ibv_mw_type type) {
  ibv_mw* const window = ibv_alloc_mw(bench.domain, type);
  demand(window != nullptr, "a window cannot be allocated");
  return window;
}

// The other end reaches into the window: both ends' bytes are looked at.
int reach(const Bench& bench, const Link& link, ibv_wr_opcode opcode, std::uint32_t rkey,
          std::size_t at, std::uint32_t length = 64) {
  const auto fill = [&](std::size_t place, int value) {
    std::memset(bench.memory + place, value, length);
  };
  fill(0, 0x11);
  fill(at, 0x22);
  ibv_send_wr request{};
  request.opcode = opcode;
  request.wr.rdma = {bench.place(at), rkey};
  const int status = link.send(request, {{bench.place(), length, bench.region->lkey}});
  const bool wrote = status == IBV_WC_SUCCESS && opcode == IBV_WR_RDMA_WRITE;
  const bool read = status == IBV_WC_SUCCESS && opcode == IBV_WR_RDMA_READ;
  demand(bench.memory[at + length - 1] == std::byte(wrote ? 0x11 : 0x22) &&
             bench.memory[length - 1] == std::byte(read ? 0x22 : 0x11),
         "bytes are not as the status says");
  return status;
}

// On the second end, as its own: 0, an errno (negative), or a completion's status.
int posted(const Bench& bench, ibv_qp* pair, ibv_send_wr request) {
  request.wr_id = 99;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(pair, &request, &bad); error != 0) {
    return -std::abs(error);
  }
  const auto done = bench.next();
  return done ? static_cast<int>(done->status) : -1000;
}

int bound(const Bench& bench, ibv_qp* pair, ibv_mw* window, std::uint32_t rkey, ibv_mr* region,
          std::size_t at, std::uint64_t length, int access) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw.mw = window;
  request.bind_mw.rkey = rkey;
  request.bind_mw.bind_info = {region, bench.place(at), length, static_cast<unsigned>(access)};
  return posted(bench, pair, request);
}

int bound_type_1(const Bench& bench, ibv_qp* pair, ibv_mw* window, ibv_mr* region, std::size_t at,
                 std::uint64_t length, int access) {
  ibv_mw_bind request{};
  request.wr_id = 98;
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_info = {region, bench.place(at), length, static_cast<unsigned>(access)};
  if (const int error = ibv_bind_mw(pair, window, &request); error != 0) {
    return -std::abs(error);
  }
  const auto done = bench.next();
  return done ? static_cast<int>(done->status) : -1000;
}

// Each binding gives the window another key, and the old one opens nothing any more.
void type_1(const Bench& bench, Book& book) {
  book.chapter("windows of type 1");
  ibv_mw* const window = made(bench, IBV_MW_TYPE_1);
  {
    const Link link(bench);
    book.check("binding", IBV_WC_SUCCESS,
               bound_type_1(bench, link.other(), window, bench.region, 4096, 4096, kRemote));
    book.check("a write through it", IBV_WC_SUCCESS,
               reach(bench, link, IBV_WR_RDMA_WRITE, window->rkey, 4096));
    book.check("a read through it", IBV_WC_SUCCESS,
               reach(bench, link, IBV_WR_RDMA_READ, window->rkey, 8192 - 64));
    const std::uint32_t old = window->rkey;
    book.check("binding it elsewhere", IBV_WC_SUCCESS,
               bound_type_1(bench, link.other(), window, bench.region, 8192, 4096, kRemote));
    book.check("which changes its key", old != window->rkey);
    book.check("a read at the new place", IBV_WC_SUCCESS,
               reach(bench, link, IBV_WR_RDMA_READ, window->rkey, 8192));
    book.check("by the old key", IBV_WC_REM_ACCESS_ERR,
               reach(bench, link, IBV_WR_RDMA_READ, old, 8192));
  }
  const auto refused = [&](const char* what, ibv_wr_opcode opcode, int access, std::size_t at,
                           int expected) {
    const Link link(bench);
    book.check("binding", IBV_WC_SUCCESS,
               bound_type_1(bench, link.other(), window, bench.region, 4096, 4096, access));
    book.check(what, expected, reach(bench, link, opcode, window->rkey, at));
  };
  refused("a write where only reads are allowed", IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_READ, 4096,
          IBV_WC_REM_ACCESS_ERR);
  refused("a read where only writes are allowed", IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_WRITE, 4096,
          IBV_WC_REM_ACCESS_ERR);
  refused("a write past its end", IBV_WR_RDMA_WRITE, kRemote, 8192 - 63, IBV_WC_REM_ACCESS_ERR);
  refused("a write before it", IBV_WR_RDMA_WRITE, kRemote, 4095, IBV_WC_REM_ACCESS_ERR);
  {
    const Link link(bench);
    book.check("unbinding", IBV_WC_SUCCESS,
               bound_type_1(bench, link.other(), window, bench.region, 0, 0, 0));
    book.check("a write through it then", IBV_WC_REM_ACCESS_ERR,
               reach(bench, link, IBV_WR_RDMA_WRITE, window->rkey, 4096));
  }
  ibv_mr* const plain = ibv_reg_mr(bench.domain, bench.memory, 4096, 7);
  {
    const Link link(bench);
    book.check("binding to a region that allows no windows", IBV_WC_MW_BIND_ERR,
               bound_type_1(bench, link.other(), window, plain, 0, 4096, kRemote));
  }
  {
    const Link link(bench);
    book.check("binding past the region's end", IBV_WC_MW_BIND_ERR,
               bound_type_1(bench, link.other(), window, bench.region, kMemory - 64, 65, kRemote));
  }
  demand(ibv_dereg_mr(plain) == 0 && ibv_dealloc_mw(window) == 0, "a window");
}

// The program chooses the last eight bits of the key. As long as it is bound, its region cannot be
// given back.
void type_2(const Bench& bench, Book& book) {
  book.chapter("windows of type 2");
  ibv_mw* const window = made(bench, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window->rkey);
  {
    const Link link(bench);
    book.check("binding", IBV_WC_SUCCESS,
               bound(bench, link.other(), window, key, bench.region, 4096, 4096, kRemote));
    book.check("a write through it", IBV_WC_SUCCESS,
               reach(bench, link, IBV_WR_RDMA_WRITE, key, 4096));
    book.check("a read through it", IBV_WC_SUCCESS,
               reach(bench, link, IBV_WR_RDMA_READ, key, 5000));
    // Its region cannot go.
    ibv_mr* const region =
        ibv_reg_mr(bench.domain, bench.memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    ibv_mw* const second = made(bench, IBV_MW_TYPE_2);
    const std::uint32_t second_key = ibv_inc_rkey(second->rkey);
    book.check("binding another one", IBV_WC_SUCCESS,
               bound(bench, link.other(), second, second_key, region, 0, 64, kRemote));
    book.check("giving its region back", EINVAL, ibv_dereg_mr(region));
    ibv_send_wr request{};
    request.opcode = IBV_WR_LOCAL_INV;
    request.invalidate_rkey = second_key;
    book.check("invalidating it here", IBV_WC_SUCCESS, posted(bench, link.other(), request));
    book.check("giving its region back then", 0, ibv_dereg_mr(region));
    book.check("a read through it then", IBV_WC_REM_ACCESS_ERR,
               reach(bench, link, IBV_WR_RDMA_READ, second_key, 0x8000));
    demand(ibv_dealloc_mw(second) == 0, "a window");
  }
  demand(ibv_dealloc_mw(window) == 0, "a window");
}

void refused_bindings(const Bench& bench, Book& book) {
  book.chapter("bindings of type 2");
  const auto refused = [&](const char* what, auto&& attempt, int expected) {
    const Link link(bench);
    ibv_mw* const one = made(bench, IBV_MW_TYPE_2);
    book.check(what, expected, attempt(link, one, ibv_inc_rkey(one->rkey)));
    demand(ibv_dealloc_mw(one) == 0, "a window");
  };
  refused(
      "binding twice",
      [&](const Link& link, ibv_mw* one, std::uint32_t rkey) {
        (void)bound(bench, link.other(), one, rkey, bench.region, 0, 64, kRemote);
        return bound(bench, link.other(), one, ibv_inc_rkey(rkey), bench.region, 64, 64, kRemote);
      },
      IBV_WC_MW_BIND_ERR);
  refused(
      "binding no bytes",
      [&](const Link& link, ibv_mw* one, std::uint32_t rkey) {
        return bound(bench, link.other(), one, rkey, bench.region, 0, 0, kRemote);
      },
      IBV_WC_MW_BIND_ERR);
  refused(
      "through it by another queue pair",
      [&](const Link& link, ibv_mw* one, std::uint32_t rkey) {
        const Link others(bench);
        (void)bound(bench, others.other(), one, rkey, bench.region, 4096, 64, kRemote);
        return reach(bench, link, IBV_WR_RDMA_WRITE, rkey, 4096);
      },
      IBV_WC_REM_ACCESS_ERR);
  refused(
      "invalidating what is not bound",
      [&](const Link& link, ibv_mw*, std::uint32_t rkey) {
        ibv_send_wr request{};
        request.opcode = IBV_WR_LOCAL_INV;
        request.invalidate_rkey = rkey;
        return posted(bench, link.other(), request);
      },
      IBV_WC_LOC_QP_OP_ERR);
  refused(
      "remote writes into what may not be written here",
      [&](const Link& link, ibv_mw* one, std::uint32_t rkey) {
        ibv_mr* const region = ibv_reg_mr(bench.domain, bench.memory, 4096, IBV_ACCESS_MW_BIND);
        const int status = bound(bench, link.other(), one, rkey, region, 0, 64, kRemote);
        demand(ibv_dereg_mr(region) == 0, "a region");
        return status;
      },
      IBV_WC_MW_BIND_ERR);
  refused(
      "a region of another domain",
      [&](const Link& link, ibv_mw* one, std::uint32_t rkey) {
        ibv_mr* const region = ibv_reg_mr(bench.other_domain, bench.memory, 4096, 31);
        const int status = bound(bench, link.other(), one, rkey, region, 0, 64, kRemote);
        demand(ibv_dereg_mr(region) == 0, "a region");
        return status;
      },
      IBV_WC_MW_BIND_ERR);
}

// SEND with invalidate: the receive says which key is gone.
void remote_invalidation(const Bench& bench, Book& book) {
  book.chapter("invalidation by the other end");
  const auto invalidating = [](std::uint32_t rkey) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND_WITH_INV;
    request.invalidate_rkey = rkey;
    return request;
  };
  {
    const Link link(bench);
    ibv_mw* const window = made(bench, IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(window->rkey);
    (void)bound(bench, link.other(), window, key, bench.region, 4096, 4096, kRemote);
    book.check("a write before", IBV_WC_SUCCESS, reach(bench, link, IBV_WR_RDMA_WRITE, key, 4096));
    link.post_receive({{bench.place(16384), 64, bench.region->lkey}});
    book.check("sending", IBV_WC_SUCCESS,
               link.send(invalidating(key), {{bench.place(), 64, bench.region->lkey}}));
    const auto heard = link.receive();
    book.check("receiving", IBV_WC_SUCCESS, heard ? static_cast<int>(heard->status) : -1);
    book.check("with the flag", heard && (heard->wc_flags & IBV_WC_WITH_INV) != 0);
    book.check("and the key", heard && heard->invalidated_rkey == key);
    book.check("a write after", IBV_WC_REM_ACCESS_ERR,
               reach(bench, link, IBV_WR_RDMA_WRITE, key, 4096));
    demand(ibv_dealloc_mw(window) == 0, "a window");
  }
  for (const std::uint32_t key : {0U, 0xFFFFFFFFU, 0x08000100U}) {
    const Link link(bench);
    link.post_receive({{bench.place(16384), 64, bench.region->lkey}});
    (void)link.send(invalidating(key), {{bench.place(), 64, bench.region->lkey}});
    book.check("key " + std::to_string(key) + ": the receive", IBV_WC_REM_INV_REQ_ERR,
               link.receive_status());
  }
}

}  // namespace

void windows(const Bench& bench, Book& book) {
  type_1(bench, book);
  type_2(bench, book);
  refused_bindings(bench, book);
  remote_invalidation(bench, book);
}

}  // namespace weft::conformance
