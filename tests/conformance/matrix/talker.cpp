// Owns a program that does what programs on RDMA devices do, on SRD queue pairs of EFA or on
// reliable connections, and that is right, or makes one classic mistake on request.
//
//     talker [--mistake NAME] [--seconds S] --listen ADDRESS    the server
//     talker [--mistake NAME] [--seconds S] ADDRESS             the client
//
// Both ends do the same: numbered sends in both directions with several under way, and blocks that
// each reads from the other's memory. Every byte is verified. Over TCP they tell each other where
// they are, what has been consumed, and the end. Exit codes: 0; 1, the mistake or the network was
// noticed; 3, the other end is gone.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/matrix/device.hpp"

namespace weft::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMessages = 400;  // at least, each way
constexpr std::uint32_t kSendSlots = 8;
constexpr std::uint32_t kReceiveSlots = 16;
constexpr std::uint32_t kMessageSize = 1024;
constexpr std::uint32_t kBlocks = 60;  // at least, each way
constexpr std::uint32_t kBlockSize = 32768;
constexpr std::uint16_t kPort = 18515;

// What can be wrong with it.
enum class Mistake {
  none,
  ordering,     // takes the n-th message for the n-th that was sent
  last_byte,    // takes a read for complete when its last byte has come
  reuse,        // overwrites a buffer before its completion
  ignores_rnr,  // never tries again when a receiver is not ready, and does not look
  leaks,        // loses a buffer with every completion that is an error
  forgets,      // posts no new receive for a message that came early
  deadlock,     // waits for a peer whatever happens
  no_retries,   // asks its queue pair for no retries
  one_rail,     // takes the last of its devices, and no other one when that is gone
};

struct NamedMistake {
  std::string_view name;
  Mistake mistake;
};
constexpr NamedMistake kMistakes[] = {
    {"ordering", Mistake::ordering}, {"last-byte", Mistake::last_byte},
    {"reuse", Mistake::reuse},       {"ignores-rnr", Mistake::ignores_rnr},
    {"leaks", Mistake::leaks},       {"forgets-receives", Mistake::forgets},
    {"deadlock", Mistake::deadlock}, {"no-retries", Mistake::no_retries},
    {"one-rail", Mistake::one_rail},
};

// --- The connection beside the device.

enum class Note : std::uint32_t {
  sends_consumed,  // so many sends have been taken, and their receives posted again
  block_ready,
  block_consumed,
  total_sends,  // there will be so many
  total_blocks,
  done,
};
struct Line {
  Note note;
  std::uint32_t value;
};

