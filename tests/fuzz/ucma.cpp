// Owns fuzzing connection management: commands that a hostile program writes, between messages that
// a hostile peer sends.
//
// One connection manager, and two files that a program has open on it. What the program sends is
// kept, so that an input can have it come back as if the peer had said it.
#include "emu/kernel/abi/ucma.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>

#include "emu/kernel/ucma/contexts.hpp"
#include "emu/kernel/ucma/file.hpp"

namespace {

using namespace weft;
using namespace weft::kernel;
namespace cm = roce::cm;
using abi::ucma::Command;

const srd::Address kOwn = srd::Address::v4(10, 9, 0, 1);
const srd::Address kPeer = srd::Address::v4(10, 9, 0, 2);

// The world says yes: whatever is refused, the manager refuses.
struct AllFree final : cm::ServiceClaims {
  bool claim(std::uint64_t /*service*/) override { return true; }
  void release(std::uint64_t /*service*/) override {}
};
struct AllNear final : cm::Reachability {
  [[nodiscard]] int reach(const srd::Address& /*from*/, const srd::Address& /*to*/) const override {
    return 0;
  }
};

// So few of everything that an input can use it up.
cm::Config small_config() {
  cm::Config config;
  config.nics.push_back({.guid = 1, .attachment = 1});
  config.addresses.push_back({kOwn, 0, 0});
  config.max_ids = 24;
  config.max_outgoing = 16;
  config.max_ended = 4;
  return config;
}

class Desk final : public CmHost {
 public:
  void exclusively(const std::function<void(cm::Manager&, TimePoint)>& work) override {
    work(manager_, now_);
    settle();
  }
  void expect_events() override {}
  std::shared_ptr<CmFile> file_of(int fd) override {
    const auto index = static_cast<std::size_t>(fd) % files.size();
    return fd < 0 ? nullptr : files[index];
  }
  // What this process sends comes back as its peer's word, so that answers fit their questions.
  void reflect() {
    const auto last = last_;
    exclusively([&](cm::Manager& manager, TimePoint now) {
      manager.on_mad(now, last.to, last.from, last.mad);
    });
  }
  void deliver(std::span<const std::byte> mad) {
    exclusively(
        [&](cm::Manager& manager, TimePoint now) { manager.on_mad(now, kPeer, kOwn, mad); });
  }
  void wait() {
    const TimePoint next = manager_.next_timeout();
    now_ = next == kNever ? now_ : std::max(now_, next);
    exclusively([](cm::Manager& manager, TimePoint now) { manager.on_timeout(now); });
  }

  Contexts contexts;
  std::array<std::shared_ptr<CmFile>, 2> files;

 private:
  void settle() {
    while (manager_.next_mad(now_, last_)) {
    }
    contexts.dispatch(manager_);
  }
  AllFree claims_;
  AllNear near_;
  cm::Manager manager_{small_config(), claims_, near_};
  cm::Outgoing last_;
  TimePoint now_ = time_at(std::chrono::seconds{1});
};

// The input is a list of records: a length in words, a kind, and that many words. They are the body
// of a command, whose response address is made a good one, or a message.
class Client {
 public:
  Client() {
    for (auto& file : desk_.files) {
      file = std::make_shared<CmFile>(desk_.contexts, desk_);
      fds_[at_++] = file->open();
    }
  }
  ~Client() {
    for (auto& file : desk_.files) {
      file.reset();
    }
    for (const int fd : fds_) {
      ::close(fd);
    }
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void run(std::span<const std::uint8_t> input) {
    while (input.size() > 2) {
      const std::size_t size = std::min<std::size_t>(input[0] * std::size_t{4}, input.size() - 2);
      const std::uint8_t kind = input[1];
      const auto body = std::as_bytes(input.subspan(2, size));
      input = input.subspan(2 + size);
      if (kind == 0xFF) {
        desk_.deliver(body);
      } else if (kind == 0xFE) {
        desk_.reflect();
      } else if (kind == 0xFD) {
        desk_.wait();
      } else {
        command(body, kind);
      }
    }
  }

 private:
  void command(std::span<const std::byte> body, std::uint8_t kind) {
    const auto number = static_cast<Command>(kind & 0x1F);
    const std::size_t which = (kind & 0x20) != 0 ? 1 : 0;
    // Commands whose body begins with an address to which the kernel's side writes. It must be
    // memory of this process's own, not what the input makes up.
    const bool has_response = number == Command::create_id || number == Command::get_event ||
                              number == Command::destroy_id || number == Command::query_route ||
                              number == Command::init_qp_attr || number == Command::query ||
                              number == Command::set_option || number == Command::migrate_id ||
                              number == Command::join_ip_multicast ||
                              number == Command::join_multicast ||
                              number == Command::leave_multicast;
    std::array<std::byte, 8 + 1024> bytes{};
    const std::size_t used = std::min<std::size_t>(body.size(), 1024);
    const abi::ucma::Header header{static_cast<std::uint32_t>(number),
                                   static_cast<std::uint16_t>(used), 512};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, body.data(), used);
    // Behind the program's own name for the id.
    const std::size_t at = number == Command::create_id ? 8 : 0;
    if (has_response && used >= at + 8) {
      const auto response = reinterpret_cast<std::uint64_t>(reply_.data());
      std::memcpy(bytes.data() + sizeof header + at, &response, sizeof response);
    }
    (void)desk_.files[which]->write(bytes.data(), sizeof header + used);
  }

  Desk desk_;
  std::array<int, 2> fds_{};
  std::size_t at_ = 0;
  alignas(8) std::array<std::byte, 1024> reply_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Client client;
  client.run({data, size});
  return 0;
}
