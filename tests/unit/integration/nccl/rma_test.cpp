// Owns the stories of puts, gets and signals where nobody dies: every byte, every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "srd/base/rng.hpp"
#include "tests/unit/integration/nccl/rma_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Outcome;
using nccl::Request;
using nccl::Rma;
using nccl::RmaPlace;
using nccl::RmaSignal;
using Memory = std::vector<std::vector<std::byte>>;

constexpr std::byte kPoison{0xA5};

// A network that always reorders, and loses packets with even seeds only: loss alone hides what
// reordering does, because everything waits for it.
RmaLabConfig rough(std::uint64_t seed) {
  RmaLabConfig config;
  config.lab.seed = seed;
  config.lab.link.reorder = 0.3;
  config.lab.link.loss = seed % 2 == 0 ? 0.03 : 0;
  config.lab.engine.peer_timeout = 10s;
  return config;
}

Memory poisoned(std::uint32_t ranks, std::size_t size) {
  return Memory(ranks, std::vector<std::byte>(size, kPoison));
}

class PutSizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(PutSizes, MoveEveryByteAndNoOther) {
  const std::size_t size = GetParam();
  for (const std::uint32_t part : {srd::kMaxTransfer, 700U}) {
    if (part != srd::kMaxTransfer && size > 100'000) {
      continue;
    }
    RmaLabConfig config = rough(2);
    config.part_bytes = part;
    RmaLab lab(2, config);
    ASSERT_TRUE(lab.join());
    lab.make_contexts();
    Memory memory = poisoned(2, size + 128);
    const std::uint32_t window = lab.register_all(memory);
    ASSERT_NE(window, 0U);
    fill_bytes(std::span{memory[0]}.subspan(64, size), 7);
    EXPECT_EQ(lab.outcome(0, lab.put(0, 1, {window, 64}, size, {window, 32})), Outcome::ok);
    EXPECT_TRUE(has_bytes(std::span{memory[1]}.subspan(32, size), 7));
    EXPECT_EQ(std::ranges::count(std::span{memory[1]}.first(32), kPoison), 32);
    EXPECT_EQ(std::ranges::count(std::span{memory[1]}.subspan(32 + size), kPoison), 96);

    std::ranges::fill(memory[0], kPoison);
    EXPECT_EQ(lab.outcome(0, lab.get(0, 1, {window, 32}, size, {window, 96})), Outcome::ok);
    EXPECT_TRUE(has_bytes(std::span{memory[0]}.subspan(96, size), 7));
    EXPECT_EQ(std::ranges::count(std::span{memory[0]}.first(96), kPoison), 96);
    EXPECT_EQ(std::ranges::count(std::span{memory[0]}.subspan(96 + size), kPoison), 32);
  }
}
// Nothing, single bytes, a word, the borders of a packet, and a little more than a megabyte.
INSTANTIATE_TEST_SUITE_P(Borders, PutSizes,
                         ::testing::Values(0, 1, 7, 8, 1023, 1024, 1025, 65536, 1048577));

class Rough : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Rough, ::testing::Range<std::uint64_t>(1, 9));

// Many puts of all sizes, then one strong signal without bytes. At the very moment at which the
// word has changed all bytes are there.
TEST_P(Rough, StrongSignalComesAfterAllEarlierPuts) {
  constexpr std::size_t kPuts = 40;
  constexpr std::size_t kSlot = 9000;
  RmaLab lab(2, rough(GetParam()));
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory = poisoned(2, kPuts * kSlot + 64);
  const std::uint32_t window = lab.register_all(memory);
  Memory words(2, std::vector<std::byte>(64));
  const std::uint32_t signals = lab.register_all(words);
  ASSERT_NE(signals, 0U);
  Rng rng(GetParam());
  std::vector<std::size_t> sizes;
  std::vector<Request*> requests;
  for (std::size_t i = 0; i < kPuts; ++i) {
    sizes.push_back(rng.below(kSlot));
    fill_bytes(std::span{memory[0]}.subspan(i * kSlot, sizes[i]), i);
    requests.push_back(lab.put(0, 1, {window, i * kSlot}, sizes[i], {window, i * kSlot}));
  }
  requests.push_back(lab.put(0, 1, {}, 0, {}, RmaSignal{{signals, 16}, 5, true}));
  EXPECT_TRUE(lab.run_until([&] { return word_at(words[1], 16) != 0; }));
  EXPECT_EQ(word_at(words[1], 16), 5U);
  for (std::size_t i = 0; i < kPuts; ++i) {
    EXPECT_TRUE(has_bytes(std::span{memory[1]}.subspan(i * kSlot, sizes[i]), i)) << i;
  }
  for (Request* const one : requests) {
    EXPECT_EQ(lab.outcome(0, one), Outcome::ok);
  }
}