class Wire {
 public:
  Wire(const char* address, bool listens) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(kPort);
    demand(::inet_pton(AF_INET, address, &name.sin_addr) == 1, "that is no address");
    if (!listens) {
      const auto until = Clock::now() + std::chrono::seconds{10};
      while (::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) {
        demand(Clock::now() < until, "cannot connect");
        ::usleep(10000);
      }
      fd_ = fd;
    } else {
      const int yes = 1;
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      demand(
          ::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0 && ::listen(fd, 1) == 0,
          "cannot listen");
      pollfd waiting{fd, POLLIN, 0};
      demand(::poll(&waiting, 1, 20000) == 1, "nobody came");
      fd_ = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
      ::close(fd);
    }
    demand(fd_ >= 0, "no connection");
    const int yes = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  Place exchange(const Place& mine) {
    Place theirs{};
    demand(::send(fd_, &mine, sizeof mine, MSG_NOSIGNAL) == sizeof mine &&
               ::recv(fd_, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs,
           "the other end is gone before it began");
    return theirs;
  }
  void tell(Note note, std::uint32_t value) {
    const Line line{note, value};
    gone_ = gone_ || ::send(fd_, &line, sizeof line, MSG_NOSIGNAL) != sizeof line;
  }
  // False: nothing has come.
  bool hear(Line& line) {
    const ssize_t size = ::recv(fd_, &line, sizeof line, MSG_DONTWAIT | MSG_PEEK);
    if (size == sizeof line) {
      return ::recv(fd_, &line, sizeof line, 0) == sizeof line;
    }
    gone_ = gone_ || size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
    return false;
  }
  bool is_gone() const { return gone_; }

 private:
  int fd_ = -1;
  bool gone_ = false;
};

// --- What is said.

// Depends on number and place, and is nowhere zero.
std::uint8_t byte_of(std::uint32_t number, std::uint32_t at) {
  return static_cast<std::uint8_t>((number * 7 + at * 13 + at / 251) % 255 + 1);
}
void fill(std::uint8_t* to, std::uint32_t number, std::uint32_t size) {
  for (std::uint32_t i = 0; i < size; ++i) {
    to[i] = byte_of(number, i);
  }
}
void verify(const std::uint8_t* from, std::uint32_t number, std::uint32_t begin, std::uint32_t end,
            const char* what) {
  for (std::uint32_t i = begin; i < end; ++i) {
    // volatile: another process's device writes here, of which the compiler knows nothing.
    const auto* const byte = static_cast<const volatile std::uint8_t*>(from + i);
    if (*byte != byte_of(number, i)) {
      give_up(std::string(what) + " " + std::to_string(number) + ": byte " + std::to_string(i) +
              " is wrong");
    }
  }
}

void work_for(std::chrono::microseconds time) {
  for (const auto until = Clock::now() + time; Clock::now() < until;) {
  }
}

Retries retries_with(Mistake mistake) {
  Retries retries;
  retries.lost = mistake == Mistake::no_retries ? 0 : retries.lost;
  retries.refused = mistake == Mistake::ignores_rnr ? 0 : retries.refused;
  return retries;
}

class Talker {
 public:
  Talker(Mistake mistake, double seconds, const char* address, bool listens)
      : mistake_(mistake),
        memory_(kReadAt + kBlockSize),
        device_(mistake == Mistake::one_rail ? Which::last : Which::first, retries_with(mistake),
                memory_),
        wire_(address, listens),
        end_(Clock::now() + std::chrono::milliseconds{static_cast<std::int64_t>(seconds * 1000)}) {
    for (std::uint32_t slot = 0; slot < kReceiveSlots; ++slot) {
      device_.post_receive(receive(slot), kMessageSize, kReceiveId | slot);
    }
    Place mine = device_.place();
    mine.block = reinterpret_cast<std::uintptr_t>(memory_.data() + kBlockAt);
    there_ = wire_.exchange(mine);
    device_.connect(there_);
    (void)wire_.exchange(mine);  // both are connected
    for (std::uint32_t slot = 0; slot < kSendSlots; ++slot) {
      free_.push_back(slot);
    }
  }

  void run() {
    bool told = false;
    while (true) {
      take_completions();
      take_notes();
      post_sends();
      offer_block();
      look_at_read();
      if (!told && is_done()) {
        wire_.tell(Note::done, 0);
        told = true;
      }
      if (told && their_done_) {
        return;
      }
      if (wire_.is_gone() && mistake_ != Mistake::deadlock) {
        give_up("the other end is gone", 3);
      }
    }
  }

  std::uint32_t sends() const { return taken_; }
  std::uint32_t blocks() const { return blocks_read_; }
  std::uint32_t refused() const { return refused_; }

 private:
  // A request's number says what it is, and in its lower half which slot it uses.
  static constexpr std::uint64_t kReceiveId = 1ULL << 32;
  static constexpr std::uint64_t kReadId = 2ULL << 32;
  static constexpr std::size_t kReceivesAt = 0;
  static constexpr std::size_t kSendsAt = std::size_t{kReceiveSlots} * kMessageSize;
  static constexpr std::size_t kBlockAt = kSendsAt + std::size_t{kSendSlots} * kMessageSize;
  static constexpr std::size_t kReadAt = kBlockAt + kBlockSize;

  std::uint8_t* receive(std::uint32_t slot) {
    return memory_.data() + kReceivesAt + std::size_t{slot} * kMessageSize;
  }
  std::uint8_t* send(std::uint32_t slot) {
    return memory_.data() + kSendsAt + std::size_t{slot} * kMessageSize;
  }
  // --- Sends. There are never more under way than the other end has receives for.

