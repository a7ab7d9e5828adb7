// Owns a program of ordinary verbs whose one end does what the other one has to refuse: wrong keys,
// rights that are not given, messages that nobody waits for. Beside the same work where it is
// right, with memory windows of both types.
//
//   weft_verbs_peers PORT [HOST] [lossy]
//
// The end with a HOST asks, the other one answers; both print what they have seen, and fail if it
// is not as the specification has it. Where the network is lossy a refusal may be lost as well, and
// then the asker's retries end: it asks again, twice at most. WEFT_VERBS_ANSWERS=Linux allows what
// rdma_rxe answers otherwise than the specification (docs/interop.md).
#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/verbs/end.hpp"

namespace weft::conformance {
namespace {

constexpr std::size_t kMemory = 65536;
constexpr std::uint32_t kPiece = 512;
constexpr std::size_t kTarget = 8192;  // where the answering end's bytes are, to read and write
constexpr std::size_t kRoom = 4096;
constexpr int kAttempts = 3;
constexpr int kSoon = 30'000;  // milliseconds; the other machine may be a slow one
constexpr unsigned kEverything =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// Linux takes seven for "without end".
constexpr Manner kFewRetries{.retries = 4};

// What the asker needs to know of the other end's memory.
struct Shown {
  std::uint64_t address;
  std::uint32_t rkey;
};

class Peers {
 public:
  Peers(Device& device, Meeting& meeting, bool asks, bool lossy, bool linux_answers)
      : device_(device),
        meeting_(meeting),
        asks_(asks),
        lossy_(lossy),
        linux_answers_(linux_answers) {}

  void wrong_keys();
  void missing_rights();
  void bad_receives();
  void late_receives();
  void nobody();
  void windows_of_type_1();
  void windows_of_type_2();
  void unreliable();
  void datagrams();

 private:
  using Region = Owned<ibv_mr, ibv_dereg_mr>;

  [[nodiscard]] std::unique_ptr<Link> connect(const Manner& manner = {},
                                              ibv_qp_type type = IBV_QPT_RC) {
    return std::make_unique<Link>(device_, meeting_, type, nullptr, 16, IBV_MTU_1024, manner);
  }
  [[nodiscard]] std::byte* place(std::size_t at) const { return device_.memory() + at; }
  [[nodiscard]] std::uint64_t address(std::size_t at) const {
    return reinterpret_cast<std::uint64_t>(place(at));
  }
  [[nodiscard]] Region region(ibv_pd* domain, unsigned access) const {
    Region made(ibv_reg_mr(domain, place(kTarget), kRoom, static_cast<int>(access)));
    demand(made != nullptr, "a region cannot be registered");
    return made;
  }
  [[nodiscard]] std::byte colour() const { return std::byte(asks_ ? 0xA5 : 0x5A); }
  void paint() const { std::fill(place(0), place(kMemory), colour()); }
  [[nodiscard]] bool is_untouched() const {
    return std::all_of(place(0), place(kMemory), [&](std::byte b) { return b == colour(); });
  }
  [[nodiscard]] std::optional<ibv_wc> next_of(const ibv_qp* pair, int milliseconds) const;
  [[nodiscard]] int end_of(ibv_qp* pair, ibv_send_wr request, std::uint32_t length = kPiece) const;
  void post_receive(const Link& link, std::uint32_t room, std::uint32_t lkey) const;
  void post_receive(const Link& link, std::uint32_t room) const {
    post_receive(link, room, device_.region().lkey);
  }
  void report(const std::string& what, int status) const;
  void wrong(const std::string& what, int status) const {
    give_up(what + ": " + ibv_wc_status_str(static_cast<ibv_wc_status>(status)));
  }
  void reach(const std::string& what, Link& link, const Shown& shown, int expected);

  // One thing that is asked and how it ends. `show` runs at the answering end and says what the
  // asker is to use; `ask` at the other, `look` at the answering one afterwards.
  struct Question {
    std::string what;
    int expected;
    int on_linux = expected;  // what a kernel may answer instead
    // Where both ends' bytes must stay as they are.
    bool without_trace = false;
    Manner manner = kFewRetries;
    std::function<Shown(Link&)> show;
    std::function<int(Link&, const Shown&)> ask;
    std::function<void(Link&)> look = [](Link&) {};
  };
  void play(const Question& question);
  [[nodiscard]] ibv_send_wr remote(ibv_wr_opcode opcode, const Shown& shown) const;

