// Owns the cases: each is run by two ranks at once, and every byte is checked.
#include "tests/conformance/libfabric/cases.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/conformance/libfabric/endpoint.hpp"

namespace weft::conformance {
namespace {

constexpr std::size_t kSizes[] = {0,    1,     64,     4095,    4096,   8000,
                                  8929, 65536, 100000, 1 << 20, 3 << 20};

void message() {
  Endpoint e;
  for (std::uint32_t round = 0; round < std::size(kSizes); ++round) {
    const std::size_t size = kSizes[round];
    Buffer out(e.domain, size);
    Buffer in(e.domain, size);
    out.fill(round);
    fi_context contexts[2];
    e.post([&] { return fi_recv(e.ep, in.data(), size, in.desc(), e.peer, &contexts[0]); });
    e.barrier();
    e.post([&] { return fi_send(e.ep, out.data(), size, out.desc(), e.peer, &contexts[1]); });
    e.wait_for(2);
    in.check(round, 0, size);
    e.barrier();
  }
}

void tagged() {
  Endpoint e;
  constexpr std::size_t kSize = 20000;
  std::vector<std::unique_ptr<Buffer>> in;
  std::vector<std::unique_ptr<Buffer>> out;
  std::vector<fi_context> contexts(8);
  const std::uint64_t wanted[] = {3, 1, 4, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    in.push_back(std::make_unique<Buffer>(e.domain, kSize));
    out.push_back(std::make_unique<Buffer>(e.domain, kSize));
    out[i]->fill(static_cast<std::uint32_t>(i + 1));
    // The upper bits are ignored by the receiver.
    e.post([&] {
      return fi_trecv(e.ep, in[i]->data(), kSize, in[i]->desc(), e.peer, wanted[i], 0xFF00,
                      &contexts[i]);
    });
  }
  e.barrier();
  for (std::size_t i = 0; i < 4; ++i) {
    e.post([&] {
      return fi_tsend(e.ep, out[i]->data(), kSize, out[i]->desc(), e.peer, (i + 1) | 0x5500,
                      &contexts[4 + i]);
    });
  }
  e.wait_for(8);
  for (std::size_t i = 0; i < 4; ++i) {
    in[i]->check(static_cast<std::uint32_t>(wanted[i]), 0, kSize);
  }
  e.barrier();
}

void unexpected() {
  Endpoint e;
  constexpr std::size_t kCount = 200;
  constexpr std::size_t kSize = 3000;
  Buffer out(e.domain, kCount * kSize);
  Buffer in(e.domain, kCount * kSize);
  std::vector<fi_context> contexts(2 * kCount);
  out.fill(9);
  for (std::size_t i = 0; i < kCount; ++i) {
    e.post([&] {
      return fi_tsend(e.ep, out.data() + i * kSize, kSize, out.desc(), e.peer, i, &contexts[i]);
    });
  }
  e.barrier();
  for (std::size_t i = kCount; i-- > 0;) {
    e.post([&] {
      return fi_trecv(e.ep, in.data() + i * kSize, kSize, in.desc(), e.peer, i, 0,
                      &contexts[kCount + i]);
    });
  }
  e.wait_for(2 * kCount);
  in.check(9, 0, kCount * kSize);
  e.barrier();
}

void multi_receive() {
  Endpoint e;
  constexpr std::size_t kCount = 64;
  constexpr std::size_t kSize = 512;
  Buffer out(e.domain, kSize);
  Buffer in(e.domain, kCount * kSize);
  out.fill(4);
  fi_context receive;
  std::vector<fi_context> contexts(kCount);
  iovec piece{in.data(), in.size()};
  void* desc = in.desc();
  fi_msg request{};
  request.msg_iov = &piece;
  request.desc = &desc;
  request.iov_count = 1;
  request.addr = FI_ADDR_UNSPEC;
  request.context = &receive;
  std::size_t least = kSize;  // the buffer is given back when less than that is left
  require_ok(fi_setopt(&e.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least),
             "fi_setopt");
  e.post([&] { return fi_recvmsg(e.ep, &request, FI_MULTI_RECV); });
  e.barrier();
  for (std::size_t i = 0; i < kCount; ++i) {
    e.post([&] { return fi_send(e.ep, out.data(), kSize, out.desc(), e.peer, &contexts[i]); });
  }
  std::size_t received = 0;
  for (std::size_t sent = 0; received < kCount || sent < kCount;) {
    const fi_cq_tagged_entry entry = e.wait();
    if ((entry.flags & FI_RECV) == 0) {
      ++sent;
    } else if (entry.len > 0) {
      require(entry.len == kSize, "a message of another length");
      in.check(4, static_cast<std::size_t>(static_cast<std::uint8_t*>(entry.buf) - in.data()),
               kSize);
      ++received;
    }
  }
  e.barrier();
}

void cancel() {
  Endpoint e;
  Buffer in(e.domain, 64);
  fi_context context;
  e.post([&] { return fi_trecv(e.ep, in.data(), 64, in.desc(), e.peer, 77, 0, &context); });
  require_ok(fi_cancel(&e.ep->fid, &context), "fi_cancel");
  const fi_cq_err_entry error = e.wait_error();
  require(error.err == FI_ECANCELED && error.op_context == &context, "not the cancelled receive");
  e.barrier();
}

struct Remote {
  std::uint64_t address;
  std::uint64_t key;
};
Remote swap_windows(Endpoint& e, Buffer& window) {
  const auto got = e.exchange({reinterpret_cast<std::uint64_t>(window.data()), window.key()});
  return {got[0], got[1]};
}

void rma() {
  Endpoint e;
  for (std::uint32_t round = 1; round < std::size(kSizes); ++round) {
    const std::size_t size = kSizes[round];
    Buffer window(e.domain, size);
    Buffer local(e.domain, size);
    const Remote remote = swap_windows(e, window);
    fi_context context;
    local.fill(round);
    e.post([&] {
      return fi_write(e.ep, local.data(), size, local.desc(), e.peer, remote.address, remote.key,
                      &context);
    });
    e.wait_for(1);
    e.barrier();
    window.check(round, 0, size);
    // The provider may emulate writes with messages. Only now have both placed the other's bytes,
    // and a read by the device finds them.
    e.barrier();
    local.clear();
    e.post([&] {
      return fi_read(e.ep, local.data(), size, local.desc(), e.peer, remote.address, remote.key,
                     &context);
    });
    e.wait_for(1);
    local.check(round, 0, size);
    e.barrier();
  }
}

void write_data() {
  Endpoint e;
  constexpr std::size_t kSize = 50000;
  Buffer window(e.domain, kSize);
  Buffer local(e.domain, kSize);
  const Remote remote = swap_windows(e, window);
  fi_context context;
  local.fill(6);
  e.post([&] {
    return fi_writedata(e.ep, local.data(), kSize, local.desc(), 0x1234, e.peer, remote.address,
                        remote.key, &context);
  });
  bool told = false;
  for (int i = 0; i < 2; ++i) {
    const fi_cq_tagged_entry entry = e.wait();
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
      require(entry.data == 0x1234, "other data");
      told = true;
    }
  }
  require(told, "no completion at the target");
  window.check(6, 0, kSize);
  e.barrier();
}

void atomics() {
  Endpoint e;
  constexpr std::size_t kWords = 16;
  Buffer window(e.domain, kWords * 8);
  Buffer operand(e.domain, kWords * 8);
  Buffer result(e.domain, kWords * 8);
  auto* const words = reinterpret_cast<std::uint64_t*>(window.data());
  auto* const values = reinterpret_cast<std::uint64_t*>(operand.data());
  auto* const old = reinterpret_cast<std::uint64_t*>(result.data());
  std::iota(words, words + kWords, 100);
  std::fill_n(values, kWords, 5);
  const Remote remote = swap_windows(e, window);
  fi_context context;
  constexpr int kRounds = 20;
  for (int i = 0; i < kRounds; ++i) {
    e.post([&] {
      return fi_fetch_atomic(e.ep, values, kWords, operand.desc(), old, result.desc(), e.peer,
                             remote.address, remote.key, FI_UINT64, FI_SUM, &context);
    });
    e.wait_for(1);
    for (std::size_t k = 0; k < kWords; ++k) {
      require(old[k] == 100 + k + 5 * static_cast<std::uint64_t>(i), "fetched another value");
    }
  }
  e.barrier();
  for (std::size_t k = 0; k < kWords; ++k) {
    require(words[k] == 100 + k + 5 * kRounds, "the sum is wrong");
  }
  e.barrier();
  Buffer compare(e.domain, 8);
  *reinterpret_cast<std::uint64_t*>(compare.data()) = 100 + 5 * kRounds;
  *values = 1;
  e.post([&] {
    return fi_compare_atomic(e.ep, values, 1, operand.desc(), compare.data(), compare.desc(), old,
                             result.desc(), e.peer, remote.address, remote.key, FI_UINT64, FI_CSWAP,
                             &context);
  });
  e.wait_for(1);
  e.barrier();
  require(words[0] == 1, "the swap did not happen");
}

void inject() {
  Endpoint e;
  Buffer in(e.domain, 64);
  fi_context contexts[2];
  std::uint8_t small[32];
  e.post([&] { return fi_trecv(e.ep, in.data(), 32, in.desc(), e.peer, 8, 0, &contexts[0]); });
  e.post([&] { return fi_recv(e.ep, in.data() + 32, 32, in.desc(), e.peer, &contexts[1]); });
  e.barrier();
  std::memset(small, 0x5A, sizeof small);
  e.post([&] { return fi_tinject(e.ep, small, sizeof small, e.peer, 8); });
  std::memset(small, 0xA5, sizeof small);
  e.post([&] { return fi_inject(e.ep, small, sizeof small, e.peer); });
  std::memset(small, 0, sizeof small);
  e.wait_for(2);
  require(in.data()[0] == 0x5A && in.data()[31] == 0x5A && in.data()[32] == 0xA5 &&
              in.data()[63] == 0xA5,
          "the bytes at the time of the call did not arrive");
  e.barrier();
}

void cq_data() {
  Endpoint e;
  Buffer out(e.domain, 100);
  Buffer in(e.domain, 100);
  fi_context contexts[2];
  out.fill(3);
  e.post([&] { return fi_recv(e.ep, in.data(), 100, in.desc(), e.peer, &contexts[0]); });
  e.barrier();
  e.post(
      [&] { return fi_senddata(e.ep, out.data(), 100, out.desc(), 0xCAFE, e.peer, &contexts[1]); });
  bool seen = false;
  for (int i = 0; i < 2; ++i) {
    const fi_cq_tagged_entry entry = e.wait();
    seen = seen || ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && entry.data == 0xCAFE);
  }
  require(seen, "no data with the completion");
  in.check(3, 0, 100);
  e.barrier();
}