  void post_sends() {
    // An error left these without a place in the queue: first of all, the same again.
    while (!again_.empty() && !free_.empty()) {
      start_send(again_.back());
      again_.pop_back();
    }
    while (!all_sent_ && !free_.empty() && next_send_ - consumed_ < kReceiveSlots) {
      if (next_send_ >= kMessages && Clock::now() >= end_) {
        all_sent_ = true;
        wire_.tell(Note::total_sends, next_send_);
        return;
      }
      start_send(next_send_++);
      if (mistake_ == Mistake::reuse) {
        return;  // one a turn: the queue drains meanwhile
      }
    }
  }
  void start_send(std::uint32_t number) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    std::memcpy(send(slot), &number, sizeof number);
    fill_message(slot, number);
    numbers_[slot] = number;
    device_.post_send(send(slot), kMessageSize, slot);
    if (mistake_ == Mistake::reuse) {
      // "It will have left by now."
      for (const auto until = Clock::now() + std::chrono::microseconds{500};
           Clock::now() < until;) {
        take_completions();
      }
      free_.push_back(slot);
    }
  }
  void fill_message(std::uint32_t slot, std::uint32_t number) {
    for (std::uint32_t i = sizeof number; i < kMessageSize; ++i) {
      send(slot)[i] = byte_of(number, i);
    }
  }

  void take_completions() {
    ibv_wc done{};
    while (device_.poll(done)) {
      if ((done.wr_id & kReceiveId) != 0) {
        if (done.status == IBV_WC_SUCCESS) {
          take_message(static_cast<std::uint32_t>(done.wr_id));
        } else if (mistake_ != Mistake::deadlock) {
          give_up(std::string("a receive ended with ") + ibv_wc_status_str(done.status));
        }
      } else {
        take_end(done);
      }
    }
  }
  void take_end(const ibv_wc& done) {
    const auto slot = static_cast<std::uint32_t>(done.wr_id);
    const bool refused =
        device_.is_srd() && done.status == IBV_WC_RNR_RETRY_EXC_ERR && done.wr_id < kReceiveId;
    if (done.status != IBV_WC_SUCCESS && !refused) {
      if (mistake_ == Mistake::deadlock) {
        return;
      }
      // Which end died is told by the other connection; here only that it did not work.
      give_up(std::string("a request ended with ") + ibv_wc_status_str(done.status));
    }
    if (done.wr_id == kReadId) {
      is_read_ = true;
      return;
    }
    if (mistake_ == Mistake::reuse) {
      return;
    }
    if (refused) {
      ++refused_;
      if (mistake_ != Mistake::ignores_rnr) {
        again_.push_back(numbers_[slot]);
      }
      if (mistake_ == Mistake::leaks) {
        return;
      }
    }
    free_.push_back(slot);
  }

  // Of SRD messages come in any order; each says which one it is.
  void take_message(std::uint32_t slot) {
    std::uint32_t number = 0;
    std::memcpy(&number, receive(slot), sizeof number);
    if (number >= seen_.size()) {
      seen_.resize(std::size_t{number} + 1024);
    }
    if (seen_[number]) {
      give_up("message " + std::to_string(number) + " has come twice");
    }
    seen_[number] = true;
    if (mistake_ == Mistake::ordering && number != taken_) {
      give_up("message " + std::to_string(number) + " for message " + std::to_string(taken_));
    }
    verify(receive(slot), number, sizeof number, kMessageSize, "message");
    const bool early = number != expected_;
    while (expected_ < seen_.size() && seen_[expected_]) {
      ++expected_;
    }
    ++taken_;
    if (mistake_ != Mistake::forgets || !early) {
      // So that a message which is not placed is not taken for the one before it.
      std::memset(receive(slot), 0, kMessageSize);
      device_.post_receive(receive(slot), kMessageSize, kReceiveId | slot);
    }
    wire_.tell(Note::sends_consumed, 1);
  }

