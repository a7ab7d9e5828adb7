// Owns the cases of ibv_modify_qp(): Linux's table of transitions, written down once more, and what
// each attribute may say. For each type, state and next state, legal or not, the good mask is
// tried, and for the legal ones each single attribute more or less than it: some thousands of small
// cases, of which nobody has to think of the one that was forgotten.
#include <array>
#include <bit>

#include "tests/conformance/verbs/refusals/bench.hpp"

namespace weft::conformance {
namespace {

constexpr std::array kTypes = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
constexpr std::array kStates = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
// All attributes but those of alternate paths, which RoCE does not have.
constexpr int kAll = 0x1FFFFE & ~(IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  // Beside what Bench::step() gives, by type: RC, UC, UD.
  std::array<int, 3> optional;
};

constexpr int kKeys = IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
constexpr int kRights = IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
constexpr int kReliable = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
constexpr int kUnreliable = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS;
constexpr int kDatagram = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int kDrained = kRights | IBV_QP_AV | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                         IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
                         IBV_QP_MIN_RNR_TIMER;
constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_RESET, {}},
    {IBV_QPS_RESET, IBV_QPS_INIT, {}},
    {IBV_QPS_INIT, IBV_QPS_RESET, {}},
    {IBV_QPS_INIT, IBV_QPS_ERR, {}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {}},
    {IBV_QPS_INIT, IBV_QPS_RTR, {kRights, kRights, kKeys}},
    {IBV_QPS_RTR, IBV_QPS_RESET, {}},
    {IBV_QPS_RTR, IBV_QPS_ERR, {}},
    {IBV_QPS_RTR, IBV_QPS_RTS, {kReliable, kUnreliable, kDatagram}},
    {IBV_QPS_RTS, IBV_QPS_RESET, {}},
    {IBV_QPS_RTS, IBV_QPS_ERR, {}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {kReliable, kUnreliable, kDatagram}},
    {IBV_QPS_RTS,
     IBV_QPS_SQD,
     {IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {IBV_QPS_SQD, IBV_QPS_RESET, {}},
    {IBV_QPS_SQD, IBV_QPS_ERR, {}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {kReliable, kUnreliable, kDatagram}},
    {IBV_QPS_SQD, IBV_QPS_SQD, {kDrained, kRights | IBV_QP_AV, kKeys}},
    {IBV_QPS_ERR, IBV_QPS_RESET, {}},
    {IBV_QPS_ERR, IBV_QPS_ERR, {}},
};

const Transition* find(ibv_qp_state from, ibv_qp_state to) {
  for (const Transition& one : kTransitions) {
    if (one.from == from && one.to == to) {
      return &one;
    }
  }
  return nullptr;
}

// A queue pair in that state.
ibv_qp* made(const Bench& bench, ibv_qp_type type, ibv_qp_state state) {
  ibv_qp* const pair = bench.make(type);
  if (state == IBV_QPS_SQD || state == IBV_QPS_ERR) {
    bench.lead(pair, IBV_QPS_RTS);
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    demand(ibv_modify_qp(pair, &attributes, IBV_QP_STATE) == 0, "SQD or ERR");
  } else {
    bench.lead(pair, state);
  }
  return pair;
}

// What is required there: a mask, with good values for it and for all others.
ibv_qp_attr asked(const Bench& bench, ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                  int& mask) {
  ibv_qp_attr attributes = bench.step(type, to, mask);
  attributes.cur_qp_state = from;
  const bool first = (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
                     (from == IBV_QPS_INIT && to == IBV_QPS_RTR) ||
                     (from == IBV_QPS_RTR && to == IBV_QPS_RTS);
  // Only on the way up are attributes required; all other transitions need just the state.
  if (!first) {
    mask = IBV_QP_STATE;
  }
  return attributes;
}

int modified(const Bench& bench, ibv_qp_type type, ibv_qp_state from, ibv_qp_attr attributes,
             int mask) {
  ibv_qp* const pair = made(bench, type, from);
  const int error = ibv_modify_qp(pair, &attributes, mask);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  demand(ibv_query_qp(pair, &now, IBV_QP_STATE, &init) == 0, "a queue pair cannot be asked");
  const ibv_qp_state awaited = error == 0 ? attributes.qp_state : from;
  demand(now.qp_state == awaited, "a refused modification has changed the state");
  demand(ibv_destroy_qp(pair) == 0, "a queue pair cannot be destroyed");
  return error;
}

void transitions(const Bench& bench, Book& book, std::size_t t) {
  const ibv_qp_type type = kTypes[t];
  for (const ibv_qp_state from : kStates) {
    if (from == IBV_QPS_SQE) {
      continue;  // only errors lead there
    }
    for (const ibv_qp_state to : kStates) {
      int mask = 0;
      const ibv_qp_attr good = asked(bench, type, from, to, mask);
      const Transition* const legal = find(from, to);
      const std::string name = "type " + std::to_string(type) + ", " + std::to_string(from) +
                               " to " + std::to_string(to);
      book.check(name, legal != nullptr ? 0 : EINVAL, modified(bench, type, from, good, mask));
      if (legal == nullptr) {
        continue;
      }
      int optional = legal->optional[t];
      if (from == IBV_QPS_INIT && to == IBV_QPS_INIT) {
        optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                   (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
      }
      for (int bit = 2; bit < kAll; bit <<= 1) {
        if ((kAll & bit) == 0) {
          continue;
        }
        const bool required = (mask & bit) != 0;
        const bool fine = !required && (optional & bit) != 0;
        if (fine && bit == IBV_QP_CUR_STATE && (from == IBV_QPS_INIT || from == IBV_QPS_RESET)) {
          continue;
        }
        book.check(name + (required ? " without " : " with ") + std::to_string(bit),
                   fine ? 0 : EINVAL, modified(bench, type, from, good, mask ^ bit));
      }
    }
  }
}

void values(const Bench& bench, Book& book) {
  struct Bad {
    const char* what;
    ibv_qp_state from;
    ibv_qp_state to;
    void (*change)(ibv_qp_attr&);
    int error = EINVAL;
  };
  constexpr Bad kBad[] = {
      {"port 0", IBV_QPS_RESET, IBV_QPS_INIT, [](ibv_qp_attr& to) { to.port_num = 0; }},
      {"port 2", IBV_QPS_RESET, IBV_QPS_INIT, [](ibv_qp_attr& to) { to.port_num = 2; }},
      {"state 7", IBV_QPS_RESET, IBV_QPS_INIT,
       [](ibv_qp_attr& to) { to.qp_state = static_cast<ibv_qp_state>(7); }},
      {"no GRH", IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& to) { to.ah_attr.is_global = 0; }},
      {"GID 3", IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& to) { to.ah_attr.grh.sgid_index = 3; },
       ENODATA},
      {"GID 255", IBV_QPS_INIT, IBV_QPS_RTR,
       [](ibv_qp_attr& to) { to.ah_attr.grh.sgid_index = 255; }, ENODATA},
      {"address at port 0", IBV_QPS_INIT, IBV_QPS_RTR,
       [](ibv_qp_attr& to) { to.ah_attr.port_num = 0; }},
      {"address at port 2", IBV_QPS_INIT, IBV_QPS_RTR,
       [](ibv_qp_attr& to) { to.ah_attr.port_num = 2; }},
      {"MTU 6", IBV_QPS_INIT, IBV_QPS_RTR,
       [](ibv_qp_attr& to) { to.path_mtu = static_cast<ibv_mtu>(6); }},
      {"MTU 255", IBV_QPS_INIT, IBV_QPS_RTR,
       [](ibv_qp_attr& to) { to.path_mtu = std::bit_cast<ibv_mtu>(255); }},
      {"time-out 32", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& to) { to.timeout = 32; }},
      {"time-out 255", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& to) { to.timeout = 255; }},
      {"129 reads", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& to) { to.max_rd_atomic = 129; }},
      {"255 reads", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& to) { to.max_rd_atomic = 255; }},
  };
  for (const Bad& bad : kBad) {
    int mask = 0;
    ibv_qp_attr attributes = asked(bench, IBV_QPT_RC, bad.from, bad.to, mask);
    bad.change(attributes);
    ibv_qp* const pair = made(bench, IBV_QPT_RC, bad.from);
    book.check(bad.what, bad.error, ibv_modify_qp(pair, &attributes, mask));
    // The queue pair is as good as before.
    attributes = asked(bench, IBV_QPT_RC, bad.from, bad.to, mask);
    book.check(std::string(bad.what) + ", then a good one", 0,
               ibv_modify_qp(pair, &attributes, mask));
    demand(ibv_destroy_qp(pair) == 0, "a queue pair cannot be destroyed");
  }
}

}  // namespace

void states(const Bench& bench, Book& book) {
  for (std::size_t t = 0; t < kTypes.size(); ++t) {
    book.chapter("states of " + std::string(std::array{"RC", "UC", "UD"}[t]));
    transitions(bench, book, t);
  }
  book.chapter("attributes");
  values(bench, book);
}

}  // namespace weft::conformance
