// Owns the cases of endpoints and peers: counters, many at once, address vectors, lives.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/conformance/libfabric/cases.hpp"
#include "tests/conformance/libfabric/endpoint.hpp"

namespace weft::conformance {
namespace {

// What is counted and what arrived agree.
void counters() {
  Endpoint e;
  e.barrier();
  constexpr std::size_t kCount = 10;
  constexpr std::size_t kSize = 100;
  // The barrier has counted as well, so the case looks at differences.
  const std::uint64_t sent = fi_cntr_read(e.sends);
  const std::uint64_t received = fi_cntr_read(e.receives);
  Buffer out(e.domain, kCount * kSize);
  Buffer in(e.domain, kCount * kSize);
  std::vector<fi_context> contexts(2 * kCount);
  out.fill(5);
  for (std::size_t i = 0; i < kCount; ++i) {
    e.post([&] {
      return fi_trecv(e.ep, in.data() + i * kSize, kSize, in.desc(), e.peer, i, 0, &contexts[i]);
    });
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    e.post([&] {
      return fi_tsend(e.ep, out.data() + i * kSize, kSize, out.desc(), e.peer, i,
                      &contexts[kCount + i]);
    });
  }
  e.wait_for(2 * kCount);
  in.check(5, 0, kCount * kSize);
  require(fi_cntr_read(e.sends) == sent + kCount, "sends are counted wrong");
  require(fi_cntr_read(e.receives) == received + kCount, "receives are counted wrong");
  e.barrier();
  Buffer window(e.domain, kCount * kSize);
  const auto remote = e.exchange({reinterpret_cast<std::uint64_t>(window.data()), window.key()});
  const std::uint64_t written = fi_cntr_read(e.writes);
  const std::uint64_t read = fi_cntr_read(e.reads);
  for (std::size_t i = 0; i < kCount; ++i) {
    e.post([&] {
      return fi_write(e.ep, out.data() + i * kSize, kSize, out.desc(), e.peer,
                      remote[0] + i * kSize, remote[1], &contexts[i]);
    });
  }
  e.wait_for(kCount);
  e.barrier();
  window.check(5, 0, kCount * kSize);
  e.barrier();
  in.clear();
  for (std::size_t i = 0; i < kCount; ++i) {
    e.post([&] {
      return fi_read(e.ep, in.data() + i * kSize, kSize, in.desc(), e.peer, remote[0] + i * kSize,
                     remote[1], &contexts[i]);
    });
  }
  e.wait_for(kCount);
  in.check(5, 0, kCount * kSize);
  require(fi_cntr_read(e.writes) == written + kCount, "writes are counted wrong");
  require(fi_cntr_read(e.reads) == read + kCount, "reads are counted wrong");
  for (fid_cntr* const counter : {e.sends, e.receives, e.writes, e.reads}) {
    require(fi_cntr_readerr(counter) == 0, "errors are counted where none was");
  }
  e.barrier();
}

// All of them have work under way at once.
void endpoints() {
  constexpr std::size_t kCount = 32;
  constexpr std::size_t kSize = 30000;
  struct One {
    explicit One(std::size_t i)
        : e("of" + std::to_string(i)), out(e.domain, kSize), in(e.domain, kSize) {}
    Endpoint e;
    Buffer out;
    Buffer in;
    fi_context contexts[2];
    int open = 2;
  };
  std::vector<std::unique_ptr<One>> all;
  for (std::size_t i = 0; i < kCount; ++i) {
    all.push_back(std::make_unique<One>(i));
  }
  for (std::uint32_t i = 0; i < kCount; ++i) {
    One& one = *all[i];
    one.out.fill(i);
    one.e.post([&] {
      return fi_trecv(one.e.ep, one.in.data(), kSize, one.in.desc(), one.e.peer, 1, 0,
                      &one.contexts[0]);
    });
    one.e.post([&] {
      return fi_tsend(one.e.ep, one.out.data(), kSize, one.out.desc(), one.e.peer, 1,
                      &one.contexts[1]);
    });
  }
  std::size_t open = 2 * kCount;
  // The first one counts the time.
  all[0]->e.wait_until(
      [&] {
        for (const auto& one : all) {
          fi_cq_tagged_entry entry{};
          if (one->open > 0 && one->e.poll(entry)) {
            --one->open;
            --open;
          }
        }
        return open == 0;
      },
      "the messages of all endpoints");
  for (std::uint32_t i = 0; i < kCount; ++i) {
    all[i]->in.check(i, 0, kSize);
  }
  // All are still there until the last words of all have been said.
  for (const auto& one : all) {
    one->e.barrier();
  }
}

// Everybody with everybody, through one endpoint each, on as many hosts as there are ranks.
void crowd() {
  Endpoint e;
  constexpr std::size_t kSize = 40000;
  constexpr std::uint64_t kRounds = 4;
  const auto ranks = static_cast<std::size_t>(Endpoint::ranks());
  const auto self = static_cast<std::size_t>(Endpoint::rank());
  Buffer out(e.domain, kSize);
  Buffer in(e.domain, ranks * kRounds * kSize);
  std::vector<fi_context> contexts(2 * ranks * kRounds);
  out.fill(static_cast<std::uint32_t>(self));
  for (std::size_t other = 0; other < ranks; ++other) {
    for (std::uint64_t round = 0; other != self && round < kRounds; ++round) {
      const std::size_t slot = other * kRounds + round;
      const fi_addr_t address = e.address_of(static_cast<int>(other));
      e.post([&] {
        return fi_trecv(e.ep, in.data() + slot * kSize, kSize, in.desc(), address, round, 0,
                        &contexts[2 * slot]);
      });
      e.post([&] {
        return fi_tsend(e.ep, out.data(), kSize, out.desc(), address, round,
                        &contexts[2 * slot + 1]);
      });
    }
  }
  e.wait_for(2 * (ranks - 1) * kRounds);
  for (std::size_t slot = 0; slot < ranks * kRounds; ++slot) {
    if (slot / kRounds != self) {
      in.check(static_cast<std::uint32_t>(slot / kRounds), slot * kSize, kSize);
    }
  }
}

// Addresses are inserted many at a time, found, removed, and inserted again; those that remain
// work.
void address_vectors() {
  Endpoint e;
  std::array<std::uint8_t, 64> own{};
  std::size_t length = own.size();
  require_ok(fi_getname(&e.ep->fid, own.data(), &length), "fi_getname");
  // Of a table addresses are indices, of a map they mean something to the provider only.
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
  for (int round = 0; round < 3; ++round) {
    e.forget_and_meet_again();
    Buffer out(e.domain, 100'000);
    Buffer in(e.domain, 100'000);
    const auto seed = static_cast<std::uint32_t>(round + 1);
    out.fill(seed);
    fi_context contexts[2];
    e.post([&] {
      return fi_trecv(e.ep, in.data(), in.size(), in.desc(), e.peer, 1, 0, &contexts[0]);
    });
    e.post([&] {
      return fi_tsend(e.ep, out.data(), out.size(), out.desc(), e.peer, 1, &contexts[1]);
    });
    e.wait_for(2);
    in.check(seed, 0, in.size());
    e.barrier();
  }
}

// One exchange of 50000 bytes each way.
void talk(Endpoint& e, std::uint32_t seed) {
  constexpr std::size_t kSize = 50000;
  Buffer out(e.domain, kSize);
  Buffer in(e.domain, kSize);
  out.fill(seed);
  fi_context contexts[2];
  e.post([&] { return fi_trecv(e.ep, in.data(), kSize, in.desc(), e.peer, 1, 0, &contexts[0]); });
  e.post([&] { return fi_tsend(e.ep, out.data(), kSize, out.desc(), e.peer, 1, &contexts[1]); });
  e.wait_for(2);
  in.check(seed, 0, kSize);
}

bool is_second_life() { return std::getenv("WEFT_CASE_AGAIN") != nullptr; }

// A second life of the peer, as another program with another address, and the survivor's endpoint
// goes on with it.
void restart() {
  const bool again = is_second_life();
  // Else a third life would take itself for the second.
  unsetenv("WEFT_CASE_AGAIN");
  Endpoint e(again ? "again" : "0");
  talk(e, again ? 2 : 1);
  e.barrier();
  if (again) {
    return;
  }
  e.part();
  if (Endpoint::rank() == 1) {
    setenv("WEFT_CASE_AGAIN", "1", 1);
    setenv("WEFT_CASE_ROUND", std::to_string(Endpoint::round).c_str(), 1);
    execl("/proc/self/exe", "weft_fabric_peer", "restart", nullptr);
    give_up("cannot start again");
  }
  e.meet("again");
  talk(e, 2);
  e.barrier();
}

// The same after a kill -9 in the middle of a message to the survivor, which never hears of it. The
// lives are children of the program that weft run knows; that one never opens a device.
void live_and_die(bool again) {
  Endpoint e(again ? "again" : "0");
  talk(e, again ? 2 : 1);
  e.barrier();
  if (again) {
    return;
  }
  e.part();  // what the survivor sent has ended: else it may have to wait for the dead
  if (Endpoint::rank() == 1) {
    Buffer out(e.domain, 3 << 20);
    fi_context context;
    e.post([&] { return fi_tsend(e.ep, out.data(), out.size(), out.desc(), e.peer, 3, &context); });
    std::raise(SIGKILL);
  }
  e.meet("again");
  talk(e, 2);
  e.barrier();
}
void killed() {
  if (Endpoint::rank() != 1) {
    live_and_die(false);
    return;
  }
  for (const bool again : {false, true}) {
    const pid_t life = fork();
    if (life == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      live_and_die(again);
      std::_Exit(0);
    }
    int status = 0;
    require(waitpid(life, &status, 0) == life, "waitpid");
    require(again ? WIFEXITED(status) && WEXITSTATUS(status) == 0
                  : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
            "a life ended in another way");
  }
}

// The peer vanishes without a word; what is sent to it fails, and the program lives on.
void peer_death() {
  Endpoint e;
  Buffer out(e.domain, 4096);
  // Ranks are on one machine: the number is enough to see when it is really gone.
  const auto peer = static_cast<pid_t>(e.exchange({static_cast<std::uint64_t>(getpid())})[0]);
  e.part();  // what the survivor sent so far has ended well
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

constexpr Case kCases[] = {{"counters", counters},    {"endpoints", endpoints},
                           {"crowd", crowd},          {"address_vectors", address_vectors},
                           {"restart", restart},      {"killed", killed},
                           {"peer_death", peer_death}};

}  // namespace

std::span<const Case> endpoint_cases() { return kCases; }

}  // namespace weft::conformance
