// Tests of the soft-RoCE device as its library sees it: two NICs, commands as bytes, rings as
// memory.
//
// The engine behind it has tests of its own (tests/unit/emu/roce/engine). Here it matters that the
// rings, which a program maps and writes at any time, lead to the right work requests and
// completions. Virtual time: nothing moves but in Wire::run().
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "emu/devices/rxe/counters.hpp"
#include "emu/devices/rxe/device.hpp"
#include "emu/kernel/uverbs/file.hpp"
#include "srd/net/address_text.hpp"

namespace weft::devices::rxe {
namespace {

using abi::Command;

// Hands packets over, with the four bytes that a carrier appends.
class Wire {
 public:
  void join(RxeDevice& device, const srd::Address& address) { ends_.push_back({&device, address}); }
  void run() {
    // A millisecond, in steps of 5 us.
    for (int round = 0; round < 200; ++round) {
      now_ += std::chrono::microseconds{5};
      for (const End& end : ends_) {
        if (end.device->next_timeout() <= now_) {
          end.device->on_timeout(now_);
        }
        srd::TxPacket packet;
        while (end.device->next_transmit(now_, packet)) {
          deliver(end, packet);
        }
      }
    }
  }

 private:
  struct End {
    RxeDevice* device;
    srd::Address address;
  };
  void deliver(const End& from, const srd::TxPacket& packet) {
    std::vector<std::byte> bytes(packet.header.begin(), packet.header.begin() + packet.header_size);
    for (const auto& piece : packet.payload) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    // The checksum, which a carrier computes and checks; its value is not looked at here.
    bytes.resize(bytes.size() + 4);
    for (const End& to : ends_) {
      if (to.address == packet.to) {
        to.device->on_packet(
            now_,
            srd::RxPacket{.from = from.address, .path = packet.path, .bytes = bytes, .more = {}});
      }
    }
  }
  std::vector<End> ends_;
  TimePoint now_ = time_at(std::chrono::seconds{1});
};

// A ring of rdma-core's librxe: a header with indices and, behind it, the entries.
struct MappedRing {
  RingHeader* header = nullptr;
  std::byte* entries = nullptr;

  [[nodiscard]] std::byte* at(std::uint32_t index) const {
    return entries + (std::size_t{index & header->index_mask} << header->log2_element_size);
  }
  void produce() {
    std::atomic_ref(header->producer)
        .store((header->producer + 1) & header->index_mask, std::memory_order_release);
  }
};

// A program with one queue pair on one NIC. It does what the library of rdma-core does: commands as
// bytes, rings in mapped memory. All numbers of commands and masks are those that the library
// writes, so that a change of ours that only agrees with itself is noticed.
class Party final : public kernel::Runner {
 public:
  Party(Wire& wire, const char* address, std::uint32_t first_qpn)
      : address_(*srd::parse_address(address)),
        device(Abilities{}, engine_config(Abilities{}, address_, {first_qpn, 65536},
                                          srd::IoCapabilities{.mtu = 9000}, first_qpn)),
        file_(device, *this, nullptr),
        wire_(wire) {
    wire.join(device, address_);
    fd_ = file_.open();
    struct {
      std::uint32_t fd, vectors;
    } context{};
    EXPECT_EQ(call(Command::get_context, context, std::uint64_t{0}), 0);
    EXPECT_EQ(call(Command::alloc_pd, pd), 0);
    const auto place = reinterpret_cast<std::uint64_t>(memory.data());
    std::array<std::uint32_t, 3> keys{};
    EXPECT_EQ(call(Command::reg_mr, keys, place, memory.size(), place, pd, std::uint32_t{15}), 0);
    key = keys[1];
    struct {
      std::uint32_t handle, cqe;
      CqReply own;
    } reply{};
    EXPECT_EQ(call(Command::create_cq, reply, std::uint64_t{0xC0}, std::uint32_t{15},
                   std::uint32_t{0}, std::int32_t{-1}, std::uint32_t{0}),
              0);
    EXPECT_EQ(reply.cqe, 15U);
    cq_handle = reply.handle;
    cq = map(reply.own.ring);
  }

