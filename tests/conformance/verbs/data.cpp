// Owns a program of ordinary verbs that looks at every byte: two ends send, write and read messages
// of all kinds and sizes, both at the same time and several at once.
//
//   weft_verbs_data PORT [HOST] [lossy]
//
// The end without a HOST waits for the other one. Lossy: datagrams and messages of unreliable
// connections may get lost or come twice, but those that come are whole. WEFT_VERBS_LONGEST, the
// same at both ends, makes longer messages shorter than that: for machines that are slow.
#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "tests/conformance/verbs/end.hpp"

namespace weft::conformance {
namespace {

constexpr std::uint32_t kAtOnce = 8;
constexpr std::uint32_t kLengths[] = {0,    1,    2,    3,     4,     5,      7,       8,
                                      63,   64,   65,   255,   256,   257,    1000,    1023,
                                      1024, 1025, 2047, 2048,  2049,  4095,   4096,    4097,
                                      5000, 8191, 8192, 20001, 65537, 262147, 1048579, 3145733};
static_assert(std::size(kLengths) % kAtOnce == 0);
constexpr std::uint32_t kLongest = 3145733;
// Of transports that repeat nothing: all that is under way has to fit into a ring, if its reader
// gets no core.
constexpr std::uint32_t kUnrepeated = 20001;
constexpr std::size_t kMargin = 64;         // before the first piece and behind the last
constexpr std::size_t kSlot = 0x310000;     // the longest message, margins and gaps
constexpr std::size_t kHeader = 40;         // in front of a datagram
constexpr std::size_t kCounters = kMargin;  // bytes
constexpr std::byte kNobodys{0xEE};
constexpr int kQuiet = 200;  // milliseconds after which the rest is lost
static_assert(kLongest + 2 * kMargin + 64 <= kSlot);

// A way in which a message travels: transport, operation, and how long it may be.
struct Kind {
  const char* name;
  ibv_qp_type type;
  ibv_wr_opcode opcode;
  std::uint32_t longest;  // longer ones are cut
  bool shared = false;    // two queue pairs, and receives for both
  [[nodiscard]] bool reliable() const { return type == IBV_QPT_RC; }
  [[nodiscard]] bool sends() const {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
  }
  [[nodiscard]] bool is_heard() const { return sends() || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
  [[nodiscard]] bool numbered() const {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  [[nodiscard]] bool is_inline() const { return longest == Link::kMaxInline; }
};

constexpr Kind kKinds[] = {
    {"send", IBV_QPT_RC, IBV_WR_SEND, kLongest},
    {"send with immediate", IBV_QPT_RC, IBV_WR_SEND_WITH_IMM, kLongest},
    {"write", IBV_QPT_RC, IBV_WR_RDMA_WRITE, kLongest},
    {"write with immediate", IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, kLongest},
    {"read", IBV_QPT_RC, IBV_WR_RDMA_READ, kLongest},
    {"inline send", IBV_QPT_RC, IBV_WR_SEND, Link::kMaxInline},
    {"inline write", IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, Link::kMaxInline},
    {"send to shared receives", IBV_QPT_RC, IBV_WR_SEND_WITH_IMM, kLongest, true},
    {"unreliable send", IBV_QPT_UC, IBV_WR_SEND_WITH_IMM, kUnrepeated},
    {"unreliable write", IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM, kUnrepeated},
    {"inline unreliable send", IBV_QPT_UC, IBV_WR_SEND_WITH_IMM, Link::kMaxInline},
    {"datagram", IBV_QPT_UD, IBV_WR_SEND_WITH_IMM, 4096},
    {"inline datagram", IBV_QPT_UD, IBV_WR_SEND_WITH_IMM, Link::kMaxInline},
};

// A mixer of 64 bits, so that neighbouring numbers give bytes that have nothing in common.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
  value = (value ^ value >> 27) * 0x94D049BB133111EB;
  return value ^ value >> 31;
}

std::uint32_t longest_wanted() {
  const char* bytes = std::getenv("WEFT_VERBS_LONGEST");
  return bytes == nullptr ? kLongest : static_cast<std::uint32_t>(std::atoi(bytes));
}

// What byte `at` of a message is.
std::byte byte_of(std::uint32_t end, std::uint32_t number, std::uint64_t at) {
  const std::uint64_t word = mix(std::uint64_t{end} << 60 ^ std::uint64_t{number} << 32 ^ at / 8);
  return static_cast<std::byte>(word >> at % 8 * 8);
}

// Where a message lies in its slot: pieces, with bytes between them that belong to no message.
class Layout {
 public:
  Layout(std::byte* slot, std::uint32_t lkey, std::uint32_t length, std::uint32_t pieces,
         std::uint64_t seed)
      : slot_(slot) {
    std::vector<std::uint32_t> cuts = {0, length};
    for (std::uint32_t i = 1; i < pieces; ++i) {
      cuts.push_back(static_cast<std::uint32_t>(mix(seed + i) % (length + 1)));
    }
    std::ranges::sort(cuts);
    std::size_t at = kMargin + mix(seed) % 13;
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      const std::uint32_t piece = cuts[i] - cuts[i - 1];
      pieces_.push_back({reinterpret_cast<std::uint64_t>(slot + at), piece, lkey});
      at += piece + mix(seed * 31 + i) % 7;
    }
    end_ = at + kMargin;
  }