  Device& device_;
  Meeting& meeting_;
  bool asks_;
  bool lossy_;
  bool linux_answers_;
};

void Peers::report(const std::string& what, int status) const {
  std::printf("%s: %s\n", what.c_str(), ibv_wc_status_str(static_cast<ibv_wc_status>(status)));
}

// Both ends know the verdict, so that both try again.
void Peers::play(const Question& question) {
  for (int attempt = 1;; ++attempt) {
    paint();
    auto link = connect(question.manner);
    const Shown shown = meeting_.swap(asks_ ? Shown{} : question.show(*link));
    int status = asks_ ? question.ask(*link, shown) : 0;
    status = std::max(status, meeting_.swap(status));
    const bool answer_lost = status == IBV_WC_RETRY_EXC_ERR && question.expected != status;
    if (answer_lost && lossy_ && attempt < kAttempts) {
      std::printf("%s: the answer was lost\n", question.what.c_str());
      continue;
    }
    if (status != question.expected && !(linux_answers_ && status == question.on_linux)) {
      wrong(question.what, status);
    }
    if (question.without_trace && !is_untouched()) {
      give_up(question.what + ": bytes have changed");
    }
    if (!asks_) {
      question.look(*link);
    }
    meeting_.wait();
    report(question.what, status);
    return;
  }
}

ibv_send_wr Peers::remote(ibv_wr_opcode opcode, const Shown& shown) const {
  ibv_send_wr request{};
  request.opcode = opcode;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    request.wr.atomic = {shown.address, 1, 0, shown.rkey};
  } else {
    request.wr.rdma = {shown.address, shown.rkey};
  }
  return request;
}

// Others may be of receives of a former connection.
std::optional<ibv_wc> Peers::next_of(const ibv_qp* pair, int milliseconds) const {
  while (const auto done = device_.next(milliseconds)) {
    if (done->qp_num == pair->qp_num) {
      return done;
    }
  }
  return std::nullopt;
}

// Posts it, and returns the status with which it ends.
int Peers::end_of(ibv_qp* pair, ibv_send_wr request, std::uint32_t length) const {
  const bool atomic =
      request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  ibv_sge piece{address(0), atomic ? 8 : length, device_.region().lkey};
  request.wr_id = 1;
  request.send_flags = IBV_SEND_SIGNALED;
  if (request.opcode != IBV_WR_BIND_MW && request.opcode != IBV_WR_LOCAL_INV) {
    request.sg_list = &piece;
    request.num_sge = 1;
  }
  ibv_send_wr* bad = nullptr;
  demand(ibv_post_send(pair, &request, &bad) == 0, "a request cannot be posted");
  const auto done = next_of(pair, kSoon);
  demand(done.has_value(), "a request does not end");
  return done->status;
}

void Peers::post_receive(const Link& link, std::uint32_t room, std::uint32_t lkey) const {
  ibv_sge piece{address(kTarget), room, lkey};
  ibv_recv_wr request{};
  request.wr_id = 2;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  demand(ibv_post_recv(link.pair(), &request, &bad) == 0, "a receive cannot be posted");
}

struct Operation {
  const char* name;
  ibv_wr_opcode opcode;
  unsigned right;
};
constexpr Operation kOperations[] = {
    {"WRITE", IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
    {"READ", IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
    {"FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC},
};

// NAK "remote access error": keys, bounds, rights of a region, domains.
void Peers::wrong_keys() {
  const Owned<ibv_pd, ibv_dealloc_pd> other(ibv_alloc_pd(device_.domain()->context));
  const Region good = region(device_.domain(), kEverything | IBV_ACCESS_LOCAL_WRITE);
  const Region mute = region(device_.domain(), IBV_ACCESS_LOCAL_WRITE);
  const Region foreign = region(other.get(), kEverything | IBV_ACCESS_LOCAL_WRITE);
  std::uint32_t gone = 0;
  {
    const Region short_lived = region(device_.domain(), kEverything | IBV_ACCESS_LOCAL_WRITE);
    gone = short_lived->rkey;
  }
  struct Wrong {
    const char* what;
    std::uint64_t offset;
    std::uint32_t rkey;
  };
  for (const Operation& operation : kOperations) {
    const std::uint32_t length = operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : kPiece;
    const Wrong kinds[] = {
        {"another variant of the key", 0, good->rkey ^ 0x55},
        {"a key of no region", 0, good->rkey ^ 0x5500},
        {"eight bytes too far", kRoom - length + 8, good->rkey},
        {"eight bytes too early", ~std::uint64_t{7}, good->rkey},
        {"a region without the right", 0, mute->rkey},
        {"a region of another domain", 0, foreign->rkey},
        {"a region that is gone", 0, gone},
    };
    for (const Wrong& kind : kinds) {
      play({.what = std::string(operation.name) + ", " + kind.what,
            .expected = IBV_WC_REM_ACCESS_ERR,
            .without_trace = true,
            .show =
                [&](Link&) {
                  return Shown{address(kTarget) + kind.offset, kind.rkey};
                },
            .ask =
                [&](Link& link, const Shown& shown) {
                  return end_of(link.pair(), remote(operation.opcode, shown));
                }});
    }
  }
}

// NAK "invalid request": what the queue pair itself does not allow.
void Peers::missing_rights() {
  for (const Operation& operation : kOperations) {
    for (const bool by_number : {false, true}) {
      if (by_number && operation.opcode == IBV_WR_RDMA_WRITE) {
        continue;
      }
      Manner manner = kFewRetries;
      if (by_number) {
        manner.max_dest_rd_atomic = static_cast<std::uint8_t>(asks_ ? 4 : 0);
      } else {
        manner.access = kEverything & ~operation.right;
      }
      play({.what = std::string(operation.name) +
                    (by_number ? " where none can be answered" : " without the right"),
            .expected = IBV_WC_REM_INV_REQ_ERR,
            .without_trace = true,
            .manner = manner,
            .show =
                [&](Link&) {
                  return Shown{address(kTarget), device_.region().rkey};
                },
            .ask =
                [&](Link& link, const Shown& shown) {
                  return end_of(link.pair(), remote(operation.opcode, shown));
                }});
    }
  }
}

// Receives that are too short (invalid request) or of no memory (remote operational error). Linux
// ends the receives themselves in other ways than the specification.
void Peers::bad_receives() {
  const auto sends = [this](Link& link, const Shown&) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    return end_of(link.pair(), request);
  };
  const auto ends_with = [this](const char* what, int expected) {
    return [this, what, expected](Link& link) {
      const auto done = next_of(link.pair(), kSoon);
      demand(done.has_value(), "a receive does not end");
      const bool as_linux = linux_answers_ && (done->status == IBV_WC_REM_INV_REQ_ERR ||
                                               done->status == IBV_WC_LOC_QP_OP_ERR);
      if (done->status != expected && !as_linux) {
        wrong(what, done->status);
      }
      report(what, done->status);
    };
  };
  play({.what = "SEND that is longer than its receive",
        .expected = IBV_WC_REM_INV_REQ_ERR,
        .on_linux = IBV_WC_REM_OP_ERR,
        .show =
            [&](Link& link) {
              post_receive(link, kPiece - 1);
              return Shown{};
            },
        .ask = sends,
        .look = ends_with("its receive", IBV_WC_LOC_LEN_ERR)});
  play({.what = "SEND into a receive with a wrong key",
        .expected = IBV_WC_REM_OP_ERR,
        .show =
            [&](Link& link) {
              post_receive(link, kPiece, device_.region().lkey ^ 0x5500);
              return Shown{};
            },
        .ask = sends,
        .look = ends_with("its receive", IBV_WC_LOC_PROT_ERR)});
}

// RNR NAK: retries that end, and retries that a receive ends.
void Peers::late_receives() {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{3}}) {
    play({.what = "SEND without a receive, " + std::to_string(retries) + " retries",
          .expected = IBV_WC_RNR_RETRY_EXC_ERR,
          .manner = {.retries = 4, .rnr_retries = retries},
          .show = [](Link&) { return Shown{}; },
          .ask = [&](Link& link, const Shown&) { return end_of(link.pair(), request); }});
  }
  auto link = connect();
  paint();
  meeting_.wait();
  if (asks_) {
    const int status = end_of(link->pair(), request);
    demand(status == IBV_WC_SUCCESS, "a SEND does not wait for its receive");
  } else {
    ::usleep(300'000);
    post_receive(*link, kPiece);
    const auto done = next_of(link->pair(), kSoon);
    demand(done && done->status == IBV_WC_SUCCESS, "a late receive ends badly");
    demand(*place(kTarget + kPiece - 1) == std::byte{0xA5}, "a late receive has other bytes");
  }
  meeting_.wait();
  report("SEND, and its receive 0.3 s later", IBV_WC_SUCCESS);
}

// The other end's queue pair is gone.
void Peers::nobody() {
  for (const Operation& operation : kOperations) {
    auto link = connect({.timeout = 14, .retries = 2});
    if (!asks_) {
      link.reset();
    }
    meeting_.wait();
    if (asks_) {
      const Shown shown{address(kTarget), device_.region().rkey};
      const int status = end_of(link->pair(), remote(operation.opcode, shown));
      if (status != IBV_WC_RETRY_EXC_ERR) {
        wrong(operation.name, status);
      }
    }
    meeting_.wait();
    report(std::string(operation.name) + " to nobody", IBV_WC_RETRY_EXC_ERR);
  }
}

constexpr unsigned kThroughWindow = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// A WRITE and a READ of the same bytes.
void Peers::reach(const std::string& what, Link& link, const Shown& shown, int expected) {
  int status = 0;
  if (asks_) {
    std::memset(place(0), 0xC3, kPiece);
    status = end_of(link.pair(), remote(IBV_WR_RDMA_WRITE, shown));
    if (status == IBV_WC_SUCCESS) {
      std::memset(place(0), 0, kPiece);
      status = end_of(link.pair(), remote(IBV_WR_RDMA_READ, shown));
      demand(std::all_of(place(0), place(kPiece), [](std::byte b) { return b == std::byte{0xC3}; }),
             "a window shows other bytes");
    }
  }
  status = std::max(status, meeting_.swap(status));
  const bool answer_lost = lossy_ && status == IBV_WC_RETRY_EXC_ERR && expected != 0;
  if (status != expected && !answer_lost) {
    wrong(what, status);
  }
  report(what, status);
}

void Peers::windows_of_type_1() {
  const Region bindable = region(device_.domain(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  const Owned<ibv_mw, ibv_dealloc_mw> window(ibv_alloc_mw(device_.domain(), IBV_MW_TYPE_1));
  demand(window != nullptr, "there is no window of type 1");
  const auto bind = [&](Link& link) {
    ibv_mw_bind request{};
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_info = {bindable.get(), address(kTarget), kRoom, kThroughWindow};
    demand(ibv_bind_mw(link.pair(), window.get(), &request) == 0, "a window cannot be bound");
    const auto done = next_of(link.pair(), kSoon);
    demand(done && done->status == IBV_WC_SUCCESS, "binding ends badly");
    return Shown{address(kTarget), window->rkey};
  };
  auto link = connect(kFewRetries);
  Shown shown = meeting_.swap(asks_ ? Shown{} : bind(*link));
  const std::uint32_t old = shown.rkey;
  reach("window of type 1", *link, shown, 0);
  shown = meeting_.swap(asks_ ? Shown{} : bind(*link));
  reach("the same, bound again", *link, shown, 0);
  const Shown before{shown.address, asks_ ? old : 0};
  reach("by its old key", *link, before, IBV_WC_REM_ACCESS_ERR);
  link = connect(kFewRetries);
  shown = meeting_.swap(asks_ ? Shown{} : bind(*link));
  shown.address += kRoom - kPiece + 8;
  reach("past its end", *link, shown, IBV_WC_REM_ACCESS_ERR);
}

void Peers::windows_of_type_2() {
  const Region bindable = region(device_.domain(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  // Of one connection each, because the last step ends it.
  for (const bool by_asker : {false, true}) {
    const Owned<ibv_mw, ibv_dealloc_mw> window(ibv_alloc_mw(device_.domain(), IBV_MW_TYPE_2));
    demand(window != nullptr, "there is no window of type 2");
    const std::uint32_t key = ibv_inc_rkey(window->rkey);
    auto link = connect(kFewRetries);
    ibv_send_wr request{};
    if (!asks_) {
      request.opcode = IBV_WR_BIND_MW;
      request.bind_mw = {
          window.get(), key, {bindable.get(), address(kTarget), kRoom, kThroughWindow}};
      demand(end_of(link->pair(), request) == IBV_WC_SUCCESS, "binding ends badly");
      if (by_asker) {
        post_receive(*link, kPiece);
      }
    }
    const Shown shown = meeting_.swap(asks_ ? Shown{} : Shown{address(kTarget), key});
    reach("window of type 2", *link, shown, 0);
    request = {};
    request.invalidate_rkey = shown.rkey;
    if (!by_asker && !asks_) {
      request.invalidate_rkey = key;
      request.opcode = IBV_WR_LOCAL_INV;
      demand(end_of(link->pair(), request) == IBV_WC_SUCCESS, "invalidating ends badly");
    } else if (by_asker && asks_) {
      request.opcode = IBV_WR_SEND_WITH_INV;
      demand(end_of(link->pair(), request) == IBV_WC_SUCCESS, "SEND with invalidate ends badly");
    } else if (by_asker) {
      const auto heard = next_of(link->pair(), kSoon);
      demand(heard && heard->status == IBV_WC_SUCCESS, "SEND with invalidate is not received");
      // rdma_rxe hands the kernel's own bit to user space, where it means something else.
      const auto flag = static_cast<unsigned>(linux_answers_ ? IBV_WC_IP_CSUM_OK : IBV_WC_WITH_INV);
      if ((heard->wc_flags & flag) == 0 || heard->invalidated_rkey != key) {
        give_up("the receive of a SEND with invalidate has flags " +
                std::to_string(heard->wc_flags) + ", key " +
                std::to_string(heard->invalidated_rkey) + " instead of " + std::to_string(key));
      }
    }
    meeting_.wait();
    reach(by_asker ? "invalidated by who asks" : "invalidated by its owner", *link, shown,
          IBV_WC_REM_ACCESS_ERR);
    meeting_.wait();
  }
}

// A WRITE by a wrong key is lost in silence, and the next message is heard.
void Peers::unreliable() {
  auto link = connect({}, IBV_QPT_UC);
  paint();
  const Shown shown = meeting_.swap(Shown{address(kTarget), device_.region().rkey});
  constexpr int kTries = 20;
  if (!asks_) {
    for (int i = 0; i < kTries / 2; ++i) {
      post_receive(*link, kPiece);
    }
  }
  meeting_.wait();
  bool heard = false;
  for (int i = 0; i < kTries / 2 && !heard; ++i) {
    if (asks_) {
      Shown bad = shown;
      bad.rkey ^= 0x5500;
      ibv_send_wr request = remote(IBV_WR_RDMA_WRITE_WITH_IMM, bad);
      demand(end_of(link->pair(), request) == IBV_WC_SUCCESS, "UC does not send");
      request = remote(IBV_WR_RDMA_WRITE_WITH_IMM, shown);
      request.imm_data = htonl(7);
      demand(end_of(link->pair(), request) == IBV_WC_SUCCESS, "UC does not send");
      heard = meeting_.swap(false);
    } else {
      const auto done = next_of(link->pair(), 2000);
      demand(!done || (done->status == IBV_WC_SUCCESS && ntohl(done->imm_data) == 7),
             "UC hears what has a wrong key");
      heard = done.has_value();
      static_cast<void>(meeting_.swap(heard));
    }
  }
  demand(heard, "UC hears nothing");
  demand(asks_ || *place(kTarget) == std::byte{0xA5}, "UC has other bytes");
  meeting_.wait();
  report("UC, WRITE by a wrong key, then by the right one", IBV_WC_SUCCESS);
}

// The same of datagrams and their key.
void Peers::datagrams() {
  auto link = connect({}, IBV_QPT_UD);
  paint();
  constexpr int kTries = 10;
  if (!asks_) {
    for (int i = 0; i < kTries; ++i) {
      post_receive(*link, 40 + kPiece);
    }
  }
  meeting_.wait();
  bool heard = false;
  for (int i = 0; i < kTries && !heard; ++i) {
    if (asks_) {
      ibv_send_wr request{};
      request.opcode = IBV_WR_SEND;
      request.wr.ud = {link->handle(), link->peer(), Link::kKey + 1};
      demand(end_of(link->pair(), request, kPiece / 2) == IBV_WC_SUCCESS, "UD does not send");
      request.wr.ud.remote_qkey = Link::kKey;
      demand(end_of(link->pair(), request) == IBV_WC_SUCCESS, "UD does not send");
      heard = meeting_.swap(false);
    } else {
      const auto done = next_of(link->pair(), 2000);
      demand(!done || (done->status == IBV_WC_SUCCESS && done->byte_len == 40 + kPiece),
             "UD hears what has a wrong key");
      heard = done.has_value();
      static_cast<void>(meeting_.swap(heard));
    }
  }
  demand(heard, "UD hears nothing");
  meeting_.wait();
  report("UD by a wrong key, then by the right one", IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace weft::conformance

int main(int argc, char** argv) {
  using namespace weft::conformance;
  demand(argc >= 2, "usage: weft_verbs_peers PORT [HOST] [lossy]");
  const bool lossy = std::strcmp(argv[argc - 1], "lossy") == 0;
  const bool asks = argc - (lossy ? 1 : 0) == 3;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Device device(kMemory);
  Meeting meeting(asks ? argv[2] : nullptr, argv[1]);
  const char* answers = std::getenv("WEFT_VERBS_ANSWERS");
  Peers peers(device, meeting, asks, lossy, answers != nullptr && answers == std::string("Linux"));
  peers.wrong_keys();
  peers.missing_rights();
  peers.bad_receives();
  peers.late_receives();
  peers.nobody();
  peers.windows_of_type_1();
  peers.windows_of_type_2();
  peers.unreliable();
  peers.datagrams();
  std::printf("all as it must be\n");
}
