// Owns the comparison of matching with a model: groups, tags, look-ahead, sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "srd/base/rng.hpp"
#include "tests/unit/integration/nccl/core_lab.hpp"

namespace weft::testing {
namespace {

using nccl::Buffer;
using nccl::Outcome;
using nccl::Request;

// Of each message and each buffer; four packets of this lab.
constexpr std::size_t kSlot = 4096;

struct Message {
  int tag = 0;
  std::size_t size = 0;
  std::uint64_t seed = 0;
};
struct Group {
  std::vector<int> tags;
  std::vector<const Message*> got;  // by the model
};

// Each message takes the first unused buffer with its tag, of the oldest group that has one.
void match(const std::vector<Message>& messages, std::vector<Group>& groups) {
  for (const Message& message : messages) {
    bool placed = false;
    for (Group& group : groups) {
      for (std::size_t i = 0; i < group.tags.size() && !placed; ++i) {
        if (group.tags[i] == message.tag && group.got[i] == nullptr) {
          group.got[i] = &message;
          placed = true;
        }
      }
      if (placed) {
        break;
      }
    }
  }
}

// Groups whose tags are dealt anew; the messages are those of all groups, in an order that lets no
// buffer wait for a message that no posted receive can take before it.
struct Plan {
  std::vector<Group> groups;
  std::vector<Message> messages;

  explicit Plan(Rng& rng) {
    // Short messages are eager, many small groups use the slots several times.
    const std::size_t largest = rng.chance(0.5) ? kSlot : rng.chance(0.5) ? 2000 : 64;
    const bool many = rng.chance(0.3);
    const std::uint32_t count = 1 + rng.below(many ? 300 : 40);
    for (std::uint32_t g = 0; g < count; ++g) {
      Group group;
      std::vector<Message> own;
      const std::uint32_t size = 1 + rng.below(many ? 2 : 8);
      for (std::uint32_t i = 0; i < size; ++i) {
        group.tags.push_back(static_cast<int>(rng.below(4)));
        const std::size_t bytes =
            rng.chance(0.2) ? 0 : rng.below(static_cast<std::uint32_t>(largest) + 1);
        own.push_back({group.tags.back(), bytes, rng.next()});
      }
      group.got.resize(size);
      for (std::size_t i = own.size(); i > 1; --i) {
        std::swap(own[i - 1], own[rng.below(static_cast<std::uint32_t>(i))]);
      }
      messages.insert(messages.end(), own.begin(), own.end());
      groups.push_back(std::move(group));
    }
    // Neighbours of different tags may change places: a later group's buffer is then taken first.
    for (std::size_t i = 1; i < messages.size(); ++i) {
      if (messages[i].tag != messages[i - 1].tag && rng.chance(0.5)) {
        std::swap(messages[i], messages[i - 1]);
      }
    }
    match(messages, groups);
  }
};

NcclLabConfig rough(std::uint64_t seed, Rng& rng) {
  NcclLabConfig config = nccl_lab_config();
  config.seed = seed;
  config.link.reorder = 0.2;
  config.link.jitter = rng.chance(0.5) ? Duration{3us} : Duration{100us};
  // Without loss half of the time: what waits for time-outs hides what reordering alone does.
  config.link.loss = seed % 2 == 0 ? 0.02 : 0;
  config.link.duplicate = 0.01;
  return config;
}

// Posts the messages and the groups of a plan in a random interleaving over a rough network, and
// compares what arrived with the model.
void run(std::uint64_t seed) {
  SCOPED_TRACE(seed);
  Rng rng(seed);
  Plan plan(rng);
  const bool sends_first = rng.chance(0.3);
  NcclLab lab(2, rough(seed, rng));
  const auto ends = lab.connect(0, 1);
  std::vector<std::byte> out(plan.messages.size() * kSlot);
  std::vector<std::byte> in(plan.groups.size() * 8 * kSlot, std::byte{0xA5});
  nccl::CommRegion* const from = *lab.core(0).register_memory(*ends.sender, out.data(), out.size());
  nccl::CommRegion* const to = *lab.core(1).register_memory(*ends.receiver, in.data(), in.size());
  std::vector<Request*> sends(plan.messages.size());
  std::vector<Request*> receives(plan.groups.size());
  std::size_t sent = 0;
  std::size_t posted = 0;
  std::size_t over = 0;
  const auto post_send = [&] {
    const Message& message = plan.messages[sent];
    std::byte* const bytes = out.data() + sent * kSlot;
    fill_bytes({bytes, message.size}, message.seed);
    EXPECT_EQ(lab.core(0).send(*ends.sender, bytes, message.size, message.tag, from, sends[sent]),
              Outcome::ok);
    sent += sends[sent] != nullptr ? 1 : 0;
  };
  const auto post_receive = [&] {
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < plan.groups[posted].tags.size(); ++i) {
      buffers.push_back(
          {in.data() + (posted * 8 + i) * kSlot, kSlot, plan.groups[posted].tags[i], to});
    }
    EXPECT_EQ(lab.core(1).receive(*ends.receiver, buffers, false, receives[posted]), Outcome::ok);
    posted += receives[posted] != nullptr ? 1 : 0;
  };
  const auto settle = [&](std::vector<Request*>& requests, std::size_t begun) {
    for (std::size_t i = 0; i < begun; ++i) {
      if (requests[i] != nullptr && requests[i]->state.load() != Request::State::pending) {
        const auto sizes = requests[i]->sizes;
        EXPECT_EQ(ended(requests[i]), Outcome::ok);
        requests[i] = nullptr;
        ++over;
        if (&requests == &receives) {
          for (std::size_t sub = 0; sub < plan.groups[i].tags.size(); ++sub) {
            const Message* const expected = plan.groups[i].got[sub];
            ASSERT_NE(expected, nullptr);
            EXPECT_EQ(sizes[sub], expected->size);
            EXPECT_TRUE(
                has_bytes({in.data() + (i * 8 + sub) * kSlot, expected->size}, expected->seed));
          }
        }
      }
    }
  };
  EXPECT_TRUE(lab.run_until([&] {
    if (sent < sends.size() && rng.chance(sends_first ? 0.9 : 0.5)) {
      post_send();
    }
    if (posted < receives.size() && rng.chance(sends_first ? 0.1 : 0.3)) {
      post_receive();
    }
    settle(sends, sent);
    settle(receives, posted);
    return over == sends.size() + receives.size();
  })) << sent
      << " of " << sends.size() << " sent, " << posted << " of " << receives.size();
}

// The first that differs is enough.
TEST(NcclMatching, AgreesWithTheModelWhateverTheOrder) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    run(seed);
    if (HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace weft::testing
