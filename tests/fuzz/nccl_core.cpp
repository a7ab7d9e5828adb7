// Owns the fuzz target of the NCCL plugin's protocol: a peer that says whatever it likes to an end
// that is used as NCCL uses it, in virtual time, against memory whose owner checks it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "emu/world/world.hpp"
#include "integration/nccl/core/core.hpp"
#include "srd/base/check.hpp"
#include "tests/fuzz/tape.hpp"

namespace weft::nccl {
namespace {

using testing::Tape;

constexpr std::uint32_t kVictim = 0;
constexpr std::uint32_t kStranger = 1;
constexpr srd::Qpn kFirstQpn{8};
constexpr std::byte kBlank{0x5A};
constexpr std::byte kStrange{0x3C};    // all that the stranger ever writes
constexpr std::byte kUntouched{0x77};  // where the stranger lets the victim write
constexpr std::size_t kMargin = 64;
constexpr std::size_t kRoom = 512;  // between the margins: what is registered
constexpr std::size_t kMaxEnds = 4;

constexpr std::size_t kPeriod = 16;
constexpr std::byte sent_byte(std::size_t at) {
  return static_cast<std::byte>(0xC0 | at % kPeriod);
}

// One end of the victim's, with memory of its own.
template <class C>
struct End {
  static constexpr bool kSends = std::is_same_v<C, SendComm>;

  C* comm = nullptr;
  CommRegion* region = nullptr;
  std::vector<Request*> requests;
  std::vector<std::byte> memory = std::vector<std::byte>(kRoom + 2 * kMargin, kBlank);

  bool announced = false;               // the stranger has had a chance to learn its key
  std::vector<std::byte> given_back{};  // the memory when it was deregistered

  End() {
    for (std::size_t i = 0; kSends && i < kRoom; ++i) {
      room()[i] = sent_byte(i);
    }
  }
  [[nodiscard]] std::byte* room() { return memory.data() + kMargin; }
  [[nodiscard]] bool is_right(std::size_t i) const {
    const std::byte byte = memory[kMargin + i];
    return kSends ? byte == sent_byte(i) : byte == kBlank || (announced && byte == kStrange);
  }
  void check() const {
    const auto blank = [](std::byte byte) { return byte == kBlank; };
    WEFT_CHECK(std::all_of(memory.begin(), memory.begin() + kMargin, blank));
    WEFT_CHECK(std::all_of(memory.end() - kMargin, memory.end(), blank));
    for (std::size_t i = 0; i < kRoom; ++i) {
      WEFT_CHECK(is_right(i));
    }
    WEFT_CHECK(given_back.empty() || given_back == memory);
  }
};

class Game {
 public:
  Game(const std::uint8_t* data, std::size_t size) : tape_(data, size), world_(1) {
    for (std::uint32_t host : {kVictim, kStranger}) {
      srd::EngineConfig config;
      config.paths = 4;
      config.mtu_payload = 256;
      config.base_rtt = std::chrono::microseconds{10};
      config.peer_timeout = std::chrono::seconds{1};
      config.max_work_requests = 256;
      config.seed = host + 1;
      world_.add_host(config);
    }
    auto made = Core::create(victim(), {.address = world::address_of_host(kVictim),
                                        .attachment = victim().config().attachment,
                                        .first_qpn = kFirstQpn});
    WEFT_CHECK(made.has_value());
    core_ = std::move(*made);
    listener_ = core_->listen(handle_);
    for (std::uint32_t i = 0; i < kEndpoints; ++i) {
      WEFT_CHECK(
          stranger()
              .open_endpoint(srd::Qpn{kFirstQpn.value() + i}, {.qkey = handle_.qkey.value(),
                                                               .receive_depth = 64,
                                                               .unsolicited_immediate = true})
              .has_value());
    }
    for (std::size_t i = 0; i < heard_.size(); ++i) {
      await(i);
    }
    bulk_.fill(kStrange);
    target_.fill(kUntouched);
    target_key_ = stranger()
                      .memory()
                      .insert({.data = target_.data(),
                               .address = kTargetAddress,
                               .length = target_.size(),
                               .access = srd::Access::remote_write})
                      .value();
    peer_ = stranger().peer(world::address_of_host(kVictim), victim().config().attachment).value();
  }
  ~Game() {
    close_all();
    core_.reset();
  }
  Game(const Game&) = delete;
  Game& operator=(const Game&) = delete;