// A weak one comes after its own put, and need not wait for others.
TEST_P(Rough, WeakSignalComesAfterItsOwnPut) {
  constexpr std::size_t kPuts = 60;
  constexpr std::size_t kSlot = 3000;
  RmaLab lab(2, rough(GetParam()));
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory = poisoned(2, kPuts * kSlot);
  const std::uint32_t window = lab.register_all(memory);
  Memory words(2, std::vector<std::byte>(kPuts * 8));
  const std::uint32_t signals = lab.register_all(words);
  std::vector<Request*> requests;
  for (std::size_t i = 0; i < kPuts; ++i) {
    const std::size_t size = i % 3 == 0 ? kSlot : i;
    fill_bytes(std::span{memory[0]}.subspan(i * kSlot, size), i);
    requests.push_back(lab.put(0, 1, {window, i * kSlot}, size, {window, i * kSlot},
                               RmaSignal{{signals, i * 8}, i + 1, false}));
  }
  std::vector<bool> seen(kPuts, false);
  bool overtaken = false;
  EXPECT_TRUE(lab.run_until([&] {
    for (std::size_t i = 0; i < kPuts; ++i) {
      if (seen[i] || word_at(words[1], i * 8) == 0) {
        continue;
      }
      seen[i] = true;
      overtaken = overtaken || std::find(seen.begin(), seen.begin() + static_cast<long>(i),
                                         false) != seen.begin() + static_cast<long>(i);
      const std::size_t size = i % 3 == 0 ? kSlot : i;
      EXPECT_EQ(word_at(words[1], i * 8), i + 1);
      EXPECT_TRUE(has_bytes(std::span{memory[1]}.subspan(i * kSlot, size), i)) << i;
    }
    return std::ranges::count(seen, true) == kPuts;
  }));
  EXPECT_TRUE(overtaken) << "weak signals waited for each other";
  for (Request* const one : requests) {
    EXPECT_EQ(lab.outcome(0, one), Outcome::ok);
  }
}

// Strong signals in a row: each is an order of its own, and nothing is added twice or lost.
TEST_P(Rough, StrongSignalsComeInTheirOrder) {
  constexpr std::size_t kRounds = 64;  // NCCL has so many under way to one peer, or more
  RmaLab lab(3, rough(GetParam()));
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory = poisoned(3, kRounds * 100);
  const std::uint32_t window = lab.register_all(memory);
  Memory words(3, std::vector<std::byte>(8 * (kRounds + 2)));
  const std::uint32_t signals = lab.register_all(words);
  std::vector<std::pair<std::uint32_t, Request*>> requests;
  for (const std::uint32_t from : {0U, 2U}) {
    fill_bytes(memory[from], from);
    for (std::size_t i = 0; i < kRounds; ++i) {
      const std::size_t at = i * 100 + from * 25;
      requests.emplace_back(from, lab.put(from, 1, {window, at}, 25, {window, at},
                                          RmaSignal{{signals, 8 * (from / 2)}, 1, true}));
    }
  }
  std::array<std::uint64_t, 2> before{};
  EXPECT_TRUE(lab.run_until([&] {
    for (std::size_t sender = 0; sender < 2; ++sender) {
      const std::uint64_t now = word_at(words[1], 8 * sender);
      for (std::uint64_t i = before[sender]; i < now; ++i) {
        const std::size_t at = i * 100 + sender * 50;
        EXPECT_TRUE(std::ranges::equal(std::span{memory[1]}.subspan(at, 25),
                                       std::span{memory[2 * sender]}.subspan(at, 25)));
      }
      before[sender] = now;
    }
    return before[0] == kRounds && before[1] == kRounds;
  }));
  for (const auto& [rank, one] : requests) {
    EXPECT_EQ(lab.outcome(rank, one), Outcome::ok);
  }
  lab.run_for(1s);
  EXPECT_EQ(word_at(words[1], 0), kRounds);
  EXPECT_EQ(word_at(words[1], 8), kRounds);
}