  void exclusively(const std::function<void()>& work) override { work(); }
  bool poll() override { return false; }
  void expect_events() override {}

  void make_qp(std::uint8_t type) {
    struct {
      abi::CreateQpReply core;
      QpReply own;
    } reply{};
    // Of 7 sends, 7 receives, 2 pieces each, 64 bytes inline.
    ASSERT_EQ(call(Command::create_qp, reply, std::uint64_t{0xBEEF}, pd, cq_handle, cq_handle,
                   std::uint32_t{0}, std::uint32_t{7}, std::uint32_t{7}, std::uint32_t{2},
                   std::uint32_t{2}, std::uint32_t{64}, std::array<std::uint8_t, 4>{1, type, 0, 0}),
              0);
    qp = reply.core;
    EXPECT_EQ(qp.max_send_wr, 7U);
    EXPECT_EQ(qp.max_inline_data, 64U);
    EXPECT_EQ(qp.max_send_sge, 4U);  // as many as inline data has room for
    sq = map(reply.own.send);
    rq = map(reply.own.receive);
  }
  int modify(abi::ModifyQp request, std::uint32_t mask, roce::QpState state) {
    request.handle = qp.handle;
    request.attr_mask = mask;
    request.qp_state = static_cast<std::uint8_t>(state);
    request.port_num = 1;
    return write(Command::modify_qp, join(request), 0);
  }
  void connect(const Party& peer) {
    abi::ModifyQp request{};
    request.access_flags = 15;
    // The masks are those with which rdma-core leads a connection through its states.
    ASSERT_EQ(modify(request, 0x39, roce::QpState::init), 0);
    request.dest.dgid = peer.address_.bytes;
    request.dest.is_global = request.dest.port_num = 1;
    // 1024 bytes.
    request.path_mtu = 3;
    request.dest_qp_num = peer.qp.qpn;
    request.max_dest_rd_atomic = request.max_rd_atomic = 4;
    request.min_rnr_timer = 12;
    request.timeout = 14;
    request.retry_cnt = request.rnr_retry = 7;
    ASSERT_EQ(modify(request, 0x129181, roce::QpState::rtr), 0);
    ASSERT_EQ(modify(request, 0x12e01, roce::QpState::rts), 0);
  }
  void start_datagrams() {
    abi::ModifyQp request{};
    request.qkey = 0x11;
    ASSERT_EQ(modify(request, 0x71, roce::QpState::init), 0);
    ASSERT_EQ(modify(request, 0x1, roce::QpState::rtr), 0);
    ASSERT_EQ(modify(request, 0x10001, roce::QpState::rts), 0);
  }

  void put_receive(std::uint64_t id, std::uint32_t offset, std::uint32_t length) {
    ReceiveWqe wqe{};
    wqe.wr_id = id;
    wqe.dma.sges = 1;
    const Sge segment{address(offset), length, key};
    std::byte* const to = rq.at(rq.header->producer);
    std::memcpy(to, &wqe, sizeof wqe);
    std::memcpy(to + sizeof wqe, &segment, sizeof segment);
    rq.produce();
  }
  void put_send(SendWqe wqe, const Sge& segment) {
    wqe.dma.sges = 1;
    wqe.dma.length = segment.length;
    std::byte* const to = sq.at(sq.header->producer);
    std::memcpy(to, &wqe, sizeof wqe);
    std::memcpy(to + sizeof wqe, &segment, sizeof segment);
    sq.produce();
  }
  int ring_doorbell() {
    std::uint32_t bad = 0;
    const int error = call(Command::post_send, bad, qp.handle, std::array<std::uint32_t, 3>{});
    wire_.run();
    return error;
  }
  std::optional<Cqe> take() {
    const std::uint32_t index = cq.header->consumer;
    if (std::atomic_ref(cq.header->producer).load() == index) {
      return std::nullopt;
    }
    Cqe entry;
    std::memcpy(&entry, cq.at(index), sizeof entry);
    cq.header->consumer = (index + 1) & cq.header->index_mask;
    return entry;
  }
  [[nodiscard]] std::uint64_t address(std::uint32_t offset) const {
    return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
  }

