// Owns a program that uses the kernel's interface for management datagrams (MADs) by itself, as
// libibumad does, but with a GRH: without one no datagram goes anywhere on RoCE. Numbers and
// layouts are Linux's, written down once more here, so that a mistake in ours
// (emu/kernel/abi/umad.hpp) is not repeated.
//
// A ping is a request of a vendor's class, to which a server answers with the same bytes.
//
//   weft_umad refusals         every call that Linux refuses, with the errno that it gives
//   weft_umad serve COUNT      answers so many pings
//   weft_umad ask COUNT HOST   pings an address until so many were answered
//   weft_umad die HOST         pings an address and ends without a word
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr char kDevice[] = "/dev/infiniband/umad0";
constexpr unsigned long kRegister = 0xC01C1B01;
constexpr unsigned long kUnregister = 0x40041B02;
constexpr unsigned long kEnablePkey = 0x1B03;
constexpr unsigned long kRegister2 = 0xC0281B04;
constexpr std::size_t kHeader = 64;  // in front of each datagram that is read or written
constexpr std::size_t kMad = 256;
constexpr std::uint8_t kClass = 0x32;  // as ibping: a class of vendors, told apart by OUI
constexpr std::uint32_t kOui = 0x001405;
constexpr int kTries = 200;  // pings beyond those that have to be answered

// The older request for an agent, which says what datagrams are for it; the newer one, with flags
// and a longer OUI; and a datagram with its header. Fields of headers that go to the network are in
// its byte order.
struct Agent {
  std::uint32_t id;
  std::uint32_t methods[4];
  std::uint8_t qpn, management_class, class_version, oui[3], rmpp_version, padding;
};
struct Agent2 {
  std::uint32_t id, qpn;
  std::uint8_t management_class, class_version;
  std::uint16_t padding;
  std::uint32_t flags;
  std::uint64_t methods[2];
  std::uint32_t oui;
  std::uint8_t rmpp_version, padding2[3];
};
struct Datagram {
  std::uint32_t id, status, timeout_ms, retries, length, qpn, qkey;
  std::uint16_t lid;
  std::uint8_t sl, path_bits, grh_present, gid_index, hop_limit, traffic_class;
  std::uint8_t gid[16];
  std::uint32_t flow_label;
  std::uint16_t pkey_index;
  std::uint8_t reserved[6];
  std::uint8_t mad[kMad];
};
static_assert(sizeof(Agent) == 28 && sizeof(Agent2) == 40 && sizeof(Datagram) == kHeader + kMad);

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "weft_umad: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

// An agent that gets pings, whose method Get is 1: bit 1 of the mask. Or one that only sends them,
// and gets the answers.
Agent ping_agent(bool answers) {
  Agent agent{};
  agent.qpn = 1;
  agent.management_class = kClass;
  agent.class_version = 1;
  agent.oui[1] = kOui >> 8 & 0xFF;
  agent.oui[2] = kOui & 0xFF;
  agent.methods[0] = answers ? 2 : 0;
  return agent;
}

// Asks for the longer header, with a P_Key index, as libibumad does.
int open_device(int flags = O_RDWR) {
  const int fd = ::open(kDevice, flags);
  if (fd < 0 || ::ioctl(fd, kEnablePkey, 0) != 0) {
    give_up(kDevice);
  }
  return fd;
}

// From queue pair 1 to queue pair 1. Of each NIC the second GID is that of its IPv4 address, the
// third one that of an IPv6 address: the one of the receiver's family is the sender's. `number` is
// in the transaction id and in all bytes behind the vendor's header, so that no ping is like
// another.
Datagram ping_to(const char* host, std::uint8_t number) {
  Datagram ping{};
  ping.timeout_ms = 100;
  ping.retries = 2;
  ping.qpn = htonl(1);
  ping.grh_present = 1;
  ping.gid_index = 1;
  ping.hop_limit = 64;
  ping.gid[10] = ping.gid[11] = 0xFF;
  if (::inet_pton(AF_INET6, host, ping.gid) == 1) {
    ping.gid_index = 2;
  } else if (::inet_pton(AF_INET, host, &ping.gid[12]) != 1) {
    give_up(host);
  }
  ping.mad[0] = ping.mad[2] = ping.mad[3] = 1;  // base version, class version, method Get
  ping.mad[1] = kClass;
  ping.mad[15] = number;
  ping.mad[38] = kOui >> 8 & 0xFF;
  ping.mad[39] = kOui & 0xFF;
  for (std::size_t i = 40; i < kMad; ++i) {
    ping.mad[i] = static_cast<std::uint8_t>(i + number);
  }
  return ping;
}