  // --- Blocks: one of ours is offered, the other end reads it, and says so.

  void offer_block() {
    if (block_offered_ || all_offered_) {
      return;
    }
    if (next_block_ >= kBlocks && Clock::now() >= end_) {
      all_offered_ = true;
      wire_.tell(Note::total_blocks, next_block_);
      return;
    }
    block_offered_ = true;
    fill(memory_.data() + kBlockAt, next_block_, kBlockSize);
    wire_.tell(Note::block_ready, next_block_++);
  }
  void read_block() {
    std::uint8_t* const to = memory_.data() + kReadAt;
    // byte_of() is nowhere zero: a byte that has not come shows.
    std::memset(to, 0, kBlockSize);
    is_read_ = false;
    reads_ = true;
    device_.post_read(to, kBlockSize, there_.block, kReadId);
  }
  void look_at_read() {
    const std::uint8_t* const block = memory_.data() + kReadAt;
    if (!reads_) {
      return;
    }
    if (mistake_ == Mistake::last_byte) {
      const auto* const last = static_cast<const volatile std::uint8_t*>(block + kBlockSize - 1);
      if (*last == 0) {
        return;
      }
      work_for(std::chrono::microseconds{20});
    } else if (!is_read_) {
      return;
    }
    verify(block, blocks_read_, 0, kBlockSize, "block");
    reads_ = false;
    wire_.tell(Note::block_consumed, blocks_read_++);
  }

  void take_notes() {
    Line line{};
    while (!wire_.is_gone() && wire_.hear(line)) {
      switch (line.note) {
        case Note::sends_consumed:
          consumed_ += line.value;
          break;
        case Note::block_ready:
          read_block();
          break;
        case Note::block_consumed:
          block_offered_ = false;
          break;
        case Note::total_sends:
          total_sends_ = line.value;
          break;
        case Note::total_blocks:
          total_blocks_ = line.value;
          break;
        case Note::done:
          their_done_ = true;
          break;
      }
    }
  }
  bool is_done() const {
    return all_sent_ && all_offered_ && consumed_ == next_send_ && !block_offered_ &&
           taken_ == total_sends_ && blocks_read_ == total_blocks_;
  }

  // Until the other end has said its totals, no count is equal to them.
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

  Mistake mistake_;
  std::vector<std::uint8_t> memory_;
  Device device_;
  Wire wire_;
  Clock::time_point end_;
  Place there_{};
  std::vector<std::uint32_t> free_;
  std::uint32_t numbers_[kSendSlots] = {};
  std::vector<std::uint32_t> again_;
  std::vector<bool> seen_;
  std::uint32_t next_send_ = 0;
  std::uint32_t consumed_ = 0;
  std::uint32_t expected_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t refused_ = 0;
  std::uint32_t next_block_ = 0;
  std::uint32_t blocks_read_ = 0;
  std::uint32_t total_sends_ = kUnknown;
  std::uint32_t total_blocks_ = kUnknown;
  bool all_sent_ = false;
  bool all_offered_ = false;
  bool block_offered_ = false;
  bool reads_ = false;
  bool is_read_ = false;
  bool their_done_ = false;
};

}  // namespace
}  // namespace weft::conformance

int main(int argc, char** argv) {
  using namespace weft::conformance;
  Mistake mistake = Mistake::none;
  double seconds = 0;
  const char* address = "";
  bool listens = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--mistake" && i + 1 < argc) {
      const auto* const found =
          std::ranges::find(kMistakes, std::string_view(argv[++i]), &NamedMistake::name);
      demand(found != std::end(kMistakes), "there is no such mistake");
      mistake = found->mistake;
    } else if (word == "--seconds" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (word == "--listen") {
      listens = true;
    } else {
      address = argv[i];
    }
  }
  Talker talker(mistake, seconds, address, listens);
  talker.run();
  std::printf("talker: %u messages, %u blocks, %u sends refused and repeated\n", talker.sends(),
              talker.blocks(), talker.refused());
  return 0;
}