  [[nodiscard]] std::span<ibv_sge> pieces() { return pieces_; }
  [[nodiscard]] std::uint64_t address() const { return pieces_.front().addr; }
  void clear() const { std::fill(slot_, slot_ + end_, kNobodys); }
  void paint(std::uint32_t end, std::uint32_t number) const {
    std::uint64_t at = 0;
    for_each_byte([&](std::byte& byte, bool inside) {
      if (inside) {
        byte = byte_of(end, number, at++);
      }
    });
  }
  // The first byte that is not as it should be, from `skip` on: of the message as long as it is,
  // of nobody around it. Or -1.
  [[nodiscard]] std::int64_t wrong(std::uint32_t end, std::uint32_t number, std::uint32_t skip,
                                   std::uint32_t length) const {
    std::uint64_t at = 0;
    std::int64_t found = -1;
    for_each_byte([&](const std::byte& byte, bool inside) {
      const bool counts = inside && at >= skip && at - skip < length;
      if (found < 0 && counts && byte != byte_of(end, number, at - skip)) {
        found = static_cast<std::int64_t>(at);
      }
      at += inside ? 1 : 0;
    });
    return found;
  }
  // Whether something has been written where no message may be.
  [[nodiscard]] bool spilt() const {
    bool found = false;
    for_each_byte([&](const std::byte& byte, bool inside) {
      found = found || (!inside && byte != kNobodys);
    });
    return found;
  }

 private:
  template <class F>
  void for_each_byte(const F& look) const {
    std::byte* at = slot_;
    for (const ibv_sge& piece : pieces_) {
      auto* const begin = reinterpret_cast<std::byte*>(piece.addr);
      for (; at != begin; ++at) {
        look(*at, false);
      }
      for (; at != begin + piece.length; ++at) {
        look(*at, true);
      }
    }
    for (; at != slot_ + end_; ++at) {
      look(*at, false);
    }
  }

  std::byte* slot_;
  std::size_t end_ = 0;
  std::vector<ibv_sge> pieces_;
};

// Memory of one end: counters, then slots that messages leave from, and slots that they come to.
struct Memory {
  std::uint64_t base;
  std::uint32_t rkey;
  [[nodiscard]] std::uint64_t source(std::uint32_t slot) const {
    return base + kCounters + slot * kSlot;
  }
  [[nodiscard]] std::uint64_t target(std::uint32_t slot) const { return source(kAtOnce + slot); }
};
constexpr std::size_t kMemory = kCounters + 2 * kAtOnce * kSlot;

class Traffic {
 public:
  Traffic(Device& device, Meeting& meeting, std::uint32_t end, bool lossy)
      : device_(device),
        meeting_(meeting),
        end_(end),
        lossy_(lossy),
        own_{reinterpret_cast<std::uint64_t>(device.memory()), device.region().rkey},
        theirs_(meeting.swap(own_)) {}

  void run(const Kind& kind);
  void count();

 private:
  // A message of either end has the same number and length.
  struct Message {
    std::uint32_t number;
    std::uint32_t length;
  };
  // What one batch has brought so far. A slot that has not arrived when all is quiet counts as
  // lost.
  struct Book {
    std::uint32_t sent = 0;
    std::uint32_t heard = 0;  // completions
    bool arrived[kAtOnce] = {};
  };

  void batch(const Kind& kind, std::span<const std::uint32_t> lengths);
  void make_links(const Kind& kind);
  void lay_out(const Kind& kind, std::span<const std::uint32_t> lengths);
  void post_receive(std::uint32_t slot);
  void post(const Kind& kind, std::uint32_t slot);
  void take(const Kind& kind, const ibv_wc& done, Book& book);
  void take_message(const Kind& kind, const ibv_wc& done, Book& book);
  void look(const Kind& kind, const Layout& at, const Message& message, std::uint32_t skip = 0);
  [[noreturn]] void accuse(const Kind& kind, const Message& message, const std::string& what) const;

