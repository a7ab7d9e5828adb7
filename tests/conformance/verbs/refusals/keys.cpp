// Owns the cases of keys: every right of a queue pair with every right of a region, domains, and
// the edges of a region, at both ends.
#include "tests/conformance/verbs/refusals/bench.hpp"

namespace weft::conformance {
namespace {

constexpr std::uint32_t kPiece = 64;

struct Operation {
  const char* name;
  ibv_wr_opcode opcode;
  int right;
};
constexpr Operation kOperations[] = {
    {"write", IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
    {"read", IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
    {"fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC},
};

ibv_send_wr request_of(ibv_wr_opcode opcode, std::uint64_t address, std::uint32_t rkey) {
  ibv_send_wr request{};
  request.opcode = opcode;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    request.wr.atomic = {address, 1, 0, rkey};
  } else {
    request.wr.rdma = {address, rkey};
  }
  return request;
}

std::uint32_t length_of(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? sizeof(std::uint64_t) : kPiece;
}

// The queue pair's rights are looked at before those of the region.
void rights(const Bench& bench, Book& book) {
  book.chapter("rights");
  // All rights of a queue pair: write 2, read 4 and atomic 8; 1, local write, means nothing there.
  // Of a region those that may be registered (see objects.cpp).
  for (int granted = 0; granted < 16; ++granted) {
    for (const int region_rights : {0, 1, 3, 4, 5, 7, 9, 11, 13, 15}) {
      ibv_mr* const region = ibv_reg_mr(bench.domain, bench.memory + 4096, 4096, region_rights);
      demand(region != nullptr, "a region cannot be registered");
      for (const Operation& operation : kOperations) {
        const Link link(bench, IBV_QPT_RC, granted);
        const int expected = (granted & operation.right) == 0         ? IBV_WC_REM_INV_REQ_ERR
                             : (region_rights & operation.right) == 0 ? IBV_WC_REM_ACCESS_ERR
                                                                      : IBV_WC_SUCCESS;
        book.check(std::string(operation.name) + ", queue pair " + std::to_string(granted) +
                       ", region " + std::to_string(region_rights),
                   expected,
                   link.send(request_of(operation.opcode, bench.place(4096), region->rkey),
                             {{bench.place(), length_of(operation.opcode), bench.region->lkey}}));
      }
      demand(ibv_dereg_mr(region) == 0, "a region cannot be given back");
    }
  }
}

// Each wrong access ends the queue pair, so each case has a pair of its own. Atomics need aligned
// addresses: hence steps of eight bytes.
void remote_edges(const Bench& bench, Book& book) {
  book.chapter("remote keys");
  ibv_mr* const region = ibv_reg_mr(bench.domain, bench.memory + 4096, 4096, 15);
  ibv_mr* const foreign = ibv_reg_mr(bench.other_domain, bench.memory + 4096, 4096, 15);
  ibv_mr* const gone = ibv_reg_mr(bench.domain, bench.memory + 4096, 4096, 15);
  demand(region != nullptr && foreign != nullptr && gone != nullptr, "regions");
  const std::uint32_t old = gone->rkey;
  demand(ibv_dereg_mr(gone) == 0, "a region cannot be given back");
  const std::uint64_t begin = bench.place(4096);
  struct Case {
    const char* what;
    std::uint64_t address;
    std::uint32_t rkey;
    bool good;
  };
  for (const Operation& operation : kOperations) {
    const std::uint32_t length = length_of(operation.opcode);
    const Case cases[] = {
        {"all of it", begin, region->rkey, true},
        {"its end", begin + 4096 - length, region->rkey, true},
        {"eight bytes past its end", begin + 4096 - length + 8, region->rkey, false},
        {"behind its end", begin + 4096, region->rkey, false},
        {"eight bytes before", begin - 8, region->rkey, false},
        {"address 0", 0, region->rkey, false},
        {"the last address", ~std::uint64_t{7}, region->rkey, false},
        {"key 0", begin, 0, false},
        // The low byte of a key is its variant and the rest its place in the table.
        {"another variant of the key", begin, region->rkey ^ 1, false},
        {"another index of the key", begin, region->rkey + 0x70000, false},
        {"all ones as key", begin, 0xFFFFFFFF, false},
        {"a region that is gone", begin, old, false},
        {"another domain", begin, foreign->rkey, false},
    };
    for (const Case& one : cases) {
      const Link link(bench);
      book.check(std::string(operation.name) + ", " + one.what,
                 one.good ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR,
                 link.send(request_of(operation.opcode, one.address, one.rkey),
                           {{bench.place(), length, bench.region->lkey}}));
    }
    if (operation.opcode != IBV_WR_ATOMIC_FETCH_AND_ADD) {
      const Link link(bench);
      book.check(std::string(operation.name) + " of no bytes, with no key", IBV_WC_SUCCESS,
                 link.send(request_of(operation.opcode, 0, 0), {}));
    }
  }
  demand(ibv_dereg_mr(region) == 0 && ibv_dereg_mr(foreign) == 0, "regions");
}

// Of the end that posts: everything that it gathers, scatters or receives into.
void local_edges(const Bench& bench, Book& book) {
  book.chapter("local keys");
  ibv_mr* const foreign = ibv_reg_mr(bench.other_domain, bench.memory, 4096, 15);
  ibv_mr* const shown = ibv_reg_mr(bench.domain, bench.memory, 4096, 0);
  demand(foreign != nullptr && shown != nullptr, "regions");
  const std::uint64_t end = bench.place(kMemory);
  const std::uint32_t key = bench.region->lkey;
  struct Case {
    const char* what;
    ibv_sge piece;
    bool good_source;
    bool good_target;
  };
  const Case cases[] = {
      {"a good piece", {bench.place(), kPiece, key}, true, true},
      {"the end of the region", {end - kPiece, kPiece, key}, true, true},
      {"a byte past its end", {end - kPiece + 1, kPiece, key}, false, false},
      {"behind its end", {end, kPiece, key}, false, false},
      {"before it", {bench.place() - 1, kPiece, key}, false, false},
      {"address 0", {0, kPiece, key}, false, false},
      {"key 0", {bench.place(), kPiece, 0}, false, false},
      {"another variant", {bench.place(), kPiece, key ^ 1}, false, false},
      {"all ones as key", {bench.place(), kPiece, 0xFFFFFFFF}, false, false},
      {"another domain", {bench.place(), kPiece, foreign->lkey}, false, false},
      {"a region that may only be read", {bench.place(), kPiece, shown->lkey}, true, false},
  };
  for (const Case& one : cases) {
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      const Link link(bench);
      link.post_receive({{bench.place(8192), 4096, key}});
      const bool good = opcode == IBV_WR_RDMA_READ ? one.good_target : one.good_source;
      book.check(
          "posting " + std::to_string(opcode) + ": " + one.what,
          good ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR,
          link.send(request_of(opcode, bench.place(16384), bench.region->rkey), {one.piece}));
      // The same as the second piece.
      const Link again(bench);
      again.post_receive({{bench.place(8192), 4096, key}});
      book.check("posting " + std::to_string(opcode) + " with two pieces: " + one.what,
                 good ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR,
                 again.send(request_of(opcode, bench.place(16384), bench.region->rkey),
                            {{bench.place(512), kPiece, key}, one.piece}));
    }
    const Link link(bench);
    link.post_receive({one.piece});
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    book.check("sending into " + std::string(one.what),
               one.good_target ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR,
               link.send(request, {{bench.place(20000), kPiece, key}}));
    book.check("receiving into " + std::string(one.what),
               one.good_target ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR, link.receive_status());
  }
  demand(ibv_dereg_mr(foreign) == 0 && ibv_dereg_mr(shown) == 0, "regions");
}

}  // namespace

void keys(const Bench& bench, Book& book) {
  rights(bench, book);
  remote_edges(bench, book);
  local_edges(bench, book);
}

}  // namespace weft::conformance