// Everything mixed, to all, from all, in two contexts; the whole memory is compared with a model.
TEST_P(Rough, EverythingAtOnceGivesWhatAModelGives) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::size_t kSlot = 2048;
  constexpr std::size_t kSlots = 32;  // of each sender, in each memory
  RmaLabConfig config = rough(GetParam());
  config.part_bytes = 900;
  config.lab.engine.max_work_requests = 128;  // the engine has no room now and then
  RmaLab lab(kRanks, config);
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  std::array<std::uint32_t, kRanks> second{};
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    ASSERT_EQ(lab.rma(i).create_context(lab.member(i).group, 1, second[i]), Outcome::ok);
  }
  Memory memory = poisoned(kRanks, kRanks * kSlots * kSlot);
  const std::uint32_t window = lab.register_all(memory);
  Memory source = poisoned(kRanks, kSlots * kSlot);
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    fill_bytes(source[i], 100 + i);
  }
  const std::uint32_t sources = lab.register_all(source);
  Memory words(kRanks, std::vector<std::byte>(8 * kRanks));
  const std::uint32_t signals = lab.register_all(words);
  Memory model = memory;
  std::vector<std::vector<std::uint64_t>> sums(kRanks, std::vector<std::uint64_t>(kRanks, 0));
  Rng rng(GetParam() * 77);
  std::vector<std::pair<std::uint32_t, Request*>> requests;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    for (std::uint32_t from = 0; from < kRanks; ++from) {
      for (std::uint32_t to = 0; to < kRanks; ++to) {
        const std::size_t size = rng.below(kSlot + 1);
        const std::size_t at = (from * kSlots + slot) * kSlot;
        Request* request = nullptr;
        const std::uint32_t context = rng.below(2) == 0 ? lab.member(from).context : second[from];
        std::optional<RmaSignal> signal;
        if (rng.below(2) == 0) {
          signal = RmaSignal{{signals, 8 * from}, rng.below(1000), rng.below(2) == 0};
          sums[to][from] += signal->value;
        }
        ASSERT_EQ(lab.rma(from).put(lab.member(from).group, context, to, {sources, slot * kSlot},
                                    size, {window, at}, signal, request),
                  Outcome::ok);
        ASSERT_NE(request, nullptr);
        requests.emplace_back(from, request);
        std::copy_n(source[from].begin() + static_cast<long>(slot * kSlot), size,
                    model[to].begin() + static_cast<long>(at));
      }
    }
    lab.run_for(Duration{static_cast<std::int64_t>(rng.below(20'000))});
  }
  for (const auto& [rank, one] : requests) {
    EXPECT_EQ(lab.outcome(rank, one), Outcome::ok);
  }
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    EXPECT_TRUE(memory[i] == model[i]) << "rank " << i;
    for (std::uint32_t from = 0; from < kRanks; ++from) {
      EXPECT_EQ(word_at(words[i], 8 * from), sums[i][from]) << from << " to " << i;
    }
  }
}

// Gets from everybody while they are written elsewhere; parts smaller than packets.
TEST_P(Rough, GetsBringEveryByte) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::size_t kGets = 64;
  RmaLabConfig config = rough(GetParam());
  config.part_bytes = 500;
  config.lab.engine.max_reads_per_peer = 3;
  RmaLab lab(kRanks, config);
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory = poisoned(kRanks, kGets * 1000);
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    fill_bytes(memory[i], i);
  }
  const std::uint32_t window = lab.register_all(memory);
  Memory into = poisoned(kRanks, kRanks * kGets * 1000);
  const std::uint32_t target = lab.register_all(into);
  std::vector<std::pair<std::uint32_t, Request*>> requests;
  for (std::size_t i = 0; i < kGets; ++i) {
    for (std::uint32_t to = 0; to < kRanks; ++to) {
      for (std::uint32_t from = 0; from < kRanks; ++from) {
        requests.emplace_back(to, lab.get(to, from, {window, i * 1000}, 1000 - i,
                                          {target, (from * kGets + i) * 1000}));
      }
    }
  }
  for (const auto& [rank, one] : requests) {
    EXPECT_EQ(lab.outcome(rank, one), Outcome::ok);
  }
  for (std::uint32_t to = 0; to < kRanks; ++to) {
    for (std::uint32_t from = 0; from < kRanks; ++from) {
      for (std::size_t i = 0; i < kGets; ++i) {
        const auto got = std::span{into[to]}.subspan((from * kGets + i) * 1000, 1000);
        EXPECT_TRUE(std::ranges::equal(got.first(1000 - i),
                                       std::span{memory[from]}.subspan(i * 1000, 1000 - i)));
        EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(got.subspan(1000 - i), kPoison)), i);
      }
    }
  }
}