// An answer is the datagram that was read, whose header says where it came from, with the bit of
// its method that makes it an answer (0x80).
int serve(int count) {
  const int fd = open_device();
  Agent agent = ping_agent(true);
  if (::ioctl(fd, kRegister, &agent) != 0) {
    give_up("no agent for pings");
  }
  for (int i = 0; i < count; ++i) {
    Datagram got{};
    if (::read(fd, &got, sizeof got) != sizeof got) {  // it sleeps until one comes
      give_up("reading");
    }
    got.mad[3] |= 0x80;
    got.timeout_ms = 0;  // nothing is expected in return
    if (::write(fd, &got, sizeof got) != sizeof got) {
      give_up("answering");
    }
  }
  // Where answers are lost, the same is asked again: for as long as pings come within a second.
  pollfd more{fd, POLLIN, 0};
  while (::poll(&more, 1, 1000) == 1) {
    Datagram got{};
    if (::read(fd, &got, sizeof got) == sizeof got) {
      got.mad[3] |= 0x80;
      got.timeout_ms = 0;
      (void)!::write(fd, &got, sizeof got);
    }
  }
  std::printf("served %d\n", count);
  return 0;
}

// One ping at a time. Each comes back: as its answer, or, when its tries are over, with ETIMEDOUT
// and the first 24 bytes of the ping.
int ask(int count, const char* host) {
  const int fd = open_device(O_RDWR | O_NONBLOCK);
  Agent agent = ping_agent(false);
  if (::ioctl(fd, kRegister, &agent) != 0) {
    give_up("no agent");
  }
  int answered = 0;
  for (int i = 0; answered < count && i < count + kTries; ++i) {
    Datagram ping = ping_to(host, static_cast<std::uint8_t>(i));
    ping.id = agent.id;
    if (::write(fd, &ping, sizeof ping) != sizeof ping) {
      give_up("asking");
    }
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 10'000) != 1) {
      give_up("neither an answer nor a time-out");
    }
    Datagram got{};
    const ssize_t size = ::read(fd, &got, sizeof got);
    if (size == static_cast<ssize_t>(kHeader + 24) && got.status == ETIMEDOUT) {
      ::usleep(50'000);  // the server may not listen yet
      continue;
    }
    if (size != sizeof got || got.status != 0 || got.mad[3] != 0x81 ||
        got.mad[15] != ping.mad[15] || std::memcmp(&got.mad[40], &ping.mad[40], kMad - 40) != 0 ||
        std::memcmp(got.gid, ping.gid, sizeof got.gid) != 0) {
      give_up("the answer is not to what was asked");
    }
    ++answered;
  }
  std::printf("answered %d\n", answered);
  return answered == count ? 0 : 1;
}

// Its agent has the method of pings, and its own ping is under way.
int die(const char* host) {
  const int fd = open_device();
  Agent agent = ping_agent(true);
  Datagram ping = ping_to(host, 1);
  if (::ioctl(fd, kRegister, &agent) != 0 || ::write(fd, &ping, sizeof ping) != sizeof ping) {
    give_up("before its end");
  }
  return ::raise(SIGKILL);
}

// --- What Linux refuses

int wrong = 0;
const void* volatile bad = reinterpret_cast<const void*>(8);  // not known to the compiler

// `error` is the errno with which the call has to fail, or 0.
void expect(const char* what, long result, int error) {
  const int got = result < 0 ? errno : 0;
  if (got != error) {
    ++wrong;
    std::printf("WRONG %s: expected %d, got %d\n", what, error, got);
  }
}

// Asks for an agent that is right but for what `change` does to it.
template <class Change>
int with_agent(int fd, Change change) {
  Agent agent = ping_agent(true);
  change(agent);
  return ::ioctl(fd, kRegister, &agent);
}

