// Owns fuzzing management datagrams: calls that a hostile program makes, between datagrams that a
// hostile peer sends.
#include "emu/kernel/abi/umad.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>

#include "emu/kernel/umad/file.hpp"
#include "emu/kernel/umad/port.hpp"

namespace {

using namespace weft;
using namespace weft::kernel;

srd::Address v6(unsigned last) {
  srd::Address address;
  address.bytes.front() = std::byte{0xFD};
  address.bytes.back() = static_cast<std::byte>(last);
  return address;
}
const std::array<srd::Address, 2> kOwn{v6(1), srd::Address::v4(10, 9, 0, 1)};
const srd::Address kPeer = v6(2);

class Desk final : public UmadHost {
 public:
  void exclusively(const std::function<void(TimePoint)>& work) override {
    work(now_);
    while (port.next_message(last_)) {
    }
  }
  void expect_messages() override {}
  bool claim(std::uint64_t service) override { return service % 7 != 0; }
  void release(std::uint64_t /*service*/) override {}
  bool may_exist(const srd::Address& address) override {
    return address.bytes.back() != std::byte{9};
  }
  // What this process sends comes back to it, as an answer or as it is.
  void reflect(bool answers) {
    if (answers) {
      last_.bytes[3] |= std::byte{0x80};
    }
    deliver(last_.bytes, last_.to, last_.from);
  }
  void deliver(std::span<const std::byte> mad, const srd::Address& from, const srd::Address& to) {
    std::array<std::byte, kManagementBytes> whole{};
    std::ranges::copy(mad.first(std::min(mad.size(), whole.size())), whole.begin());
    exclusively(
        [&](TimePoint now) { port.on_message(now, {.from = from, .to = to, .message = whole}); });
  }
  void wait() {
    const TimePoint next = port.next_timeout();
    now_ = next == kNever ? now_ : std::max(now_, next);
    exclusively([this](TimePoint now) { port.on_timeout(now); });
  }

  UmadPort port{*this, {.guid = 1, .attachment = 1, .addresses = kOwn}};

 private:
  ManagementMessage last_;
  TimePoint now_ = time_at(std::chrono::seconds{1});
};

// The input is a list of records: a length in words, a kind, and that many words.
class Client {
 public:
  Client() {
    for (auto& file : files_) {
      open(file);
    }
  }
  ~Client() {
    for (auto& file : files_) {
      close(file);
    }
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void run(std::span<const std::uint8_t> input) {
    while (input.size() > 2) {
      const std::size_t size = std::min<std::size_t>(input[0] * std::size_t{4}, input.size() - 2);
      act(input[1], std::as_bytes(input.subspan(2, size)));
      input = input.subspan(2 + size);
    }
  }

 private:
  struct Open {
    std::unique_ptr<UmadFile> file;
    int fd = -1;
  };
  void open(Open& one) {
    one.file = std::make_unique<UmadFile>(desk_.port);
    one.fd = one.file->open();
  }
  static void close(Open& one) {
    one.file.reset();
    ::close(one.fd);
  }

  void act(std::uint8_t kind, std::span<const std::byte> body) {
    Open& one = files_[kind & 1];
    std::array<std::byte, 512> bytes{};
    std::ranges::copy(body.first(std::min(body.size(), bytes.size())), bytes.begin());
    const auto argument = reinterpret_cast<std::uint64_t>(bytes.data());
    namespace umad = abi::umad;
    switch (kind >> 1 & 15) {
      case 0:
        (void)one.file->ioctl(umad::kRegisterAgent, argument);
        break;
      case 1:
        (void)one.file->ioctl(umad::kRegisterAgent2, argument);
        break;
      case 2:
        (void)one.file->ioctl(umad::kUnregisterAgent, argument);
        break;
      case 3:
        (void)one.file->ioctl(umad::kEnablePkey, argument);
        break;
      case 4:
        (void)one.file->read(bytes.data(), body.size());
        break;
      case 5:
        desk_.deliver(body, kPeer, kOwn[0]);
        break;
      case 6:
        desk_.reflect(true);
        break;
      case 7:
        desk_.reflect(false);
        break;
      case 8:
        desk_.wait();
        break;
      case 9:
        close(one);
        open(one);
        break;
      default:
        (void)one.file->write(bytes.data(), std::min(body.size(), bytes.size()));
    }
  }

  Desk desk_;
  std::array<Open, 2> files_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Client client;
  client.run({data, size});
  return 0;
}
