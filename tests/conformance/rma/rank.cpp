// Owns one rank that uses the NCCL plugin's remote memory access as NCCL does: loads the library,
// takes the table of one version, and compares every byte that arrives.
//
//   weft_rma_rank LIBRARY VERSION FILE RANK RANKS [dies]
//
// The ranks meet in FILE, which all map: handles before connect(), and barriers. With `dies` the
// last rank kills itself under way, and the others must be told.
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "integration/nccl/abi_rma.hpp"
#include "srd/base/rng.hpp"

namespace weft {
namespace {

using nccl::abi::Result;

constexpr int kRanks = 16;
struct Meeting {
  std::atomic<int> arrived;
  std::array<std::array<char, nccl::abi::kHandleBytes>, kRanks> handles;
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "rma_rank: %s\n", why.c_str());
  std::exit(1);
}
void check(bool right, const std::string& what) {
  if (!right) {
    give_up(what);
  }
}
void log(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level <= nccl::abi::kWarn) {
    std::fprintf(stderr, "rma_rank: %s\n", format);
  }
}

// What both versions have in common, with the widest arguments.
class Table {
 public:
  Table(void* library, int version) {
    v13_ = version == 13 ? find<nccl::abi::RmaTableV13>(library, "ncclRmaPlugin_v13") : nullptr;
    v14_ = version == 14 ? find<nccl::abi::RmaTableV14>(library, "ncclRmaPlugin_v14") : nullptr;
    check(v13_ != nullptr || v14_ != nullptr, "no such version");
  }
  template <class F>
  decltype(auto) common(F&& f) const {
    return v14_ != nullptr ? f(*v14_) : f(*v13_);
  }
  Result create_context(void* group, void** context) const {
    if (v13_ != nullptr) {
      nccl::abi::RmaConfigV13 config{0, 0, 1, 0, -1};
      return v13_->createContext(group, &config, context, nullptr);
    }
    nccl::abi::RmaConfigV14 config{1, -1, 1};
    return v14_->createContext(group, &config, context);
  }
  Result register_memory(void* group, void* data, std::size_t size, int type, void** window) const {
    return v13_ != nullptr ? v13_->regMrSym(group, data, size, type, 1, window, nullptr)
                           : v14_->regMrSym(group, data, size, type, 1, window);
  }
  Result put_signal(void* context, std::uint64_t from, void* source, std::size_t size,
                    std::uint64_t to, void* target, std::uint32_t rank, std::uint64_t word,
                    void* words, std::uint64_t value, bool strong, void** request) const {
    return v13_ != nullptr
               ? v13_->iputSignal(context, 0, from, source, size, to, target, rank, word, words,
                                  value, nccl::abi::kSignalAdd, request)
               : v14_->iputSignal(context, 0, from, source, size, to, target, rank, word, words,
                                  value, nccl::abi::kSignalAdd, strong, request);
  }

 private:
  template <class T>
  static const T* find(void* library, const char* name) {
    return static_cast<const T*>(::dlsym(library, name));
  }
  const nccl::abi::RmaTableV13* v13_ = nullptr;
  const nccl::abi::RmaTableV14* v14_ = nullptr;
};

class Rank {
 public:
  Rank(const Table& table, Meeting& meeting, int rank, int ranks)
      : table_(table), meeting_(meeting), rank_(rank), ranks_(ranks) {}

  void connect() {
    table_.common([&](const auto& t) {
      int devices = 0;
      nccl::abi::PropertiesV12 properties{};
      check(t.init(&plugin_, 7, log) == nccl::abi::kSuccess, "init");
      check(t.devices(&devices) == nccl::abi::kSuccess && devices > 0, "devices");
      check(t.getProperties(0, &properties) == nccl::abi::kSuccess, "properties");
      check(properties.netDeviceType == nccl::abi::kProxyDevice, "NCCL wants a proxy device");
      auto& handle = meeting_.handles[static_cast<std::size_t>(rank_)];
      void* listener = nullptr;
      check(t.listen(plugin_, 0, handle.data(), &listener) == nccl::abi::kSuccess, "listen");
      barrier();
      std::vector<void*> handles;
      for (int i = 0; i < ranks_; ++i) {
        handles.push_back(meeting_.handles[static_cast<std::size_t>(i)].data());
      }
      check(t.connect(plugin_, handles.data(), ranks_, rank_, listener, &group_) ==
                nccl::abi::kSuccess,
            "connect");
      check(t.closeListen(listener) == nccl::abi::kSuccess, "closeListen");
    });
    check(table_.create_context(group_, &context_) == nccl::abi::kSuccess, "createContext");
    void* window = nullptr;
    check(table_.register_memory(group_, words_.data(), 64, 2, &window) == nccl::abi::kInvalidUsage,
          "memory of a GPU");
    window_ = add(memory_.data(), memory_.size());
    sources_ = add(source_.data(), source_.size());
    signals_ = add(words_.data(), words_.size() * sizeof words_[0]);
  }