void counters() {
  Endpoint e;
  e.barrier();
  const std::uint64_t sent = fi_cntr_read(e.sends);
  const std::uint64_t received = fi_cntr_read(e.receives);
  Buffer out(e.domain, 100);
  Buffer in(e.domain, 100);
  std::vector<fi_context> contexts(20);
  for (std::size_t i = 0; i < 10; ++i) {
    e.post([&] { return fi_trecv(e.ep, in.data(), 100, in.desc(), e.peer, 1, 0, &contexts[i]); });
  }
  for (std::size_t i = 0; i < 10; ++i) {
    e.post(
        [&] { return fi_tsend(e.ep, out.data(), 100, out.desc(), e.peer, 1, &contexts[10 + i]); });
  }
  e.wait_for(20);
  require(fi_cntr_read(e.sends) == sent + 10, "sends are counted wrong");
  require(fi_cntr_read(e.receives) == received + 10, "receives are counted wrong");
  e.barrier();
}

void endpoints() {
  std::vector<std::unique_ptr<Endpoint>> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(std::make_unique<Endpoint>(std::to_string(i)));
  }
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    Endpoint& e = *all[i];
    Buffer out(e.domain, 30000);
    Buffer in(e.domain, 30000);
    out.fill(i);
    fi_context contexts[2];
    e.post([&] { return fi_trecv(e.ep, in.data(), 30000, in.desc(), e.peer, 1, 0, &contexts[0]); });
    e.post([&] { return fi_tsend(e.ep, out.data(), 30000, out.desc(), e.peer, 1, &contexts[1]); });
    e.wait_for(2);
    in.check(i, 0, 30000);
    e.barrier();
  }
}