// Two members on each NIC: names, not addresses, have to tell them apart.
TEST(Rma, MembersOfOneProcessShareItsNic) {
  RmaLabConfig config = rough(4);
  config.ranks_per_nic = 2;
  RmaLab lab(4, config);
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory(4, std::vector<std::byte>(4 * 8));
  const std::uint32_t window = lab.register_all(memory);
  ASSERT_NE(window, 0U);
  for (std::uint32_t from = 0; from < 4; ++from) {
    for (std::uint32_t to = 0; to < 4; ++to) {
      EXPECT_EQ(lab.outcome(from, lab.put(from, to, {}, 0, {},
                                          RmaSignal{{window, 8 * from}, 10 + from, true})),
                Outcome::ok);
    }
  }
  for (std::uint32_t to = 0; to < 4; ++to) {
    for (std::uint32_t from = 0; from < 4; ++from) {
      EXPECT_EQ(word_at(memory[to], 8 * from), 10 + from);
    }
  }
}

// NCCL makes such groups, too; here the NIC is its own peer.
TEST(Rma, GroupOfOneReachesItself) {
  RmaLab lab(1);
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory(1, std::vector<std::byte>(64));
  const std::uint32_t window = lab.register_all(memory);
  ASSERT_NE(window, 0U);
  fill_bytes(std::span{memory[0]}.first(16), 1);
  EXPECT_EQ(lab.outcome(
                0, lab.put(0, 0, {window, 0}, 16, {window, 24}, RmaSignal{{window, 56}, 3, true})),
            Outcome::ok);
  EXPECT_TRUE(has_bytes(std::span{memory[0]}.subspan(24, 16), 1));
  EXPECT_EQ(word_at(memory[0], 56), 3U);
}

// NCCL takes a null request for "ask again".
TEST(Rma, SoManyRequestsAndNoMoreAreUnderWay) {
  RmaLab lab(2);
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory = poisoned(2, 4096);
  const std::uint32_t window = lab.register_all(memory);
  std::vector<Request*> requests;
  for (std::size_t i = 0; i < Rma::kMaxOutstanding; ++i) {
    requests.push_back(lab.put(0, 1, {window, i}, 1, {window, i}));
    ASSERT_NE(requests.back(), nullptr);
  }
  EXPECT_EQ(lab.put(0, 1, {window, 0}, 1, {window, 0}), nullptr) << "ask again";
  EXPECT_EQ(lab.get(0, 1, {window, 0}, 1, {window, 0}), nullptr);
  for (Request* const one : requests) {
    EXPECT_EQ(lab.outcome(0, one), Outcome::ok);
  }
  EXPECT_EQ(lab.outcome(0, lab.put(0, 1, {window, 0}, 1, {window, 0})), Outcome::ok);
}

// NCCL counts what it has not seen the end of, in any order: what has ended takes no room behind an
// operation that has not.
TEST(Rma, OperationsThatHaveEndedTakeNoRoom) {
  RmaLab lab(2, rough(7));
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory = poisoned(2, std::size_t{8} << 20);
  const std::uint32_t window = lab.register_all(memory);
  Request* const large = lab.put(0, 1, {window, 0}, std::size_t{8} << 20, {window, 0});
  std::vector<Request*> small;
  for (std::size_t i = 1; i < Rma::kMaxOutstanding; ++i) {
    small.push_back(lab.put(0, 1, {window, 0}, 0, {window, 0}));
    ASSERT_EQ(lab.ended(0, small.back()), Outcome::ok);
  }
  Request* const next = lab.put(0, 1, {window, 0}, 1, {window, 0});
  ASSERT_EQ(large->state.load(), Request::State::pending);
  ASSERT_NE(next, nullptr);
  Request* const last = lab.put(0, 1, {window, 0}, 1, {window, 0});
  ASSERT_NE(last, nullptr);
  for (Request* const one : {large, next, last}) {
    EXPECT_EQ(lab.outcome(0, one), Outcome::ok);
  }
}