  Device& device_;
  Meeting& meeting_;
  std::uint32_t end_;
  bool lossy_;
  Memory own_;
  Memory theirs_;
  std::uint32_t next_ = 1;  // number
  std::uint64_t lost_ = 0;
  std::uint64_t repeated_ = 0;

  // --- Of one batch.
  Owned<ibv_srq, ibv_destroy_srq> srq_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Message> messages_;
  std::vector<Layout> sources_;
  std::vector<Layout> targets_;
};

void Traffic::accuse(const Kind& kind, const Message& message, const std::string& what) const {
  give_up(std::string(kind.name) + ", message " + std::to_string(message.number) + " of " +
          std::to_string(message.length) + " bytes: " + what);
}

void Traffic::make_links(const Kind& kind) {
  if (kind.shared) {
    ibv_srq_init_attr request{nullptr, {kAtOnce, Link::kMaxPieces, 0}};
    srq_.reset(ibv_create_srq(device_.domain(), &request));
    demand(srq_ != nullptr, "there is no shared receive queue");
  }
  // Packets of all sizes, in turn: each kind of message goes by each, as the batches of one kind
  // are not as many as there are sizes.
  const auto sizes = static_cast<std::uint32_t>(device_.mtu());
  const auto mtu = static_cast<ibv_mtu>(IBV_MTU_256 + (next_ - 1) / kAtOnce % sizes);
  for (int i = 0; i < (kind.shared ? 2 : 1); ++i) {
    links_.push_back(
        std::make_unique<Link>(device_, meeting_, kind.type, srq_.get(), kAtOnce, mtu));
  }
}

// Numbers and lengths follow from a count that both ends keep, so neither has to tell the other
// what it sends.
void Traffic::lay_out(const Kind& kind, std::span<const std::uint32_t> lengths) {
  const std::uint32_t lkey = device_.region().lkey;
  const std::uint32_t port_mtu = 128U << device_.mtu();
  const std::uint32_t longest =
      std::min({kind.longest, longest_wanted(), kind.type == IBV_QPT_UD ? port_mtu : kLongest});
  for (const std::uint32_t length : lengths) {
    messages_.push_back({next_++, length <= longest ? length : length % (longest + 1)});
  }
  // Where any receive may get any message, all are as long as the longest.
  const bool any = kind.shared || !kind.reliable();
  const std::uint32_t most = std::ranges::max(messages_, {}, &Message::length).length;
  const auto header = static_cast<std::uint32_t>(kind.type == IBV_QPT_UD ? kHeader : 0);
  for (std::uint32_t slot = 0; slot < kAtOnce; ++slot) {
    const auto& [number, length] = messages_[slot];
    const std::uint64_t seed = mix(number);
    const bool whole_source = kind.opcode == IBV_WR_RDMA_READ;
    const bool whole_target = !kind.sends() && !whole_source;
    sources_.emplace_back(reinterpret_cast<std::byte*>(own_.source(slot)), lkey, length,
                          whole_source ? 1 : 1 + seed % Link::kMaxPieces, seed);
    const std::uint32_t spare = kind.sends() && number % 2 == 0 ? 5 : 0;
    const std::uint32_t room =
        whole_target || whole_source ? length : (any ? most : length) + spare;
    targets_.emplace_back(reinterpret_cast<std::byte*>(own_.target(slot)), lkey, header + room,
                          whole_target ? 1 : 1 + seed / 8 % Link::kMaxPieces, seed);
    sources_.back().clear();
    sources_.back().paint(end_, number);
    targets_.back().clear();
  }
}

// Posts the receive of a slot, to the queue pair or to the shared queue.
void Traffic::post_receive(std::uint32_t slot) {
  ibv_recv_wr request{};
  request.wr_id = slot;
  // Where no byte fits, no piece either. Not where this slot's own message has none: where receives
  // are shared, another one may come here.
  if (targets_[slot].pieces().size() > 1 || targets_[slot].pieces().front().length != 0) {
    request.sg_list = targets_[slot].pieces().data();
    request.num_sge = static_cast<int>(targets_[slot].pieces().size());
  }
  ibv_recv_wr* bad = nullptr;
  demand((srq_ ? ibv_post_srq_recv(srq_.get(), &request, &bad)
               : ibv_post_recv(links_.front()->pair(), &request, &bad)) == 0,
         "a receive cannot be posted");
}

void Traffic::post(const Kind& kind, std::uint32_t slot) {
  const Message& message = messages_[slot];
  Link& link = *links_[slot % links_.size()];
  // READs scatter what the others gather.
  const bool reads = kind.opcode == IBV_WR_RDMA_READ;
  Layout& at = reads ? targets_[slot] : sources_[slot];
  ibv_send_wr request{};
  request.wr_id = kAtOnce + slot;
  request.opcode = kind.opcode;
  request.sg_list = at.pieces().data();
  request.num_sge = static_cast<int>(at.pieces().size());
  request.send_flags = IBV_SEND_SIGNALED;
  if (kind.is_inline()) {
    request.send_flags |= IBV_SEND_INLINE;
  }
  request.imm_data = htonl(message.number);
  if (kind.type == IBV_QPT_UD) {
    request.wr.ud = {link.handle(), link.peer(), Link::kKey};
  } else if (!kind.sends()) {
    // The layout of one piece is the same at both ends, but for where its slot is.
    const std::uint64_t within = mix(mix(message.number)) % 13 + kMargin;
    request.wr.rdma = {(reads ? theirs_.source(slot) : theirs_.target(slot)) + within,
                       theirs_.rkey};
  }
  ibv_send_wr* bad = nullptr;
  demand(ibv_post_send(link.pair(), &request, &bad) == 0, "a request cannot be posted");
  if (kind.is_inline()) {
    at.clear();  // it has been taken already
  }
}

void Traffic::look(const Kind& kind, const Layout& at, const Message& message, std::uint32_t skip) {
  const std::int64_t wrong = at.wrong(1 - end_, message.number, skip, message.length);
  if (wrong >= 0) {
    accuse(kind, message, "byte " + std::to_string(wrong) + " is wrong");
  }
}

// Checks one message that has arrived: that it was due, is as long as it was sent, has come once,
// and is right byte by byte.
void Traffic::take_message(const Kind& kind, const ibv_wc& done, Book& book) {
  const bool in_order = kind.reliable() && !kind.shared;
  const std::uint32_t first = messages_.front().number;
  const std::uint32_t number =
      kind.numbered() ? ntohl(done.imm_data) : first + std::min(book.heard, kAtOnce - 1);
  const bool flagged = (done.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (number - first >= kAtOnce || flagged != kind.numbered() ||
      (in_order && number - first != book.heard)) {
    accuse(kind, {number, done.byte_len}, "nobody has sent it now");
  }
  const std::uint32_t slot = number - first;
  const Message& message = messages_[slot];
  const auto skip = static_cast<std::uint32_t>(kind.type == IBV_QPT_UD ? kHeader : 0);
  if (done.byte_len != message.length + skip) {
    accuse(kind, message, "it has become " + std::to_string(done.byte_len) + " bytes");
  }
  if (kind.type == IBV_QPT_UD && done.src_qp != links_.front()->peer()) {
    accuse(kind, message, "it comes from another queue pair");
  }
  ++book.heard;
  if (book.arrived[slot]) {
    ++repeated_;
    if (!lossy_ || kind.reliable()) {
      accuse(kind, message, "it has come twice");
    }
  }
  book.arrived[slot] = true;
  look(kind, targets_[kind.sends() ? done.wr_id : slot], message, skip);
}

void Traffic::take(const Kind& kind, const ibv_wc& done, Book& book) {
  if (done.wr_id >= kAtOnce) {
    demand(done.wr_id - kAtOnce < kAtOnce, "a completion of nobody");
    ++book.sent;
    return;
  }
  demand(done.opcode == (kind.sends() ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM),
         "a receive tells of another operation");
  take_message(kind, done, book);
}

// Eight messages each way over queue pairs of their own, which are made anew: so a batch never sees
// a late packet of the one before.
void Traffic::batch(const Kind& kind, std::span<const std::uint32_t> lengths) {
  lay_out(kind, lengths);
  make_links(kind);
  // Some receives come late: the other end has to wait for them.
  const std::uint32_t early =
      kind.reliable() && messages_.front().number / kAtOnce % 2 == 1 ? kAtOnce / 2 : kAtOnce;
  for (std::uint32_t slot = 0; kind.is_heard() && slot < early; ++slot) {
    post_receive(slot);
  }
  meeting_.wait();
  for (std::uint32_t slot = 0; slot < kAtOnce; ++slot) {
    post(kind, slot);
  }
  for (std::uint32_t slot = early; kind.is_heard() && slot < kAtOnce; ++slot) {
    post_receive(slot);
  }
  Book book;
  const bool may_lose = lossy_ && !kind.reliable();
  const std::uint32_t awaited = kind.is_heard() && !may_lose ? kAtOnce : 0;
  while (book.sent < kAtOnce || book.heard < awaited) {
    take(kind, device_.expect(), book);
  }
  meeting_.wait();
  while (const auto late = may_lose ? device_.next(kQuiet) : std::nullopt) {
    demand(late->status == IBV_WC_SUCCESS, "a receive ends badly");
    take(kind, *late, book);
  }
  for (std::uint32_t slot = 0; slot < kAtOnce; ++slot) {
    lost_ += kind.is_heard() && !book.arrived[slot] ? 1 : 0;
    if (kind.reliable() && !kind.sends()) {
      look(kind, targets_[slot], messages_[slot]);
    }
    if (targets_[slot].spilt()) {
      accuse(kind, messages_[slot], "bytes around it have changed");
    }
  }
  meeting_.wait();
  links_.clear();
  srq_.reset();
  messages_.clear();
  sources_.clear();
  targets_.clear();
}

// All lengths, eight at a time.
void Traffic::run(const Kind& kind) {
  lost_ = repeated_ = 0;
  for (std::size_t i = 0; i < std::size(kLengths); i += kAtOnce) {
    batch(kind, std::span(kLengths).subspan(i, kAtOnce));
  }
  std::printf("%s: all right, %llu lost, %llu repeated\n", kind.name,
              static_cast<unsigned long long>(lost_), static_cast<unsigned long long>(repeated_));
}

// Each end adds to one counter of the other and swaps another one, and is the only one to do so:
// what it finds there is what it left.
void Traffic::count() {
  constexpr std::uint32_t kRounds = 20;
  auto* const counters = reinterpret_cast<std::uint64_t*>(own_.base);
  auto* const found = reinterpret_cast<std::uint64_t*>(own_.source(0));
  std::fill_n(counters, kCounters / sizeof *counters, 0);
  Link link(device_, meeting_, IBV_QPT_RC, nullptr, kAtOnce, device_.mtu());
  meeting_.wait();
  for (std::uint64_t done = 0; done < std::uint64_t{kRounds} * kAtOnce / 2; done += kAtOnce / 2) {
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      ibv_sge piece{reinterpret_cast<std::uint64_t>(found + i), sizeof *found,
                    device_.region().lkey};
      ibv_send_wr request{};
      request.wr_id = i;
      request.sg_list = &piece;
      request.num_sge = 1;
      request.send_flags = IBV_SEND_SIGNALED;
      const bool adds = i % 2 == 0;
      request.opcode = adds ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
      const std::uint64_t before = done + i / 2;
      request.wr.atomic = {theirs_.base + (adds ? 0 : sizeof *counters), adds ? 1 : before,
                           before + 1, theirs_.rkey};
      ibv_send_wr* bad = nullptr;
      demand(ibv_post_send(link.pair(), &request, &bad) == 0, "an atomic cannot be posted");
    }
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      demand(device_.expect().wr_id == i, "atomics complete out of order");
      demand(found[i] == done + i / 2, "an atomic has found another value");
    }
  }
  meeting_.wait();
  const std::uint64_t sum = std::uint64_t{kRounds} * kAtOnce / 2;
  demand(counters[0] == sum && counters[1] == sum, "the counters are wrong in the end");
  demand(std::all_of(counters + 2, counters + kCounters / sizeof *counters,
                     [](std::uint64_t value) { return value == 0; }),
         "bytes around the counters have changed");
  meeting_.wait();
  std::printf("atomics: all right\n");
}

}  // namespace
}  // namespace weft::conformance

int main(int argc, char** argv) {
  using namespace weft::conformance;
  demand(argc >= 2, "usage: weft_verbs_data PORT [HOST] [lossy]");
  const bool lossy = std::strcmp(argv[argc - 1], "lossy") == 0;
  const bool calls = argc - (lossy ? 1 : 0) == 3;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Device device(kMemory);
  Meeting meeting(calls ? argv[2] : nullptr, argv[1]);
  Traffic traffic(device, meeting, calls ? 1 : 0, lossy);
  for (const Kind& kind : kKinds) {
    traffic.run(kind);
  }
  traffic.count();
}