  void play() {
    while (!tape_.done()) {
      move();
      turn();
    }
    close_all();
    // Two seconds: long enough for timeouts to end what is still open.
    for (int i = 0; i < 40; ++i) {
      world_.run_until(world_.now() + std::chrono::milliseconds{50});
      core_->progress(world_.now());
      world_.pump();
    }
    WEFT_CHECK(core_->idle() || asked_.asked.value() != 0);  // an end that has asked keeps watching
    // What was registered has been given back; the buffer without bytes stays.
    WEFT_CHECK(victim().memory().size() == 1);
  }

 private:
  [[nodiscard]] srd::Engine& victim() { return world_.engine(kVictim); }
  [[nodiscard]] srd::Engine& stranger() { return world_.engine(kStranger); }

  // What either side may do next. The stranger speaks most often.
  void move() {
    switch (tape_.byte() % 12) {
      case 0:
        return raw_control();
      case 1:
      case 2:
      case 3:
        return shaped_control();
      case 4:
        return write();
      case 5:
        return connect();
      case 6:
        return accept();
      case 7:
        return send();
      case 8:
        return receive();
      case 9:
        return give_back();
      case 10:
        return test();
      default:
        world_.run_until(world_.now() + std::chrono::microseconds{tape_.byte() * 100});
    }
  }

  // The packets that are on their way arrive, and both sides look at them.
  void turn() {
    world_.pump();
    world_.run_until(world_.now() + std::chrono::microseconds{20});
    core_->progress(world_.now());
    world_.pump();
    listen();
    for (const auto& end : sends_) {
      end->check();
    }
    for (const auto& end : receives_) {
      end->check();
    }
    for (std::size_t i = 0; i < target_.size(); ++i) {
      WEFT_CHECK(target_[i] == kUntouched || target_[i] == sent_byte(i));
    }
  }