  // The response address comes first in the body. Returns 0 or an errno.
  template <class Reply, class... Parts>
  int call(Command number, Reply& reply, const Parts&... parts) {
    return write(number, join(reinterpret_cast<std::uint64_t>(&reply), parts...), sizeof reply);
  }

 private:
  srd::Address address_;

 public:
  std::vector<std::byte> memory = std::vector<std::byte>(65536);
  RxeDevice device;
  std::uint32_t pd = 0;
  std::uint32_t key = 0;
  std::uint32_t cq_handle = 0;
  abi::CreateQpReply qp{};
  MappedRing cq;
  MappedRing sq;
  MappedRing rq;

 private:
  template <class... Parts>
  static std::vector<std::byte> join(const Parts&... parts) {
    std::vector<std::byte> bytes;
    const auto append = [&bytes](const auto& part) {
      const auto more = std::as_bytes(std::span(&part, 1));
      bytes.insert(bytes.end(), more.begin(), more.end());
    };
    (append(parts), ...);
    return bytes;
  }
  int write(Command number, const std::vector<std::byte>& body, std::size_t reply) {
    const abi::CommandHeader header{static_cast<std::uint32_t>(number),
                                    static_cast<std::uint16_t>((body.size() + 8) / 4),
                                    static_cast<std::uint16_t>(reply / 4)};
    std::vector<std::byte> bytes = join(header);
    bytes.insert(bytes.end(), body.begin(), body.end());
    const ssize_t result = file_.write(fd_, bytes.data(), bytes.size());
    return result < 0 ? static_cast<int>(-result) : 0;
  }
  MappedRing map(const MapInfo& info) {
    void* const data = mmap(nullptr, info.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_,
                            static_cast<off_t>(info.key));
    EXPECT_NE(data, MAP_FAILED);
    auto* const bytes = static_cast<std::byte*>(data);
    return {reinterpret_cast<RingHeader*>(bytes), bytes + sizeof(RingHeader)};
  }