// Addresses are inserted many at a time, found, removed, and inserted again; those that remain
// work.
void address_vectors() {
  Endpoint e;
  std::array<std::uint8_t, 64> own{};
  std::size_t length = own.size();
  require_ok(fi_getname(&e.ep->fid, own.data(), &length), "fi_getname");
  for (const fi_av_type type : {FI_AV_TABLE, FI_AV_MAP}) {
    fi_av_attr attributes{};
    attributes.type = type;
    attributes.count = 64;
    fid_av* av = nullptr;
    require_ok(fi_av_open(e.domain, &attributes, &av, nullptr), "fi_av_open");
    std::vector<fi_addr_t> addresses(20, FI_ADDR_NOTAVAIL);
    std::vector<std::uint8_t> names;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      names.insert(names.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(length));
      names[i * length + 16] = static_cast<std::uint8_t>(i);  // another queue pair
    }
    for (int round = 0; round < 3; ++round) {
      require(fi_av_insert(av, names.data(), addresses.size(), addresses.data(), 0, nullptr) ==
                  static_cast<int>(addresses.size()),
              "fi_av_insert of many");
      for (std::size_t i = 0; i < addresses.size(); ++i) {
        std::array<std::uint8_t, 64> found{};
        std::size_t size = found.size();
        require_ok(fi_av_lookup(av, addresses[i], found.data(), &size), "fi_av_lookup");
        require(size == length && std::memcmp(found.data(), &names[i * length], length) == 0,
                "another address is found");
        std::array<char, 256> text{};
        size = text.size();
        (void)fi_av_straddr(av, found.data(), text.data(), &size);
        require(text[0] != '\0', "no text of an address");
      }
      require_ok(fi_av_remove(av, addresses.data(), addresses.size(), 0), "fi_av_remove");
    }
    require_ok(fi_close(&av->fid), "fi_close of the vector");
  }
  e.barrier();  // and the endpoint's own vector never minded
}

