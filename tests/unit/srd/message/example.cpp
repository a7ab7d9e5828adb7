// Two processes in one program: a tagged megabyte, a write and a read over a link in memory.
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "srd/message/messenger.hpp"

using namespace weft::srd;

namespace {

// A process: an engine, which speaks the protocol, and a messenger, which speaks to us.
struct Process {
  Process(std::uint8_t host, std::uint16_t attachment) {
    address.bytes[15] = std::byte{host};
    EngineConfig config;
    config.attachment = AttachmentId{attachment};
    engine = std::make_unique<Engine>(config);
    messenger = Messenger::create(*engine, {.endpoint = Qpn{1}, .qkey = 42}).value();
  }
  MessageAddress messenger_of(const Process& other) {
    return {engine->peer(other.address, other.engine->config().attachment).value(), Qpn{1}, 42};
  }
  Address address;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Messenger> messenger;
};

// The network: takes what one engine wants to send to the other.
void carry(weft::TimePoint now, Process& from, Process& to) {
  TxPacket out;
  std::vector<std::byte> bytes;
  while (from.engine->next_transmit(now, out)) {
    bytes.assign(out.header.data(), out.header.data() + out.header_size);
    for (const auto& part : out.payload) {
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    to.engine->on_packet(now, {.from = from.address, .path = out.path, .bytes = bytes, .more = {}});
  }
}

// Lets time pass, a microsecond at a time, until something has completed at `who`.
MessageCompletion wait(Process& who, Process& a, Process& b) {
  static weft::TimePoint now = weft::time_at(std::chrono::milliseconds{1});
  MessageCompletion done;
  while (who.messenger->poll({&done, 1}) == 0) {
    now += std::chrono::microseconds{1};
    carry(now, a, b);
    carry(now, b, a);
    a.engine->on_timeout(now);
    b.engine->on_timeout(now);
    a.messenger->progress();
    b.messenger->progress();
  }
  return done;
}

}  // namespace

int main() {
  Process a(1, 100);
  Process b(2, 200);

  // A message. The receiver chooses it by its tag; the lowest byte may be anything.
  std::vector<std::byte> sent(1'000'000, std::byte{7});
  std::vector<std::byte> received(1'000'000);
  (void)b.messenger->post_receive({.data = received, .tag = 0xCAFE00, .ignore = 0xFF});
  (void)a.messenger->post_send(
      {.to = a.messenger_of(b), .data = sent, .tag = 0xCAFE01, .immediate = 5});
  const MessageCompletion message = wait(b, a, b);
  std::printf("received: %s, %u bytes, tag %llx, immediate %u, %s\n", to_string(message.status),
              message.length, static_cast<unsigned long long>(message.tag), message.immediate,
              received == sent ? "all bytes right" : "WRONG BYTES");
  std::printf("sent: %s\n", to_string(wait(a, a, b).status));

  // Memory that others may write and read. The owner tells them the key, in a message for example.
  std::vector<std::byte> shared(4096);
  const RegionKey key =
      b.messenger->share(shared, Access::remote_write | Access::remote_read).value();
  const std::string_view text = "written from afar";
  (void)a.messenger->post_write(
      {.to = a.messenger_of(b), .data = std::as_bytes(std::span{text}), .key = key, .offset = 100});
  std::printf("write: %s\n", to_string(wait(a, a, b).status));

  std::array<std::byte, 17> copy{};
  (void)a.messenger->post_read(
      {.from = a.messenger_of(b), .data = copy, .key = key, .offset = 100});
  std::printf("read: %s: ", to_string(wait(a, a, b).status));
  std::printf("%.17s\n", reinterpret_cast<const char*>(copy.data()));
  return received == sent && std::memcmp(copy.data(), text.data(), text.size()) == 0 ? 0 : 1;
}