// What is wrong of one agent; then what one that exists takes from others; then how many there may
// be.
void agents() {
  const int fd = open_device();
  const auto expect_agent = [fd](const char* what, int error, auto change) {
    expect(what, with_agent(fd, change), error);
  };
  expect_agent("queue pair 0", EPROTONOSUPPORT, [](Agent& agent) { agent.qpn = 0; });
  expect_agent("queue pair 2", EINVAL, [](Agent& agent) { agent.qpn = 2; });
  expect_agent("class of the subnet", EINVAL, [](Agent& agent) { agent.management_class = 1; });
  expect_agent("class of directed routes", EINVAL,
               [](Agent& agent) { agent.management_class = 0x81; });
  expect_agent("class 80", EINVAL, [](Agent& agent) { agent.management_class = 80; });
  expect_agent("class version", EINVAL, [](Agent& agent) { agent.class_version = 0x83; });
  expect_agent("RMPP version", EINVAL, [](Agent& agent) { agent.rmpp_version = 2; });
  expect_agent("RMPP of a class without", EINVAL, [](Agent& agent) {
    agent.management_class = 4;
    agent.rmpp_version = 1;
  });
  expect_agent("no vendor", EINVAL, [](Agent& agent) { agent.oui[1] = agent.oui[2] = 0; });
  expect("bad address", ::ioctl(fd, kRegister, 8), EFAULT);
  expect("unknown call", ::ioctl(fd, 0x1B07, 0), ENOTTY);
  expect_agent("an agent", 0, [](Agent& /*agent*/) {});
  expect_agent("the same again", EINVAL, [](Agent& /*agent*/) {});
  // The first agent has settled how long the headers of this file are.
  expect("P_Keys, too late", ::ioctl(fd, kEnablePkey, 0), EINVAL);
  const int other = open_device();
  Agent same = ping_agent(true);
  expect("the same of another file", ::ioctl(other, kRegister, &same), EINVAL);
  Agent2 longer{};
  longer.qpn = 1;
  longer.management_class = kClass;
  longer.class_version = 1;
  longer.oui = kOui;
  longer.flags = 2;
  expect("unknown flag", ::ioctl(other, kRegister2, &longer), EINVAL);
  // A refusal says which flags there are.
  if (longer.flags != 1) {
    ++wrong;
    std::printf("WRONG flags that are known: expected 1, got %u\n", longer.flags);
  }
  longer.flags = 0;
  longer.oui = 0x1000000;
  expect("long OUI", ::ioctl(other, kRegister2, &longer), EINVAL);
  longer.oui = kOui;
  expect("the longer request", ::ioctl(other, kRegister2, &longer), 0);
  std::uint32_t number = 31;
  expect("an agent that is not there", ::ioctl(fd, kUnregister, &number), EINVAL);
  number = 32;
  expect("an agent that cannot be", ::ioctl(fd, kUnregister, &number), EINVAL);
  expect("at a bad address", ::ioctl(fd, kUnregister, 8), EFAULT);
  // A file has 32 agents, of which one is there. Those without a class only send.
  for (int i = 1; i < 32; ++i) {
    Agent sender{};
    sender.qpn = 1;
    expect("a sender", ::ioctl(fd, kRegister, &sender), 0);
  }
  Agent sender{};
  sender.qpn = 1;
  expect("agent 33", ::ioctl(fd, kRegister, &sender), ENOMEM);
  ::close(fd);
  expect("after the end of its owner", ::ioctl(other, kRegister, &same), 0);
  ::close(other);
}

// What write() refuses of a datagram that is right otherwise; and read().
void datagrams() {
  const int fd = open_device(O_RDWR | O_NONBLOCK);
  Agent agent = ping_agent(false);
  expect("an agent that asks", ::ioctl(fd, kRegister, &agent), 0);
  const auto expect_write = [fd](const char* what, int error, auto change,
                                 std::size_t size = sizeof(Datagram)) {
    Datagram ping = ping_to("127.0.0.1", 1);
    change(ping);
    std::array<std::byte, 2 * sizeof(Datagram)> room{};
    std::memcpy(room.data(), &ping, sizeof ping);
    expect(what, ::write(fd, room.data(), size), error);
  };
  const auto nothing = [](Datagram& /*ping*/) {};
  expect_write("no bytes", EINVAL, nothing, 0);
  expect_write("too few bytes", EINVAL, nothing, kHeader + 35);
  expect_write("agent 7", EIO, [](Datagram& ping) { ping.id = 7; });
  expect_write("agent 32", EINVAL, [](Datagram& ping) { ping.id = 32; });
  expect_write("a LID", EINVAL, [](Datagram& ping) {
    ping.grh_present = 0;
    ping.lid = htons(1);
  });
  expect_write("GID 200", ENODATA, [](Datagram& ping) { ping.gid_index = 200; });
  expect_write("GIDs of two families", EINVAL, [](Datagram& ping) { ping.gid[0] = 0xFD; });
  expect("bad bytes", ::write(fd, bad, sizeof(Datagram)), EFAULT);
  Datagram got{};
  expect("nothing to read", ::read(fd, &got, sizeof got), EAGAIN);
  expect("too little room", ::read(fd, &got, kHeader - 1), EINVAL);
  ::close(fd);
}

int refusals() {
  agents();
  datagrams();
  expect("no issm", ::open("/dev/infiniband/issm0", O_RDONLY | O_NONBLOCK), ENOENT);
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  if (what == "refusals") {
    return refusals();
  }
  if (what == "serve" && count > 2) {
    return serve(std::atoi(words[2]));
  }
  if (what == "ask" && count > 3) {
    return ask(std::atoi(words[2]), words[3]);
  }
  if (what == "die" && count > 2) {
    return die(words[2]);
  }
  std::fprintf(stderr, "usage: %s refusals | serve COUNT | ask COUNT HOST | die HOST\n", words[0]);
  return 2;
}