  // --- The stranger.
  void await(std::size_t buffer) {
    srd::ReceiveRequest request;
    request.segments[0] = {heard_[buffer].data(), kMaxMessage};
    request.cookie = buffer;
    (void)stranger().post_receive(kFirstQpn, request);
  }
  // Notes names and keys, so that what it says next may hit.
  void listen() {
    while (const srd::Completion* const next = stranger().next_completion()) {
      const srd::Completion completion = *next;
      stranger().pop_completion();
      if (completion.kind != srd::Completion::Kind::receive) {
        continue;
      }
      const auto message = std::span<const std::byte>(heard_[completion.cookie % heard_.size()])
                               .first(completion.length);
      const auto header = parse_control(message);
      WEFT_CHECK(header.has_value());
      last_ = *header;
      if (header->count != 0) {
        entry_ = entry_of(message, 0);
      }
      await(completion.cookie % heard_.size());
    }
  }
  void say(std::size_t length) {
    srd::SendRequest request;
    request.peer = peer_;
    request.source = request.destination = kFirstQpn;
    request.qkey = handle_.qkey.value();
    // The bytes are lent: each message has a place of its own, used again long after it has left.
    auto& place = said_[next_said_++ % said_.size()];
    place = message_;
    request.segments[0] = {place.data(), static_cast<std::uint32_t>(length)};
    (void)stranger().post(request);
  }
  void raw_control() {
    const std::size_t length = tape_.word() % (kMaxMessage + 1);
    for (std::size_t i = 0; i < length; ++i) {
      message_[i] = static_cast<std::byte>(tape_.byte());
    }
    say(length);
  }
  std::uint8_t below(std::uint8_t limit) { return static_cast<std::uint8_t>(tape_.byte() % limit); }
  void shaped_control() {
    ControlHeader header;
    header.kind = static_cast<std::uint8_t>(1 + below(7));
    header.flags = below(8) == 0 ? tape_.byte() : below(2);
    header.count = static_cast<std::uint8_t>(header.kind == 4 ? 1 + below(9) : 0);
    // Bits: which of the names, secrets and keys are the right ones. An input that had to guess
    // them would get nowhere.
    const std::uint8_t hits = tape_.byte();
    header.to_number = (hits & 1) != 0 ? last_.from_number.value() : std::uint16_t{below(4)};
    header.to_nonce = (hits & 2) == 0 ? last_.from_nonce.value() : tape_.word();
    header.from_number = tape_.byte() % 4;
    header.from_nonce = tape_.byte();
    header.sequence = header.kind == 1 ? listener_ : kFirstSequence + tape_.byte() % 80;
    header.secret = (hits & 4) == 0 ? handle_.secret.value() : tape_.word();
    header.qkey = (hits & 8) == 0 ? handle_.qkey.value() : tape_.word();
    std::memcpy(message_.data(), &header, sizeof header);
    if (header.kind == 7) {
      header.sequence = kFirstSequence + tape_.byte() % 20;
      header.flags = below(8) == 0 ? tape_.byte() : 0;
      const EagerHeader eager{.control = header, .tag = boost::endian::big_int64_buf_t{below(3)}};
      std::memcpy(message_.data(), &eager, sizeof eager);
      std::fill(message_.begin() + sizeof eager, message_.end(), kStrange);
      return say(std::min(sizeof eager + tape_.word() % (kMaxEager + 2), message_.size()));
    }
    const std::size_t count = std::min<std::size_t>(header.count, kMaxGroup);
    for (std::size_t i = 0; i < count; ++i) {
      ControlEntry entry;
      entry.address = tape_.byte();
      entry.key = tape_.byte();
      entry.size = tape_.byte() % 4 == 0 ? tape_.word() : tape_.byte() * 2U;
      entry.tag = tape_.byte() % 3;
      // There really is room, and bytes of the pattern fall into their places.
      if ((hits & 16) == 0) {
        entry.address = kTargetAddress + entry.address.value() % kPeriod * kPeriod;
        entry.key = target_key_.value();
      }
      std::memcpy(message_.data() + sizeof header + i * sizeof entry, &entry, sizeof entry);
    }
    say(sizeof header + count * sizeof(ControlEntry));
  }
  void write() {
    srd::WriteRequest request;
    request.peer = peer_;
    request.source = request.destination = srd::Qpn{kFirstQpn.value() + 1};
    request.qkey = handle_.qkey.value();
    request.segments[0] = {bulk_.data(), tape_.byte() * 4U};
    request.remote_key = srd::RegionKey{entry_.key.value()};
    request.remote_address = entry_.address.value() - 8 + tape_.byte() * 4U;
    request.immediate = Immediate{static_cast<std::uint16_t>(tape_.byte() % 4),
                                  kFirstSequence + std::uint32_t{tape_.byte()} % 80,
                                  static_cast<std::uint8_t>(tape_.byte() % 8)}
                            .pack();
    (void)stranger().post(request);
  }