  kernel::UverbsFile file_;
  Wire& wire_;
  int fd_ = -1;
};

class Rxe : public ::testing::Test {
 protected:
  void connect(std::uint8_t type) {
    a.make_qp(type);
    b.make_qp(type);
    a.connect(b);
    b.connect(a);
  }
  Wire wire;
  Party a{wire, "10.0.0.1", 1U << 16};
  Party b{wire, "10.0.0.2", 2U << 16};
};

// A send that gives a completion.
SendWqe request(std::uint64_t id, roce::WrOpcode opcode) {
  SendWqe wqe{};
  wqe.wr_id = id;
  wqe.opcode = static_cast<std::uint32_t>(opcode);
  wqe.flags = roce::kSignaled;
  return wqe;
}

// Rings of 8 and 16 entries, 50 messages: each index wraps several times.
TEST_F(Rxe, SendsArriveForManyLapsOfAllRings) {
  connect(abi::kQpRc);
  for (std::uint32_t i = 0; i < 50; ++i) {
    std::memset(a.memory.data(), static_cast<int>(i), 3000);
    b.put_receive(i, 4096, 4096);
    a.put_send(request(1000 + i, roce::WrOpcode::send), {a.address(0), 3000, a.key});
    ASSERT_EQ(a.ring_doorbell(), 0);
    const auto sent = a.take();
    const auto received = b.take();
    ASSERT_TRUE(sent && received) << i;
    EXPECT_EQ(sent->wr_id, 1000U + i);
    EXPECT_EQ(sent->status, 0U);
    EXPECT_EQ(received->wr_id, i);
    EXPECT_EQ(received->length, 3000U);
    // IBV_WC_RECV.
    EXPECT_EQ(received->opcode, 128U);
    EXPECT_EQ(received->qpn, b.qp.qpn);
    EXPECT_EQ(std::memcmp(b.memory.data() + 4096, a.memory.data(), 3000), 0);
    EXPECT_EQ(a.sq.header->consumer, a.sq.header->producer);
  }
}

// `weft run --late-receives`: each is overlooked for so long after a packet has asked for it.
TEST_F(Rxe, ReceivesThatAreLateOnPurposeCountLater) {
  b.device.set_late_receives(std::chrono::milliseconds{2});
  connect(abi::kQpRc);
  b.put_receive(1, 4096, 4096);
  a.put_send(request(2, roce::WrOpcode::send), {a.address(0), 3000, a.key});
  ASSERT_EQ(a.ring_doorbell(), 0);  // a millisecond passes
  EXPECT_FALSE(a.take() || b.take());
  for (int milliseconds = 0; milliseconds < 3; ++milliseconds) {
    wire.run();
  }
  const auto sent = a.take();
  const auto received = b.take();
  ASSERT_TRUE(sent && received);
  EXPECT_EQ(sent->status, 0U);
  EXPECT_EQ(received->wr_id, 1U);
}

// 3000 bytes at an MTU of 1024: three packets, one send. The answer's packets are counted at both
// ends as well.
TEST_F(Rxe, CountsWhereReadersLook) {
  connect(abi::kQpRc);
  b.put_receive(1, 4096, 4096);
  a.put_send(request(2, roce::WrOpcode::send), {a.address(0), 3000, a.key});  // three packets
  ASSERT_EQ(a.ring_doorbell(), 0);
  const auto shown = [](Party& party, const std::string& wanted) {
    std::uint64_t found = ~std::uint64_t{0};
    kCounters.visit(
        kernel::CounterSet::Place::port, party.device.statistics(),
        [&](const char* name, std::uint64_t value) { found = name == wanted ? value : found; });
    return found;
  };
  EXPECT_EQ(shown(a, "sent_pkts"), 3U);
  EXPECT_EQ(shown(b, "rcvd_pkts"), 3U);
  EXPECT_EQ(shown(a, "rdma_sends"), 1U);
  EXPECT_EQ(shown(b, "rdma_recvs"), 1U);
  EXPECT_EQ(shown(a, "rcvd_pkts"), shown(b, "sent_pkts"));
}

// The peer's program has no part in it: nothing completes there.
TEST_F(Rxe, WritesAndReadsMemoryOfThePeer) {
  connect(abi::kQpRc);
  std::memset(a.memory.data(), 7, 2000);
  SendWqe write = request(1, roce::WrOpcode::write);
  write.rdma = {b.address(100), b.key, 0};
  a.put_send(write, {a.address(0), 2000, a.key});
  SendWqe read = request(2, roce::WrOpcode::read);
  read.rdma = {b.address(100), b.key, 0};
  a.put_send(read, {a.address(8192), 2000, a.key});
  ASSERT_EQ(a.ring_doorbell(), 0);
  EXPECT_EQ(a.take()->wr_id, 1U);
  EXPECT_EQ(a.take()->wr_id, 2U);
  EXPECT_FALSE(b.take());
  EXPECT_EQ(std::memcmp(a.memory.data() + 8192, a.memory.data(), 2000), 0);
}

// The first 40 bytes of the receive are the room of the GRH, so 100 bytes make a length of 140.
TEST_F(Rxe, DatagramsComeBehindTheirHeader) {
  a.make_qp(abi::kQpUd);
  b.make_qp(abi::kQpUd);
  a.start_datagrams();
  b.start_datagrams();
  b.put_receive(5, 0, 4096);
  std::memset(a.memory.data(), 9, 100);
  SendWqe wqe = request(6, roce::WrOpcode::send);
  wqe.ud = {};
  wqe.ud.remote_qpn = b.qp.qpn;
  wqe.ud.remote_qkey = 0x11;
  wqe.ud.address.dgid = srd::parse_address("10.0.0.2")->bytes;  // as old libraries say it
  a.put_send(wqe, {a.address(0), 100, a.key});
  ASSERT_EQ(a.ring_doorbell(), 0);
  EXPECT_EQ(a.take()->status, 0U);
  const auto received = b.take();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->length, 140U);
  EXPECT_EQ(received->flags, 1U);  // there is a header
  EXPECT_EQ(received->source_qpn, a.qp.qpn);
  EXPECT_EQ(std::memcmp(b.memory.data() + 40, a.memory.data(), 100), 0);
}

// The ring cannot refuse it, so it fails as a request does, after those before it.
TEST_F(Rxe, NoSuchAddressHandleFailsInItsTurn) {
  a.make_qp(abi::kQpUd);
  a.start_datagrams();
  SendWqe wqe = request(6, roce::WrOpcode::send);
  wqe.ud = {};
  wqe.ud.ah = 77;
  a.put_send(wqe, {a.address(0), 100, a.key});
  ASSERT_EQ(a.ring_doorbell(), 0);
  EXPECT_EQ(a.take()->status, static_cast<std::uint32_t>(roce::WcStatus::local_qp_operation));
}

// A queue pair that is not in RTS: the doorbell is refused, and what lies in the ring stays for
// later.
TEST_F(Rxe, NothingIsTakenBeforeItMaySend) {
  a.make_qp(abi::kQpRc);
  a.put_send(request(1, roce::WrOpcode::send), {a.address(0), 10, a.key});
  EXPECT_EQ(a.ring_doorbell(), EINVAL);
  EXPECT_EQ(a.sq.header->consumer, 0U);
}

// In order, so that a program gets back all that it has posted.
TEST_F(Rxe, ErrorFlushesWhatIsPosted) {
  connect(abi::kQpRc);
  a.put_receive(1, 0, 10);
  a.put_receive(2, 0, 10);
  ASSERT_EQ(a.modify({}, 1, roce::QpState::error), 0);
  wire.run();
  for (const std::uint64_t id : {1U, 2U}) {
    const auto flushed = a.take();
    ASSERT_TRUE(flushed);
    EXPECT_EQ(flushed->wr_id, id);
    EXPECT_EQ(flushed->status, static_cast<std::uint32_t>(roce::WcStatus::flushed));
  }
}

// The program can write anything into its rings at any time, indices and masks included. Nothing is
// expected of what is done with it, except that no byte outside of the rings and the program's
// memory is touched (the sanitizers look).
TEST_F(Rxe, BelievesNothingInItsRings) {
  connect(abi::kQpRc);
  for (std::uint32_t seed = 1; seed < 200; ++seed) {
    for (const MappedRing& ring : {a.sq, a.rq, a.cq}) {
      auto* const words = reinterpret_cast<std::uint32_t*>(ring.entries);
      for (std::uint32_t i = 0; i < 256; ++i) {
        // Any numbers that are far apart; each seed spoils all rings anew.
        words[i] = seed * 2654435761U ^ i * 40503U;
      }
      ring.header->index_mask = seed * 77777U;
      ring.header->log2_element_size = seed;
      ring.header->producer = seed * 1000003U;
      ring.header->consumer = seed * 2000003U;
    }
    (void)a.ring_doorbell();
  }
}

// In milliseconds, at the most a minute; what is no number, or shorter than the usual timeout,
// changes nothing.
TEST(EngineConfig, WaitsAsLongAsTheEnvironmentSays) {
  const auto shortest = [](const char* text) {
    ::setenv("WEFT_SHORTEST_TIMEOUT", text, 1);
    const auto config = engine_config(Abilities{}, srd::Address::v4(127, 77, 1, 1), {}, {}, 1);
    ::unsetenv("WEFT_SHORTEST_TIMEOUT");
    return config.min_timeout;
  };
  const Duration usual = roce::EngineConfig{}.min_timeout;
  EXPECT_EQ(shortest("250"), std::chrono::milliseconds{250});
  EXPECT_EQ(shortest("99999999999999999999"), std::chrono::seconds{60});
  for (const char* const text : {"", "soon", "-5", "1"}) {
    EXPECT_EQ(shortest(text), usual) << text;
  }
}

}  // namespace
}  // namespace weft::devices::rxe