// Sizes and offsets near 2^64 as well: a sum that wraps would look small.
TEST(Rma, WhatIsOutsideIsRefusedBeforeItLeaves) {
  RmaLab lab(2);
  ASSERT_TRUE(lab.join());
  lab.make_contexts();
  Memory memory = poisoned(2, 100);
  memory[1].resize(50);
  const std::uint32_t window = lab.register_all(memory);
  nccl::Rma& rma = lab.rma(0);
  const std::uint16_t group = lab.member(0).group;
  const std::uint32_t context = lab.member(0).context;
  Request* out = nullptr;
  const auto put = [&](std::uint32_t rank, RmaPlace from, std::size_t size, RmaPlace to,
                       std::optional<RmaSignal> signal = std::nullopt) {
    return rma.put(group, context, rank, from, size, to, signal, out);
  };
  const auto huge = ~std::uint64_t{0};
  EXPECT_EQ(put(1, {window, 0}, 51, {window, 0}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {window, 0}, 50, {window, 1}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {window, 60}, 50, {window, 0}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {window, huge}, 2, {window, 0}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {window, 0}, 2, {window, huge}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {window, 0}, huge, {window, 0}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {window + 1, 0}, 1, {window, 0}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {window, 0}, 1, {window + 1, 0}), Outcome::invalid_argument);
  EXPECT_EQ(put(2, {window, 0}, 1, {window, 0}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {}, 0, {}, RmaSignal{{window, 48}, 1, true}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {}, 0, {}, RmaSignal{{window, 4}, 1, true}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {}, 0, {}, RmaSignal{{window, huge - 7}, 1, true}), Outcome::invalid_argument);
  EXPECT_EQ(put(1, {}, 0, {}, RmaSignal{{0, 0}, 1, true}), Outcome::invalid_argument);
  EXPECT_EQ(rma.get(group, context, 1, {window, 50}, 1, {window, 0}, out),
            Outcome::invalid_argument);
  EXPECT_EQ(rma.get(group, context, 1, {window, 0}, 50, {window, 51}, out),
            Outcome::invalid_argument);
  EXPECT_EQ(rma.get(group, context + 1, 1, {window, 0}, 1, {window, 0}, out),
            Outcome::invalid_argument);
  EXPECT_EQ(rma.get(group + 1, context, 1, {window, 0}, 1, {window, 0}, out),
            Outcome::invalid_argument);
  EXPECT_EQ(out, nullptr);
  EXPECT_FALSE(rma.has_failed(group)) << "a refusal harms nobody";
  EXPECT_EQ(lab.outcome(0, lab.put(0, 1, {window, 0}, 50, {window, 0})), Outcome::ok);
}

// A stride of 2 reaches every second rank; one that does not divide the group is refused.
TEST(Rma, StrideLimitsWhomAContextReaches) {
  RmaLab lab(4);
  ASSERT_TRUE(lab.join());
  Memory memory(4, std::vector<std::byte>(8));
  const std::uint32_t window = lab.register_all(memory);
  std::uint32_t context = 0;
  nccl::Rma& rma = lab.rma(1);
  const std::uint16_t group = lab.member(1).group;
  EXPECT_EQ(rma.create_context(group, 0, context), Outcome::invalid_argument);
  EXPECT_EQ(rma.create_context(group, 3, context), Outcome::invalid_argument);
  ASSERT_EQ(rma.create_context(group, 2, context), Outcome::ok);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Request* out = nullptr;
    EXPECT_EQ(rma.put(group, context, rank, {}, 0, {}, RmaSignal{{window, 0}, 1, true}, out),
              rank % 2 == 1 ? Outcome::ok : Outcome::invalid_usage);
  }
}

// A window is all members' or none's: each must learn that one of them had no memory.
TEST(Rma, WindowOfAMemberWithoutMemoryFailsAtAll) {
  RmaLab lab(3);
  ASSERT_TRUE(lab.join());
  std::vector<std::byte> memory(64);
  std::uint32_t window = 0;
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lab.rma(i).register_window(lab.member(i).group, i == 1 ? nullptr : memory.data(),
                                         memory.size(), window),
              Outcome::ok);
  }
  EXPECT_TRUE(lab.run_until([&] {
    for (std::uint32_t i = 0; i < 3; ++i) {
      if (lab.rma(i).registered(lab.member(i).group, window) != nccl::RmaStep::failed) {
        return false;
      }
    }
    return true;
  }));
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(lab.rma(i).deregister(lab.member(i).group, window));
    EXPECT_FALSE(lab.rma(i).has_failed(lab.member(i).group)) << "the group goes on";
  }
  Memory others = poisoned(3, 10);
  EXPECT_NE(lab.register_all(others), 0U);
}

}  // namespace
}  // namespace weft::testing