// A second life of the peer, as another program with another address, and the survivor's endpoint
// goes on with it.
void restart() {
  const bool again = std::getenv("WEFT_CASE_AGAIN") != nullptr;
  constexpr std::size_t kSize = 50000;
  Endpoint e(again ? "again" : "0");
  const auto talk = [&e](std::uint32_t seed) {
    Buffer out(e.domain, kSize);
    Buffer in(e.domain, kSize);
    out.fill(seed);
    fi_context contexts[2];
    e.post([&] { return fi_trecv(e.ep, in.data(), kSize, in.desc(), e.peer, 1, 0, &contexts[0]); });
    e.post([&] { return fi_tsend(e.ep, out.data(), kSize, out.desc(), e.peer, 1, &contexts[1]); });
    e.wait_for(2);
    in.check(seed, 0, kSize);
  };
  talk(again ? 2 : 1);
  if (again) {
    e.barrier();
    return;
  }
  e.barrier();
  e.part();
  if (Endpoint::rank() == 1) {
    setenv("WEFT_CASE_AGAIN", "1", 1);
    execl("/proc/self/exe", "weft_fabric_peer", "restart", nullptr);
    give_up("cannot start again");
  }
  e.meet("again");
  talk(2);
  e.barrier();
}

// The peer vanishes without a word; what is sent to it fails, and the program lives on.
void peer_death() {
  Endpoint e;
  Buffer out(e.domain, 4096);
  const auto peer = static_cast<pid_t>(e.exchange({static_cast<std::uint64_t>(getpid())})[0]);
  if (Endpoint::rank() == 1) {
    std::raise(SIGKILL);
  }
  while (kill(peer, 0) == 0) {
    ::poll(nullptr, 0, 1);
  }
  fi_context context;
  e.post([&] { return fi_tsend(e.ep, out.data(), 4096, out.desc(), e.peer, 5, &context); });
  const fi_cq_err_entry error = e.wait_error();
  require(error.op_context == &context, "the error is of something else");
  std::printf("the survivor was told: %s\n", fi_strerror(error.err));
  std::fflush(stdout);
  std::_Exit(0);  // the provider would wait for the dead at the end
}

constexpr Case kCases[] = {
    {"message", message},
    {"tagged", tagged},
    {"unexpected", unexpected},
    {"multi_receive", multi_receive},
    {"cancel", cancel},
    {"rma", rma},
    {"write_data", write_data},
    {"atomics", atomics},
    {"inject", inject},
    {"cq_data", cq_data},
    {"counters", counters},
    {"endpoints", endpoints},
    {"address_vectors", address_vectors},
    {"restart", restart},
    {"peer_death", peer_death},
};

}  // namespace

std::span<const Case> all_cases() { return kCases; }

}  // namespace weft::conformance