  // --- The victim, which makes no mistakes.
  template <class C>
  [[nodiscard]] End<C>* choose(std::vector<std::unique_ptr<End<C>>>& ends) {
    const std::uint8_t lot = tape_.byte();
    return ends.empty() ? nullptr : ends[lot % ends.size()].get();
  }
  template <class C>
  void adopt(std::vector<std::unique_ptr<End<C>>>& ends, C* comm) {
    if (comm == nullptr) {
      return;
    }
    auto end = std::make_unique<End<C>>();
    end->comm = comm;
    end->region = core_->register_memory(*comm, end->room(), kRoom).value();
    ends.push_back(std::move(end));
  }
  void connect() {
    if (sends_.size() == kMaxEnds) {
      return;
    }
    if (asked_.asked.value() == 0) {
      asked_ = handle_;  // the stranger has the same endpoints, and its own address
      asked_.address = world::address_of_host(kStranger).bytes;
      asked_.attachment = stranger().config().attachment.value();
    }
    SendComm* made = nullptr;
    if (core_->connect(asked_, made) != Outcome::ok || made != nullptr) {
      asked_ = {};
    }
    adopt(sends_, made);
  }
  void accept() {
    ReceiveComm* made = nullptr;
    if (receives_.size() < kMaxEnds) {
      (void)core_->accept(listener_, made);
    }
    adopt(receives_, made);
  }
  void send() {
    End<SendComm>* const end = choose(sends_);
    const std::uint32_t size = tape_.byte() * 2U;
    Request* request = nullptr;
    if (end != nullptr && end->region != nullptr &&
        core_->send(*end->comm, end->room(), size, tape_.byte() % 3, end->region, request) ==
            Outcome::ok &&
        request != nullptr) {
      end->requests.push_back(request);
    }
  }
  void receive() {
    End<ReceiveComm>* const end = choose(receives_);
    if (end == nullptr || end->region == nullptr) {
      return;
    }
    std::array<Buffer, kMaxGroup> buffers;
    const std::size_t count = 1 + tape_.byte() % kMaxGroup;
    for (std::size_t i = 0; i < count; ++i) {
      buffers[i] = {end->room() + i * 64, 64, static_cast<int>(i % 3), end->region};
    }
    end->announced = true;
    Request* request = nullptr;
    const bool early = count == 1 && tape_.byte() % 4 == 0;
    if (core_->receive(*end->comm, std::span{buffers}.first(count), early, request) ==
            Outcome::ok &&
        request != nullptr) {
      end->requests.push_back(request);
    }
  }
  template <class C>
  void test_one(End<C>* end) {
    if (end == nullptr || end->requests.empty()) {
      return;
    }
    const auto at = end->requests.begin() + tape_.byte() % end->requests.size();
    const auto state = (*at)->state.load();
    WEFT_CHECK(state != Request::State::free);
    if (state != Request::State::pending) {
      for (std::size_t i = 0; i < (*at)->count; ++i) {
        WEFT_CHECK((*at)->sizes[i] <= kRoom);
      }
      (*at)->state.store(Request::State::free);
      end->requests.erase(at);
    }
  }
  void test() {
    if (tape_.byte() % 2 == 0) {
      test_one(choose(sends_));
    } else {
      test_one(choose(receives_));
    }
  }
  template <class C>
  void give_back_one(std::vector<std::unique_ptr<End<C>>>& ends) {
    End<C>* const end = choose(ends);
    if (end == nullptr) {
      return;
    }
    if (tape_.byte() % 2 == 0 && end->region != nullptr) {
      WEFT_CHECK(core_->deregister(*end->comm, end->region));
      end->given_back = end->memory;
      end->region = nullptr;
      return;
    }
    core_->close(*end->comm);
    std::erase_if(ends, [end](const auto& one) { return one.get() == end; });
  }
  void give_back() {
    if (tape_.byte() % 2 == 0) {
      give_back_one(sends_);
    } else {
      give_back_one(receives_);
    }
  }
  // The memory goes with its end: whatever touched it afterwards would be found.
  void close_all() {
    for (const auto& end : sends_) {
      core_->close(*end->comm);
    }
    for (const auto& end : receives_) {
      core_->close(*end->comm);
    }
    sends_.clear();
    receives_.clear();
    core_->close_listener(listener_);
  }

  Tape tape_;
  world::VirtualWorld world_;
  std::unique_ptr<Core> core_;
  ListenHandle handle_;
  ListenHandle asked_;
  std::uint32_t listener_ = 0;
  srd::PeerId peer_;
  std::vector<std::unique_ptr<End<SendComm>>> sends_;
  std::vector<std::unique_ptr<End<ReceiveComm>>> receives_;
  ControlHeader last_;
  ControlEntry entry_;
  std::array<std::byte, kMaxMessage + 1> message_{};
  std::array<std::array<std::byte, kMaxMessage + 1>, 256> said_{};
  std::size_t next_said_ = 0;
  std::array<std::array<std::byte, kMaxMessage>, 64> heard_{};
  std::array<std::byte, 1024> bulk_{};
  static constexpr std::uint64_t kTargetAddress = 0x10000;
  std::array<std::byte, 1024> target_{};
  srd::RegionKey target_key_;
};

}  // namespace
}  // namespace weft::nccl

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::nccl::Game(data, size).play();
  return 0;
}