  // Calls without the object that they are for.
  void call_on_nothing() {
    constexpr Result kRefused = nccl::abi::kInvalidArgument;
    table_.common([&](const auto& t) {
      void* made = nullptr;
      int done = 1;
      bool error = false;
      check(t.connect(plugin_, nullptr, ranks_, rank_, nullptr, &made) == kRefused, "no listener");
      check(t.closeListen(nullptr) == kRefused && t.closeColl(nullptr) == kRefused &&
                t.destroyContext(nullptr) == kRefused && t.deregMrSym(nullptr, nullptr) == kRefused,
            "nothing to close");
      check(t.iget(nullptr, 0, 0, window_, 1, 0, window_, 0, &made) == kRefused, "no context");
      check(t.test(nullptr, nullptr, &done) == kRefused && done == 1, "no request");
      check(t.queryLastError(nullptr, &error) == kRefused, "nothing that could have failed");
    });
    void* made = nullptr;
    check(table_.create_context(nullptr, &made) == kRefused &&
              table_.register_memory(nullptr, words_.data(), 8, nccl::abi::kHostMemory, &made) ==
                  kRefused,
          "no group");
  }

  // Each rank writes into its own stripe of every other one's memory; the value of the last strong
  // signal says that the round is there.
  void rounds(int count, bool dies) {
    for (int round = 1; round <= count; ++round) {
      fill(source_, seed(rank_, round));
      Rng rng(static_cast<std::uint64_t>(round));  // the same at all ranks
      std::vector<std::size_t> cuts{0};
      while (cuts.back() != kStripe) {
        cuts.push_back(std::min(kStripe, cuts.back() + rng.below(20'000)));
      }
      if (dies && round == 2 && rank_ == ranks_ - 1) {
        ::raise(SIGKILL);
      }
      std::vector<void*> requests;
      for (int to = 0; to < ranks_; ++to) {
        for (std::size_t i = 1; i < cuts.size(); ++i) {
          requests.push_back(put(to, cuts[i - 1], cuts[i] - cuts[i - 1], i + 1 == cuts.size()));
        }
      }
      await_words(static_cast<std::uint64_t>(round), cuts.size() - 2);
      for (int from = 0; from < ranks_; ++from) {
        std::vector<std::byte> expected(kStripe);
        fill(expected, seed(from, round));
        check(std::memcmp(expected.data(), stripe(from), kStripe) == 0, "wrong bytes of a put");
      }
      finish(requests);
      read_back(round);
      barrier();
    }
  }

  void close() {
    table_.common([&](const auto& t) {
      check(t.destroyContext(context_) == nccl::abi::kSuccess, "destroyContext");
      for (void* const one : {window_, sources_, signals_}) {
        check(t.deregMrSym(group_, one) == nccl::abi::kSuccess, "deregMrSym");
      }
      check(t.closeColl(group_) == nccl::abi::kSuccess, "closeColl");
      check(t.finalize(plugin_) == nccl::abi::kSuccess, "finalize");
    });
  }

 private:
  static constexpr std::size_t kStripe = 256 << 10;

  static std::uint64_t seed(int rank, int round) {
    return static_cast<std::uint64_t>(rank) * 1000 + static_cast<std::uint64_t>(round);
  }
  static void fill(std::vector<std::byte>& bytes, std::uint64_t seed) {
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      const std::uint64_t word = mix64(seed * 0x10001 + i);
      std::memcpy(&bytes[i], &word, sizeof word);
    }
  }
  [[nodiscard]] std::byte* stripe(int from) {
    return memory_.data() + static_cast<std::size_t>(from) * kStripe;
  }
  void barrier() {
    const int turn = ++barriers_ * ranks_;
    meeting_.arrived.fetch_add(1);
    while (meeting_.arrived.load() < turn) {
      ::sched_yield();
    }
  }
  void* add(void* data, std::size_t size) {
    void* window = nullptr;
    check(table_.register_memory(group_, data, size, nccl::abi::kHostMemory, &window) ==
              nccl::abi::kSuccess,
          "regMrSym");
    return window;
  }
  // Others learn of a dead rank from whichever call meets it first.
  void expect(Result result) {
    bool error = false;
    table_.common([&](const auto& t) { (void)t.queryLastError(context_, &error); });
    if (result == nccl::abi::kRemoteError && error) {
      std::printf("rank %d: a peer is gone\n", rank_);
      std::exit(3);
    }
    check(result == nccl::abi::kSuccess, "result " + std::to_string(result));
  }
  void* put(int to, std::size_t at, std::size_t size, bool last) {
    void* request = nullptr;
    const auto mine = static_cast<std::uint64_t>(rank_);
    while (request == nullptr) {
      expect(table_.put_signal(context_, at, sources_, size, mine * kStripe + at, window_,
                               static_cast<std::uint32_t>(to), mine * 8, signals_,
                               last ? kRound : 1, last, &request));
      progress();
    }
    return request;
  }
  void progress() {
    table_.common([&](const auto& t) {
      if constexpr (requires { t.rmaProgress; }) {
        expect(t.rmaProgress(context_));
      } else {
        expect(t.ginProgress(context_));
      }
    });
    bool error = false;
    table_.common([&](const auto& t) { (void)t.queryLastError(context_, &error); });
    if (error) {
      expect(nccl::abi::kRemoteError);
    }
  }
  // A weak signal adds 1, the strong one at the end of a round kRound: when it is there, all is.
  void await_words(std::uint64_t round, std::uint64_t weak) {
    weak_ += weak;
    for (int from = 0; from < ranks_; ++from) {
      std::atomic_ref word(words_[static_cast<std::size_t>(from)]);
      while (word.load(std::memory_order_acquire) / kRound < round) {
        progress();
        ::sched_yield();
      }
      check(word.load() == round * kRound + weak_, "a signal was lost or came twice");
    }
  }
  void finish(const std::vector<void*>& requests) {
    for (void* const one : requests) {
      for (int done = 0; done == 0;) {
        expect(table_.common([&](const auto& t) { return t.test(group_, one, &done); }));
      }
    }
  }
  // What was put somewhere is read back from there.
  void read_back(int round) {
    std::vector<std::byte> expected(kStripe);
    fill(expected, seed(rank_, round));
    for (int from = 0; from < ranks_; ++from) {
      std::fill(source_.begin(), source_.end(), std::byte{0});
      void* request = nullptr;
      while (request == nullptr) {
        expect(table_.common([&](const auto& t) {
          return t.iget(context_, 0, static_cast<std::uint64_t>(rank_) * kStripe, window_, kStripe,
                        0, sources_, static_cast<std::uint32_t>(from), &request);
        }));
      }
      finish({request});
      check(source_ == expected, "wrong bytes of a get");
    }
  }

  static constexpr std::uint64_t kRound = 1 << 20;

  const Table& table_;
  Meeting& meeting_;
  int rank_;
  int ranks_;
  int barriers_ = 0;
  std::uint64_t weak_ = 0;  // signals of all rounds so far, from each rank
  void* plugin_ = nullptr;
  void* group_ = nullptr;
  void* context_ = nullptr;
  void* window_ = nullptr;
  void* sources_ = nullptr;
  void* signals_ = nullptr;
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(static_cast<std::size_t>(ranks_) * kStripe);
  std::vector<std::byte> source_ = std::vector<std::byte>(kStripe);
  std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(kRanks);
};

int run(int count, char** words) {
  if (count < 6) {
    give_up("usage: weft_rma_rank LIBRARY VERSION FILE RANK RANKS [dies]");
  }
  const int file = ::open(words[3], O_RDWR | O_CREAT, 0600);
  check(file >= 0 && ::ftruncate(file, sizeof(Meeting)) == 0, "the file to meet in");
  void* const page = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  check(page != MAP_FAILED, "mmap");
  void* const library = ::dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, "dlopen");
  const Table table(library, std::atoi(words[2]));
  Rank rank(table, *static_cast<Meeting*>(page), std::atoi(words[4]), std::atoi(words[5]));
  rank.connect();
  rank.call_on_nothing();
  rank.rounds(4, count > 6 && std::string(words[6]) == "dies");
  rank.close();
  std::printf("rank %s: all right\n", words[4]);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** words) { return weft::run(count, words); }
